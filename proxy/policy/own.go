package policy

import (
	"net/netip"
	"slices"
)

// Own finds the pod with that name in the namespace or, without a name, the one
// with an address that is local; nil: there is none. Of two of one name the later
// counts.
func (all *Objects) Own(namespace, name string, local func(netip.Addr) bool) *Pod {
	for _, p := range slices.Backward(all.Pods) {
		switch {
		case name != "" && p.Namespace == namespace && p.Name == name,
			name == "" && slices.ContainsFunc(p.IPs, local):
			return p
		}
	}
	return nil
}

// DefaultOf is what the annotation of a namespace says; not said: nothing.
func (all *Objects) DefaultOf(namespace string) Default {
	for _, n := range slices.Backward(all.Namespaces) {
		if n.Name == namespace {
			return n.Default
		}
	}
	return 0
}

// HasServers reports whether there are Servers in a namespace.
func (all *Objects) HasServers(namespace string) bool {
	return slices.ContainsFunc(all.Servers, func(s *Server) bool { return s.Namespace == namespace })
}

// Find returns the object that a Ref names; the zero value if it is none of these.
func (all *Objects) Find(r Ref) Object {
	is := func(o Object) bool { return o.Namespace == r.Namespace && o.Name == r.Name }
	var found Object
	switch r.Kind {
	case "authorizationpolicy":
		for _, o := range all.Authorizations {
			if is(o.Object) {
				found = o.Object
			}
		}
	case "serverauthorization":
		for _, o := range all.ServerAuthorizations {
			if is(o.Object) {
				found = o.Object
			}
		}
	}
	return found
}
