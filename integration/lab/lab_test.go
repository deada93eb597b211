package lab

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestPairCarriesBothFamilies(t *testing.T) {
	net := Pair(t)
	for _, addr := range []netip.Addr{PeerV4, PeerV6, AltV4} {
		to := netip.AddrPortFrom(addr, 8080)
		l := net.Peer.Listen(t, to)
		go greet(l)
		conn, err := net.Pod.Dial(Owner{UID: 1000, GID: 1000}, netip.AddrPort{}, to, time.Second)
		if err != nil {
			t.Fatalf("dialling %s: %v", to, err)
		}
		defer conn.Close()
		b := make([]byte, 5)
		if n, err := conn.Read(b); err != nil || string(b[:n]) != "hello" {
			t.Errorf("from %s: %q, %v", to, b[:n], err)
		}
	}
}

func greet(l net.Listener) {
	conn, err := l.Accept()
	if err != nil {
		return // the test is over
	}
	defer conn.Close()
	conn.Write([]byte("hello"))
}

func TestSocketsBelongToTheirOwner(t *testing.T) {
	net := Pair(t)
	to := netip.AddrPortFrom(PeerV4, 8080)
	net.Peer.Listen(t, to)
	net.Pod.Run(t, "nft", "table inet t { chain o { type filter hook output priority 0; meta skuid 4242 meta skgid 4343 tcp dport 8080 reject with tcp reset; }; }")
	if conn, err := net.Pod.Dial(Owner{UID: 4242, GID: 4343}, netip.AddrPort{}, to, time.Second); err == nil {
		conn.Close()
		t.Error("the owner's rule did not match")
	}
	conn, err := net.Pod.Dial(Owner{UID: 4242, GID: 1}, netip.AddrPort{}, to, time.Second)
	if err != nil {
		t.Fatalf("another group is refused: %v", err)
	}
	conn.Close()
}

func TestNamespacesGoWithAKilledTest(t *testing.T) {
	Require(t)
	if os.Getenv("LAB_HANG") != "" {
		Pair(t)
		os.Stdout.WriteString("READY\n")
		time.Sleep(time.Minute)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestNamespacesGoWithAKilledTest$")
	child.Env = append(os.Environ(), "LAB_HANG=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 6)
	if _, err := out.Read(b); err != nil {
		t.Fatal(err)
	}
	child.Process.Signal(syscall.SIGKILL)
	child.Wait()
	prefix := "mctl-" + strconv.Itoa(child.Process.Pid) + "-"
	deadline := time.Now().Add(5 * time.Second)
	for remain(t, prefix) {
		if time.Now().After(deadline) {
			t.Fatalf("namespaces %s* outlive their test", prefix)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func remain(t *testing.T, prefix string) bool {
	entries, err := os.ReadDir("/run/netns")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			return true
		}
	}
	return false
}
