package metrics

import (
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
)

// Ref names what decides about a client, in Linkerd's words: a Server, an
// authorization, a route, or "default" and a name. The zero value leaves its
// labels out.
type Ref struct{ Group, Kind, Namespace, Name string }

func (r Ref) clean() Ref {
	return Ref{clean(r.Group), clean(r.Kind), clean(r.Namespace), clean(r.Name)}
}

func (r Ref) appendTo(l labels, prefix string) labels {
	if r.Name == "" {
		return l
	}
	return l.known(prefix+"_group", r.Group).known(prefix+"_kind", r.Kind).known(prefix+"_namespace", r.Namespace).with(prefix+"_name", r.Name)
}

// Authorization is a decision about a client, as labels. All of it are words of
// the program and names of objects, but for Port.
type Authorization struct {
	Server Ref
	Port   uint16 // of the original destination
	Authz  Ref    // the zero value: it is denied
	Route  Ref    // of a request; the zero value for connections
	TLS    string // as TLSLabels.TLS
}

func (a Authorization) clean() Authorization {
	return Authorization{a.Server.clean(), a.Port, a.Authz.clean(), a.Route.clean(), clean(a.TLS)}
}

// Authorized counts decisions of one kind. Its methods are one atomic addition.
type Authorized struct {
	labels Authorization

	tcpAllowed, tcpDenied, tcpTerminated   atomic.Uint64
	httpAllowed, httpDenied, routeNotFound atomic.Uint64
}

// AllowConnection counts a connection that was let in as TCP.
func (a *Authorized) AllowConnection() { a.tcpAllowed.Add(1) }

// DenyConnection counts a connection that was closed before anything was dialed.
func (a *Authorized) DenyConnection() { a.tcpDenied.Add(1) }

// TerminateConnection counts an open connection that was closed because the policy
// has changed.
func (a *Authorized) TerminateConnection() { a.tcpTerminated.Add(1) }

// AllowRequest counts a request that was let in.
func (a *Authorized) AllowRequest() { a.httpAllowed.Add(1) }

// DenyRequest counts a request that was answered 403.
func (a *Authorized) DenyRequest() { a.httpDenied.Add(1) }

// RouteNotFound counts a request that came under no route of its Server: 404.
func (a *Authorized) RouteNotFound() { a.routeNotFound.Add(1) }

// authorizations are those of all kinds: readers take no lock, and whoever adds
// one, which is once for a Server, port, authorization and route, replaces the map.
type authorizations struct {
	max     int
	current atomic.Pointer[map[Authorization]*Authorized]
	mu      sync.Mutex // of writers
	rest    Authorized // what there is no room for
	lost    atomic.Uint64
}

// Authorized returns the counters of a decision. It allocates nothing for one that
// was there before; still, who decides about many requests of a connection keeps it.
func (m *Metrics) Authorized(a Authorization) *Authorized {
	all := &m.authz
	if now := all.current.Load(); now != nil {
		if v := (*now)[a]; v != nil {
			return v
		}
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	var before map[Authorization]*Authorized
	if now := all.current.Load(); now != nil {
		before = *now
	}
	a = a.clean()
	if v := before[a]; v != nil {
		return v
	}
	if len(before) >= all.max {
		all.lost.Add(1)
		return &all.rest
	}
	next := make(map[Authorization]*Authorized, len(before)+1)
	maps.Copy(next, before)
	v := &Authorized{labels: a}
	next[a] = v
	all.current.Store(&next)
	return v
}

// authorizationLabels are those of every family of this file: what is not said is
// left out, so that two decisions never are one series.
func authorizationLabels() []string {
	out := []string{"srv_port", "tls"}
	for _, what := range []string{"srv", "authz", "route"} {
		out = append(out, what+"_group", what+"_kind", what+"_namespace", what+"_name")
	}
	return out
}

func (p *page) authorization() {
	l := authorizationLabels()
	p.tcpAllowed = p.add("inbound_tcp_authz_allow_total", "Inbound connections let in as TCP, by what allows it.", l...)
	p.tcpDenied = p.add("inbound_tcp_authz_deny_total", "Inbound connections closed because nothing allows them.", l...)
	p.tcpTerminated = p.add("inbound_tcp_authz_terminate_total", "Open inbound connections closed because the policy has changed.", l...)
	p.httpAllowed = p.add("inbound_http_authz_allow_total", "Inbound requests let in, by what allows it.", l...)
	p.httpDenied = p.add("inbound_http_authz_deny_total", "Inbound requests answered 403 (gRPC: 7) because nothing allows them.", l...)
	p.routeNotFound = p.add("inbound_http_route_not_found_total", "Inbound requests answered 404 (gRPC: 5) because they come under no route of the Server.", l...)
}

func (m *Metrics) collectAuthorizations(send sender) {
	if now := m.authz.current.Load(); now != nil {
		for _, a := range *now {
			l := a.labels
			series := l.Route.appendTo(l.Authz.appendTo(l.Server.appendTo(nil, "srv"), "authz"), "route").known("tls", l.TLS)
			if l.Port != 0 {
				series = series.with("srv_port", strconv.Itoa(int(l.Port)))
			}
			a.collect(m.page, send, series.sorted())
		}
	}
	m.authz.rest.collect(m.page, send, labels{}.with("srv_name", other))
}

func (a *Authorized) collect(p *page, send sender, l labels) {
	for _, c := range []struct {
		family *family
		n      *atomic.Uint64
	}{
		{p.tcpAllowed, &a.tcpAllowed}, {p.tcpDenied, &a.tcpDenied}, {p.tcpTerminated, &a.tcpTerminated},
		{p.httpAllowed, &a.httpAllowed}, {p.httpDenied, &a.httpDenied}, {p.routeNotFound, &a.routeNotFound},
	} {
		if n := c.n.Load(); n > 0 {
			send.counter(c.family, n, l)
		}
	}
}
