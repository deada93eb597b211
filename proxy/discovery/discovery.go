// Package discovery says what an original destination is: a port of a Service,
// a pod, an address outside, and for each of them which endpoints there are,
// what they speak, and who said so. A Target is the lasting answer; its View
// changes as the sources change.
//
// It holds the words and the cache. What it knows comes from a Source: see
// cluster, which has a picture of Kubernetes objects, and file, which reads them.
package discovery

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/meshctl/meshctl/proxy/route"
)

// Kind is what a destination is. The zero value means "not said".
type Kind uint8

// The kinds of destination.
const (
	ServicePort Kind = iota + 1 // a cluster address of a Service
	HeadlessPod                 // a pod behind a Service without cluster address
	Pod                         // a pod's own address
	Workload                    // an ExternalWorkload's own address
	Egress                      // an address inside an EgressNetwork
	Address                     // an address that nothing is known of
)

// String returns the word for people and logs.
func (k Kind) String() string {
	switch k {
	case ServicePort:
		return "service"
	case HeadlessPod:
		return "headless"
	case Pod:
		return "pod"
	case Workload:
		return "workload"
	case Egress:
		return "egress"
	case Address:
		return "address"
	default:
		return ""
	}
}

// Object names a Kubernetes object and where it was read. The zero value is no
// object.
type Object struct {
	Kind      string
	Namespace string // empty for what has none
	Name      string
	File      string // empty if it came from no file
	Line      int    // from 1; of the field in question, else where the object begins
}

// IsZero reports whether o is no object.
func (o Object) IsZero() bool { return o.Kind == "" }

// At returns o with the line of one of its fields; 0 leaves the line.
func (o Object) At(line int) Object {
	if line > 0 {
		o.Line = line
	}
	return o
}

// String returns "Service shop/db", without the place.
func (o Object) String() string {
	switch {
	case o.IsZero():
		return ""
	case o.Namespace == "":
		return o.Kind + " " + o.Name
	default:
		return o.Kind + " " + o.Namespace + "/" + o.Name
	}
}

// Place returns "file:line", or "" if the object came from no file.
func (o Object) Place() string {
	switch {
	case o.File == "":
		return ""
	case o.Line == 0:
		return o.File
	default:
		return o.File + ":" + strconv.Itoa(o.Line)
	}
}

// Endpoint is one address that connections of a Target can go to.
type Endpoint struct {
	Addr   netip.AddrPort
	Pod    string // namespace/name; empty if it is no pod
	Node   string
	Zone   string
	Opaque bool // the pod's own annotation declares the port opaque
	Mesh   Mesh // whether it is in the mesh
}

// Backend is a port of a Service that a route sends to.
type Backend struct {
	Namespace, Name string
	Port            uint16
	Object          Object // none: there is no such Service, or it has no such port
	Protocol        Decision
	Endpoints       []Endpoint
	// Own is what the Service's own annotations say (its Breaker and Penalty); nil:
	// nothing.
	Own *route.Table
}

// Is reports whether o is the same port of the same Service.
func (b Backend) Is(o Backend) bool {
	return b.Namespace == o.Namespace && b.Name == o.Name && b.Port == o.Port
}

func (b Backend) same(o Backend) bool {
	return b.Is(o) && b.Object == o.Object && b.Own == o.Own && b.Protocol.same(o.Protocol) && slices.Equal(b.Endpoints, o.Endpoints)
}

// String returns "namespace/name:port".
func (b Backend) String() string {
	return b.Namespace + "/" + b.Name + ":" + strconv.Itoa(int(b.Port))
}

// Refusal is why nothing goes to a destination. The zero value: it is not refused.
type Refusal uint8

// The refusals.
const (
	NoSuchPort   Refusal = iota + 1 // a Service's address, and a port that it does not have
	EgressDenied                    // trafficPolicy: Deny
)

// String returns a word of a closed set, for metrics; "" if nothing is refused.
func (r Refusal) String() string {
	switch r {
	case NoSuchPort:
		return "no_such_port"
	case EgressDenied:
		return "egress_denied"
	default:
		return ""
	}
}

// View is what is known of a Target at one moment. It is never changed.
type View struct {
	Version  uint64 // grows by one with each change of a Target's View, from 1
	Kind     Kind
	Object   Object // what the destination belongs to; none for an Address
	Port     uint16 // of the Service, else of the address
	PortName string // of the Service's port
	Refused  Refusal
	// Pending: the source has been asked and has not answered yet. There are no
	// endpoints then, which are waited for as those of a Service are; what comes next
	// is the answer, or after a while the address as it is.
	Pending  bool
	Protocol Decision
	// Endpoints are those that are ready, sorted by address; for all but a
	// Service's port it is the destination itself. None: nothing is ready.
	Endpoints []Endpoint
	// Table says what becomes of a request; nil: it goes to Endpoints as it is,
	// because no route is attached and no annotation asks for anything.
	Table *route.Table
	// Backends are those of Table, by its indexes. The first stands for Endpoints.
	Backends []Backend
	// Bypassed: there are routes, which are not in Table because what passes is
	// declared opaque.
	Bypassed bool
}

// same reports whether two Views say the same; their versions do not count.
func (v *View) same(o *View) bool {
	return v.Kind == o.Kind && v.Object == o.Object && v.Port == o.Port && v.PortName == o.PortName &&
		v.Refused == o.Refused && v.Pending == o.Pending && v.Protocol.same(o.Protocol) && slices.Equal(v.Endpoints, o.Endpoints) &&
		v.Table == o.Table && v.Bypassed == o.Bypassed && slices.EqualFunc(v.Backends, o.Backends, Backend.same)
}

// String returns what the destination is, for people: "Service shop/db port 3306
// (mysql)".
func (v *View) String() string {
	if v.Object.IsZero() {
		return "an address that no object names"
	}
	var b strings.Builder
	b.WriteString(v.Object.String())
	b.WriteString(" port " + strconv.Itoa(int(v.Port)))
	if v.PortName != "" {
		b.WriteString(" (" + v.PortName + ")")
	}
	return b.String()
}

// Source knows what addresses are. It is read-only and may be asked from any
// goroutine.
type Source interface {
	// Find describes dst; the View's Version is the caller's.
	Find(dst netip.AddrPort) View
}

// Resolver finds the Target of an original destination. It never returns nil.
type Resolver interface {
	Resolve(dst netip.AddrPort) *Target
}
