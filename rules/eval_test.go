package rules

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/internal/ports"
)

// The world of these tests: a pod and a remote host beside it, and another host
// in a skipped subnet; by family.
type world struct{ pod, remote, skipped, loop netip.Addr }

func worlds() map[Family]world {
	w := func(pod, remote, skipped, loop string) world {
		return world{netip.MustParseAddr(pod), netip.MustParseAddr(remote), netip.MustParseAddr(skipped), netip.MustParseAddr(loop)}
	}
	return map[Family]world{
		IPv4: w("10.77.0.2", "10.77.0.1", "10.78.3.9", "127.0.0.2"),
		IPv6: w("fd77::2", "fd77::1", "fd78::9", "::1"),
	}
}

const (
	app   = 1000
	proxy = 2102
	udp   = 17
	icmp  = 1
	sctp  = 132
)

// TestTheDecisionTable is the contract of every backend, for both families.
func TestTheDecisionTable(t *testing.T) {
	p := build(t, func(c *Config) {
		c.SkipOutboundPorts, c.SkipInboundPorts = set("3307,8100-8199"), set("9001,9100-9199")
		subnets("10.78.0.0/16,fd78::/16")(c)
	})
	for family, w := range worlds() {
		out := func(dst netip.Addr, port uint16, uid uint32) Packet {
			return Packet{Direction: Outbound, Proto: TCP, Src: netip.AddrPortFrom(w.pod, 40000), Dst: netip.AddrPortFrom(dst, port), UID: uid, GID: uid}
		}
		in := func(src netip.Addr, port uint16) Packet {
			return Packet{Direction: Inbound, Proto: TCP, Src: netip.AddrPortFrom(src, 40000), Dst: netip.AddrPortFrom(w.pod, port)}
		}
		for _, c := range []struct {
			name   string
			packet Packet
			want   string
		}{
			{"app to remote", out(w.remote, 80, app), "redirect-outbound redirect 4140"},
			{"root to remote", out(w.remote, 80, 0), "redirect-outbound redirect 4140"},
			{"app with the proxy's number as gid", with(out(w.remote, 80, app), func(p *Packet) { p.GID = proxy }), "redirect-outbound redirect 4140"},
			{"app to a skipped port", out(w.remote, 3307, app), "skip-outbound-ports return 0"},
			{"app to the first port of a skipped range", out(w.remote, 8100, app), "skip-outbound-ports return 0"},
			{"app to the last port of a skipped range", out(w.remote, 8199, app), "skip-outbound-ports return 0"},
			{"app below a skipped range", out(w.remote, 8099, app), "redirect-outbound redirect 4140"},
			{"app above a skipped range", out(w.remote, 8200, app), "redirect-outbound redirect 4140"},
			{"app to a port skipped inbound only", out(w.remote, 9001, app), "redirect-outbound redirect 4140"},
			{"app to a skipped subnet", out(w.skipped, 80, app), fmt.Sprintf("skip-outbound-subnets%d return 0", family)},
			{"app to loopback", with(out(w.loop, 80, app), lo), "loopback return 0"},
			{"app to its own pod", with(out(w.pod, 80, app), lo), "loopback return 0"},
			{"proxy to remote", out(w.remote, 80, proxy), "proxy-uid return 0"},
			{"proxy to loopback", with(out(w.loop, 80, proxy), lo), "proxy-uid return 0"},
			{"remote to the pod", in(w.remote, 8080), "redirect-inbound redirect 4143"},
			{"remote to the control port", in(w.remote, 4190), "skip-inbound-ports return 0"},
			{"remote to the admin port", in(w.remote, 4191), "skip-inbound-ports return 0"},
			{"remote to a skipped port", in(w.remote, 9001), "skip-inbound-ports return 0"},
			{"remote inside a skipped range", in(w.remote, 9150), "skip-inbound-ports return 0"},
			{"remote to a port skipped outbound only", in(w.remote, 3307), "redirect-inbound redirect 4143"},
			{"from a skipped subnet", in(w.skipped, 8080), fmt.Sprintf("skip-inbound-subnets%d return 0", family)},
			{"remote to the outbound port", in(w.remote, 4140), "redirect-inbound redirect 4143"},
			{"UDP out", with(out(w.remote, 80, app), proto(udp)), " return 0"},
			{"ICMP in", with(in(w.remote, 8080), proto(icmp)), " return 0"},
			{"SCTP out", with(out(w.remote, 80, app), proto(sctp)), " return 0"},
			{"UDP of the proxy", with(out(w.remote, 53, proxy), proto(udp)), " return 0"},
			{"older than the rules, out", with(out(w.remote, 80, app), midway), "midway-outbound return 0"},
			{"older than the rules, in", with(in(w.remote, 8080), midway), "midway-inbound return 0"},
			{"invalid, in", with(in(w.remote, 8080), invalid), "drop-invalid drop 0"},
			{"invalid, to a skipped port", with(in(w.remote, 9001), invalid), "invalid-skip-inbound-ports return 0"},
			{"invalid, to the admin port", with(in(w.remote, 4191), invalid), "invalid-skip-inbound-ports return 0"},
			{"invalid, from a skipped port", with(in(w.remote, 40000), from(3307), invalid), "invalid-skip-outbound-ports return 0"},
			{"invalid, from a skipped subnet", with(in(w.skipped, 8080), invalid), fmt.Sprintf("invalid-skip-inbound-subnets%d return 0", family)},
			{"invalid, through loopback", with(in(w.pod, 8080), invalid, lo), "invalid-loopback return 0"},
			{"invalid UDP", with(in(w.remote, 8080), invalid, proto(udp)), " return 0"},
			{"invalid, out", with(out(w.remote, 80, app), invalid), " return 0"},
			{"no direction", Packet{Proto: TCP, Dst: netip.AddrPortFrom(w.pod, 80)}, " return 0"},
		} {
			t.Run(family.String()+", "+c.name, func(t *testing.T) {
				d := p.Eval(c.packet)
				if got := fmt.Sprintf("%s %s %d", d.Rule, d.Verdict, d.RedirectTo); got != c.want {
					t.Errorf("got %q, want %q (%s)", got, c.want, d.Why)
				}
				if d.Why == "" {
					t.Error("the decision has no reason")
				}
			})
		}
	}
}

func TestAGidIsLeftAloneOnlyWhenItIsGiven(t *testing.T) {
	gid := uint32(3000)
	pk := Packet{Direction: Outbound, Proto: TCP, Dst: netip.MustParseAddrPort("10.77.0.1:80"), UID: app, GID: gid}
	if d := build(t, nil).Eval(pk); d.Verdict != Redirect {
		t.Errorf("without a gid: %+v", d)
	}
	if d := build(t, func(c *Config) { c.ProxyGID = &gid }).Eval(pk); d.Rule != "proxy-gid" {
		t.Errorf("with the gid: %+v", d)
	}
}

func TestIncludeListsRedirectTheirPortsOnlyAndSkipsStillWin(t *testing.T) {
	p := build(t, func(c *Config) { c.OnlyInboundPorts, c.OnlyOutboundPorts = set("4567,8000-8099"), set("80,443,4568") })
	for _, c := range []struct {
		dir  Direction
		port uint16
		rule string
	}{
		{Inbound, 8000, "redirect-inbound"}, {Inbound, 8099, "redirect-inbound"}, {Inbound, 8100, ""},
		{Inbound, 80, ""}, {Inbound, 4567, "skip-inbound-ports"},
		{Outbound, 80, "redirect-outbound"}, {Outbound, 81, ""}, {Outbound, 8000, ""}, {Outbound, 4568, "skip-outbound-ports"},
	} {
		d := p.Eval(Packet{Direction: c.dir, Proto: TCP, Dst: netip.AddrPortFrom(netip.MustParseAddr("10.77.0.1"), c.port), UID: app})
		if d.Rule != c.rule {
			t.Errorf("%s to port %d: decided by %q, want %q", c.dir, c.port, d.Rule, c.rule)
		}
	}
}

func TestWithoutIPv6OnlyIPv4IsRedirectedAndJudged(t *testing.T) {
	p := build(t, func(c *Config) { c.NoIPv6 = true })
	for family, w := range worlds() {
		redirected := p.Eval(Packet{Direction: Outbound, Proto: TCP, Dst: netip.AddrPortFrom(w.remote, 80), UID: app}).Verdict == Redirect
		dropped := p.Eval(Packet{Direction: Inbound, Proto: TCP, Dst: netip.AddrPortFrom(w.pod, 80), Invalid: true}).Verdict == Drop
		if want := family == IPv4; redirected != want || dropped != want {
			t.Errorf("%s: redirected %v, invalid dropped %v", family, redirected, dropped)
		}
	}
	if diff := cmp.Diff([]Family{IPv4}, p.Families()); diff != "" {
		t.Error(diff)
	}
}

func TestAMappedAddressIsJudgedAsTheIPv4AddressItIs(t *testing.T) {
	p := build(t, subnets("10.78.0.0/16"))
	d := p.Eval(Packet{Direction: Outbound, Proto: TCP, Dst: netip.MustParseAddrPort("[::ffff:10.78.0.1]:80"), UID: app})
	if d.Rule != "skip-outbound-subnets4" {
		t.Errorf("decided by %q", d.Rule)
	}
}

// TestAListLongerThanOneMatchHoldsIsOneRule: iptables takes 15 ports in one
// match, a range counting two. The plan knows of no such limit.
func TestAListLongerThanOneMatchHoldsIsOneRule(t *testing.T) {
	list := set("6001,6003,6005,6007,6009,6011,6013,6015,6017,6019,6021,6023,7000-7010,7020-7030,7040-7050,26,588,5433,6380,11212")
	p := build(t, func(c *Config) { c.SkipInboundPorts, c.SkipOutboundPorts = list, list })
	if n := len(p.Rules(HookOutbound)); n != 5 {
		t.Errorf("%d outbound rules", n)
	}
	for port := 1; port <= 65535; port++ {
		for _, dir := range []Direction{Inbound, Outbound} {
			d := p.Eval(Packet{Direction: dir, Proto: TCP, Dst: netip.AddrPortFrom(netip.MustParseAddr("fd77::1"), uint16(port)), UID: app})
			want := list.Contains(uint16(port)) || dir == Inbound && ports.Of(4190, 4191).Contains(uint16(port))
			if (d.Verdict == Return) != want {
				t.Fatalf("%s to port %d: %+v", dir, port, d)
			}
		}
	}
}

func with(p Packet, changes ...func(*Packet)) Packet {
	for _, change := range changes {
		change(&p)
	}
	return p
}

func lo(p *Packet)      { p.Loopback = true }
func midway(p *Packet)  { p.Midway = true }
func invalid(p *Packet) { p.Invalid = true }

func proto(n uint8) func(*Packet) { return func(p *Packet) { p.Proto = n } }

func from(port uint16) func(*Packet) {
	return func(p *Packet) { p.Src = netip.AddrPortFrom(p.Src.Addr(), port) }
}
