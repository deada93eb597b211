package rules

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/internal/subnet"
)

func TestThePlanHoldsTheRulesInOrder(t *testing.T) {
	gid := uint32(2103)
	for _, c := range []struct {
		name   string
		change func(*Config)
		hook   Hook
		want   string
	}{
		{"inbound by default", nil, HookInbound, "midway-inbound skip-inbound-ports redirect-inbound"},
		{"outbound by default", nil, HookOutbound, "proxy-uid loopback midway-outbound skip-outbound-ports redirect-outbound"},
		{"invalid by default", nil, HookInvalid, "tracked invalid-loopback invalid-skip-inbound-ports invalid-skip-outbound-ports drop-invalid"},
		{"invalid packets kept", func(c *Config) { c.KeepInvalid = true }, HookInvalid, ""},
		{"a gid", func(c *Config) { c.ProxyGID = &gid }, HookOutbound, "proxy-uid proxy-gid loopback midway-outbound skip-outbound-ports redirect-outbound"},
		{"an empty outbound list has no rule", func(c *Config) { c.SkipOutboundPorts = ports.Set{} }, HookOutbound, "proxy-uid loopback midway-outbound redirect-outbound"},
		{"an empty inbound list keeps the control ports", func(c *Config) { c.SkipInboundPorts = ports.Set{} }, HookInbound, "midway-inbound skip-inbound-ports redirect-inbound"},
		{"no control ports either", func(c *Config) { c.SkipInboundPorts, c.ControlPorts = ports.Set{}, ports.Set{} }, HookInbound, "midway-inbound redirect-inbound"},
		{"a subnet of each family", subnets("10.9.0.0/16,fd09::/16"), HookInbound, "midway-inbound skip-inbound-ports skip-inbound-subnets4 skip-inbound-subnets6 redirect-inbound"},
		{"a subnet of one family has no rule for the other", subnets("10.9.0.0/16"), HookOutbound, "proxy-uid loopback midway-outbound skip-outbound-ports skip-outbound-subnets4 redirect-outbound"},
		{"IPv6 subnets vanish with IPv6", func(c *Config) { subnets("fd09::/16")(c); c.NoIPv6 = true }, HookOutbound, "proxy-uid loopback midway-outbound skip-outbound-ports redirect-outbound"},
		{"skipped subnets are not judged", subnets("10.9.0.0/16"), HookInvalid, "tracked invalid-loopback invalid-skip-inbound-ports invalid-skip-outbound-ports invalid-skip-inbound-subnets4 invalid-skip-outbound-subnets4 drop-invalid"},
		{"both include lists narrow what is dropped", func(c *Config) { c.OnlyInboundPorts, c.OnlyOutboundPorts = ports.Of(80), ports.Of(81) }, HookInvalid, "tracked invalid-loopback invalid-skip-inbound-ports invalid-skip-outbound-ports drop-invalid-inbound drop-invalid-outbound"},
		{"one include list cannot", func(c *Config) { c.OnlyInboundPorts = ports.Of(80) }, HookInvalid, "tracked invalid-loopback invalid-skip-inbound-ports invalid-skip-outbound-ports drop-invalid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ids []string
			for _, r := range build(t, c.change).Rules(c.hook) {
				ids = append(ids, r.ID)
			}
			if got := strings.Join(ids, " "); got != c.want {
				t.Errorf("rules:\n got %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestControlPortsAreSkippedInboundWhateverTheListSays(t *testing.T) {
	p := build(t, func(c *Config) { c.SkipInboundPorts = ports.Of(9999) })
	for _, s := range p.PortSets() {
		if s.Name == "skip_inbound_ports" && s.Ports.String() != "4190-4191,9999" {
			t.Errorf("skip_inbound_ports = %s", s.Ports)
		}
		if s.Name == "skip_outbound_ports" && s.Ports.Contains(4190) {
			t.Error("control ports are skipped outbound")
		}
	}
}

// TestEveryRuleCanBeWritten checks what renderers rely on, over plans that
// among them hold every rule there is.
func TestEveryRuleCanBeWritten(t *testing.T) {
	for _, change := range everyKind() {
		p := build(t, change)
		seen := map[string]bool{}
		for _, c := range p.Chains() {
			for i, r := range c.Rules {
				if seen[r.ID] {
					t.Errorf("two rules are named %s", r.ID)
				}
				seen[r.ID] = true
				comment := p.Comments(c)[i]
				if len(comment) > 127 || len(r.Why) > 80 || strings.ContainsAny(comment, "\"'\\\n") {
					t.Errorf("%s: comment of %d bytes, why of %d: %s", r.ID, len(comment), len(r.Why), comment)
				}
				wantHash := ""
				if i == len(c.Rules)-1 {
					wantHash = p.Hash()
				}
				if id, hash := ParseComment(comment); id != r.ID || hash != wantHash {
					t.Errorf("ParseComment(%q) = %q, %q", comment, id, hash)
				}
				if r.Match.Proto != TCP {
					t.Errorf("%s is not about TCP alone", r.ID)
				}
				if (r.Verdict == Redirect) != (r.RedirectTo != 0) {
					t.Errorf("%s: %s to port %d", r.ID, r.Verdict, r.RedirectTo)
				}
			}
		}
	}
}

func TestCommentsOfOthersAreNotOurs(t *testing.T) {
	for _, s := range []string{"", "kubernetes service portals", ": x", "not ours: a sentence", "word"} {
		if id, hash := ParseComment(s); id != "" || hash != "" {
			t.Errorf("ParseComment(%q) = %q, %q", s, id, hash)
		}
	}
}

func TestEqualMeaningGivesTheSameHash(t *testing.T) {
	a := build(t, func(c *Config) {
		c.SkipOutboundPorts = set("1-5,6,7")
		c.SkipInboundSubnets = prefixes("10.1.0.0/17,10.1.128.0/17,fd00::/8,10.1.2.3/32")
	})
	b := build(t, func(c *Config) {
		c.SkipOutboundPorts = set("7,1-6")
		c.SkipInboundSubnets = prefixes("fd12::/8,10.1.9.9/16")
	})
	if a.Hash() != b.Hash() || !a.Equal(b) {
		t.Errorf("hashes %s and %s of plans that mean the same", a.Hash(), b.Hash())
	}
	if len(a.Hash()) != 12 {
		t.Errorf("hash %q", a.Hash())
	}
}

func TestEveryFieldChangesTheHash(t *testing.T) {
	seen := map[string]int{}
	for i, change := range everyKind() {
		h := build(t, change).Hash()
		if other, ok := seen[h]; ok {
			t.Errorf("changes %d and %d have the same hash %s", other, i, h)
		}
		seen[h] = i
	}
}

func TestAPlanDoesNotChangeWithTheConfigItCameFrom(t *testing.T) {
	gid := uint32(2103)
	c := DefaultConfig()
	c.ProxyGID, c.SkipInboundSubnets = &gid, prefixes("10.9.0.0/16")
	p, err := Build(c)
	if err != nil {
		t.Fatal(err)
	}
	before := p.Hash()
	gid, c.SkipInboundSubnets[0] = 7, netip.MustParsePrefix("10.8.0.0/16")
	*p.Config().ProxyGID = 8
	if after := p.Hash(); after != before {
		t.Error("the plan changed after it was built")
	}
}

func TestSubnetsAreReducedToTheFewestThatCoverThem(t *testing.T) {
	for list, want := range map[string]string{
		"":                                        "",
		"10.232.0.77/24":                          "10.232.0.0/24",
		"10.0.0.0/8,10.1.0.0/16":                  "10.0.0.0/8",
		"10.1.0.0/16,10.0.0.0/8":                  "10.0.0.0/8",
		"10.0.0.0/25,10.0.0.128/25":               "10.0.0.0/24",
		"10.0.0.0/26,10.0.0.64/26,10.0.0.128/25":  "10.0.0.0/24",
		"10.0.0.128/25,10.0.1.0/25":               "10.0.0.128/25,10.0.1.0/25",
		"fd31::/64,10.232.0.0/24,fd31:0:0:1::/64": "10.232.0.0/24,fd31::/63",
		"0.0.0.0/1,128.0.0.0/1":                   "0.0.0.0/0",
		"::/0,0.0.0.0/0,1.2.3.4":                  "0.0.0.0/0,::/0",
		"255.255.255.255,fe80::1":                 "255.255.255.255/32,fe80::1/128",
	} {
		var got []string
		for _, s := range covering(prefixes(list)) {
			got = append(got, s.String())
		}
		if diff := cmp.Diff(want, strings.Join(got, ",")); diff != "" {
			t.Errorf("covering(%s) (-want +got):\n%s", list, diff)
		}
	}
}

// everyKind returns changes to the default configuration; no two mean the same.
func everyKind() []func(*Config) {
	gid, gid2 := uint32(2103), uint32(2104)
	return []func(*Config){
		nil,
		func(c *Config) { c.InboundPort = 5143 },
		func(c *Config) { c.OutboundPort = 5140 },
		func(c *Config) { c.ControlPorts = ports.Of(4190) },
		func(c *Config) { c.ProxyUID = 2103 },
		func(c *Config) { c.ProxyGID = &gid },
		func(c *Config) { c.ProxyGID = &gid2 },
		func(c *Config) { c.SkipInboundPorts = ports.Of(1) },
		func(c *Config) { c.SkipOutboundPorts = ports.Of(1) },
		func(c *Config) {
			c.SkipInboundPorts, c.SkipOutboundPorts, c.ControlPorts = ports.Set{}, ports.Set{}, ports.Set{}
		},
		func(c *Config) { c.OnlyInboundPorts = ports.Of(80) },
		func(c *Config) { c.OnlyOutboundPorts = ports.Of(80) },
		func(c *Config) { c.OnlyInboundPorts, c.OnlyOutboundPorts = ports.Of(80), ports.Of(80) },
		func(c *Config) { c.SkipInboundSubnets = prefixes("10.9.0.0/16") },
		func(c *Config) { c.SkipInboundSubnets = prefixes("fd09::/16") },
		func(c *Config) { c.SkipOutboundSubnets = prefixes("10.9.0.0/16") },
		subnets("10.9.0.0/16,fd09::/16"),
		func(c *Config) { c.NoIPv6 = true },
		func(c *Config) { c.KeepInvalid = true },
	}
}

func build(t *testing.T, change func(*Config)) Plan {
	t.Helper()
	c := DefaultConfig()
	if change != nil {
		change(&c)
	}
	p, err := Build(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// subnets skips the subnets of list in both directions.
func subnets(list string) func(*Config) {
	return func(c *Config) { c.SkipInboundSubnets, c.SkipOutboundSubnets = prefixes(list), prefixes(list) }
}

func set(list string) ports.Set {
	s, err := ports.Parse(list)
	if err != nil {
		panic(err)
	}
	return s
}

func prefixes(list string) []netip.Prefix {
	s, err := subnet.Parse(list)
	if err != nil {
		panic(err)
	}
	return s
}
