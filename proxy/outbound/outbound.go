// Package outbound routes connections of the local application: to the address
// it asked for, where the choice of endpoint has already been made.
package outbound

import (
	"net/netip"

	"github.com/meshctl/meshctl/proxy/forward"
	"github.com/meshctl/meshctl/proxy/policy"
)

// Router chooses the Route of outbound connections. It is a forward.Router.
type Router struct{ policy *policy.Policy }

// New makes a Router from what is declared.
func New(p *policy.Policy) *Router { return &Router{policy: p} }

// Route returns dst itself, with what is declared of its port. It refuses, with
// a *forward.Refusal, a destination that is a listener of this proxy.
func (r *Router) Route(_, dst netip.AddrPort) (forward.Route, error) {
	if r.policy.Loop(dst) {
		return forward.Route{}, &forward.Refusal{Reason: "own_listener"}
	}
	return forward.Route{Target: dst, Kind: r.policy.Kind(dst.Port()), Early: true}, nil
}
