package iptables

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/internal/subnet"
	"github.com/meshctl/meshctl/rules"
)

func TestPortsAreSplitIntoMatchesOfFifteenSlots(t *testing.T) {
	for _, c := range []struct {
		name, list string
		want       []string
	}{
		{"fifteen single ports fit", "1,3,5,7,9,11,13,15,17,19,21,23,25,27,29", []string{"1,3,5,7,9,11,13,15,17,19,21,23,25,27,29"}},
		{"the sixteenth begins another", "1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31", []string{"1,3,5,7,9,11,13,15,17,19,21,23,25,27,29", "31"}},
		{"a range takes two slots", "1-2,4-5,7-8,10-11,13-14,16-17,19-20,22", []string{"1:2,4:5,7:8,10:11,13:14,16:17,19:20,22"}},
		{"and is never cut", "1-2,4-5,7-8,10-11,13-14,16-17,19-20,22-23", []string{"1:2,4:5,7:8,10:11,13:14,16:17,19:20", "22:23"}},
		{"everything is one match", "1-65535", []string{"1:65535"}},
		{"23 slots, ranges among them", "6001,6003,6005,6007,6009,6011,6013,6015,6017,6019,6021,6023,7000-7010,7020-7030,7040-7050,26,588,5433,6380,11212",
			[]string{"26,588,5433,6001,6003,6005,6007,6009,6011,6013,6015,6017,6019,6021,6023", "6380,7000:7010,7020:7030,7040:7050,11212"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, m := range multiport("--dports", rules.PortSet{Name: "x", Ports: set(c.list)}) {
				got = append(got, strings.TrimPrefix(m, " -m multiport --dports "))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("matches (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEachFamilyGetsItsOwnSubnetsOnly(t *testing.T) {
	p := build(t, plans()["subnets of both families"])
	v4, v6 := strings.Join(Lines(p, rules.IPv4), "\n"), strings.Join(Lines(p, rules.IPv6), "\n")
	for _, c := range []struct {
		text, want, not string
	}{
		{v4, "-s 10.232.0.0/24", "fd31"}, {v4, "-d 10.232.0.0/24", "fd31"},
		{v6, "-s fd31::/64", "10.232"}, {v6, "-d fd31::/64", "10.232"},
	} {
		if !strings.Contains(c.text, c.want) || strings.Contains(c.text, c.not) {
			t.Errorf("want %q and not %q in:\n%s", c.want, c.not, c.text)
		}
	}
}

func TestAFamilyLeftAloneIsCleanedAndNotWritten(t *testing.T) {
	p := build(t, plans()["no IPv6"])
	if text := Restore(p, rules.IPv6, Found{}); text != "" {
		t.Errorf("text for IPv6:\n%s", text)
	}
	old := Parse("*nat\n:MESHCTL_INBOUND - [0:0]\n-A PREROUTING -j MESHCTL_INBOUND\nCOMMIT\n")
	want := "*nat\n:MESHCTL_INBOUND - [0:0]\n-D PREROUTING -j MESHCTL_INBOUND\n-X MESHCTL_INBOUND\nCOMMIT\n"
	if diff := cmp.Diff(want, Restore(p, rules.IPv6, old)); diff != "" {
		t.Errorf("text where rules are left from before (-want +got):\n%s", diff)
	}
}

func TestCountersOfARuleAreAddedOverItsLines(t *testing.T) {
	f := Parse(`*nat
:MESHCTL_OUTBOUND - [0:0]
[7:420] -A OUTPUT -j MESHCTL_OUTBOUND
[1:60] -A MESHCTL_OUTBOUND -p tcp -m multiport --dports 1 -m comment --comment "skip-outbound-ports: x y" -j RETURN
[2:120] -A MESHCTL_OUTBOUND -p tcp -m multiport --dports 2 -m comment --comment "skip-outbound-ports: x y" -j RETURN
[4:240] -A MESHCTL_OUTBOUND -p tcp -m comment --comment "redirect-outbound: x y [plan 0123456789ab]" -j REDIRECT --to-ports 4140
[9:9] -A MESHCTL_OUTBOUND -j ACCEPT
`)
	want := []Counter{{"skip-outbound-ports", 3, 180}, {"redirect-outbound", 4, 240}}
	if diff := cmp.Diff(want, f.Counters); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
	if f.Hash() != "0123456789ab" {
		t.Errorf("hash %q", f.Hash())
	}
}

func TestAHashThatIsNotTheSameEverywhereIsNone(t *testing.T) {
	f := Found{Rules: []string{`-A X --comment "a: b [plan 111111111111]"`, `-A X --comment "a: b [plan 222222222222]"`}}
	if h := f.Hash(); h != "" {
		t.Errorf("hash %q", h)
	}
}

// FuzzParse: no listing, however broken, stops the reader, and what it finds
// can be removed by a text that names our tables only.
func FuzzParse(f *testing.F) {
	f.Add("*nat\n:MESHCTL_INBOUND - [0:0]\n[1:2] -A PREROUTING -j MESHCTL_INBOUND\n")
	f.Add("*mangle\n-N MESHCTL_INVALID\n-A MESHCTL_INVALID -m comment --comment \"a: b [plan x]\" -j DROP\n")
	f.Add("*nat\n-A -j\n[x] -A\n-A OUTPUT -m comment --comment \"\\\" -j -g MESHCTL_OUTBOUND")
	f.Fuzz(func(t *testing.T, listing string) {
		for line := range strings.Lines(Remove(Parse(listing))) {
			if strings.HasPrefix(line, "*") && line != "*nat\n" && line != "*mangle\n" {
				t.Errorf("table %q", line)
			}
		}
	})
}

func plans() map[string]func(*rules.Config) {
	gid := uint32(2103)
	var odd []uint16
	for p := uint16(1); p < 4100; p += 2 {
		odd = append(odd, p)
	}
	both := func(list string) func(*rules.Config) {
		return func(c *rules.Config) { c.SkipInboundSubnets, c.SkipOutboundSubnets = prefixes(list), prefixes(list) }
	}
	return map[string]func(*rules.Config){
		"default": nil,
		"nothing skipped": func(c *rules.Config) {
			c.SkipInboundPorts, c.SkipOutboundPorts, c.ControlPorts = ports.Set{}, ports.Set{}, ports.Set{}
		},
		"the edges": func(c *rules.Config) {
			c.SkipInboundPorts, c.SkipOutboundPorts = set("1,65535"), set("1-3,65000-65535")
		},
		"all ports":                func(c *rules.Config) { c.SkipInboundPorts, c.SkipOutboundPorts = set("1-65535"), set("1-65535") },
		"many ports":               func(c *rules.Config) { c.SkipInboundPorts, c.SkipOutboundPorts = ports.Of(odd...), ports.Of(odd...) },
		"a gid":                    func(c *rules.Config) { c.ProxyGID = &gid },
		"include lists":            func(c *rules.Config) { c.OnlyInboundPorts, c.OnlyOutboundPorts = ports.Of(odd...), set("443") },
		"no IPv6":                  func(c *rules.Config) { both("10.9.0.0/16,fd09::/16")(c); c.NoIPv6 = true },
		"invalid kept":             func(c *rules.Config) { c.KeepInvalid = true },
		"subnets of both families": both("10.232.0.77/24,fd31::/64,192.0.2.7,2001:db8::7"),
		"whole families":           both("0.0.0.0/0,::/0"),
	}
}

func build(t *testing.T, change func(*rules.Config)) rules.Plan {
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
