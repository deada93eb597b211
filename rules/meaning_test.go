package rules_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/rules"
	"github.com/meshctl/meshctl/rules/iptables"
	"github.com/meshctl/meshctl/rules/nftables"
)

// FuzzMeaning reads the rendered texts the way the kernel would, word by word,
// and holds their decision on random packets to that of Plan.Eval. The seed
// draws the configuration and the packets.
func FuzzMeaning(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		c := drawConfig(rnd)
		p, err := rules.Build(c)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		nft := readNft(nftables.Text(p))
		tables := map[rules.Family]machine{}
		for _, fam := range []rules.Family{rules.IPv4, rules.IPv6} {
			tables[fam] = readIptables(iptables.Restore(p, fam, iptables.Found{}))
		}
		for range 60 {
			pk := drawPacket(rnd, c)
			want := p.Eval(pk)
			fam := rules.IPv4
			if pk.Dst.Addr().Is6() {
				fam = rules.IPv6
			}
			for form, m := range map[string]machine{"nft": nft, "iptables": tables[fam]} {
				if got := m.decide(t, pk); got != outcome(want) {
					t.Fatalf("seed %d, %s of %+v\n%s says %q, Eval %q (%s)", seed, form, c, pk, got, outcome(want), want.Rule)
				}
			}
		}
	})
}

func outcome(d rules.Decision) string {
	switch d.Verdict {
	case rules.Redirect:
		return fmt.Sprintf("redirect %d", d.RedirectTo)
	case rules.Drop:
		return "drop"
	default:
		return "untouched"
	}
}

// machine is a rendered text as a table of lines; a line is its words.
type machine struct {
	chains map[string][][]string
	sets   map[string][]string // nft: the elements
	ask    func(m machine, words []string, pk rules.Packet) (matched bool, verdict string)
}

// decide runs a packet through the chain it meets.
func (m machine) decide(t *testing.T, pk rules.Packet) string {
	chain := pk.Direction.String()
	if pk.Invalid {
		if pk.Direction == rules.Outbound {
			return "untouched" // NAT does not look at it
		}
		chain = "invalid"
	}
	for _, line := range m.chains[chain] {
		matched, verdict := m.ask(m, line, pk)
		if verdict == "" {
			t.Fatalf("line without a verdict: %q", line)
		}
		if matched && verdict == "return" {
			return "untouched"
		}
		if matched {
			return verdict
		}
	}
	return "untouched"
}

func readNft(text string) machine {
	m := machine{chains: map[string][][]string{}, sets: map[string][]string{}, ask: askNft}
	chain, set := "", ""
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, " comment ")
		words := strings.Fields(strings.ReplaceAll(line, ",", " "))
		switch {
		case len(words) == 0 || words[0] == "type" || words[0] == "flags":
		case words[0] == "set":
			set = words[1]
		case words[0] == "elements":
			m.sets[set] = words[3 : len(words)-1]
		case words[0] == "chain":
			chain = words[1]
		case slices.Contains(words, "counter"):
			m.chains[chain] = append(m.chains[chain], words)
		}
	}
	return m
}

func askNft(m machine, words []string, pk rules.Packet) (matched bool, verdict string) {
	matched = true
	for i := 0; i < len(words); {
		next := func(n int) []string { i += n; return words[i-n : i] }
		ok := true
		switch words[i] {
		case "counter":
			next(1)
		case "return", "drop":
			verdict = next(1)[0]
		case "redirect":
			verdict = "redirect " + strings.TrimPrefix(next(3)[2], ":")
		case "iifname", "oifname":
			ok = next(2)[1] == `"lo"` && pk.Loopback
		case "ct":
			w := next(3)
			if w[2] == "!=" {
				next(1)
				ok = !pk.Invalid
			} else {
				ok = pk.Invalid
			}
		case "meta":
			w := next(3)
			ok = slices.Contains([]string{
				"nfproto " + map[bool]string{true: "ipv4", false: "ipv6"}[pk.Dst.Addr().Is4()],
				"l4proto " + map[uint8]string{6: "tcp", 17: "udp"}[pk.Proto],
				fmt.Sprintf("skuid %d", pk.UID), fmt.Sprintf("skgid %d", pk.GID),
			}, w[1]+" "+w[2])
		case "tcp", "ip", "ip6":
			if words[i+1] == "flags" {
				ok = strings.Join(next(12), " ") == "tcp flags & (fin | syn | rst | ack) != syn" && pk.Proto == rules.TCP && pk.Midway
				break
			}
			w := next(3)
			ok = header(w[0], pk) && holds(m.sets[w[2][1:]], field(w[1], pk))
		default:
			return false, ""
		}
		matched = matched && ok
	}
	return matched, verdict
}

// header reports whether the packet has that header.
func header(name string, pk rules.Packet) bool {
	switch name {
	case "tcp":
		return pk.Proto == rules.TCP
	case "ip":
		return pk.Dst.Addr().Is4()
	default:
		return pk.Dst.Addr().Is6()
	}
}

// field returns a port or an address of the packet as text.
func field(name string, pk rules.Packet) string {
	switch name {
	case "sport":
		return strconv.Itoa(int(pk.Src.Port()))
	case "dport":
		return strconv.Itoa(int(pk.Dst.Port()))
	case "saddr":
		return pk.Src.Addr().String()
	default:
		return pk.Dst.Addr().String()
	}
}

// holds reports whether one of the elements, ports, addresses, ranges or
// subnets, holds v.
func holds(elements []string, v string) bool {
	for _, e := range elements {
		if subnet, err := netip.ParsePrefix(e); err == nil {
			if subnet.Contains(netip.MustParseAddr(v)) {
				return true
			}
			continue
		}
		lo, hi, isRange := strings.Cut(strings.Replace(e, ":", "-", map[bool]int{true: 1}[!strings.Contains(e, "::")]), "-")
		if !isRange {
			hi = lo
		}
		if a, err := netip.ParseAddr(lo); err == nil {
			addr := netip.MustParseAddr(v)
			if a.Compare(addr) <= 0 && addr.Compare(netip.MustParseAddr(hi)) <= 0 {
				return true
			}
			continue
		}
		n, _ := strconv.Atoi(v)
		from, _ := strconv.Atoi(lo)
		to, _ := strconv.Atoi(hi)
		if from <= n && n <= to {
			return true
		}
	}
	return false
}

func readIptables(text string) machine {
	m := machine{chains: map[string][][]string{}, ask: askIptables}
	for line := range strings.Lines(text) {
		line := strings.TrimSpace(line)
		if before, rest, ok := strings.Cut(line, ` --comment "`); ok {
			_, after, _ := strings.Cut(rest, `"`)
			line = before + after
		}
		words := strings.Fields(line)
		if words[0] == "-A" {
			chain := strings.ToLower(strings.TrimPrefix(words[1], "MESHCTL_"))
			m.chains[chain] = append(m.chains[chain], words[2:])
		}
	}
	return m
}

func askIptables(_ machine, words []string, pk rules.Packet) (matched bool, verdict string) {
	matched = true
	for i := 0; i < len(words); i += 2 {
		negated := words[i] == "!"
		if negated {
			i++
		}
		ok, v := true, words[i+1]
		switch words[i] {
		case "-m":
		case "-p":
			ok = v == "tcp" && pk.Proto == rules.TCP
		case "-i", "-o":
			ok = v == "lo" && pk.Loopback
		case "-s":
			ok = holds([]string{v}, pk.Src.Addr().String())
		case "-d":
			ok = holds([]string{v}, pk.Dst.Addr().String())
		case "--sports":
			ok = holds(strings.Split(v, ","), field("sport", pk))
		case "--dports":
			ok = holds(strings.Split(v, ","), field("dport", pk))
		case "--uid-owner":
			ok = v == strconv.Itoa(int(pk.UID))
		case "--gid-owner":
			ok = v == strconv.Itoa(int(pk.GID))
		case "--tcp-flags":
			i++ // two values
			ok = v == "FIN,SYN,RST,ACK" && words[i+1] == "SYN" && !pk.Midway
		case "--ctstate":
			ok = pk.Invalid == (v == "INVALID")
		case "-j":
			verdict = strings.ToLower(v)
		case "--to-ports":
			verdict += " " + v
		default:
			return false, ""
		}
		matched = matched && ok != negated
	}
	return matched, verdict
}

// drawConfig draws a valid configuration.
func drawConfig(rnd *rand.Rand) rules.Config {
	maybe := func() bool { return rnd.IntN(3) == 0 }
	c := rules.DefaultConfig()
	for _, s := range []*ports.Set{&c.SkipInboundPorts, &c.SkipOutboundPorts, &c.OnlyInboundPorts, &c.OnlyOutboundPorts} {
		if maybe() {
			*s = drawPorts(rnd)
		}
	}
	for _, s := range []*[]netip.Prefix{&c.SkipInboundSubnets, &c.SkipOutboundSubnets} {
		for maybe() {
			addr := drawAddr(rnd, rnd.IntN(2) == 0)
			*s = append(*s, netip.PrefixFrom(addr, rnd.IntN(addr.BitLen()+1)))
		}
	}
	if maybe() {
		gid := uint32(3000)
		c.ProxyGID = &gid
	}
	c.NoIPv6, c.KeepInvalid = maybe(), maybe()
	return c
}

// drawPorts draws a list of up to 40 ports and ranges that leaves the proxy's
// own ports out.
func drawPorts(rnd *rand.Rand) ports.Set {
	var items []string
	for range rnd.IntN(40) {
		lo := 1 + rnd.IntN(4000)
		if rnd.IntN(2) == 0 {
			lo = 5000 + rnd.IntN(60000)
		}
		item := strconv.Itoa(lo)
		if rnd.IntN(3) == 0 {
			item = fmt.Sprintf("%d-%d", lo, min(65535, lo+rnd.IntN(100)))
		}
		items = append(items, item)
	}
	s, err := ports.Parse(strings.Join(items, ","))
	if err != nil {
		panic(err)
	}
	return s
}

func drawAddr(rnd *rand.Rand, v4 bool) netip.Addr {
	if v4 {
		return netip.AddrFrom4([4]byte{10, byte(rnd.IntN(3)), 0, byte(rnd.IntN(256))})
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 1: byte(rnd.IntN(3)), 15: byte(rnd.IntN(256))})
}

// drawPacket draws a packet, its ports mostly at the edges of c's lists.
func drawPacket(rnd *rand.Rand, c rules.Config) rules.Packet {
	v4 := rnd.IntN(2) == 0
	port := func() uint16 {
		lists := []ports.Set{c.SkipInboundPorts, c.SkipOutboundPorts, c.OnlyInboundPorts, c.OnlyOutboundPorts, c.ControlPorts}
		if ranges := lists[rnd.IntN(len(lists))].Ranges(); len(ranges) > 0 && rnd.IntN(4) > 0 {
			r := ranges[rnd.IntN(len(ranges))]
			return []uint16{r.Lo, r.Hi, r.Lo - 1, r.Hi + 1}[rnd.IntN(4)]
		}
		return uint16(rnd.IntN(65536))
	}
	pk := rules.Packet{
		Direction: rules.Direction(1 + rnd.IntN(2)), Proto: rules.TCP,
		Src: netip.AddrPortFrom(drawAddr(rnd, v4), port()), Dst: netip.AddrPortFrom(drawAddr(rnd, v4), port()),
		Loopback: rnd.IntN(8) == 0, Invalid: rnd.IntN(3) == 0, Midway: rnd.IntN(6) == 0,
	}
	if pk.Direction == rules.Outbound {
		pk.UID, pk.GID = []uint32{0, 1000, 2102}[rnd.IntN(3)], []uint32{0, 2102, 3000}[rnd.IntN(3)]
	}
	if rnd.IntN(8) == 0 {
		pk.Proto = 17
	}
	return pk
}
