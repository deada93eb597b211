// Package kubenode starts a whole Kubernetes of one node for tests: etcd, the API
// server, the controller manager, the scheduler, containerd, the kubelet and kube-proxy
// with nftables, all of them real. They live in network, mount and process namespaces
// of their own:
//
//	node0 10.90.0.1/24, and 198.51.100.10, an address outside of the cluster
//	cni0  10.244.0.1/24 <-- veth --> each pod
//
// The first process of the process namespace does nothing; when it ends, and it ends
// with the test, also when that is killed, the kernel ends all others. What they wrote
// is on file systems that go with the mount namespace, but for logs and settings below
// one folder, and control groups: a shell removes those.
package kubenode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/child"
	"github.com/meshctl/meshctl/integration/lab"
)

// The node's name and addresses.
const (
	Name    = "node1"
	Addr    = "10.90.0.1"
	Outside = "198.51.100.10" // not of the cluster, reached by pods through the node
	DNS     = "10.96.0.10"

	services = "10.96.0.0/16"
	pods     = "10.244.0.0/24"
	pause    = "localhost/pause:1"
)

// Env is the environment variable with which these tests run; they are skipped
// without it, because they take minutes.
const Env = "MESHCTL_KUBENODE"

var (
	kubernetes = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl"}
	installed  = []string{"containerd", "ctr", "runc", "podman", "setcap", "nsenter", "ip", "nft", "catatonit"}
)

// Node is a running cluster of one node.
type Node struct {
	Dir string // logs, settings; any program of the node may read it

	bin    string
	token  string // the administrator's
	cgroup string
	holder *child.Process
	daemon map[string]*child.Process
	ready  bool // Start is over: what fails now is not the node
}

// Require skips the test unless Env is set; then whatever is missing is a failure.
func Require(t testing.TB) (bin string) {
	t.Helper()
	if os.Getenv(Env) == "" {
		t.Skipf("needs a whole Kubernetes: make kube-e2e runs it")
	}
	lab.Require(t)
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	bin = filepath.Join(cache, "meshctl", "kube", "bin")
	for _, name := range kubernetes {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			t.Fatalf("no %s in %s: make kube-e2e builds it", name, bin)
		}
	}
	for _, name := range installed {
		if _, err := exec.LookPath(name); err != nil {
			t.Fatalf("%v: make kube-e2e installs it", err)
		}
	}
	return bin
}

// Start starts everything and waits until the node is ready. Images are files that
// podman saved; one of them has to be that of `pause`.
func Start(t testing.TB, dir string, images ...string) *Node {
	t.Helper()
	n := &Node{Dir: dir, bin: Require(t), cgroup: fmt.Sprintf("mctl-kube-%d", os.Getpid()), daemon: map[string]*child.Process{}}
	n.settings(t)
	n.sweepAtEnd(t)
	n.hold(t)
	n.groups(t)
	n.controlPlane(t)
	n.node(t, images)
	n.until(t, "the node is ready", 2*time.Minute, func() error {
		out, err := n.TryKubectl("get", "node", Name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		if err == nil && out != "True" {
			err = fmt.Errorf("the node's Ready is %q", out)
		}
		return err
	})
	n.ready = true
	return n
}

// hold makes the namespaces. What the programs write to customary places goes to file
// systems that only they see, and so do the settings of the kernel that the kubelet
// wants: the machine's own stay as they are.
func (n *Node) hold(t testing.TB) {
	t.Helper()
	script := `set -e
mount --make-rprivate /
mount -t proc proc /proc
for d in /run /var/lib /var/log; do mount -t tmpfs tmpfs $d; done
mkdir -p /run/netns /run/lock
mount --make-rshared /
mkdir -p "$1/sysctl"
for kv in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1; do
	f=$1/sysctl/$(echo ${kv%=*} | tr / _)
	echo ${kv#*=} >$f
	mount --bind $f /proc/sys/${kv%=*}
done
ip link set lo up
ip link add node0 type veth peer name node0p
ip link set node0p up
ip addr add ` + Addr + `/24 dev node0
ip addr add ` + Outside + `/32 dev node0
ip link set node0 up
ip route add default dev node0
echo 1 >/proc/sys/net/ipv4/ip_forward
touch "$1/held"
exec catatonit -P`
	n.holder = child.Start(t, n.log("holder"), &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET},
		"/bin/sh", "-c", script, "hold", n.Dir)
	t.Cleanup(n.holder.Kill)
	n.until(t, "the namespaces", time.Minute, func() error {
		if n.holder.Ended() {
			t.Fatalf("the namespaces cannot be made:\n%s", n.tail("holder"))
		}
		_, err := os.Stat(filepath.Join(n.Dir, "held"))
		return err
	})
}

// groups makes the control groups that the kubelet is to begin at.
func (n *Node) groups(t testing.TB) {
	t.Helper()
	pattern := "/sys/fs/cgroup/*/cgroup.procs" // version 1: a hierarchy each
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		pattern = "/sys/fs/cgroup/cgroup.procs"
	}
	all, err := filepath.Glob(pattern)
	if err != nil || len(all) == 0 {
		t.Fatalf("no control groups below /sys/fs/cgroup: %v", err)
	}
	for _, procs := range all {
		dir := filepath.Join(filepath.Dir(procs), n.cgroup)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		// A new group of cpuset (version 1) has neither CPUs nor memory (cpuset(7)).
		if filepath.Base(filepath.Dir(procs)) == "cpuset" {
			for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
				b, err := os.ReadFile(filepath.Join(filepath.Dir(procs), name))
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, name), b, 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		// Pods have a node to themselves, as a rule; here all of them together weigh as
		// much as one process of the machine unless somebody says otherwise.
		for name, weight := range map[string]string{"cpu.shares": "16384", "cpu.weight": "1000"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				continue // another version, another controller
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(weight), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// sweepAtEnd leaves a shell that removes the folder and the control groups when the
// test ends, also when it is killed.
func (n *Node) sweepAtEnd(t testing.TB) {
	t.Helper()
	script := `read x
left=150
for g in /sys/fs/cgroup/"$1" /sys/fs/cgroup/*/"$1"; do
	while [ -d "$g" ] && ! find "$g" -depth -type d -exec rmdir {} \; 2>/dev/null || [ -d "$g" ]; do
		[ $((left -= 1)) -gt 0 ] || exit 1
		sleep 0.2
	done
done
rm -rf "$2"`
	sweeper := exec.Command("/bin/sh", "-c", script, "sweep", n.cgroup, n.Dir)
	sweeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := sweeper.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := sweeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close() //nolint:errcheck // it ends by that
		if err := sweeper.Wait(); err != nil {
			t.Errorf("control groups or files are left: %v", err)
		}
	})
}

func (n *Node) log(name string) string { return filepath.Join(n.Dir, name+".log") }

func (n *Node) tail(name string) string {
	b, err := os.ReadFile(n.log(name))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-25):], "\n")
}

// until asks again and again until what there is to wait for is there.
func (n *Node) until(t testing.TB, what string, within time.Duration, try func() error) {
	t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(200 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		for name, d := range n.daemon {
			if d.Ended() {
				t.Fatalf("%s: %s has ended:\n%s", what, name, n.tail(name))
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v: %v", what, within, err)
		}
	}
}

// Command is a program that runs on the node: in its network, and with its files.
func (n *Node) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{fmt.Sprintf("--target=%d", n.holder.PID()), "--mount", "--net", "--", name}, args...)...)
	cmd.Env = append(lab.Environ(), "HOME="+n.Dir)
	return cmd
}

// Try runs a program on the node for two minutes at most, and returns its standard
// output; the error has what it said on standard error.
func (n *Node) Try(stdin, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := n.Command(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(string(out)), errors.Join(err, ctx.Err())
}
