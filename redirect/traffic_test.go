package redirect

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/rules"
)

// What a connection arrived at.
const (
	direct   = "direct"
	inbound  = "inbound proxy"
	outbound = "outbound proxy"
)

// traffic puts listeners where the proxy's would be, and says of a connection
// where it arrived. Servers are started as connections need them.
type traffic struct {
	*lab.Net
	servers map[string]bool
}

func newTraffic(t testing.TB, pair *lab.Net, c rules.Config) *traffic {
	t.Helper()
	tr := &traffic{Net: pair, servers: map[string]bool{}}
	for _, at := range []struct {
		addr netip.AddrPort
		says string
	}{
		{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), c.OutboundPort), outbound},
		{netip.AddrPortFrom(netip.IPv6Loopback(), c.OutboundPort), outbound},
		{netip.AddrPortFrom(netip.IPv6Unspecified(), c.InboundPort), inbound},
		{netip.AddrPortFrom(netip.IPv4Unspecified(), c.InboundPort), inbound},
	} {
		serve(t, pair.Pod, at.addr, at.says)
	}
	return tr
}

// serve answers every connection with what it is and where the connection was
// meant to go.
func serve(t testing.TB, ns *lab.Namespace, at netip.AddrPort, says string) {
	t.Helper()
	l := ns.Listen(t, at)
	var all sync.WaitGroup
	all.Add(1)
	t.Cleanup(func() { l.Close(); all.Wait() })
	go func() {
		defer all.Done()
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			tellWhere(conn.(*net.TCPConn), says)
		}
	}()
}

func tellWhere(conn *net.TCPConn, says string) {
	defer conn.Close()
	if says != direct {
		raw, err := conn.SyscallConn()
		if err != nil {
			return
		}
		raw.Control(func(fd uintptr) {
			to, err := originalDst(int(fd), unmapped(conn.LocalAddr()).Addr().Is6())
			if err != nil {
				says += ": " + err.Error()
				return
			}
			says += " for " + to.String()
		})
	}
	io.WriteString(conn, says)
}

// dialled is one connection.
type dialled struct {
	from  *lab.Namespace
	owner lab.Owner
	src   netip.Addr // zero: any
	to    netip.AddrPort
}

// arrives makes a connection, with a server at its destination, and tells where
// it arrived.
func (tr *traffic) arrives(t testing.TB, d dialled) string {
	t.Helper()
	server := tr.Pod
	if a := d.to.Addr(); a == lab.PeerV4 || a == lab.PeerV6 || a == lab.AltV4 || a == altV6 {
		server = tr.Peer
	}
	// The proxy's own ports have their listeners already.
	if key := server.Name + d.to.String(); !tr.servers[key] && !(server == tr.Pod && (d.to.Port() == 4143 || d.to.Port() == 4140)) {
		serve(t, server, d.to, direct)
		tr.servers[key] = true
	}
	src := netip.AddrPort{}
	if d.src.IsValid() {
		src = netip.AddrPortFrom(d.src, 0)
	}
	conn, err := d.from.Dial(d.owner, src, d.to, 2*time.Second)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * time.Second))
	says, err := io.ReadAll(conn)
	if err != nil {
		return err.Error()
	}
	return string(says)
}

// wants is what arrives says when the plan decides so.
func wants(d rules.Decision, dir rules.Direction, to netip.AddrPort) string {
	switch {
	case d.Verdict != rules.Redirect:
		return direct
	case dir == rules.Inbound:
		return fmt.Sprintf("%s for %s", inbound, to)
	}
	return fmt.Sprintf("%s for %s", outbound, to)
}

// altV6 is a second address of the peer, in a subnet of its own.
var altV6 = netip.MustParseAddr("fd32::10")

// addAltV6 gives the peer that address; IPv4 has one from the beginning.
func addAltV6(t testing.TB, pair *lab.Net) {
	t.Helper()
	pair.Peer.Run(t, "ip", "addr", "add", altV6.String()+"/64", "dev", "eth0", "nodad")
}
