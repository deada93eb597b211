package integration

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/lab"
)

// The proxy runs with nothing left to abuse, and its end is the rules' end.
func TestTheProxyRunsWithoutRightsAndTakesTheRulesWithIt(t *testing.T) {
	n := lab.Pair(t)
	p := mesh(t, n)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.proxy.PID()))
	if err != nil {
		t.Fatal(err)
	}
	status := strings.Join(strings.Fields(string(text)), " ") + " "
	for _, want := range []string{
		"Uid: " + proxyUID + " ", "Gid: " + proxyUID + " ", "Groups: NStgid", "NoNewPrivs: 1", "Seccomp: 2",
		"CapInh: 0000000000000000", "CapPrm: 0000000000000000", "CapEff: 0000000000000000", "CapBnd: 0000000000000000", "CapAmb: 0000000000000000",
	} {
		if !strings.Contains(status, want) {
			t.Errorf("no %q in %s", want, status)
		}
	}
	if !strings.Contains(nft(t, n.Pod), "table inet meshctl") {
		t.Error("no rules while the proxy runs")
	}
	p.proxy.Signal(syscall.SIGINT)
	awaitNoRules(t, n)
}

func TestAKilledProxyTakesTheRulesWithIt(t *testing.T) {
	n := lab.Pair(t)
	p := mesh(t, n)
	p.proxy.Signal(syscall.SIGKILL)
	awaitNoRules(t, n)
}

// Rules that a newer run has written stay when the older run's proxy ends.
func TestTheRulesOfANewerRunStay(t *testing.T) {
	for name, args := range map[string][]string{
		"the same flags": {"--proxy-uid", proxyUID},
		"other flags":    {"--proxy-uid", proxyUID, "--skip-outbound-ports", "9"},
	} {
		t.Run(name, func(t *testing.T) {
			n := lab.Pair(t)
			p := mesh(t, n)
			if got := rulesOnly(t, n.Pod, args...); got.code != 0 {
				t.Fatal(got.err)
			}
			before := nft(t, n.Pod)
			p.proxy.Signal(syscall.SIGKILL)
			<-p.proxy.Gone()
			time.Sleep(200 * time.Millisecond)
			if after := nft(t, n.Pod); after != before {
				t.Errorf("the older run took them out:\n%s", after)
			}
		})
	}
}

func awaitNoRules(t *testing.T, n *lab.Net) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); nft(t, n.Pod) != ""; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the rules outlive the proxy by 5 s:\n%s", nft(t, n.Pod))
		}
	}
}

func serveHello(t *testing.T, ns *lab.Namespace, at string) {
	t.Helper()
	l := ns.Listen(t, netip.MustParseAddrPort(at))
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		greetAll(l)
	}()
}

func greetAll(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go greetOne(conn)
	}
}

// greetOne answers what is no known protocol, so that a proxy passes it on at
// once.
func greetOne(conn net.Conn) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	b := make([]byte, 6)
	if _, err := io.ReadFull(conn, b); err == nil {
		conn.Write(b)
	}
}

// hello says hello and waits for the echo.
func hello(ns *lab.Namespace, at string) error {
	conn, err := ns.Dial(app, netip.AddrPort{}, netip.MustParseAddrPort(at), 5*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Write([]byte("\x01hello")); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 6))
	return err
}
