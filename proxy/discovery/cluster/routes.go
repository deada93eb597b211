package cluster

import (
	"slices"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/route"
)

// Route is an HTTPRoute or GRPCRoute and what it is attached to.
type Route struct {
	discovery.Object
	Route   route.Route
	Parents []Parent
}

// Parent is a Service or an EgressNetwork that a route is attached to.
type Parent struct {
	Kind            string // Service or EgressNetwork
	Namespace, Name string
	Port            uint16 // 0: every port
}

// parent is a Parent without its port.
type parent struct {
	kind string
	name
}

func (s *Snapshot) addRoutes(list []*Route) {
	last := make(map[parent]*Route, len(list))
	for _, r := range list {
		put(s, last, parent{r.Kind, named(r.Object)}, r, r.Object, func(o *Route) discovery.Object { return o.Object })
	}
	for _, r := range list {
		if last[parent{r.Kind, named(r.Object)}] != r {
			continue
		}
		seen := map[parent]bool{}
		for _, p := range r.Parents {
			key := parent{p.Kind, name{p.Namespace, p.Name}}
			if !seen[key] {
				s.routes[key] = append(s.routes[key], r)
			}
			seen[key] = true
		}
	}
}

// attached returns the routes of a port. Those of the clients' own namespace
// count instead of those that come with the Service (the Gateway API calls them
// consumer and producer routes); those of a third namespace do not count.
func (s *Snapshot) attached(kind string, o discovery.Object, port uint16) []*Route {
	var consumers, producers []*Route
	for _, r := range s.routes[parent{kind, named(o)}] {
		if !slices.ContainsFunc(r.Parents, func(p Parent) bool {
			return p.Kind == kind && p.Namespace == o.Namespace && p.Name == o.Name && (p.Port == 0 || p.Port == port)
		}) {
			continue
		}
		switch r.Namespace {
		case o.Namespace:
			producers = append(producers, r)
		case s.cfg.Namespace:
			consumers = append(consumers, r)
		}
	}
	if len(consumers) > 0 {
		return consumers
	}
	return producers
}
