package cluster

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/protocol"
	"github.com/meshctl/meshctl/proxy/route"
)

// tableKey is a port of a parent. Port 0 is the parent by itself, without routes.
type tableKey struct {
	parent
	port uint16
	of   string // the namespace of the clients, where they have routes of their own; see In
}

// compiled is a table and what it was made of.
type compiled struct {
	routes []*Route
	policy map[string]string
	table  *route.Table // nil: there is nothing to say
}

// compile makes the tables of everything that has routes or policies. A table of
// the picture before is taken over if nothing of it has changed, so that a View
// does not seem to change when other objects do.
func (s *Snapshot) compile(before *Snapshot) {
	for _, svc := range s.services {
		at := parent{"Service", named(svc.Object)}
		for i := range svc.Ports {
			s.compilePort(tableKey{at, svc.Ports[i].Number, ""}, svc.Object, svc.Policy, before)
		}
		s.compilePort(tableKey{at, 0, ""}, svc.Object, svc.Policy, before)
	}
	for _, e := range s.egresses {
		at := parent{"EgressNetwork", named(e.Object)}
		ports := []uint16{0}
		for _, r := range s.routes[at] {
			for _, p := range r.Parents {
				ports = append(ports, p.Port)
			}
		}
		slices.Sort(ports)
		for _, port := range slices.Compact(ports) {
			s.compilePort(tableKey{at, port, ""}, e.Object, e.Policy, before)
		}
	}
}

// compilePort makes the table of a port, and those for clients that have routes of
// their own.
func (s *Snapshot) compilePort(key tableKey, o discovery.Object, policy map[string]string, before *Snapshot) {
	s.compileOne(key, o, policy, before)
	for _, of := range s.consumers(key.parent) {
		key.of = of
		s.In(of).compileOne(key, o, policy, before)
	}
}

// consumers are the namespaces other than a parent's own that have routes for it,
// if the picture is for everyone.
func (s *Snapshot) consumers(p parent) []string {
	if !s.cfg.Everyone {
		return nil
	}
	var out []string
	for _, r := range s.routes[p] {
		if r.Namespace != p.namespace && !slices.Contains(out, r.Namespace) {
			out = append(out, r.Namespace)
		}
	}
	return out
}

func (s *Snapshot) compileOne(key tableKey, o discovery.Object, policy map[string]string, before *Snapshot) {
	// Routes count at a Service's port; an EgressNetwork has all ports, and those
	// of its routes without one under the port 0.
	var routes []*Route
	if key.port != 0 || key.kind != "Service" {
		routes = s.attached(key.kind, o, key.port)
	}
	if len(routes) == 0 && len(policy) == 0 || key.of != "" && (len(routes) == 0 || routes[0].Namespace != key.of) {
		return
	}
	if before != nil {
		if old := before.tables[key]; old != nil && slices.Equal(old.routes, routes) && maps.Equal(old.policy, policy) {
			s.tables[key] = old
			s.ignored(old)
			return
		}
	}
	c := &compiled{routes: routes, policy: policy}
	cfg := route.Config{Annotations: policy}
	for _, r := range routes {
		cfg.Routes = append(cfg.Routes, r.Route)
	}
	table, err := route.New(cfg)
	if err != nil {
		s.conflicts = append(s.conflicts, Warning{Contradiction, o, "", "its routes do not go together, so none counts: " + err.Error()})
	}
	c.table = table
	s.tables[key] = c
	s.ignored(c)
}

// ignored warns of routes that another kind of route puts out of action.
func (s *Snapshot) ignored(c *compiled) {
	if c.table == nil {
		return
	}
	for _, ref := range c.table.Ignored {
		for _, r := range c.routes {
			if r.Route.Kind == ref.Kind && r.Namespace == ref.Namespace && r.Name == ref.Name {
				w := Warning{Contradiction, r.Object, "", "it does not count: a GRPCRoute is attached to the same port"}
				if !slices.Contains(s.conflicts, w) {
					s.conflicts = append(s.conflicts, w)
				}
			}
		}
	}
}

// table returns the table of a port of a parent, nil if there is none.
func (s *Snapshot) table(kind string, o discovery.Object, port uint16) *route.Table {
	at := parent{kind, named(o)}
	for _, of := range []string{s.cfg.Namespace, ""} {
		if of != "" && !s.cfg.Everyone {
			continue
		}
		c := s.tables[tableKey{at, port, of}]
		if c == nil && kind == "EgressNetwork" {
			c = s.tables[tableKey{at, 0, of}]
		}
		if c != nil {
			return c.table
		}
	}
	return nil
}

// route fills in what becomes of requests. Routes are for requests, so what is
// declared opaque has none.
func (s *Snapshot) route(v *discovery.View, dst netip.Addr) {
	table := s.table(v.Object.Kind, v.Object, v.Port)
	if table == nil {
		return
	}
	if v.Protocol.Kind == protocol.Opaque {
		v.Bypassed = table.Routed
		return
	}
	v.Table = table
	for i, b := range v.Table.Backends {
		if i == 0 { // the parent itself
			v.Backends = append(v.Backends, discovery.Backend{
				Namespace: v.Object.Namespace, Name: v.Object.Name, Port: v.Port, Object: v.Object,
				Protocol: v.Protocol, Endpoints: v.Endpoints, Own: v.Table,
			})
			continue
		}
		v.Backends = append(v.Backends, s.backend(b, dst.Is4()))
	}
}

// Backend describes a port of a Service, with its endpoints of one family.
func (s *Snapshot) Backend(namespace, name string, port uint16, v4 bool) discovery.Backend {
	return s.backend(route.Backend{Namespace: namespace, Name: name, Port: port}, v4)
}

// ServiceIPs are the cluster addresses of a Service.
func (s *Snapshot) ServiceIPs(namespace, of string) []netip.Addr {
	if svc := s.services[name{namespace, of}]; svc != nil {
		return svc.IPs
	}
	return nil
}

// backend describes a port of a Service that a route sends to.
func (s *Snapshot) backend(b route.Backend, v4 bool) discovery.Backend {
	out := discovery.Backend{Namespace: b.Namespace, Name: b.Name, Port: b.Port}
	svc := s.services[name{b.Namespace, b.Name}]
	if svc == nil {
		return out
	}
	p := svc.port(b.Port)
	if p == nil {
		return out
	}
	var v discovery.View
	receivers := s.ready(svc, p, v4, &v)
	out.Object, out.Endpoints, out.Protocol = svc.Object, v.Endpoints, s.decide(svc, p, receivers)
	out.Own = s.table("Service", svc.Object, 0)
	return out
}

// missing warns of backends that are not there.
func (s *Snapshot) missing() []Warning {
	var out []Warning
	seen := map[Warning]bool{}
	for _, c := range s.tables {
		if c.table == nil {
			continue
		}
		for _, b := range c.table.Backends[1:] {
			if !s.backend(b, true).Object.IsZero() {
				continue
			}
			for _, r := range c.routes {
				w := Warning{NoBackend, r.Object, "", "there is no Service " + discovery.Backend{Namespace: b.Namespace, Name: b.Name, Port: b.Port}.String() + " here: requests for it fail"}
				if r.sendsTo(b) && !seen[w] {
					seen[w] = true
					out = append(out, w)
				}
			}
		}
	}
	return out
}

// sendsTo reports whether one of r's rules has the backend b.
func (r *Route) sendsTo(b route.Backend) bool {
	return slices.ContainsFunc(r.Route.Rules, func(rule route.Rule) bool {
		return slices.ContainsFunc(rule.Backends, func(ref route.BackendRef) bool {
			of := ref.Namespace
			if of == "" {
				of = r.Namespace
			}
			return of == b.Namespace && ref.Name == b.Name && uint16(ref.Port) == b.Port
		})
	})
}
