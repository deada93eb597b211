package nftables

import (
	"bytes"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/internal/subnet"
	"github.com/meshctl/meshctl/rules"
)

// TestTheKernelGetsTheSameRulesFromTextAndFromObjects writes each plan twice,
// by nft(8) and by netlink, and lets nft(8) read both back.
func TestTheKernelGetsTheSameRulesFromTextAndFromObjects(t *testing.T) {
	for name, change := range plans() {
		t.Run(name, func(t *testing.T) {
			inNewNamespace(t)
			p := build(t, change)
			feed(t, Text(p))
			text := list(t)
			feed(t, RemoveText())
			if left := list(t); left != "" {
				t.Fatalf("left after removal:\n%s", left)
			}
			send(t, p)
			if diff := cmp.Diff(text, list(t)); diff != "" {
				t.Errorf("text (-) and objects (+) differ:\n%s", diff)
			}
		})
	}
}

// TestTheKernelGivesBackWhatWasSent holds for both ways in: rules that a person
// fed to nft(8) from a dry run are "already in place" too.
func TestTheKernelGivesBackWhatWasSent(t *testing.T) {
	for name, change := range plans() {
		t.Run(name, func(t *testing.T) {
			inNewNamespace(t)
			p := build(t, change)
			send(t, p)
			readBack(t, Objects(p))
			feed(t, Text(p))
			readBack(t, Objects(p))
		})
	}
}

// readBack compares every set, chain and rule in the kernel with r.
func readBack(t *testing.T, r *Ruleset) {
	t.Helper()
	conn := dial(t)
	sets, err := conn.GetSets(Table())
	if err != nil || len(sets) != len(r.Sets) {
		t.Fatalf("%d sets read, %d sent: %v", len(sets), len(r.Sets), err)
	}
	for _, s := range r.Sets {
		read, err := conn.GetSetElements(s.Set)
		if err != nil || !SameElements(s.Elements, read) {
			t.Errorf("set %s: %v\nsent %v\nread %v", s.Name, err, s.Elements, read)
		}
	}
	var sent, read []string
	for _, rule := range r.Rules {
		sent = append(sent, rule.Chain.Name+"\n"+Code(rule))
	}
	for _, c := range r.Chains {
		got, err := conn.GetRules(Table(), c)
		if err != nil {
			t.Fatal(err)
		}
		for _, rule := range got {
			read = append(read, c.Name+"\n"+Code(rule))
		}
	}
	if diff := cmp.Diff(sent, read); diff != "" {
		t.Errorf("rules sent (-) and read (+):\n%s", diff)
	}
}

func TestReplacingLeavesNothingOfTheOldRules(t *testing.T) {
	inNewNamespace(t)
	feed(t, "table inet other {\n\tset skip_inbound_ports {\n\t\ttype inet_service\n\t}\n}\n")
	other := list(t)
	send(t, build(t, nil))
	once := list(t)
	send(t, build(t, plans()["subnets of both families"]))
	send(t, build(t, nil))
	if diff := cmp.Diff(once, list(t)); diff != "" {
		t.Errorf("after replacing twice (-first +last):\n%s", diff)
	}
	conn := dial(t)
	for range 2 {
		QueueRemove(conn)
		if err := conn.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(other, list(t)); diff != "" {
		t.Errorf("someone else's table changed (-before +after):\n%s", diff)
	}
}

// plans returns changes to the default configuration that need care in the
// kernel's sets: open ends, full ranges, thousands of elements.
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
			c.SkipInboundPorts, c.SkipOutboundPorts = portSet("1,65535"), portSet("1-3,65000-65535")
		},
		"all ports": func(c *rules.Config) {
			c.SkipInboundPorts, c.SkipOutboundPorts = portSet("1-65535"), portSet("1-65535")
		},
		"thousands of ports": func(c *rules.Config) { c.SkipInboundPorts, c.SkipOutboundPorts = ports.Of(odd...), ports.Of(odd...) },
		"a gid":              func(c *rules.Config) { c.ProxyGID = &gid },
		"include lists": func(c *rules.Config) {
			c.OnlyInboundPorts, c.OnlyOutboundPorts = portSet("80,8000-8099"), portSet("443")
		},
		"no IPv6":                  func(c *rules.Config) { both("10.9.0.0/16,fd09::/16")(c); c.NoIPv6 = true },
		"invalid kept":             func(c *rules.Config) { c.KeepInvalid = true },
		"subnets of both families": both("10.232.0.77/24,fd31::/64,192.0.2.7,2001:db8::7"),
		"subnets that touch":       both("10.0.0.128/25,10.0.1.0/24,10.0.2.0/25,10.9.0.0/16,fd00:0:0:1::/64,fd00:0:0:2::/64"),
		"the lowest and highest":   both("0.0.0.0/8,255.255.255.255,::/16,ffff::/16"),
		"whole families":           both("0.0.0.0/0,::/0"),
	}
}

// inNewNamespace moves the test into a network namespace of its own. The thread
// stays locked to the test and ends with it, and the namespace with the thread.
func inNewNamespace(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		if os.Getenv("MESHCTL_NETNS") == "require" {
			t.Fatalf("no network namespace: %v", err)
		}
		t.Skipf("no network namespace: %v", err)
	}
}

func dial(t *testing.T) *nftables.Conn {
	t.Helper()
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func send(t *testing.T, p rules.Plan) {
	t.Helper()
	conn := dial(t)
	if err := Objects(p).Queue(conn); err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
}

func feed(t *testing.T, script string) {
	t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v\n%s\n%s", err, out, script)
	}
}

func list(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("nft", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatalf("nft: %v\n%s", err, out)
	}
	return string(bytes.TrimSpace(out))
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

func portSet(list string) ports.Set {
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
