package redirect

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/internal/listen"
	"github.com/meshctl/meshctl/rules"
)

func verify(t testing.TB, ns *Namespace, p rules.Plan, l *Listeners) Report {
	t.Helper()
	v, err := NewVerifier(t.Context(), ns)
	if err != nil {
		t.Fatal(err)
	}
	report := v.Verify(t.Context(), p, l)
	if err := v.Close(); err != nil {
		t.Error(err)
	}
	return report
}

// outcomes are the checks without their details.
func outcomes(r Report) map[string]string {
	out := map[string]string{}
	for _, c := range r {
		out[c.Name] = c.Outcome.String()
	}
	return out
}

func TestVerifyProvesEveryBackend(t *testing.T) {
	everyBackend(t, func(t *testing.T, pair *lab.Net, b Backend) {
		ns := open(t, pair.Pod.Path())
		l := bound(t, ns)
		mustApply(t, b, plan(t, nil), true)
		before := pair.Pod.Run(t, "ip", "addr")
		began := time.Now()
		report := verify(t, ns, plan(t, nil), l)
		t.Logf("took %v", time.Since(began))
		for _, c := range report {
			if c.Outcome != Passed {
				t.Errorf("%s: %s: %s", c.Name, c.Outcome, c.Detail)
			}
		}
		if len(report) != 10 {
			t.Errorf("%d checks", len(report))
		}
		if diff := cmp.Diff(before, pair.Pod.Run(t, "ip", "addr")); diff != "" {
			t.Errorf("left behind:\n%s", diff)
		}
	})
}

func TestVerifyFindsWhatIsNotSo(t *testing.T) {
	for name, c := range map[string]struct {
		nft  string // what somebody does after us
		want []string
	}{
		"no rules at all": {"delete table inet meshctl", []string{
			"outbound IPv4 is redirected", "inbound IPv4 is redirected", "outbound IPv6 is redirected", "inbound IPv6 is redirected"}},
		"IPv6 goes around": {"insert rule inet meshctl outbound meta nfproto ipv6 return", []string{"outbound IPv6 is redirected"}},
		"the skip list is gone": {"flush set inet meshctl skip_outbound_ports", []string{
			"a skipped outbound port stays direct, IPv4", "a skipped outbound port stays direct, IPv6"}},
		"another user is let go": {"insert rule inet meshctl outbound meta skuid 0 return", []string{
			"outbound IPv4 is redirected", "outbound IPv6 is redirected"}},
		"another port": {"insert rule inet meshctl inbound meta l4proto tcp redirect to :9", []string{
			"inbound IPv4 is redirected", "inbound IPv6 is redirected",
			"a skipped inbound port stays direct, IPv4", "a skipped inbound port stays direct, IPv6"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pair := lab.Pair(t)
			ns := open(t, pair.Pod.Path())
			l := bound(t, ns)
			mustApply(t, nfTables{ns}, plan(t, nil), true)
			feed(t, pair.Pod, c.nft+"\n", "nft", "-f", "-")
			got := map[string]bool{}
			for _, f := range verify(t, ns, plan(t, nil), l).Failures() {
				got[f.Name] = true
			}
			want := map[string]bool{}
			for _, name := range c.want {
				want[name] = true
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("failures (-want +got):\n%s", diff)
			}
		})
	}
}

func TestVerifySaysWhatItCannotTry(t *testing.T) {
	pair := lab.Pair(t)
	pair.Pod.Run(t, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
	pair.Pod.Run(t, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
	ns := open(t, pair.Pod.Path())
	l := bound(t, ns)
	p := plan(t, func(c *rules.Config) { c.SkipOutboundPorts = portSet(t, "") })
	mustApply(t, nfTables{ns}, p, true)
	got := outcomes(verify(t, ns, p, l))
	for name, want := range map[string]string{
		"outbound IPv4 is redirected":                "ok",
		"outbound IPv6 is redirected":                "not probed",
		"a skipped outbound port stays direct, IPv4": "not probed",
	} {
		if got[name] != want {
			t.Errorf("%s: %s, want %s", name, got[name], want)
		}
	}
}

// Beside a proxy that runs already nothing can be accepted; the connections
// have to come out behind it.
func TestVerifyBesideARunningProxy(t *testing.T) {
	pair := lab.Pair(t)
	ns := open(t, pair.Pod.Path())
	mustApply(t, nfTables{ns}, plan(t, nil), true)
	failures := verify(t, ns, plan(t, nil), nil).Failures()
	if len(failures) != 4 || !strings.Contains(failures[0].Detail, "no proxy listens") {
		t.Errorf("%v where no proxy listens", failures)
	}
	l := bound(t, ns)
	if err := l.Open(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{listen.Inbound, listen.Outbound} {
		for _, fd := range l.sockets[name] {
			relayFrom(t, pair.Pod, fd)
		}
	}
	for _, c := range verify(t, ns, plan(t, nil), nil) {
		if c.Outcome != Passed {
			t.Errorf("%s: %s: %s", c.Name, c.Outcome, c.Detail)
		}
	}
}

// relayFrom serves a listener as a proxy does: to the original destination, as
// the proxy's user.
func relayFrom(t *testing.T, pod *lab.Namespace, fd int) {
	t.Helper()
	own, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(own), "listener")
	defer file.Close()
	l, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			relayOne(pod, conn.(*net.TCPConn))
		}
	}()
}

func relayOne(pod *lab.Namespace, client *net.TCPConn) {
	defer client.Close()
	var to netip.AddrPort
	raw, err := client.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) { to, err = originalDst(int(fd), unmapped(client.LocalAddr()).Addr().Is6()) })
	if err != nil {
		return
	}
	server, err := pod.Dial(lab.Owner{UID: 2102, GID: 2102}, netip.AddrPort{}, to, time.Second)
	if err != nil {
		return
	}
	defer server.Close()
	line, err := bufio.NewReader(client).ReadString('\n')
	if err == nil {
		fmt.Fprint(server, line)
		io.Copy(client, server)
	}
}

// Without the right to make a namespace there is no peer; what can be tried
// without one is tried, and the rest is named.
func TestVerifyWithoutAPeerTriesOutbound(t *testing.T) {
	pair := lab.Pair(t)
	ns := open(t, pair.Pod.Path())
	l := bound(t, ns)
	mustApply(t, nfTables{ns}, plan(t, nil), true)
	s := &scratch{under: ns, link: "mctlvtest", noPeer: unix.EPERM}
	s.choose()
	if err := s.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	v := verification{scratch: s, plan: plan(t, nil), listeners: l, ctx: t.Context()}
	v.family(false)
	v.family(true)
	got := outcomes(v.report)
	for name, outcome := range got {
		want := "not probed"
		if strings.HasPrefix(name, "outbound") {
			want = "ok"
		}
		if outcome != want {
			t.Errorf("%s: %s, want %s", name, outcome, want)
		}
	}
}
