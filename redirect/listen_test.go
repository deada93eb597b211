package redirect

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/lab"
)

// proxyAddrs are the addresses that a proxy listens on by default.
func proxyAddrs() Addrs {
	parse := netip.MustParseAddrPort
	return Addrs{
		Inbound:  []netip.AddrPort{parse("[::]:4143")},
		Outbound: []netip.AddrPort{parse("127.0.0.1:4140"), parse("[::1]:4140")},
		Admin:    []netip.AddrPort{parse("[::]:4191")},
	}
}

func bound(t testing.TB, ns *Namespace) *Listeners {
	t.Helper()
	all, err := Listen(ns, proxyAddrs())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(all.Close)
	return all
}

func TestASecondCopyFindsThePortsTaken(t *testing.T) {
	ns := open(t, lab.Pair(t).Pod.Path())
	all := bound(t, ns)
	if got := strings.Count(all.sockets.Handover(), "="); got != 4 {
		t.Fatalf("%d listeners", got)
	}
	_, err := Listen(ns, proxyAddrs())
	if !errors.Is(err, syscall.EADDRINUSE) || ClassOf(err) != TryAgain {
		t.Errorf("a second copy: %v (%v)", err, ClassOf(err))
	}
}

func TestListenersServeIPv4WhereIPv6IsOff(t *testing.T) {
	pair := lab.Pair(t)
	pair.Pod.Run(t, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
	all := bound(t, open(t, pair.Pod.Path()))
	if got := all.sockets.Handover(); strings.Count(got, "=") != 3 {
		t.Errorf("listeners %s, want no [::1]", got)
	}
}

// Until they are open, listeners leave others' first packets alone, so that
// those come again; a reset would have ended them.
func TestAClosedGateDelaysAndRefusesNobody(t *testing.T) {
	pair := lab.Pair(t)
	all := bound(t, open(t, pair.Pod.Path()))
	for _, addr := range []netip.Addr{lab.PodV4, lab.PodV6} {
		to := netip.AddrPortFrom(addr, 4143)
		_, err := pair.Peer.Dial(lab.Owner{}, netip.AddrPort{}, to, 50*time.Millisecond)
		if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() {
			t.Errorf("%s before the gate is open: %v, want a timeout", to, err)
		}
	}
	if err := all.Open(); err != nil {
		t.Fatal(err)
	}
	for _, addr := range []netip.Addr{lab.PodV4, lab.PodV6} {
		conn, err := pair.Peer.Dial(lab.Owner{}, netip.AddrPort{}, netip.AddrPortFrom(addr, 4143), time.Second)
		if err != nil {
			t.Fatalf("after the gate is open: %v", err)
		}
		conn.Close()
	}
}

func TestProbesPassAClosedGate(t *testing.T) {
	pair := lab.Pair(t)
	pair.Pod.Run(t, "ip", "route", "add", "198.18.0.0/15", "via", lab.PeerV4.String())
	pair.Pod.Run(t, "ip", "route", "add", probePrefix6.String(), "via", lab.PeerV6.String())
	bound(t, open(t, pair.Pod.Path()))
	for from, to := range map[string]netip.Addr{"198.19.255.7": lab.PodV4, "2001:db8:6d65:7368::7": lab.PodV6} {
		client := netip.MustParseAddr(from)
		add := []string{"addr", "add", from, "dev", "lo"}
		if client.Is6() { // without duplicate detection, during which nobody may bind to it
			add = append(add, "nodad")
		}
		pair.Peer.Run(t, "ip", add...)
		conn, err := pair.Peer.Dial(lab.Owner{}, netip.AddrPortFrom(client, 0), netip.AddrPortFrom(to, 4143), time.Second)
		if err != nil {
			t.Fatalf("from %s: %v", from, err)
		}
		conn.Close()
	}
}
