package policy

import (
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/meshctl/meshctl/proxy/protocol"
	"github.com/meshctl/meshctl/proxy/route"
)

// The groups of the objects.
const (
	Group        = "policy.linkerd.io"
	GatewayGroup = "gateway.networking.k8s.io"
)

// Object names a Kubernetes object and where it was read.
type Object struct {
	Kind, Namespace, Name string
	File                  string // empty if it came from no file
	Line                  int
}

// String returns "Server shop/web".
func (o Object) String() string {
	switch {
	case o.Kind == "":
		return ""
	case o.Namespace == "":
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Place returns "file:line", or "" if the object came from no file.
func (o Object) Place() string {
	if o.File == "" || o.Line == 0 {
		return o.File
	}
	return o.File + ":" + strconv.Itoa(o.Line)
}

func (o *Object) named() *Object { return o }
func (o *Object) group() string  { return "" } // a kind that only one group has
func (r *Route) group() string   { return r.Group }

// Objects are those that say who may call, and whom. They must not change once
// they are used. Of two with the same kind and name the later counts.
type Objects struct {
	Servers              []*Server
	Authorizations       []*AuthorizationPolicy
	MeshTLS              []*MeshTLSAuthentication
	Networks             []*NetworkAuthentication
	ServerAuthorizations []*ServerAuthorization
	Routes               []*Route
	Pods                 []*Pod
	Namespaces           []*Namespace
}

// Add appends the objects of o.
func (all *Objects) Add(o Objects) {
	all.Servers = append(all.Servers, o.Servers...)
	all.Authorizations = append(all.Authorizations, o.Authorizations...)
	all.MeshTLS = append(all.MeshTLS, o.MeshTLS...)
	all.Networks = append(all.Networks, o.Networks...)
	all.ServerAuthorizations = append(all.ServerAuthorizations, o.ServerAuthorizations...)
	all.Routes = append(all.Routes, o.Routes...)
	all.Pods = append(all.Pods, o.Pods...)
	all.Namespaces = append(all.Namespaces, o.Namespaces...)
}

// Len is how many objects there are that are about policy only: pods and
// namespaces are counted elsewhere.
func (all *Objects) Len() int {
	return len(all.Servers) + len(all.Authorizations) + len(all.MeshTLS) + len(all.Networks) + len(all.ServerAuthorizations) + len(all.Routes)
}

// Server is a port of some pods, and what is declared of it.
type Server struct {
	Object
	Created  time.Time
	Labels   map[string]string
	Pods     *Selector // nil: it selects external workloads only
	External *Selector
	Port     uint16 // 0: PortName says it
	PortName string
	Protocol protocol.Kind // Unknown: to be found out
	GRPC     bool
	Access   Default // whom it lets in beside its authorizations; not said: nobody
	Detect   Action  // of its annotation; not said: the proxy's own setting
}

// AuthorizationPolicy lets clients call its target, if they satisfy all that is
// required.
type AuthorizationPolicy struct {
	Object
	Target   Target
	Required []Required
}

// Target is what an AuthorizationPolicy is for, in its own namespace.
type Target struct {
	Group, Kind string // Server, HTTPRoute, GRPCRoute, Namespace
	Name        string
}

// Required is an authentication that a client must satisfy.
type Required struct {
	Group, Kind     string // MeshTLSAuthentication, NetworkAuthentication, ServiceAccount
	Namespace, Name string // Namespace empty: the policy's
}

// MeshTLSAuthentication is a set of identities.
type MeshTLSAuthentication struct {
	Object
	Identities []string // "*", "*.suffix", or a name
	Refs       []IdentityRef
}

// IdentityRef names identities by an object: a ServiceAccount, or all of a
// Namespace.
type IdentityRef struct {
	Kind            string // ServiceAccount or Namespace
	Namespace, Name string // Namespace empty: the object's own
}

// NetworkAuthentication is a set of networks.
type NetworkAuthentication struct {
	Object
	Networks []Network
}

// ServerAuthorization is the older form of an AuthorizationPolicy.
type ServerAuthorization struct {
	Object
	Server          string    // by its name
	Selector        *Selector // or by its labels
	Networks        []Network // none: the cluster's
	Unauthenticated bool
	TLS             bool // mesh TLS without an identity is enough
	Identities      []string
	ServiceAccounts []IdentityRef
}

// Route is an HTTPRoute or GRPCRoute of Servers of its own namespace.
type Route struct {
	Object
	Group   string
	Route   route.Route
	Servers []string // their names
}

// Pod is what a pod has to do with policy.
type Pod struct {
	Object
	IPs     []netip.Addr
	Labels  map[string]string
	Ports   []NamedPort
	Probes  []Probe
	Default Default // of its annotation
}

// NamedPort is a port of a container that has a name.
type NamedPort struct {
	Name   string
	Number uint16
}

// Probe is where the kubelet asks with HTTP whether a container is well.
type Probe struct {
	Port uint16
	Path string // without the query
}

// Namespace is a namespace with a default policy.
type Namespace struct {
	Object
	Default Default // of its annotation
}

// object is anything that embeds an Object.
type object interface {
	named() *Object
	group() string
}

// latest leaves out all but the last of those of the same name, in order.
func latest[T object](list []T) []T {
	type name struct{ group, kind, namespace, name string }
	last := make(map[name]int, len(list))
	of := func(o T) name { n := o.named(); return name{o.group(), n.Kind, n.Namespace, n.Name} }
	for i, o := range list {
		last[of(o)] = i
	}
	if len(last) == len(list) {
		return list
	}
	return slices.Collect(func(yield func(T) bool) {
		for i, o := range list {
			if last[of(o)] == i && !yield(o) {
				return
			}
		}
	})
}
