// Package cluster is a picture of a cluster's objects at one moment, as far as
// they say what an address is: Objects are collected by whoever reads them, Build
// makes a Snapshot of them, and the Snapshot answers as a discovery.Source. It
// knows no Kubernetes type and reads nothing.
package cluster

import (
	"net/netip"
	"time"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/policy"
)

// Objects are the objects that Build makes a Snapshot of, in the order in which
// they were read. Of two with the same kind and name the later counts.
type Objects struct {
	Services   []*Service
	Slices     []*Slice
	Pods       []*Pod
	Workloads  []*Workload
	Namespaces []*Namespace
	Egresses   []*Egress
	Routes     []*Route
	// Policies say who may call; see proxy/policy.
	Policies policy.Objects
}

// Add appends the objects of o.
func (all *Objects) Add(o Objects) {
	all.Services = append(all.Services, o.Services...)
	all.Slices = append(all.Slices, o.Slices...)
	all.Pods = append(all.Pods, o.Pods...)
	all.Workloads = append(all.Workloads, o.Workloads...)
	all.Namespaces = append(all.Namespaces, o.Namespaces...)
	all.Egresses = append(all.Egresses, o.Egresses...)
	all.Routes = append(all.Routes, o.Routes...)
	all.Policies.Add(o.Policies)
}

// Len is how many objects there are.
func (all *Objects) Len() int {
	return len(all.Services) + len(all.Slices) + len(all.Pods) + len(all.Workloads) + len(all.Namespaces) + len(all.Egresses) + len(all.Routes) + all.Policies.Len()
}

// Service is a Service with its TCP ports.
type Service struct {
	discovery.Object
	IPs      []netip.Addr // cluster addresses, of one or both families
	Headless bool         // clusterIP: None
	Ports    []Port
	Opaque   discovery.List
	// Policy are the annotations that package route reads.
	Policy map[string]string
}

// Port is a TCP port of a Service.
type Port struct {
	Name        string
	Number      uint16
	AppProtocol *string
	At          discovery.Object // the Service, at the line of appProtocol
	Index       int              // in spec.ports
}

// Slice is an EndpointSlice.
type Slice struct {
	discovery.Object
	Service   string // its name, in the same namespace
	Ports     []SlicePort
	Endpoints []SliceEndpoint
}

// SlicePort is a TCP port of the endpoints of a Slice.
type SlicePort struct {
	Name   string // of the Service's port
	Number uint16 // of the endpoint
}

// SliceEndpoint is one address of an EndpointSlice.
type SliceEndpoint struct {
	Addr       netip.Addr
	Ready      bool
	Serving    bool   // still answers, while it is terminating
	Pod        string // its name, if it is one; in the same namespace
	Workload   string // of the ExternalWorkload, if it is one
	Node, Zone string
}

// Pod is a pod. The addresses of one on the host's network are not its own.
type Pod struct {
	discovery.Object
	IPs    []netip.Addr
	Ports  []ContainerPort
	Opaque discovery.List
	Node   string
	Proxy  Proxy
}

// ContainerPort is a named port of a container.
type ContainerPort struct {
	Name   string
	Number uint16
}

// namesOf are those of a port.
func namesOf(list []ContainerPort, port uint16) []string {
	var out []string
	for _, c := range list {
		if c.Number == port && c.Name != "" {
			out = append(out, c.Name)
		}
	}
	return out
}

// Namespace is a namespace.
type Namespace struct {
	discovery.Object
	Opaque discovery.List
}

// Egress is an EgressNetwork.
type Egress struct {
	discovery.Object
	Networks []Network // none: all but the cluster's
	Deny     bool
	Created  time.Time
	Opaque   discovery.List
	Policy   map[string]string
}

// Network is a subnet with holes.
type Network struct {
	CIDR   netip.Prefix
	Except []netip.Prefix
}

// holds reports whether a is in n.
func (n Network) holds(a netip.Addr) bool {
	if !n.CIDR.Contains(a) {
		return false
	}
	for _, hole := range n.Except {
		if hole.Contains(a) {
			return false
		}
	}
	return true
}
