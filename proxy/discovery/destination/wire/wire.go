// Package wire translates between Views and the messages of Linkerd's destination
// and policy APIs, both ways: the controller writes them, the proxy reads them.
// What the API has no field for goes in one field of our own, which others skip;
// see own.go. It opens nothing and remembers nothing.
package wire

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"time"

	meta "github.com/linkerd/linkerd2-proxy-api/go/meta"
	netpb "github.com/linkerd/linkerd2-proxy-api/go/net"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/meshctl/meshctl/proxy/discovery"
)

// Config is what both directions have to know.
type Config struct {
	// Domain ends the names of Services; empty: cluster.local.
	Domain string
}

func (c Config) domain() string {
	if c.Domain == "" {
		return "cluster.local"
	}
	return c.Domain
}

// ServiceName is the full name of a Service: web.shop.svc.cluster.local.
func (c Config) ServiceName(namespace, name string) string {
	return name + "." + namespace + ".svc." + c.domain()
}

// ParseServiceName is ServiceName backwards; ok is false for any other name.
func (c Config) ParseServiceName(text string) (namespace, name string, ok bool) {
	rest, ok := strings.CutSuffix(strings.TrimSuffix(text, "."), ".svc."+c.domain())
	if !ok {
		return "", "", false
	}
	name, namespace, ok = strings.Cut(rest, ".")
	if !ok || name == "" || namespace == "" || strings.Contains(namespace, ".") {
		return "", "", false
	}
	return namespace, name, true
}

// Address is a as the API writes it; nil for none.
func Address(a netip.AddrPort) *netpb.TcpAddress {
	return &netpb.TcpAddress{Ip: ip(a.Addr()), Port: uint32(a.Port())}
}

func ip(a netip.Addr) *netpb.IPAddress {
	a = a.Unmap()
	switch {
	case a.Is4():
		b := a.As4()
		return &netpb.IPAddress{Ip: &netpb.IPAddress_Ipv4{Ipv4: binary.BigEndian.Uint32(b[:])}}
	case a.Is6():
		b := a.As16()
		return &netpb.IPAddress{Ip: &netpb.IPAddress_Ipv6{Ipv6: &netpb.IPv6{
			First: binary.BigEndian.Uint64(b[:8]), Last: binary.BigEndian.Uint64(b[8:])}}}
	default:
		return nil
	}
}

// AddrPort reads an address of the API; one that is none is invalid.
func AddrPort(a *netpb.TcpAddress) netip.AddrPort {
	addr := addr(a.GetIp())
	if !addr.IsValid() || a.GetPort() == 0 || a.GetPort() > 65535 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(addr, uint16(a.GetPort()))
}

func addr(a *netpb.IPAddress) netip.Addr {
	switch v := a.GetIp().(type) {
	case *netpb.IPAddress_Ipv4:
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], v.Ipv4)
		return netip.AddrFrom4(b)
	case *netpb.IPAddress_Ipv6:
		var b [16]byte
		binary.BigEndian.PutUint64(b[:8], v.Ipv6.GetFirst())
		binary.BigEndian.PutUint64(b[8:], v.Ipv6.GetLast())
		return netip.AddrFrom16(b).Unmap()
	default:
		return netip.Addr{}
	}
}

// The groups of the objects that the API names.
const (
	coreGroup    = "core"
	policyGroup  = "policy.linkerd.io"
	gatewayGroup = "gateway.networking.k8s.io"
)

// groupOf is the API group of a kind.
func groupOf(kind string) string {
	switch kind {
	case "HTTPRoute", "GRPCRoute":
		return gatewayGroup
	case "EgressNetwork":
		return policyGroup
	case "ExternalWorkload":
		return "workload.linkerd.io"
	default:
		return coreGroup
	}
}

// resource names an object; port 0: none of its ports.
func resource(o discovery.Object, port uint16) *meta.Metadata {
	return &meta.Metadata{Kind: &meta.Metadata_Resource{Resource: &meta.Resource{
		Group: groupOf(o.Kind), Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, Port: uint32(port)}}}
}

func implicit(name string) *meta.Metadata {
	return &meta.Metadata{Kind: &meta.Metadata_Default{Default: name}}
}

// object is what a Metadata names; the zero value for a default.
func object(m *meta.Metadata) (o discovery.Object, port uint16) {
	r := m.GetResource()
	if r == nil || r.GetKind() == "" {
		return discovery.Object{}, 0
	}
	return discovery.Object{Kind: r.GetKind(), Namespace: r.GetNamespace(), Name: r.GetName()}, uint16(r.GetPort())
}

// duration is nil for 0, which means no bound.
func duration(d time.Duration) *durationpb.Duration {
	if d <= 0 {
		return nil
	}
	return durationpb.New(d)
}

// span reads a duration; 0 for none and for one that is not positive.
func span(d *durationpb.Duration) time.Duration {
	if d == nil || d.CheckValid() != nil {
		return 0
	}
	return max(0, d.AsDuration())
}
