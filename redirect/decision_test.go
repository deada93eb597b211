package redirect

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/rules"
)

var (
	app   = lab.Owner{UID: 1000, GID: 1000}
	root  = lab.Owner{}
	proxy = lab.Owner{UID: 2102, GID: 2102}
)

// decided is a row of the decision table: who connects to where, and where that
// arrives. The addresses are those of the family under test.
type decided struct {
	name  string
	from  string // "app", "root", "proxy", "group" in the pod; "peer"; "other subnet"
	to    netip.AddrPort
	wants string
}

func decisions(pod, peer, alt netip.Addr) []decided {
	at := netip.AddrPortFrom
	rows := []decided{
		{"an application's connection goes to the proxy", "app", at(peer, 80), outbound},
		{"root's connection goes to the proxy", "root", at(peer, 80), outbound},
		{"the proxy's group alone does not keep a connection direct", "group", at(peer, 80), outbound},
		{"a skipped port is direct", "app", at(peer, 3306), direct},
		{"the first port of a skipped range is direct", "app", at(peer, 4444), direct},
		{"a port inside a skipped range is direct", "app", at(peer, 4470), direct},
		{"the last port of a skipped range is direct", "app", at(peer, 4500), direct},
		{"the port before a skipped range goes to the proxy", "app", at(peer, 4443), outbound},
		{"the port after a skipped range goes to the proxy", "app", at(peer, 4501), outbound},
		{"a skipped subnet is direct", "app", at(alt, 80), direct},
		{"the pod's own address is direct", "app", at(pod, 8080), direct},
		{"the proxy's connection is direct", "proxy", at(peer, 80), direct},
		{"a connection to the pod goes to the proxy", "peer", at(pod, 8080), inbound},
		{"the control port is direct", "peer", at(pod, 4190), direct},
		{"the admin port is direct", "peer", at(pod, 4191), direct},
		{"a skipped inbound port is direct", "peer", at(pod, 9100), direct},
		{"a skipped inbound subnet is direct", "other subnet", at(pod, 8080), direct},
		{"the outbound port from outside goes to the inbound listener", "peer", at(pod, 4140), inbound},
	}
	loop := netip.IPv6Loopback()
	if pod.Is4() {
		loop = netip.MustParseAddr("127.0.0.1")
		rows = append(rows, decided{"all of 127/8 is direct", "app", at(netip.MustParseAddr("127.0.0.2"), 8080), direct})
	}
	return append(rows, decided{"loopback is direct", "app", at(loop, 8080), direct})
}

func tableConfig(t testing.TB) rules.Config {
	c := rules.DefaultConfig()
	c.SkipOutboundPorts = portSet(t, "3306,4444-4500")
	c.SkipInboundPorts = portSet(t, "9100")
	c.SkipOutboundSubnets = prefixes("10.232.0.77/24", "fd32::/64") // host bits are masked off
	c.SkipInboundSubnets = prefixes("10.232.0.0/24", "fd32::/64")
	return c
}

func TestEveryBackendAndFamilyDecidesByTheTable(t *testing.T) {
	everyBackend(t, func(t *testing.T, pair *lab.Net, b Backend) {
		addAltV6(t, pair)
		config := tableConfig(t)
		tr := newTraffic(t, pair, config)
		before := openBefore(t, pair)
		mustApply(t, b, plan(t, func(c *rules.Config) { *c = config }), true)
		for _, f := range [][3]netip.Addr{{lab.PodV4, lab.PeerV4, lab.AltV4}, {lab.PodV6, lab.PeerV6, altV6}} {
			for _, row := range decisions(f[0], f[1], f[2]) {
				want := row.wants
				if want != direct {
					want = fmt.Sprintf("%s for %s", want, row.to)
				}
				if got := tr.arrives(t, row.dial(pair, f[2])); got != want {
					t.Errorf("%s: %s -> %s: %q, want %q", row.name, row.from, row.to, got, want)
				}
			}
		}
		before(t)
		datagramsPass(t, pair)
	})
}

func (row decided) dial(pair *lab.Net, alt netip.Addr) dialled {
	d := dialled{from: pair.Pod, to: row.to}
	switch row.from {
	case "app":
		d.owner = app
	case "root":
		d.owner = root
	case "proxy":
		d.owner = proxy
	case "group":
		d.owner = lab.Owner{UID: 1000, GID: 2102}
	case "peer":
		d.from = pair.Peer
	case "other subnet":
		d.from, d.src = pair.Peer, alt
	}
	return d
}

// openBefore opens a connection before there are rules; the check is that it
// lives on where it was.
func openBefore(t *testing.T, pair *lab.Net) (check func(*testing.T)) {
	t.Helper()
	l := pair.Peer.Listen(t, onPort(lab.PeerV4, 7000))
	client, err := pair.Pod.Dial(app, noAddr, onPort(lab.PeerV4, 7000), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return func(t *testing.T) {
		t.Helper()
		for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
			way[0].SetDeadline(time.Now().Add(2 * time.Second))
			way[1].SetDeadline(time.Now().Add(2 * time.Second))
			if _, err := way[0].Write([]byte("x")); err != nil {
				t.Errorf("a connection from before the rules: %v", err)
			}
			if _, err := way[1].Read(make([]byte, 1)); err != nil {
				t.Errorf("a connection from before the rules: %v", err)
			}
		}
	}
}

func datagramsPass(t *testing.T, pair *lab.Net) {
	t.Helper()
	for _, addr := range []netip.Addr{lab.PeerV4, lab.PeerV6} {
		var server net.PacketConn
		err := pair.Peer.Do(func() (err error) {
			server, err = net.ListenPacket("udp", onPort(addr, 80).String())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		err = pair.Pod.Do(func() error {
			client, err := net.Dial("udp", onPort(addr, 80).String())
			if err != nil {
				return err
			}
			defer client.Close()
			_, err = client.Write([]byte("x"))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		server.SetDeadline(time.Now().Add(2 * time.Second))
		if _, _, err := server.ReadFrom(make([]byte, 1)); err != nil {
			t.Errorf("a datagram to %s: %v", addr, err)
		}
		server.Close()
	}
	for _, echo := range []struct {
		network string
		kind    icmp.Type
		to      netip.Addr
	}{{"ip4:icmp", ipv4.ICMPTypeEcho, lab.PeerV4}, {"ip6:ipv6-icmp", ipv6.ICMPTypeEchoRequest, lab.PeerV6}} {
		err := pair.Pod.Do(func() error { return ping(echo.network, echo.kind, echo.to) })
		if err != nil {
			t.Errorf("an echo request to %s: %v", echo.to, err)
		}
	}
}

func ping(network string, kind icmp.Type, to netip.Addr) error {
	conn, err := icmp.ListenPacket(network, "")
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * time.Second))
	request, err := (&icmp.Message{Type: kind, Body: &icmp.Echo{ID: 1, Seq: 1}}).Marshal(nil)
	if err != nil {
		return err
	}
	if _, err := conn.WriteTo(request, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		return err
	}
	_, _, err = conn.ReadFrom(make([]byte, 1500))
	return err
}

// One multiport match holds 15 ports, a range counting as two; a user need not
// know. This list takes 26 places.
func TestMoreEntriesThanOneMatchHoldsAreAllSkipped(t *testing.T) {
	const list = "1101,1103,1105,1107,1109,1111,1113,1115,1117,1119,1121,1123,2100-2110,2120-2130,2140-2150,2160-2170,3307,5433,6380,9093,27018,27020"
	everyBackend(t, func(t *testing.T, pair *lab.Net, b Backend) {
		tr := newTraffic(t, pair, rules.DefaultConfig())
		mustApply(t, b, plan(t, func(c *rules.Config) {
			c.SkipOutboundPorts, c.SkipInboundPorts = portSet(t, list), portSet(t, list)
		}), true)
		for _, c := range []struct {
			port    uint16
			skipped bool
		}{
			{1101, true}, {1102, false}, {1123, true}, {2099, false}, {2100, true}, {2110, true}, {2111, false},
			{2170, true}, {2171, false}, {9093, true}, {27018, true}, {27019, false}, {27020, true},
		} {
			for _, to := range []netip.Addr{lab.PeerV4, lab.PeerV6, lab.PodV4, lab.PodV6} {
				d := dialled{from: pair.Pod, owner: app, to: onPort(to, c.port)}
				want := outbound
				if to == lab.PodV4 || to == lab.PodV6 {
					d.from, want = pair.Peer, inbound
				}
				if c.skipped {
					want = direct
				} else {
					want += " for " + d.to.String()
				}
				if got := tr.arrives(t, d); got != want {
					t.Errorf("%s: %q, want %q", d.to, got, want)
				}
			}
		}
	})
}
