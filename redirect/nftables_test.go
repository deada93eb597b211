package redirect

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/rules"
	nft "github.com/meshctl/meshctl/rules/nftables"
)

// plan builds the plan of a changed default configuration.
func plan(t testing.TB, change func(*rules.Config)) rules.Plan {
	t.Helper()
	c := rules.DefaultConfig()
	if change != nil {
		change(&c)
	}
	p, err := rules.Build(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func portSet(t testing.TB, list string) ports.Set {
	t.Helper()
	set, err := ports.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// plans are configurations that use every kind of rule.
func plans(t testing.TB) map[string]rules.Plan {
	gid := uint32(77)
	return map[string]rules.Plan{
		"default": plan(t, nil),
		"lists": plan(t, func(c *rules.Config) {
			c.SkipOutboundPorts = portSet(t, "25,80-90,443,3306,65535")
			c.SkipInboundPorts = portSet(t, "1-3,9100")
		}),
		"everything": plan(t, func(c *rules.Config) {
			c.ProxyGID = &gid
			c.OnlyInboundPorts, c.OnlyOutboundPorts = portSet(t, "8080-8090"), portSet(t, "80,443")
			c.SkipInboundSubnets = prefixes("10.0.0.0/8", "fd00::/8", "192.0.2.1/32")
			c.SkipOutboundSubnets = prefixes("172.16.0.0/12", "2001:db8::/32")
		}),
		"IPv4 only":    plan(t, func(c *rules.Config) { c.NoIPv6 = true }),
		"keep invalid": plan(t, func(c *rules.Config) { c.KeepInvalid = true }),
		"2000 ports": plan(t, func(c *rules.Config) {
			var odd []uint16
			for p := uint16(1); p < 4000; p += 2 {
				odd = append(odd, p)
			}
			c.SkipOutboundPorts = ports.Of(odd...)
		}),
	}
}

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range list {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func TestNFTablesAppliesOnceAndThenFindsItInPlace(t *testing.T) {
	for name, p := range plans(t) {
		t.Run(name, func(t *testing.T) {
			pair := lab.Pair(t)
			b := nfTables{open(t, pair.Pod.Path())}
			mustApply(t, b, p, true)
			first := ruleset(t, pair.Pod)
			mustApply(t, b, p, false)
			if diff := cmp.Diff(first, ruleset(t, pair.Pod)); diff != "" {
				t.Errorf("the second run changed the rules (-first +second):\n%s", diff)
			}
			state := read(t, b)
			if state.Hash != p.Hash() || !state.Present {
				t.Errorf("hash %q, want %q", state.Hash, p.Hash())
			}
		})
	}
}

// Text and netlink must mean the same to nft(8).
func TestNFTablesTextAndNetlinkGiveTheSameRules(t *testing.T) {
	for name, p := range plans(t) {
		t.Run(name, func(t *testing.T) {
			pair := lab.Pair(t)
			mustApply(t, nfTables{open(t, pair.Pod.Path())}, p, true)
			byNetlink := ruleset(t, pair.Pod)
			pair.Pod.Run(t, "nft", "flush", "ruleset")
			feed(t, pair.Pod, nft.Text(p), "nft", "-f", "-")
			if diff := cmp.Diff(ruleset(t, pair.Pod), byNetlink); diff != "" {
				t.Errorf("-text +netlink:\n%s", diff)
			}
			state := read(t, nfTables{open(t, pair.Pod.Path())})
			if drift := state.Drift(p); len(drift) > 0 {
				t.Errorf("nft's own rules seem to drift: %q", drift)
			}
		})
	}
}

func TestNFTablesRepairsWhatOthersChanged(t *testing.T) {
	for tamper, want := range map[string]string{
		"delete element inet meshctl skip_outbound_ports { 4567-4568 }": "set skip_outbound_ports differs",
		"add element inet meshctl skip_outbound_ports { 80 }":           "set skip_outbound_ports differs",
		"flush chain inet meshctl outbound":                             "rule proxy-uid of chain outbound is missing",
		"add rule inet meshctl outbound tcp dport 80 accept":            "a rule of chain outbound is not ours",
		"add chain inet meshctl extra":                                  "chain extra is not ours",
		"flush table inet meshctl":                                      "rule proxy-uid of chain outbound is missing",
		"delete table inet meshctl; table inet meshctl { set skip_outbound_ports { type inet_service; flags interval; }; }": "chain outbound is missing",
		"delete table inet meshctl; add table inet meshctl":                                                                 "chain inbound is missing",
	} {
		t.Run(tamper, func(t *testing.T) {
			pair, p := lab.Pair(t), plan(t, nil)
			b := nfTables{open(t, pair.Pod.Path())}
			mustApply(t, b, p, true)
			whole := ruleset(t, pair.Pod)
			feed(t, pair.Pod, tamper+"\n", "nft", "-f", "-")
			if drift := strings.Join(read(t, b).Drift(p), "; "); !strings.Contains(drift, want) {
				t.Errorf("drift is %q, want %q", drift, want)
			}
			mustApply(t, b, p, true)
			if diff := cmp.Diff(whole, ruleset(t, pair.Pod)); diff != "" {
				t.Errorf("not repaired:\n%s", diff)
			}
		})
	}
}

func TestNFTablesHoldsTheLargestPlan(t *testing.T) {
	pair := lab.Pair(t)
	p := plan(t, func(c *rules.Config) {
		var odd []uint16
		for port := 1; port < 65536; port += 2 {
			if port != 4143 {
				odd = append(odd, uint16(port))
			}
		}
		c.SkipOutboundPorts = ports.Of(odd...)
	})
	b := nfTables{open(t, pair.Pod.Path())}
	mustApply(t, b, p, true)
	mustApply(t, b, p, false)
}

func mustApply(t testing.TB, b Backend, p rules.Plan, wantChanged bool) {
	t.Helper()
	changed, err := b.Apply(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if changed != wantChanged {
		t.Errorf("changed is %v, drift %q", changed, read(t, b).Drift(p))
	}
	if drift := read(t, b).Drift(p); len(drift) > 0 {
		t.Errorf("drift after apply: %q", drift)
	}
}

func read(t testing.TB, b Backend) State {
	t.Helper()
	state, err := b.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// ruleset is what nft(8) says of the namespace, without counters.
func ruleset(t testing.TB, ns *lab.Namespace) string {
	t.Helper()
	return ns.Run(t, "nft", "-s", "list", "ruleset")
}

// feed runs a program inside the namespace with text as its input.
func feed(t testing.TB, ns *lab.Namespace, text, name string, args ...string) {
	t.Helper()
	cmd := ns.Command(t.Context(), name, args...)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// noAddr lets the kernel choose a client's address.
var noAddr netip.AddrPort

func onPort(addr netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(addr, port) }

func netipAddr(text string) netip.Addr { return netip.MustParseAddr(text) }
