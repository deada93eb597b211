// Package inbound routes connections from the network to the local application:
// to the address they were sent to, so that an application bound to loopback
// only stays out of reach (and one bound to the pod address only works).
package inbound

import (
	"net/netip"
	"sync"

	"github.com/meshctl/meshctl/proxy/exchange"
	"github.com/meshctl/meshctl/proxy/forward"
	"github.com/meshctl/meshctl/proxy/policy"
	"github.com/meshctl/meshctl/proxy/protocol"
)

// Router chooses the Route of inbound connections. It is a forward.Router.
type Router struct {
	policy *policy.Policy
	// Ports, if set, says what Servers declare of ports.
	Ports policy.Inbound
	// Lanes are those of the Forwarder that the Router is for; set before use.
	Lanes []*exchange.Lane
	// Mediate has the requests of all HTTP connections taken one by one: where the
	// application is told who calls, nobody else may write that.
	Mediate bool

	mu  sync.Mutex
	ups map[netip.AddrPort]*exchange.Upstream
}

// New makes a Router from what is declared.
func New(p *policy.Policy) *Router {
	return &Router{policy: p, ups: map[netip.AddrPort]*exchange.Upstream{}}
}

// Route returns dst itself, with what is declared of its port. It refuses, with
// a *forward.Refusal, a destination that is a listener of this proxy.
func (r *Router) Route(_, dst netip.AddrPort) (forward.Route, error) {
	if r.policy.Loop(dst) {
		return forward.Route{}, &forward.Refusal{Reason: "own_listener"}
	}
	to := forward.Route{Target: dst, Kind: r.policy.Kind(dst.Port()), Early: true, Mediate: r.Mediate}
	if r.Ports != nil {
		p := r.Ports.Port(dst.Port())
		to.Kind, to.Early, to.Pending = p.Kind(to.Kind), !p.StrictDetect, p.Pending
		if to.Kind == protocol.TLS { // seen, so that its name is known, and relayed
			to.Kind = protocol.Unknown
		}
	}
	return to, nil
}

// upstreamsMost is how many Upstreams are kept. There are as many as addresses
// and ports of the application, unless somebody tries them all.
const upstreamsMost = 1024

// Upstream returns the Upstream to dst. It is a forward.Mediator's.
func (r *Router) Upstream(dst netip.AddrPort) *exchange.Upstream {
	r.mu.Lock()
	defer r.mu.Unlock()
	up := r.ups[dst]
	if up == nil {
		if len(r.ups) >= upstreamsMost {
			clear(r.ups) // what is in use stays with its connections
		}
		up = exchange.NewUpstream(exchange.Parent{Backends: []exchange.Members{{Name: dst.String(), Endpoints: []exchange.Endpoint{{Addr: dst}}}}}, r.Lanes)
		r.ups[dst] = up
	}
	return up
}
