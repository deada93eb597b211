package wire

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	grpcroute "github.com/linkerd/linkerd2-proxy-api/go/grpc_route"
	httproute "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	types "github.com/linkerd/linkerd2-proxy-api/go/http_types"
	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	meta "github.com/linkerd/linkerd2-proxy-api/go/meta"
	netpb "github.com/linkerd/linkerd2-proxy-api/go/net"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/policy"
	"github.com/meshctl/meshctl/proxy/protocol"
	"github.com/meshctl/meshctl/proxy/route"
)

// Inbound is what the inbound policy API says of a pod's port. What it cannot say
// lets fewer clients in, never more.
func Inbound(p *policy.Port, ips []netip.Addr) *inbound.Server {
	d := p.Describe()
	out := &inbound.Server{Protocol: inboundProtocol(p, d), Labels: labelsOf(p.Server)}
	for _, a := range ips {
		out.ServerIps = append(out.ServerIps, ip(a))
	}
	local := []policy.Network{{CIDR: netip.MustParsePrefix("127.0.0.0/8")}, {CIDR: netip.MustParsePrefix("::1/128")}}
	localhost := policy.Grant{Ref: policy.Ref{Kind: "default", Name: "localhost"}, From: [][]policy.Network{local}}
	out.Authorizations = authorizations(append([]policy.Grant{localhost}, d.Grants...))
	setBytes(out, ownPort, ownOfPort(d))
	return out
}

// Declare has others than ours take a port for opaque whose pod, namespace or the
// default list declares it to be: ours know that from the pod itself. v is the View of
// the pod's port.
func Declare(s *inbound.Server, v *discovery.View) {
	if v.Kind == discovery.Pod && v.Protocol.Kind == protocol.Opaque {
		s.Protocol = &inbound.ProxyProtocol{Kind: &inbound.ProxyProtocol_Opaque_{Opaque: &inbound.ProxyProtocol_Opaque{}}}
	}
}

func labelsOf(r policy.Ref) map[string]string {
	return map[string]string{"group": r.Group, "kind": r.Kind, "name": r.Name}
}

func refOf(r policy.Ref) *meta.Metadata {
	if r.Kind == "default" {
		return implicit(r.Name)
	}
	return &meta.Metadata{Kind: &meta.Metadata_Resource{Resource: &meta.Resource{Group: r.Group, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}}}
}

func inboundProtocol(p *policy.Port, d policy.Description) *inbound.ProxyProtocol {
	switch {
	case p.Protocol == protocol.Opaque:
		return &inbound.ProxyProtocol{Kind: &inbound.ProxyProtocol_Opaque_{Opaque: &inbound.ProxyProtocol_Opaque{}}}
	case p.Protocol == protocol.TLS:
		return &inbound.ProxyProtocol{Kind: &inbound.ProxyProtocol_Tls_{Tls: &inbound.ProxyProtocol_Tls{}}}
	case p.GRPC:
		return &inbound.ProxyProtocol{Kind: &inbound.ProxyProtocol_Grpc_{Grpc: &inbound.ProxyProtocol_Grpc{Routes: inboundGRPC(d)}}}
	case p.Protocol == protocol.HTTP1:
		return &inbound.ProxyProtocol{Kind: &inbound.ProxyProtocol_Http1_{Http1: &inbound.ProxyProtocol_Http1{Routes: inboundHTTP(d)}}}
	case p.Protocol == protocol.HTTP2:
		return &inbound.ProxyProtocol{Kind: &inbound.ProxyProtocol_Http2_{Http2: &inbound.ProxyProtocol_Http2{Routes: inboundHTTP(d)}}}
	}
	wait := p.DetectTimeout
	if wait <= 0 {
		wait = 10 * time.Second
	}
	return &inbound.ProxyProtocol{Kind: &inbound.ProxyProtocol_Detect_{Detect: &inbound.ProxyProtocol_Detect{Timeout: durationpb.New(wait), HttpRoutes: inboundHTTP(d)}}}
}

// anywhere are the networks of an authorization that names none.
func anywhere() []policy.Network {
	return []policy.Network{{CIDR: netip.MustParsePrefix("0.0.0.0/0")}, {CIDR: netip.MustParsePrefix("::/0")}}
}

func inboundHTTP(d policy.Description) []*inbound.HttpRoute {
	var out []*inbound.HttpRoute
	for _, r := range d.Routes {
		if r.Route.Kind != route.HTTP {
			continue
		}
		to := &inbound.HttpRoute{Metadata: refOf(r.Ref), Hosts: hosts(r.Route.Hostnames), Authorizations: authorizations(r.Grants)}
		for _, rule := range r.Route.Rules {
			one := &inbound.HttpRoute_Rule{Filters: inboundFilters(rule.Filters)}
			for _, m := range rule.Matches {
				one.Matches = append(one.Matches, httpMatch(m))
			}
			if len(one.Matches) == 0 {
				one.Matches = []*httproute.HttpRouteMatch{{Path: prefix("/")}}
			}
			to.Rules = append(to.Rules, one)
		}
		out = append(out, to)
	}
	if d.Routed {
		return out
	}
	if len(d.Probes) > 0 {
		probe := &inbound.HttpRoute{Metadata: implicit("probe"), Rules: []*inbound.HttpRoute_Rule{{}},
			Authorizations: authorizations([]policy.Grant{{Ref: policy.Ref{Kind: "default", Name: "probe"}}})}
		for _, path := range d.Probes {
			probe.Rules[0].Matches = append(probe.Rules[0].Matches, &httproute.HttpRouteMatch{
				Path:   &httproute.PathMatch{Kind: &httproute.PathMatch_Exact{Exact: path}},
				Method: &types.HttpMethod{Type: &types.HttpMethod_Registered_{Registered: types.HttpMethod_GET}}})
		}
		out = append(out, probe)
	}
	return append(out, &inbound.HttpRoute{Metadata: implicit("default"),
		Rules: []*inbound.HttpRoute_Rule{{Matches: []*httproute.HttpRouteMatch{{Path: prefix("/")}}}}})
}

func inboundFilters(list []route.Filter) []*inbound.HttpRoute_Filter {
	var out []*inbound.HttpRoute_Filter
	for _, f := range list {
		switch f.Type {
		case "RequestHeaderModifier":
			out = append(out, &inbound.HttpRoute_Filter{Kind: &inbound.HttpRoute_Filter_RequestHeaderModifier{RequestHeaderModifier: requestHeaders(f.RequestHeaders)}})
		case "RequestRedirect":
			out = append(out, &inbound.HttpRoute_Filter{Kind: &inbound.HttpRoute_Filter_Redirect{Redirect: redirect(f.Redirect)}})
		default:
			out = append(out, &inbound.HttpRoute_Filter{Kind: &inbound.HttpRoute_Filter_FailureInjector{
				FailureInjector: &httproute.HttpFailureInjector{Status: 500, Message: f.Type + " is not in this API"}}})
		}
	}
	return out
}

func inboundGRPC(d policy.Description) []*inbound.GrpcRoute {
	var out []*inbound.GrpcRoute
	for _, r := range d.Routes {
		if r.Route.Kind != route.GRPC {
			continue
		}
		to := &inbound.GrpcRoute{Metadata: refOf(r.Ref), Hosts: hosts(r.Route.Hostnames), Authorizations: authorizations(append(slices.Clone(r.Grants), d.Grants...))}
		for _, rule := range r.Route.Rules {
			one := &inbound.GrpcRoute_Rule{}
			for _, m := range rule.Matches {
				match := &grpcroute.GrpcRouteMatch{Headers: headers(m.Headers)}
				if m.RPC != nil {
					match.Rpc = &grpcroute.GrpcRpcMatch{Service: m.RPC.Service, Method: m.RPC.Method}
				}
				one.Matches = append(one.Matches, match)
			}
			if len(one.Matches) == 0 {
				one.Matches = []*grpcroute.GrpcRouteMatch{{}}
			}
			to.Rules = append(to.Rules, one)
		}
		out = append(out, to)
	}
	if d.Routed {
		return out
	}
	return append(out, &inbound.GrpcRoute{Metadata: implicit("default"), Authorizations: authorizations(d.Grants),
		Rules: []*inbound.GrpcRoute_Rule{{Matches: []*grpcroute.GrpcRouteMatch{{}}}}})
}

// authorizations leaves out those that let nobody in.
func authorizations(list []policy.Grant) []*inbound.Authz {
	var out []*inbound.Authz
	for _, g := range list {
		networks := anywhere()
		for _, from := range g.From {
			networks = both(networks, from)
		}
		authn := authentication(g)
		if len(networks) == 0 || authn == nil {
			continue
		}
		one := &inbound.Authz{Authentication: authn, Labels: labelsOf(g.Ref), Metadata: refOf(g.Ref)}
		for _, n := range networks {
			to := &inbound.Network{Net: network(n.CIDR)}
			for _, hole := range n.Except {
				to.Except = append(to.Except, network(hole))
			}
			one.Networks = append(one.Networks, to)
		}
		out = append(out, one)
	}
	return out
}

func network(p netip.Prefix) *netpb.IPNetwork {
	return &netpb.IPNetwork{Ip: ip(p.Addr()), PrefixLen: uint32(p.Bits())}
}

// both are the networks that are in each of two lists.
func both(a, b []policy.Network) []policy.Network {
	var out []policy.Network
	for _, x := range a {
		for _, y := range b {
			if !x.CIDR.Overlaps(y.CIDR) {
				continue
			}
			narrow := x.CIDR
			if y.CIDR.Bits() > narrow.Bits() {
				narrow = y.CIDR
			}
			out = append(out, policy.Network{CIDR: narrow, Except: slices.Concat(x.Except, y.Except)})
		}
	}
	return out
}

// authentication is nil if nobody can have it.
func authentication(g policy.Grant) *inbound.Authn {
	if len(g.Who) == 0 {
		if !g.TLS {
			return &inbound.Authn{Permit: &inbound.Authn_Unauthenticated{Unauthenticated: &inbound.Authn_PermitUnauthenticated{}}}
		}
		return &inbound.Authn{Permit: &inbound.Authn_MeshTLS{MeshTLS: &inbound.Authn_PermitMeshTLS{
			Clients: &inbound.Authn_PermitMeshTLS_Unauthenticated{Unauthenticated: &inbound.Authn_PermitUnauthenticated{}}}}}
	}
	who := g.Who[0]
	for _, more := range g.Who[1:] {
		who = inBoth(who, more)
	}
	ids := &inbound.Authn_PermitMeshTLS_PermitClientIdentities{}
	for _, name := range who.Exact {
		ids.Identities = append(ids.Identities, &inbound.Identity{Name: name})
	}
	for _, s := range who.Suffixes {
		ids.Suffixes = append(ids.Suffixes, &inbound.IdentitySuffix{Parts: strings.Split(strings.TrimPrefix(s, "."), ".")})
	}
	if who.Any {
		ids.Suffixes = append(ids.Suffixes, &inbound.IdentitySuffix{})
	}
	if len(ids.Identities)+len(ids.Suffixes) == 0 {
		return nil
	}
	return &inbound.Authn{Permit: &inbound.Authn_MeshTLS{MeshTLS: &inbound.Authn_PermitMeshTLS{Clients: &inbound.Authn_PermitMeshTLS_Identities{Identities: ids}}}}
}

// inBoth are names that each of two sets has.
func inBoth(a, b policy.Identities) policy.Identities {
	switch {
	case a.Any:
		return b
	case b.Any:
		return a
	}
	var out policy.Identities
	for _, pair := range [][2]policy.Identities{{a, b}, {b, a}} {
		for _, name := range pair[0].Exact {
			if (slices.Contains(pair[1].Exact, name) || ends(name, pair[1].Suffixes)) && !slices.Contains(out.Exact, name) {
				out.Exact = append(out.Exact, name)
			}
		}
		for _, s := range pair[0].Suffixes {
			if ends(s, pair[1].Suffixes) && !slices.Contains(out.Suffixes, s) {
				out.Suffixes = append(out.Suffixes, s)
			}
		}
	}
	return out
}

func ends(name string, suffixes []string) bool {
	return slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(name, s) })
}
