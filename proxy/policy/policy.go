// Package policy says what is declared of ports before any byte is read, and who
// may call those of the local application: which ports are opaque, which
// destinations the proxy must not connect to, and, for Linkerd's Servers,
// authorizations and default policies, a Table that decides about a client and
// its requests. It looks at no bytes, opens nothing and reads no file.
package policy

import (
	"net/netip"
	"sync/atomic"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/proxy/protocol"
)

// Policy is what is declared of ports. All but Live is read-only once in use.
type Policy struct {
	// Opaque holds the ports whose connections are relayed without detection.
	Opaque ports.Set
	// Own holds the ports the proxy itself listens on.
	Own ports.Set
	// Live, once it is set, takes the place of Opaque: the list can change while
	// the proxy runs.
	Live atomic.Pointer[ports.Set]
	// Local reports whether an address is this machine's own.
	Local func(netip.Addr) bool
}

// DefaultOpaque is Linkerd's list: SMTP, MySQL, Galera SST, PostgreSQL, Redis,
// Elasticsearch transport, memcached.
func DefaultOpaque() ports.Set { return ports.Of(25, 587, 3306, 4444, 5432, 6379, 9300, 11211) }

// Kind is what is declared of a destination port: Opaque or Unknown.
func (p *Policy) Kind(port uint16) protocol.Kind {
	opaque := p.Opaque
	if live := p.Live.Load(); live != nil {
		opaque = *live
	}
	if opaque.Contains(port) {
		return protocol.Opaque
	}
	return protocol.Unknown
}

// Loop reports whether connecting to dst would reach the proxy itself: one of
// its own ports on any local address.
func (p *Policy) Loop(dst netip.AddrPort) bool {
	return p.Own.Contains(dst.Port()) && p.Local(dst.Addr())
}
