package redirect

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/rules"
)

// What the kernel does with connections has to be what Eval says, for whatever
// configuration. The seed is printed; a failure can be had again.
func TestRandomPlansDoWhatEvalSays(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	pair := lab.Pair(t)
	addAltV6(t, pair)
	ns := open(t, pair.Pod.Path())
	tr := newTraffic(t, pair, rules.DefaultConfig())
	kinds := []Kind{NFTables, IPTablesNFT, IPTablesLegacy}
	for n := range 15 {
		c := randomConfig(rnd)
		p, err := rules.Build(c)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		choice, err := Pick(t.Context(), ns, Options{Backend: kinds[n%3]})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := choice.Apply(t.Context(), p); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		for range 25 {
			d, packet := randomConnection(rnd, pair, c)
			decision := p.Eval(packet)
			want := wants(decision, packet.Direction, d.to)
			if got := tr.arrives(t, d); got != want {
				t.Errorf("plan %d by %s, %s from uid %d gid %d src %s to %s: %q, but Eval says %q by %q\n%+v",
					n, kinds[n%3], packet.Direction, packet.UID, packet.GID, packet.Src, d.to, got, want, decision.Rule, c)
			}
		}
	}
}

// few are ports that random lists and connections share, so that they meet.
var few = []uint16{1, 79, 80, 81, 443, 3306, 4190, 4191, 4567, 5000, 5001, 5002, 9999, 30000, 65535}

func randomConfig(rnd *rand.Rand) rules.Config {
	c := rules.DefaultConfig()
	c.SkipInboundPorts, c.SkipOutboundPorts = randomPorts(rnd, 6), randomPorts(rnd, 6)
	if rnd.IntN(3) == 0 {
		c.OnlyInboundPorts = randomPorts(rnd, 8)
	}
	if rnd.IntN(3) == 0 {
		c.OnlyOutboundPorts = randomPorts(rnd, 8)
	}
	subnets := prefixes("10.232.0.0/24", "10.231.0.1/32", "fd32::/64", "fd31::1/128", "192.0.2.0/24", "10.224.0.0/12")
	for range rnd.IntN(3) {
		c.SkipInboundSubnets = append(c.SkipInboundSubnets, subnets[rnd.IntN(len(subnets))])
		c.SkipOutboundSubnets = append(c.SkipOutboundSubnets, subnets[rnd.IntN(len(subnets))])
	}
	if rnd.IntN(3) == 0 {
		gid := uint32(3000)
		c.ProxyGID = &gid
	}
	c.NoIPv6, c.KeepInvalid = rnd.IntN(5) == 0, rnd.IntN(3) == 0
	return c
}

// randomPorts are some of the few, or now and then the stretch between two.
func randomPorts(rnd *rand.Rand, n int) ports.Set {
	var set ports.Set
	for range rnd.IntN(n) {
		set = set.Union(ports.Of(few[rnd.IntN(len(few))]))
	}
	if rnd.IntN(3) == 0 {
		more, err := ports.Parse(fmt.Sprintf("%d-%d", 4995+rnd.IntN(6), 5001+rnd.IntN(6)))
		if err == nil {
			set = set.Union(more)
		}
	}
	return set
}

// randomConnection is one that can be made in the pair, and the packet that it
// opens with.
func randomConnection(rnd *rand.Rand, pair *lab.Net, c rules.Config) (dialled, rules.Packet) {
	v6 := rnd.IntN(2) == 0
	pod, peer, alt, loop := lab.PodV4, lab.PeerV4, lab.AltV4, netip.MustParseAddr("127.0.0.1")
	if v6 {
		pod, peer, alt, loop = lab.PodV6, lab.PeerV6, altV6, netip.IPv6Loopback()
	}
	port := few[rnd.IntN(len(few))]
	if rnd.IntN(3) == 0 {
		port = uint16(4990 + rnd.IntN(20))
	}
	if rnd.IntN(2) == 0 {
		src := []netip.Addr{peer, alt}[rnd.IntN(2)]
		to := netip.AddrPortFrom(pod, port)
		return dialled{from: pair.Peer, src: src, to: to},
			rules.Packet{Direction: rules.Inbound, Proto: rules.TCP, Src: netip.AddrPortFrom(src, 50000), Dst: to}
	}
	dst := []netip.Addr{peer, alt, peer, alt, pod, loop}[rnd.IntN(6)]
	owner := lab.Owner{UID: []int{0, 1000, int(c.ProxyUID)}[rnd.IntN(3)], GID: []int{0, 1000, 2102, 3000}[rnd.IntN(4)]}
	to := netip.AddrPortFrom(dst, port)
	src := pod
	if dst == loop {
		src = loop
	}
	return dialled{from: pair.Pod, owner: owner, to: to}, rules.Packet{
		Direction: rules.Outbound, Proto: rules.TCP, Src: netip.AddrPortFrom(src, 50000), Dst: to,
		UID: uint32(owner.UID), GID: uint32(owner.GID), Loopback: dst == pod || dst == loop,
	}
}
