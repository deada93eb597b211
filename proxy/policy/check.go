package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is what is odd about an object beside the others. The zero value means
// "not said".
type Fault uint8

// The faults.
const (
	UnknownReference   Fault = iota + 1 // it names an object that is not there
	NoTarget                            // what it is for is not there, or it is for nothing
	OverlappingServers                  // two Servers select one port of a pod
	SelectsNothing                      // a Server that selects no port of any pod
	UnknownPortName                     // a Server selects a pod that has no port of that name
	TwiceThere                          // two objects of one name
	OpenToAll                           // an AuthorizationPolicy that requires nothing
	NeverApplies                        // a route's authorization on a port that is never taken for HTTP
)

// Problem is something that its author probably did not mean. It changes nothing:
// what cannot be resolved lets nobody in.
type Problem struct {
	Fault  Fault
	Object Object
	Field  string
	Text   string
}

// checker looks at all objects together.
type checker struct {
	Objects
	there    map[reference]bool
	problems []Problem
}

// reference is how objects name each other.
type reference struct{ group, kind, namespace, name string }

// Check returns what is odd, by namespace and name. Whether a Server selects
// anything can be told only where there are pods of its namespace.
func Check(all Objects) []Problem {
	c := checker{there: map[reference]bool{}}
	c.Servers, c.Authorizations = once(&c, all.Servers), once(&c, all.Authorizations)
	c.MeshTLS, c.Networks = once(&c, all.MeshTLS), once(&c, all.Networks)
	c.ServerAuthorizations, c.Pods = once(&c, all.ServerAuthorizations), latest(all.Pods)
	for _, o := range c.Servers {
		c.there[reference{Group, "Server", o.Namespace, o.Name}] = true
	}
	for _, o := range c.MeshTLS {
		c.there[reference{Group, "MeshTLSAuthentication", o.Namespace, o.Name}] = true
	}
	for _, o := range c.Networks {
		c.there[reference{Group, "NetworkAuthentication", o.Namespace, o.Name}] = true
	}
	c.routes(all.Routes)
	c.Routes = all.Routes
	for _, a := range c.Authorizations {
		c.authorization(a)
	}
	for _, a := range c.ServerAuthorizations {
		c.older(a)
	}
	c.servers()
	slices.SortStableFunc(c.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Object.File, b.Object.File), cmp.Compare(a.Object.Line, b.Object.Line),
			cmp.Compare(a.Object.Namespace, b.Object.Namespace), cmp.Compare(a.Object.Name, b.Object.Name))
	})
	return c.problems
}

func (c *checker) tell(f Fault, at Object, field, format string, args ...any) {
	c.problems = append(c.problems, Problem{Fault: f, Object: at, Field: field, Text: fmt.Sprintf(format, args...)})
}

// once tells of objects that are there twice, and leaves the earlier ones out.
func once[T object](c *checker, list []T) []T {
	kept := latest(list)
	for _, o := range list {
		for _, k := range kept {
			a, b := o.named(), k.named()
			if a != b && a.Namespace == b.Namespace && a.Name == b.Name {
				c.tell(TwiceThere, *b, "", "it is there twice: the one at %s does not count", a.Place())
			}
		}
	}
	return kept
}

// routes notes those that are attached to a Server, and looks for their Servers.
func (c *checker) routes(list []*Route) {
	for _, r := range list {
		c.there[reference{r.Group, r.Kind, r.Namespace, r.Name}] = true
		for i, s := range r.Servers {
			if !c.there[reference{Group, "Server", r.Namespace, s}] {
				c.tell(NoTarget, r.Object, fmt.Sprintf("spec.parentRefs[%d]", i), "there is no Server %s/%s", r.Namespace, s)
			}
		}
	}
}

func (c *checker) authorization(a *AuthorizationPolicy) {
	t := a.Target
	switch {
	case t.Kind == "Namespace":
		if t.Name != a.Namespace {
			c.tell(NoTarget, a.Object, "spec.targetRef.name", "a policy is for its own namespace, %s, not for %s", a.Namespace, t.Name)
		} else if !slices.ContainsFunc(c.Servers, func(s *Server) bool { return s.Namespace == a.Namespace }) {
			c.tell(NoTarget, a.Object, "spec.targetRef", "there is no Server in %s: a port that no Server selects has the default policy", a.Namespace)
		}
	case !c.there[reference{t.Group, t.Kind, a.Namespace, t.Name}]:
		what := "there is no " + t.Kind
		if t.Kind != "Server" {
			what += " of a Server called"
		}
		c.tell(NoTarget, a.Object, "spec.targetRef", "%s %s/%s", what, a.Namespace, t.Name)
	case t.Kind != "Server":
		c.neverHTTP(a)
	}
	if len(a.Required) == 0 {
		c.tell(OpenToAll, a.Object, "spec.requiredAuthenticationRefs", "nothing is required: everybody may call")
	}
	for i, r := range a.Required {
		if r.isServiceAccount() {
			continue // it needs no object: its name is in the client's certificate
		}
		space := cmp.Or(r.Namespace, a.Namespace)
		if !c.there[reference{r.Group, r.Kind, space, r.Name}] {
			c.tell(UnknownReference, a.Object, fmt.Sprintf("spec.requiredAuthenticationRefs[%d]", i), "there is no %s %s/%s: the policy lets nobody in", r.Kind, space, r.Name)
		}
	}
}

// neverHTTP tells of a route's authorization where all Servers of the route
// declare a protocol that has no requests.
func (c *checker) neverHTTP(a *AuthorizationPolicy) {
	for _, r := range c.Routes {
		if r.Namespace != a.Namespace || r.Group != a.Target.Group || r.Kind != a.Target.Kind || r.Name != a.Target.Name {
			continue
		}
		for _, s := range c.Servers {
			if s.Namespace == r.Namespace && slices.Contains(r.Servers, s.Name) && !s.mayBeHTTP() {
				c.tell(NeverApplies, a.Object, "spec.targetRef", "%s is %s: routes and their authorizations do not count there", s.Object, s.Protocol)
			}
		}
	}
}

func (c *checker) older(a *ServerAuthorization) {
	if a.Server != "" && !c.there[reference{Group, "Server", a.Namespace, a.Server}] {
		c.tell(NoTarget, a.Object, "spec.server.name", "there is no Server %s/%s", a.Namespace, a.Server)
	}
	if a.Selector != nil && !slices.ContainsFunc(c.Servers, func(s *Server) bool {
		return s.Namespace == a.Namespace && a.Selector.Matches(s.Labels)
	}) {
		c.tell(NoTarget, a.Object, "spec.server.selector", "no Server of %s has these labels", a.Namespace)
	}
}

// servers looks at what each Server selects of the pods that are there.
func (c *checker) servers() {
	for _, s := range c.Servers {
		pods, selected, named := 0, 0, 0
		for _, p := range c.Pods {
			if p.Namespace != s.Namespace {
				continue
			}
			pods++
			if s.selects(p) {
				selected++
				named += len(s.ports(p))
			}
		}
		switch {
		case pods == 0 || s.Pods == nil:
		case selected == 0:
			c.tell(SelectsNothing, s.Object, "spec.podSelector", "no pod of %s has these labels", s.Namespace)
		case named == 0:
			c.tell(UnknownPortName, s.Object, "spec.port", "no pod that it selects has a port called %q: it selects nothing", s.PortName)
		}
	}
	c.overlaps()
}

// overlaps tells each pair of Servers once, however many pods they share.
func (c *checker) overlaps() {
	told := map[string]bool{}
	for _, p := range c.Pods {
		first := map[uint16]*Server{}
		for _, s := range c.Servers {
			if !s.selects(p) {
				continue
			}
			for _, port := range s.ports(p) {
				other := first[port]
				if other == nil {
					first[port] = s
					continue
				}
				winner, loser := other, s
				if s.before(other) {
					winner, loser = s, other
					first[port] = s
				}
				key := strings.Join([]string{s.Namespace, winner.Name, loser.Name}, "/")
				if !told[key] {
					c.tell(OverlappingServers, loser.Object, "spec", "port %d of %s is %s's too, which is older or first by name: this one does not count there", port, p.Object, winner.Object)
				}
				told[key] = true
			}
		}
	}
}
