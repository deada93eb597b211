package redirect

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/internal/listen"
)

// playBecome is the process that turns into the proxy.
func playBecome() error {
	ns, err := OpenNamespace(os.Getenv("REDIRECT_TEST_NETNS"))
	if err != nil {
		return err
	}
	all, err := Listen(ns, proxyAddrs())
	if err != nil {
		return err
	}
	if err := all.Open(); err != nil {
		return err
	}
	os.Setenv(roleEnv, "proxy") // exec keeps the first of two
	return Exec(ns, Proxy{Program: os.Args[0], Args: os.Args, Env: os.Environ(), UID: 2102, GID: 2102, Listeners: all})
}

// playProxy tells what it can still do, accepts one connection on every
// listener and waits for its standard input to end.
func playProxy() error {
	for name, try := range map[string]func() error{
		"unshare":  func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
		"clone":    cloneNamespace,
		"mount":    func() error { return unix.Mount("none", "/tmp", "tmpfs", 0, "") },
		"ptrace":   func() error { return unix.PtraceAttach(os.Getppid()) },
		"packet":   func() error { _, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); return err },
		"io_uring": func() error { _, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0); return e },
	} {
		if err := try(); !errors.Is(err, unix.EPERM) {
			fmt.Printf("%s: %v\n", name, err)
		}
	}
	fmt.Println("listeners", os.Getenv(listen.Env))
	for item := range strings.SplitSeq(os.Getenv(listen.Env), ",") {
		_, number, _ := strings.Cut(item, "=")
		fd, err := strconv.Atoi(number)
		if err != nil {
			return err
		}
		if err := unix.SetNonblock(fd, false); err != nil {
			return err
		}
		go acceptOne(fd)
	}
	fmt.Println("done")
	os.Stdin.Read(make([]byte, 1))
	return nil
}

func cloneNamespace() error {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
	return cmd.Run()
}

func acceptOne(fd int) {
	conn, _, err := unix.Accept(fd)
	if err == nil {
		unix.Write(conn, []byte("x"))
		unix.Close(conn)
	}
}

// startBecome runs the whole way into the proxy and returns what it said.
func startBecome(t *testing.T, pod *lab.Namespace) (cmd *exec.Cmd, said []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, os.Args[0])
	cmd.Env = as("become", "REDIRECT_TEST_NETNS="+pod.Path())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "done" {
		said = append(said, lines.Text())
	}
	return cmd, said
}

func TestTheProxyHasNoRightsLeft(t *testing.T) {
	pair := lab.Pair(t)
	cmd, said := startBecome(t, pair.Pod)
	if len(said) != 1 || !strings.HasPrefix(said[0], "listeners inbound=") {
		t.Fatalf("the proxy says %q", said)
	}
	status := statusOf(t, cmd.Process.Pid)
	for field, want := range map[string]string{
		"Uid": "2102 2102 2102 2102", "Gid": "2102 2102 2102 2102", "Groups": "",
		"CapInh": noCaps, "CapPrm": noCaps, "CapEff": noCaps, "CapBnd": noCaps, "CapAmb": noCaps,
		"NoNewPrivs": "1", "Seccomp": "2",
	} {
		if status[field] != want {
			t.Errorf("%s is %q, want %q", field, status[field], want)
		}
	}
	if got := inodeIn(t, pair.Pod.Do); got != readlink(t, cmd.Process.Pid, "ns/net") {
		t.Error("the proxy is in another namespace")
	}
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		what := readlink(t, cmd.Process.Pid, "fd/"+e.Name())
		if strings.Contains(what, "net:[") || strings.Contains(what, "netns") {
			t.Errorf("descriptor %s is %s", e.Name(), what)
		}
	}
}

const noCaps = "0000000000000000"

func TestTheProxyGetsItsListeners(t *testing.T) {
	pair := lab.Pair(t)
	startBecome(t, pair.Pod)
	for _, to := range []string{"10.231.0.2:4143", "[fd31::2]:4191"} {
		conn, err := pair.Peer.Dial(lab.Owner{}, netip.AddrPort{}, netip.MustParseAddrPort(to), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetReadDeadline(time.Now().Add(2 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
}

func TestExecRefusesToRunTheProxyAsRoot(t *testing.T) {
	ns, err := CurrentNamespace()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if err := Exec(ns, Proxy{Program: "/bin/true", UID: 0, GID: 1}); ClassOf(err) != Usage {
		t.Errorf("uid 0: %v", err)
	}
	if err := Exec(ns, Proxy{Program: "/bin/true", UID: 1, GID: 0}); ClassOf(err) != Usage {
		t.Errorf("gid 0: %v", err)
	}
}

func statusOf(t *testing.T, pid int) map[string]string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	status := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		status[name] = strings.Join(strings.Fields(value), " ")
	}
	return status
}

func readlink(t *testing.T, pid int, name string) string {
	t.Helper()
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		t.Fatal(err)
	}
	return link
}
