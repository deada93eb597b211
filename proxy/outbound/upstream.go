package outbound

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/exchange"
	"github.com/meshctl/meshctl/proxy/mesh"
	"github.com/meshctl/meshctl/proxy/message"
	"github.com/meshctl/meshctl/proxy/protocol"
)

// made is the Upstream of a Target, and the View that it was last made of.
type made struct {
	up     *exchange.Upstream
	target *discovery.Target
	view   atomic.Pointer[discovery.View]
	mu     sync.Mutex // held to update
}

// upstream returns the one Upstream of t.
func (r *Router) upstream(t *discovery.Target) *exchange.Upstream {
	if m, ok := t.Made.Load().(*made); ok {
		return m.up
	}
	v := t.View()
	m := &made{target: t}
	m.view.Store(v)
	m.up = exchange.NewUpstream(parent(v), r.Lanes)
	m.up.Fresh = m.fresh
	if !t.Made.CompareAndSwap(nil, m) {
		m = t.Made.Load().(*made) // another loop was first
	}
	return m.up
}

// Balanced returns the View that is in force for what goes to t, and the state of
// the endpoints of each of its backends, and how many retries may be made; nil if
// nothing has gone there.
func Balanced(t *discovery.Target) (v *discovery.View, backends []exchange.BackendState, retries float64) {
	m, ok := t.Made.Load().(*made)
	if !ok {
		return nil, nil, 0
	}
	return m.view.Load(), m.up.State(), m.up.RetryTokens()
}

// fresh brings the Upstream up to the Target's View.
func (m *made) fresh() {
	if m.view.Load() == m.target.View() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if v := m.target.View(); m.view.Load() != v {
		m.up.Update(parent(v))
		m.view.Store(v)
	}
}

// ViewChanged implements discovery.Follower: requests that wait for an endpoint
// must not have to wait for another request.
func (m *made) ViewChanged() { m.fresh() }

// parent is what a View says of where requests go.
func parent(v *discovery.View) exchange.Parent {
	p := exchange.Parent{Table: v.Table, Backends: []exchange.Members{{
		Name: name(v), Endpoints: endpoints(v.Endpoints), Version: version(v.Protocol),
	}}}
	if v.Table == nil {
		return p
	}
	p.Backends[0].Breaker, p.Backends[0].Penalty = v.Table.Breaker, v.Table.Penalty
	for i, b := range v.Backends {
		m := exchange.Members{Name: b.String(), Endpoints: endpoints(b.Endpoints), Version: version(b.Protocol)}
		if b.Own != nil {
			m.Breaker, m.Penalty = b.Own.Breaker, b.Own.Penalty
		}
		if i > 0 {
			p.Backends = append(p.Backends, m)
		}
	}
	return p
}

// name is what a rule that sends to the destination itself calls it, too.
func name(v *discovery.View) string {
	if v.Kind == discovery.ServicePort {
		return discovery.Backend{Namespace: v.Object.Namespace, Name: v.Object.Name, Port: v.Port}.String()
	}
	return v.String()
}

func endpoints(list []discovery.Endpoint) []exchange.Endpoint {
	out := make([]exchange.Endpoint, len(list))
	for i, e := range list {
		out[i] = exchange.Endpoint{Addr: e.Addr, Opaque: e.Opaque, NoTLS: e.Mesh.Reason(),
			Mesh: mesh.Endpoint{ID: e.Mesh.ID, ServerName: e.Mesh.ServerName, Port: e.Mesh.Port}}
	}
	return out
}

// version is what the endpoints are told to speak; not said: what the client
// speaks.
func version(d discovery.Decision) message.Version {
	switch d.Kind {
	case protocol.HTTP1:
		return message.HTTP11
	case protocol.HTTP2:
		return message.HTTP2
	}
	return 0
}

// meshed reports whether an endpoint has a proxy in front of it.
func meshed(v *discovery.View) bool {
	return slices.ContainsFunc(v.Endpoints, func(e discovery.Endpoint) bool { return e.Mesh.Meshed() })
}

// mediate reports whether requests have somewhere else to go than where the
// connection would, or have to be told that there is nowhere.
func mediate(v *discovery.View) bool { return v.Table != nil || len(v.Endpoints) != 1 }
