package kubenode

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/built"
)

// container is the id of a pod's container, an init container or not.
func (c *cluster) container(t testing.TB, namespace, pod, name string) string {
	t.Helper()
	for _, list := range []string{"initContainerStatuses", "containerStatuses"} {
		id := c.value(t, namespace, "pod/"+pod, `{.status.`+list+`[?(@.name=="`+name+`")].containerID}`)
		if id != "" {
			return strings.TrimPrefix(id, "containerd://")
		}
	}
	t.Fatalf("pod %s/%s has no container %s", namespace, pod, name)
	return ""
}

// pids are the processes of a container, as this test sees them.
func (c *cluster) pids(t testing.TB, container string) (out []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		b, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(b), container) {
			continue // it has ended since, or is another's
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			out = append(out, pid)
		}
	}
	if len(out) == 0 {
		t.Fatalf("container %s has no process", container)
	}
	return out
}

// rules are the names of the tables of a pod's network.
func (c *cluster) rules(t testing.TB, namespace, pod, container string) string {
	t.Helper()
	pid := c.pids(t, c.container(t, namespace, pod, container))[0]
	out, err := exec.Command("nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", pid), "nft", "list", "tables").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.Join(strings.Split(strings.TrimSpace(string(out)), "\n"), ", ")
}

// took is how long a container ran, by containerd's events: from the moment its
// process was made, or let go, to its exit.
func (c *cluster) took(t testing.TB, container string) (made, started time.Duration) {
	t.Helper()
	b, err := os.ReadFile(c.log("events"))
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]time.Time{}
	for line := range strings.Lines(string(b)) {
		if !strings.Contains(line, `"container_id":"`+container) {
			continue
		}
		text, event, _ := strings.Cut(line, " k8s.io ")
		topic, object, _ := strings.Cut(event, " ")
		at[topic], err = time.Parse("2006-01-02 15:04:05.999999999 -0700 MST", text)
		if err != nil {
			t.Fatal(err)
		}
		if topic == "/tasks/exit" {
			var e struct {
				At time.Time `json:"exited_at"`
			}
			if err := json.Unmarshal([]byte(object), &e); err != nil {
				t.Fatal(err)
			}
			at[topic] = e.At
		}
	}
	return at["/tasks/exit"].Sub(at["/tasks/create"]), at["/tasks/exit"].Sub(at["/tasks/start"])
}

// resident is the memory of a pod's proxy: in KiB, and in words. What is not its own are
// pages of the program, which all proxies of a node share.
func (c *cluster) resident(t testing.TB, pod string) (kib int, text string) {
	t.Helper()
	pid := c.pids(t, c.container(t, "shop", pod, "linkerd-proxy"))[0]
	kib = built.RSS(t, pid)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, anonymous, _ := strings.Cut(string(b), "RssAnon:")
	var own int
	if _, err := fmt.Sscan(anonymous, &own); err != nil {
		t.Fatal(err)
	}
	return kib, fmt.Sprintf("%.1f MB resident, %.1f of them its own", float64(kib)/1024, float64(own)/1024)
}

// figures are those that the transcript ends with.
func figures(t *testing.T, c *cluster) {
	var made, started []time.Duration
	for i := range 5 {
		name := fmt.Sprintf("small-%d", i)
		// Without a request for CPU the container has next to no share of a busy machine.
		asks := "name: " + name + `, annotations: {config.linkerd.io/proxy-cpu-request: 50m}`
		c.Apply(t, c.inject(t, strings.ReplaceAll(plain, "name: plain", asks)))
		c.wait(t, "shop", "condition=Ready", "pod/"+name)
		m, s := c.took(t, c.container(t, "shop", name, "linkerd-init"))
		made, started = append(made, m), append(started, s)
	}
	slices.Sort(made)
	slices.Sort(started)
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	say("%d CPUs, load %s", runtime.NumCPU(), strings.TrimSpace(string(load)))
	say("init container, five pods one after another, 50m of CPU requested: from its start to its exit %v (median %v); with runc's own start %v (median %v)",
		started[0].Round(100*time.Microsecond), started[2].Round(100*time.Microsecond), made[0].Round(100*time.Microsecond), made[2].Round(100*time.Microsecond))
	if made[2] > 2*time.Second {
		t.Errorf("an init container takes %v", made[2])
	}
	for _, s := range []struct {
		pod, what string
		limit     int // KiB
	}{
		{"small-0", "idle, without discovery", 15 << 10},
		{"late", "with mTLS and a control plane, hardly used", 0},
		{"reads", "that reads the API itself (a small cluster)", 0},
		{c.value(t, "shop", "pods", `{.items[?(@.metadata.labels.app=="client")].metadata.name}`), "with mTLS and a control plane, after all of this", 0},
	} {
		kib, text := c.resident(t, s.pod)
		say("sidecar %s: %s", s.what, text)
		if s.limit != 0 && kib > s.limit {
			t.Errorf("the sidecar has %d KiB, more than %d", kib, s.limit)
		}
	}
	if _, err := c.get("shop/small-0", "http://127.0.0.1:4191/metrics"); err != nil {
		t.Error(err)
	}
	_, text := c.resident(t, "small-0")
	say("sidecar idle, without discovery, after /metrics: %s", text)
	say("image: %.1f MB\n%s", float64(c.made.Size)/1e6, c.Kubectl(t, "get", "pods", "-A", "-o", "wide"))
}
