package kubenode

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestKubernetes is `make kube-e2e`. What is told with say is its transcript.
func TestKubernetes(t *testing.T) {
	Require(t)
	dir, err := os.MkdirTemp("", "mctl-kube-")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	made := Images(t, dir+"/images")
	say("images built in %v; that of meshctl: %.1f MB", since(began), float64(made.Size)/1e6)
	began = time.Now()
	n := Start(t, dir, made.Files...)
	say("Kubernetes is ready after %v:\n  %s", since(began), strings.Join(append(n.Versions(), made.version(t)), "\n  "))
	c := &cluster{Node: n, made: made}
	c.names(t)
	began = time.Now()
	c.workloads(t)
	say("the controller and what is injected are ready after %v:\n%s", since(began), n.Kubectl(t, "get", "pods", "-A", "-o", "wide"))
	for _, s := range []struct {
		name string
		of   func(*testing.T, *cluster)
	}{
		{"destinations", destinations},
		{"discovery from the API", directly},
		{"beside kube-proxy", besideKubeProxy},
		{"appProtocol", appProtocol},
		{"opaque-ports of a pod", opaqueAnnotation},
		{"authorization", authorization},
		{"a Job", jobs},
		{"no native sidecar", ordinaryContainer},
		{"rolling restart", rollout},
		{"sidecar killed", crash},
		{"sandbox killed", sandbox},
		{"Pod Security", podSecurity},
		{"webhook", webhook},
		{"admission policy", admissionPolicy},
		{"controller lost", controllerLost},
		{"lint", lint},
		{"figures", figures},
	} {
		t.Run(s.name, func(t *testing.T) {
			began := time.Now()
			s.of(t, c)
			say("-- %s: %v", s.name, since(began))
		})
	}
	n.stay(t)
}

// stay keeps the cluster, for a look around, if MESHCTL_KUBENODE=stay: until the file
// that is named there exists.
func (n *Node) stay(t testing.TB) {
	if os.Getenv(Env) != "stay" {
		return
	}
	say("for a look: nsenter --target=%d --mount --net env KUBECONFIG=%s %s; to end it: touch %s", n.holder.PID(), n.Kubeconfig(), n.KubectlArgs()[0], n.file("end"))
	n.until(t, "the end", time.Hour, func() error {
		_, err := os.Stat(n.file("end"))
		return err
	})
}

// TestNothingIsLeftOfAKilledTest kills a test that has started everything.
func TestNothingIsLeftOfAKilledTest(t *testing.T) {
	Require(t)
	if dir := os.Getenv("KUBENODE_HANG"); dir != "" {
		n := Start(t, dir)
		fmt.Printf("held by %d\n", n.holder.PID())
		time.Sleep(5 * time.Minute)
	}
	dir, err := os.MkdirTemp("", "mctl-kube-")
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestNothingIsLeftOfAKilledTest$")
	child.Env = append(os.Environ(), "KUBENODE_HANG="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill() }) // it may be gone
	var holder int
	for in := bufio.NewScanner(out); holder == 0 && in.Scan(); {
		if _, err := fmt.Sscanf(in.Text(), "held by %d", &holder); err != nil {
			t.Log(in.Text())
		}
	}
	if holder == 0 {
		t.Fatal("it has started nothing")
	}
	group := fmt.Sprintf("mctl-kube-%d", child.Process.Pid)
	if left := left(dir, group, holder); len(left) < 3 {
		t.Fatalf("this test looks at nothing: %s", left)
	}
	_ = child.Process.Kill() // its end is what counts
	_ = child.Wait()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		rest := left(dir, group, holder)
		if len(rest) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("left of a killed test: %s", rest)
		}
	}
}

// left is what there is of a node: its folder, control groups, processes.
func left(dir, group string, holder int) (out []string) {
	for _, pattern := range []string{dir, "/sys/fs/cgroup/" + group, "/sys/fs/cgroup/*/" + group, fmt.Sprintf("/proc/%d", holder)} {
		names, _ := filepath.Glob(pattern) // the patterns are right
		out = append(out, names...)
	}
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range all {
		if b, err := os.ReadFile(name); err == nil && strings.Contains(string(b), dir) && !strings.Contains(string(b), "sweep") {
			out = append(out, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return out
}
