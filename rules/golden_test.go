package rules_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/internal/subnet"
	"github.com/meshctl/meshctl/rules"
	"github.com/meshctl/meshctl/rules/iptables"
	"github.com/meshctl/meshctl/rules/nftables"
)

var update = flag.Bool("update", false, "rewrite the files of testdata/rules")

// TestGolden holds every form of a plan to the files of testdata/rules. The
// sections flags and ask are written by people, the others by "make golden".
// Where the flags are refused there is one section instead, error.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("../testdata/rules/*.txtar")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { golden(t, file) })
	}
}

func golden(t *testing.T, file string) {
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	archive := txtar.Parse(old)
	flags, ask := section(archive, "flags"), section(archive, "ask")
	want := &txtar.Archive{Comment: archive.Comment, Files: []txtar.File{{Name: "flags", Data: flags}}}
	if ask != nil {
		want.Files = append(want.Files, txtar.File{Name: "ask", Data: ask})
	}
	add := func(name, text string) {
		want.Files = append(want.Files, txtar.File{Name: name, Data: []byte(text)})
	}
	if p, warnings, err := plan(string(flags)); err != nil {
		add("error", err.Error()+"\n")
	} else {
		if len(warnings) > 0 {
			add("warnings", strings.Join(warnings, "\n")+"\n")
		}
		add("plan", asJSON(t, p))
		add("nft", nftables.Text(p))
		add("iptables", iptables.Restore(p, rules.IPv4, iptables.Found{}))
		add("ip6tables", iptables.Restore(p, rules.IPv6, iptables.Found{}))
		add("explain", answers(t, p, string(ask)))
	}
	text := txtar.Format(want)
	if *update {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(old), string(text)); diff != "" {
		t.Errorf("%s differs (-file +now); \"make golden\" rewrites it:\n%s", file, diff)
	}
}

func section(a *txtar.Archive, name string) []byte {
	for _, f := range a.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

func asJSON(t *testing.T, p rules.Plan) string {
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", "  "); err != nil {
		t.Fatal(err)
	}
	return out.String() + "\n"
}

func answers(t *testing.T, p rules.Plan, ask string) string {
	var out []string
	for line := range strings.Lines(ask) {
		pk, err := packet(strings.Fields(line))
		if err != nil {
			t.Fatalf("question %q: %v", line, err)
		}
		out = append(out, p.Explain(pk).Lines()...)
	}
	return strings.Join(out, "\n") + "\n"
}

// plan reads flags, one a line, over the default configuration.
func plan(flags string) (rules.Plan, []string, error) {
	c := rules.DefaultConfig()
	for line := range strings.Lines(flags) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if err := set(&c, name, value); err != nil {
			return rules.Plan{}, nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	p, err := rules.Build(c)
	return p, c.Warnings(), err
}

func set(c *rules.Config, flag, value string) (err error) {
	over := func(s *ports.Set) { *s, err = ports.ParseOver(value, *s) }
	number := func(bits int) uint64 {
		n, e := strconv.ParseUint(value, 10, bits)
		err = e
		return n
	}
	switch flag {
	case "--inbound-port":
		c.InboundPort = uint16(number(16))
	case "--outbound-port":
		c.OutboundPort = uint16(number(16))
	case "--control-ports":
		over(&c.ControlPorts)
	case "--proxy-uid":
		c.ProxyUID = uint32(number(32))
	case "--proxy-gid":
		gid := uint32(number(32))
		c.ProxyGID = &gid
	case "--skip-inbound-ports":
		over(&c.SkipInboundPorts)
	case "--skip-outbound-ports":
		over(&c.SkipOutboundPorts)
	case "--only-inbound-ports":
		over(&c.OnlyInboundPorts)
	case "--only-outbound-ports":
		over(&c.OnlyOutboundPorts)
	case "--skip-inbound-subnets":
		c.SkipInboundSubnets, err = subnet.Parse(value)
	case "--skip-outbound-subnets":
		c.SkipOutboundSubnets, err = subnet.Parse(value)
	case "--skip-subnets":
		c.SkipInboundSubnets, err = subnet.Parse(value)
		c.SkipOutboundSubnets = c.SkipInboundSubnets
	case "--no-ipv6":
		c.NoIPv6 = true
	case "--keep-invalid":
		c.KeepInvalid = true
	default:
		err = fmt.Errorf("no such flag")
	}
	return err
}

// packet reads a question: words about the packet and last where it goes to,
// such as "outbound uid=1000 10.77.0.1:80".
func packet(words []string) (pk rules.Packet, err error) {
	if len(words) < 2 {
		return pk, fmt.Errorf("too short")
	}
	pk.Proto = rules.TCP
	if pk.Dst, err = netip.ParseAddrPort(words[len(words)-1]); err != nil {
		return pk, err
	}
	for _, w := range words[:len(words)-1] {
		name, value, _ := strings.Cut(w, "=")
		switch name {
		case "inbound":
			pk.Direction = rules.Inbound
		case "outbound":
			pk.Direction = rules.Outbound
		case "udp":
			pk.Proto = 17
		case "lo":
			pk.Loopback = true
		case "invalid":
			pk.Invalid = true
		case "from":
			pk.Src, err = netip.ParseAddrPort(value)
		case "uid", "gid":
			var n uint64
			n, err = strconv.ParseUint(value, 10, 32)
			if name == "uid" {
				pk.UID = uint32(n)
			} else {
				pk.GID = uint32(n)
			}
		default:
			err = fmt.Errorf("unknown word %q", w)
		}
		if err != nil {
			return pk, err
		}
	}
	return pk, nil
}
