// Package outbound routes connections of the local application: to what the
// address it asked for stands for, where somebody knows; else to that address.
package outbound

import (
	"net/netip"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/exchange"
	"github.com/meshctl/meshctl/proxy/forward"
	"github.com/meshctl/meshctl/proxy/policy"
)

// Router chooses the Route of outbound connections. It is a forward.Router.
type Router struct {
	policy *policy.Policy
	// Targets, if set, says what a destination is; policy then only knows the
	// proxy's own listeners. It must not change once the Router is in use.
	Targets discovery.Resolver
	// Lanes are those of the Forwarder that the Router is for; set before use.
	Lanes []*exchange.Lane
	// Mediate has the requests of all HTTP connections taken one by one.
	Mediate bool
	// Mesh: this proxy has an identity, so that meshed endpoints are reached by mTLS
	// and their requests are taken one by one.
	Mesh bool
}

// New makes a Router from what is declared.
func New(p *policy.Policy) *Router { return &Router{policy: p} }

// Route returns the Route to dst: to an endpoint of what it stands for, or to
// itself. It refuses, with a *forward.Refusal, a destination that is a listener
// of this proxy, a port that a Service does not have, an EgressNetwork that
// denies. Where no endpoint is ready one is waited for, so that is no refusal.
func (r *Router) Route(_, dst netip.AddrPort) (forward.Route, error) {
	if r.policy.Loop(dst) {
		return forward.Route{}, &forward.Refusal{Reason: "own_listener"}
	}
	if r.Targets == nil {
		return forward.Route{Target: dst, Kind: r.policy.Kind(dst.Port()), Early: true}, nil
	}
	to := r.Targets.Resolve(dst)
	v := to.View()
	if v.Refused != 0 {
		return forward.Route{}, &forward.Refusal{Reason: v.Refused.String()}
	}
	for _, e := range v.Endpoints {
		if r.policy.Loop(e.Addr) {
			return forward.Route{}, &forward.Refusal{Reason: "own_listener"}
		}
	}
	// Any endpoint will do for TCP, so the choice does not depend on what the
	// client is going to say, and may be made early.
	return forward.Route{Target: dst, Kind: v.Protocol.Kind, Early: true, Pending: v.Pending, View: v, Up: r.upstream(to), Mediate: r.Mediate || mediate(v) || r.Mesh && meshed(v)}, nil
}
