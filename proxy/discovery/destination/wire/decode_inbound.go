package wire

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	grpcroute "github.com/linkerd/linkerd2-proxy-api/go/grpc_route"
	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	meta "github.com/linkerd/linkerd2-proxy-api/go/meta"

	"github.com/meshctl/meshctl/proxy/policy"
	"github.com/meshctl/meshctl/proxy/protocol"
	"github.com/meshctl/meshctl/proxy/route"
)

// defaultDetect is what Linkerd's control plane says where nobody has said anything:
// then the proxy's own setting counts.
const defaultDetect = 10 * time.Second

// InboundPort is what a control plane says of a port of a pod in a namespace. What
// cannot be read lets nobody in.
func InboundPort(namespace string, s *inbound.Server) policy.Description {
	if d, ok := parseOwnPort(bytesOf(s, ownPort)); ok {
		return d
	}
	in := inboundReader{namespace: namespace}
	d := policy.Description{Server: in.labels(s.GetLabels()), Grants: in.grants(s.GetAuthorizations())}
	switch k := s.GetProtocol().GetKind().(type) {
	case *inbound.ProxyProtocol_Detect_:
		if t := span(k.Detect.GetTimeout()); t != defaultDetect {
			d.DetectTimeout = t
		}
		in.http(&d, k.Detect.GetHttpRoutes())
	case *inbound.ProxyProtocol_Http1_:
		d.Protocol = protocol.HTTP1
		in.http(&d, k.Http1.GetRoutes())
	case *inbound.ProxyProtocol_Http2_:
		d.Protocol = protocol.HTTP2
		in.http(&d, k.Http2.GetRoutes())
	case *inbound.ProxyProtocol_Grpc_:
		d.Protocol, d.GRPC = protocol.HTTP2, true
		in.grpc(&d, k.Grpc.GetRoutes())
	case *inbound.ProxyProtocol_Tls_:
		d.Protocol = protocol.TLS
	default: // or what is newer than this program
		d.Protocol = protocol.Opaque
	}
	return d
}

type inboundReader struct{ namespace string }

func (in inboundReader) labels(l map[string]string) policy.Ref {
	r := policy.Ref{Group: l["group"], Kind: l["kind"], Name: l["name"]}
	if r.Kind != "" && r.Kind != "default" {
		r.Namespace = in.namespace
	}
	return r
}

func (in inboundReader) ref(m *meta.Metadata, labels map[string]string) policy.Ref {
	r := m.GetResource()
	switch {
	case r != nil:
		out := policy.Ref{Group: r.GetGroup(), Kind: strings.ToLower(r.GetKind()), Namespace: r.GetNamespace(), Name: r.GetName()}
		if out.Namespace == "" {
			out.Namespace = in.namespace
		}
		return out
	case m.GetDefault() != "":
		return policy.Ref{Kind: "default", Name: m.GetDefault()}
	}
	return in.labels(labels)
}

func (in inboundReader) grants(list []*inbound.Authz) []policy.Grant {
	var out []policy.Grant
	for _, a := range list {
		g := policy.Grant{Ref: in.ref(a.GetMetadata(), a.GetLabels())}
		if g.Ref == (policy.Ref{Kind: "default", Name: "localhost"}) {
			continue // who is in the pod may call anyway
		}
		g.Audit = g.Ref == policy.Ref{Kind: "default", Name: "audit"}
		nets := networksOf(a.GetNetworks())
		if len(nets) == 0 || !authenticated(&g, a.GetAuthentication()) {
			continue
		}
		if !everywhere(nets) {
			g.From = [][]policy.Network{nets}
		}
		out = append(out, g)
	}
	return out
}

// networksOf leaves out what cannot be read, and so lets fewer clients in.
func networksOf(list []*inbound.Network) []policy.Network {
	var out []policy.Network
next:
	for _, n := range list {
		p := netip.PrefixFrom(addr(n.GetNet().GetIp()), int(min(n.GetNet().GetPrefixLen(), 255)))
		if !p.IsValid() {
			continue
		}
		one := policy.Network{CIDR: p.Masked()}
		for _, e := range n.GetExcept() {
			hole := netip.PrefixFrom(addr(e.GetIp()), int(min(e.GetPrefixLen(), 255)))
			if !hole.IsValid() {
				continue next
			}
			one.Except = append(one.Except, hole.Masked())
		}
		out = append(out, one)
	}
	return out
}

// everywhere is true of what anywhere makes.
func everywhere(nets []policy.Network) bool {
	has := func(want policy.Network) bool {
		return slices.ContainsFunc(nets, func(n policy.Network) bool { return n.CIDR == want.CIDR && len(n.Except) == 0 })
	}
	return !slices.ContainsFunc(anywhere(), func(n policy.Network) bool { return !has(n) })
}

// authenticated reads whom an authorization asks for; false: nobody knows.
func authenticated(g *policy.Grant, a *inbound.Authn) bool {
	switch k := a.GetPermit().(type) {
	case *inbound.Authn_Unauthenticated:
		return true
	case *inbound.Authn_MeshTLS:
		switch c := k.MeshTLS.GetClients().(type) {
		case *inbound.Authn_PermitMeshTLS_Unauthenticated:
			g.TLS = true
			return true
		case *inbound.Authn_PermitMeshTLS_Identities:
			g.Who = []policy.Identities{identitiesOf(c.Identities)}
			return true
		}
	}
	return false
}

func identitiesOf(ids *inbound.Authn_PermitMeshTLS_PermitClientIdentities) policy.Identities {
	var out policy.Identities
	for _, id := range ids.GetIdentities() {
		out.Exact = append(out.Exact, id.GetName())
	}
	for _, s := range ids.GetSuffixes() {
		if len(s.GetParts()) == 0 {
			out.Any = true
			continue
		}
		out.Suffixes = append(out.Suffixes, "."+strings.Join(s.GetParts(), "."))
	}
	return out
}

// routed names a route and tells two of one name in two groups apart.
func (in inboundReader) routed(kind route.Kind, m *meta.Metadata, place int) policy.Ruled {
	r := route.Route{Kind: kind, Created: name(kind, m, place).Created}
	ref := in.ref(m, nil)
	r.Namespace, r.Name = ref.Group+"/"+ref.Namespace, ref.Name
	return policy.Ruled{Ref: ref, Route: r}
}

func (in inboundReader) http(d *policy.Description, routes []*inbound.HttpRoute) {
	for i, from := range routes {
		if from.GetMetadata().GetResource() == nil {
			in.implicit(d, from)
			continue
		}
		to := in.routed(route.HTTP, from.GetMetadata(), i)
		to.Route.Hostnames, to.Grants = hostnames(from.GetHosts()), in.grants(from.GetAuthorizations())
		for _, rule := range from.GetRules() {
			var one route.Rule
			for _, m := range rule.GetMatches() {
				one.Matches = append(one.Matches, matchOf(m))
			}
			for _, f := range rule.GetFilters() {
				one.Filters = append(one.Filters, inboundFilterOf(f))
			}
			to.Route.Rules = append(to.Route.Rules, one)
		}
		d.Routed, d.Routes = true, append(d.Routes, to)
	}
	if d.Routed {
		d.Probes = nil
	}
}

// implicit is a route that there is without an object: that of everything, or of
// the kubelet's probes.
func (in inboundReader) implicit(d *policy.Description, from *inbound.HttpRoute) {
	open := slices.ContainsFunc(in.grants(from.GetAuthorizations()), func(g policy.Grant) bool {
		return len(g.From) == 0 && !g.TLS && len(g.Who) == 0
	})
	if from.GetMetadata().GetDefault() != "probe" || !open {
		return
	}
	for _, rule := range from.GetRules() {
		for _, m := range rule.GetMatches() {
			if path := m.GetPath().GetExact(); path != "" && methodOf(m.GetMethod()) == "GET" {
				d.Probes = append(d.Probes, path)
			}
		}
	}
}

// failure is no filter of the Gateway API: a route with one is refused, and no
// request comes under it.
const failure = "failure"

func inboundFilterOf(f *inbound.HttpRoute_Filter) route.Filter {
	switch k := f.GetKind().(type) {
	case *inbound.HttpRoute_Filter_RequestHeaderModifier:
		return requestHeadersOf(k.RequestHeaderModifier)
	case *inbound.HttpRoute_Filter_Redirect:
		return route.Filter{Type: "RequestRedirect", Redirect: redirectOf(k.Redirect)}
	}
	return route.Filter{Type: failure}
}

func (in inboundReader) grpc(d *policy.Description, routes []*inbound.GrpcRoute) {
	for i, from := range routes {
		if from.GetMetadata().GetResource() == nil {
			continue
		}
		to := in.routed(route.GRPC, from.GetMetadata(), i)
		to.Route.Hostnames, to.Grants = hostnames(from.GetHosts()), in.grants(from.GetAuthorizations())
		for _, rule := range from.GetRules() {
			var one route.Rule
			for _, m := range rule.GetMatches() {
				one.Matches = append(one.Matches, grpcMatchOf(m))
			}
			if len(rule.GetFilters()) > 0 {
				one.Filters = []route.Filter{{Type: failure}}
			}
			to.Route.Rules = append(to.Route.Rules, one)
		}
		d.Routed, d.Routes = true, append(d.Routes, to)
	}
}

func grpcMatchOf(m *grpcroute.GrpcRouteMatch) route.Match {
	out := route.Match{Headers: headersOf(m.GetHeaders())}
	if rpc := m.GetRpc(); rpc.GetService() != "" || rpc.GetMethod() != "" {
		out.RPC = &route.RPCMatch{Type: "Exact", Service: rpc.GetService(), Method: rpc.GetMethod()}
	}
	return out
}
