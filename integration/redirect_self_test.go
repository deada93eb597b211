package integration

import (
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/lab"
)

// A pod that calls itself, by its own address, by loopback, or by a service
// address that leads back to it, is answered by its application each time, and
// no connection of the proxy comes back to the proxy for ever.
//
//	pod 10.231.0.2:8080 <-- proxy <-- 10.96.0.20:80 at the peer (translated, and
//	                                  hidden behind the peer's own address)
func TestAPodThatCallsItselfIsAnswered(t *testing.T) {
	n := lab.Pair(t)
	n.Peer.Run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	n.Peer.Run(t, "nft", `table ip service {
		chain in { type nat hook prerouting priority -100; ip daddr 10.96.0.20 tcp dport 80 dnat to 10.231.0.2:8080; };
		chain out { type nat hook postrouting priority 100; ip daddr 10.231.0.2 masquerade; };
	}`)
	for _, at := range []string{"10.231.0.2:8080", "[fd31::2]:8080", "127.0.0.1:8080"} {
		serveHello(t, n.Pod, at)
	}
	p := mesh(t, n)
	if err := hello(n.Pod, "10.231.0.2:8080"); err != nil {
		t.Fatal(err)
	}
	before := openSockets(t, p.proxy.PID())
	for _, at := range []string{"10.231.0.2:8080", "[fd31::2]:8080", "127.0.0.1:8080", "10.96.0.20:80"} {
		for i := range 20 {
			if err := hello(n.Pod, at); err != nil {
				t.Fatalf("%s, call %d: %v\n%s", at, i+1, err, p.proxy.Log())
			}
		}
	}
	deadline := time.Now().Add(5 * time.Second)
	for openSockets(t, p.proxy.PID()) > before {
		if time.Now().After(deadline) {
			t.Fatalf("%d descriptors stay open, %d before", openSockets(t, p.proxy.PID()), before)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Whoever dials the proxy's own ports is sent away and makes no loop.
func TestDiallingTheProxysOwnPortsMakesNoLoop(t *testing.T) {
	n := lab.Pair(t)
	p := mesh(t, n)
	for _, at := range []struct {
		from *lab.Namespace
		to   string
	}{
		{n.Pod, "127.0.0.1:4140"}, {n.Pod, "[::1]:4140"}, {n.Pod, "127.0.0.1:4143"}, {n.Pod, "10.231.0.2:4143"},
		{n.Peer, "10.231.0.2:4143"}, {n.Peer, "10.231.0.2:4140"}, {n.Peer, "[fd31::2]:4143"}, {n.Peer, "[fd31::2]:4140"},
	} {
		conn, err := at.from.Dial(app, netip.AddrPort{}, netip.MustParseAddrPort(at.to), 2*time.Second)
		if err != nil {
			continue // refused: as good
		}
		conn.SetDeadline(time.Now().Add(2 * time.Second))
		began := time.Now()
		if n, err := conn.Read(make([]byte, 1)); err == nil || time.Since(began) > time.Second {
			t.Errorf("%s: read %d bytes, %v after %v; want the end at once", at.to, n, err, time.Since(began))
		}
		conn.Close()
	}
	if n := openSockets(t, p.proxy.PID()); n > 40 {
		t.Errorf("%d descriptors are open", n)
	}
}

func openSockets(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
