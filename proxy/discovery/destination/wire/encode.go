package wire

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	opaque "github.com/linkerd/linkerd2-proxy-api/go/opaque_route"
	outbound "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/protocol"
	"github.com/meshctl/meshctl/proxy/route"
)

// Linkerd's constants of a backend.
const (
	queueCapacity = 100
	failFast      = 3 * time.Second
	defaultRTT    = 30 * time.Millisecond
	decay         = 10 * time.Second
)

// encoder makes one OutboundPolicy.
type encoder struct {
	Config
	v *discovery.View
	// v6: the client asked for an IPv6 address, so it wants endpoints of that family.
	v6 bool
	// Addrs are cluster addresses of that family by Service, for backends that have
	// both families.
	addrs func(namespace, name string) netip.Addr
}

// Policy is what the outbound policy API answers about v, the View of dst. ipv6 is
// asked for the IPv6 address of a Service that has IPv4 too; the zero Addr is none.
func (c Config) Policy(dst netip.AddrPort, v *discovery.View, ipv6 func(namespace, name string) netip.Addr) *outbound.OutboundPolicy {
	e := encoder{c, v, dst.Addr().Is6(), ipv6}
	out := &outbound.OutboundPolicy{Protocol: e.protocol(dst)}
	if v.Object.IsZero() {
		out.Metadata = implicit("fallback")
	} else {
		out.Metadata = resource(v.Object, v.Port)
	}
	setBytes(out, ownView, e.own())
	return out
}

func (e encoder) protocol(dst netip.AddrPort) *outbound.ProxyProtocol {
	v := e.v
	relay := &outbound.ProxyProtocol_Opaque{Routes: []*outbound.OpaqueRoute{e.opaque(v.Refused != 0)}}
	accrual := e.accrual()
	switch {
	case v.Refused != 0 || v.Protocol.Kind == protocol.Opaque:
		return &outbound.ProxyProtocol{Kind: &outbound.ProxyProtocol_Opaque_{Opaque: relay}}
	case v.Table != nil && slices.ContainsFunc(v.Table.Config.Routes, func(r route.Route) bool { return r.Kind == route.GRPC }):
		return &outbound.ProxyProtocol{Kind: &outbound.ProxyProtocol_Grpc_{Grpc: &outbound.ProxyProtocol_Grpc{Routes: e.grpcRoutes(), FailureAccrual: accrual}}}
	}
	routes := e.httpRoutes()
	switch v.Protocol.Kind {
	case protocol.HTTP1:
		return &outbound.ProxyProtocol{Kind: &outbound.ProxyProtocol_Http1_{Http1: &outbound.ProxyProtocol_Http1{Routes: routes, FailureAccrual: accrual}}}
	case protocol.HTTP2:
		return &outbound.ProxyProtocol{Kind: &outbound.ProxyProtocol_Http2_{Http2: &outbound.ProxyProtocol_Http2{Routes: routes, FailureAccrual: accrual}}}
	default:
		return &outbound.ProxyProtocol{Kind: &outbound.ProxyProtocol_Detect_{Detect: &outbound.ProxyProtocol_Detect{
			Timeout: durationpb.New(10 * time.Second), Opaque: relay,
			Http1: &outbound.ProxyProtocol_Http1{Routes: routes, FailureAccrual: accrual},
			Http2: &outbound.ProxyProtocol_Http2{Routes: routes, FailureAccrual: accrual},
		}}}
	}
}

func (e encoder) opaque(refused bool) *outbound.OpaqueRoute {
	rule := &outbound.OpaqueRoute_Rule{Backends: &outbound.OpaqueRoute_Distribution{Kind: &outbound.OpaqueRoute_Distribution_FirstAvailable_{
		FirstAvailable: &outbound.OpaqueRoute_Distribution_FirstAvailable{Backends: []*outbound.OpaqueRoute_RouteBackend{{Backend: e.itself()}}}}}}
	if refused {
		rule.Filters = []*outbound.OpaqueRoute_Filter{{Kind: &outbound.OpaqueRoute_Filter_Forbidden{Forbidden: &opaque.Forbidden{}}}}
	}
	return &outbound.OpaqueRoute{Metadata: implicit("opaque"), Rules: []*outbound.OpaqueRoute_Rule{rule}}
}

// itself is the destination as a backend.
func (e encoder) itself() *outbound.Backend {
	v := e.v
	if v.Kind == discovery.ServicePort {
		return e.balancer(v.Object.Namespace, v.Object.Name, v.Port)
	}
	b := &outbound.Backend{Metadata: implicit("endpoint"), Queue: queue()}
	if w := single(v); w != nil {
		b.Kind = &outbound.Backend_Forward{Forward: w}
	}
	return b
}

// balancer is a port of a Service as a backend.
func (e encoder) balancer(namespace, name string, port uint16) *outbound.Backend {
	return &outbound.Backend{
		Metadata: resource(discovery.Object{Kind: "Service", Namespace: namespace, Name: name}, port), Queue: queue(),
		Kind: &outbound.Backend_Balancer{Balancer: &outbound.Backend_BalanceP2C{
			Discovery: &outbound.Backend_EndpointDiscovery{Kind: &outbound.Backend_EndpointDiscovery_Dst{
				Dst: &outbound.Backend_EndpointDiscovery_DestinationGet{Path: e.path(namespace, name, port)}}},
			Load: &outbound.Backend_BalanceP2C_PeakEwma_{PeakEwma: &outbound.Backend_BalanceP2C_PeakEwma{
				DefaultRtt: durationpb.New(defaultRTT), Decay: durationpb.New(decay)}},
		}},
	}
}

// path is what Get is to be asked for the members. A name stands for those of IPv4,
// or of IPv6 if that is all the Service has; where it has both, its IPv6 address
// stands for those.
func (e encoder) path(namespace, name string, port uint16) string {
	if e.v6 && e.addrs != nil {
		if a := e.addrs(namespace, name); a.IsValid() {
			return netip.AddrPortFrom(a, port).String()
		}
	}
	return net.JoinHostPort(e.ServiceName(namespace, name), strconv.Itoa(int(port)))
}

func queue() *outbound.Queue {
	return &outbound.Queue{Capacity: queueCapacity, FailfastTimeout: durationpb.New(failFast)}
}

func (e encoder) accrual() *outbound.FailureAccrual {
	if e.v.Table == nil || e.v.Table.Breaker == (route.Breaker{}) {
		return nil
	}
	b := e.v.Table.Breaker
	return &outbound.FailureAccrual{Kind: &outbound.FailureAccrual_ConsecutiveFailures_{ConsecutiveFailures: &outbound.FailureAccrual_ConsecutiveFailures{
		MaxFailures: b.MaxFailures, Backoff: &outbound.ExponentialBackoff{
			MinBackoff: durationpb.New(b.MinPenalty), MaxBackoff: durationpb.New(b.MaxPenalty), JitterRatio: float32(b.Jitter)},
	}}}
}

// sorted are the routes that count, the oldest first and then by name: the API has
// no time of creation, and what is first wins a tie.
func sorted(t *route.Table) []route.Route {
	var out []route.Route
	for _, r := range t.Config.Routes {
		if !slices.Contains(t.Ignored, route.Ref{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}) {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b route.Route) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// action finds what was made of a rule.
func action(t *route.Table, r *route.Route, rule int) *route.Action {
	ref := route.Ref{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
	for _, a := range t.Actions {
		if a.Route == ref && a.Rule == rule {
			return a
		}
	}
	return nil
}

// missing reports whether a backend is not there.
func (e encoder) missing(namespace, name string, port uint16) bool {
	for _, b := range e.v.Backends {
		if b.Namespace == namespace && b.Name == name && b.Port == port {
			return b.Object.IsZero()
		}
	}
	return true
}
