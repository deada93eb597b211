package file

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/policy"
	"github.com/meshctl/meshctl/proxy/route"
)

// This file copies routes field by field; package route judges them.

func (r *reader) httpRoute(raw []byte) {
	var k gateway.HTTPRoute
	if !r.into(raw, &k) {
		return
	}
	to := r.route(route.HTTP, k.ObjectMeta, k.Spec.Hostnames)
	for _, from := range k.Spec.Rules {
		rule := route.Rule{Name: text(from.Name), Session: from.SessionPersistence != nil}
		for _, m := range from.Matches {
			rule.Matches = append(rule.Matches, httpMatch(m))
		}
		for _, f := range from.Filters {
			rule.Filters = append(rule.Filters, httpFilter(f))
		}
		for _, b := range from.BackendRefs {
			ref := backend(b.BackendRef)
			for _, f := range b.Filters {
				ref.Filters = append(ref.Filters, httpFilter(f))
			}
			rule.Backends = append(rule.Backends, ref)
		}
		if t := from.Timeouts; t != nil {
			rule.Timeouts = &route.TimeoutSpec{Request: text(t.Request), BackendRequest: text(t.BackendRequest)}
		}
		if t := from.Retry; t != nil {
			retry := &route.RetrySpec{Attempts: t.Attempts, Backoff: text(t.Backoff)}
			for _, c := range t.Codes {
				retry.Codes = append(retry.Codes, int(c))
			}
			rule.Retry = retry
		}
		to.Rules = append(to.Rules, rule)
	}
	r.attach(to, k.Spec.ParentRefs)
}

func (r *reader) grpcRoute(raw []byte) {
	var k gateway.GRPCRoute
	if !r.into(raw, &k) {
		return
	}
	to := r.route(route.GRPC, k.ObjectMeta, k.Spec.Hostnames)
	for _, from := range k.Spec.Rules {
		rule := route.Rule{Name: text(from.Name), Session: from.SessionPersistence != nil}
		for _, m := range from.Matches {
			rule.Matches = append(rule.Matches, grpcMatch(m))
		}
		for _, f := range from.Filters {
			rule.Filters = append(rule.Filters, grpcFilter(f))
		}
		for _, b := range from.BackendRefs {
			ref := backend(b.BackendRef)
			for _, f := range b.Filters {
				ref.Filters = append(ref.Filters, grpcFilter(f))
			}
			rule.Backends = append(rule.Backends, ref)
		}
		to.Rules = append(to.Rules, rule)
	}
	r.attach(to, k.Spec.ParentRefs)
}

func (r *reader) route(kind route.Kind, meta metav1.ObjectMeta, hosts []gateway.Hostname) route.Route {
	r.opaque(meta.Annotations) // for misspelt keys
	out := route.Route{Kind: kind, Namespace: r.object.Namespace, Name: r.object.Name, Created: meta.CreationTimestamp.Time, Annotations: meta.Annotations}
	for _, h := range hosts {
		out.Hostnames = append(out.Hostnames, string(h))
	}
	return out
}

// attach keeps a route for its parents. Those that are neither a Service, a Server
// nor an EgressNetwork, such as a Gateway, are somebody else's: a route that has no
// others means nothing here.
func (r *reader) attach(to route.Route, parents []gateway.ParentReference) {
	out := &cluster.Route{Object: r.object, Route: to}
	servers := r.serversOf(parents)
	for i, p := range parents {
		group, kind := gateway.GroupName, "Gateway"
		if p.Group != nil {
			group = string(*p.Group)
		}
		if p.Kind != nil {
			kind = string(*p.Kind)
		}
		service := kind == "Service" && (group == "" || group == "core")
		egress := kind == "EgressNetwork" && group == "policy.linkerd.io"
		if !service && !egress || r.group == policy.Group { // the group's own HTTPRoute is read for Servers only
			continue
		}
		one := cluster.Parent{Kind: kind, Namespace: r.object.Namespace, Name: string(p.Name)}
		if p.Namespace != nil {
			one.Namespace = string(*p.Namespace)
		}
		if p.Port != nil {
			n, ok := r.number("spec.parentRefs["+strconv.Itoa(i)+"].port", int32(*p.Port))
			if !ok {
				return
			}
			one.Port = n
		}
		out.Parents = append(out.Parents, one)
	}
	if len(servers) > 0 {
		r.attachServers(to, servers, len(out.Parents) == 0)
		if len(out.Parents) == 0 {
			return
		}
	}
	if len(out.Parents) == 0 {
		r.skipped[r.object.Kind+" of no Service, Server or EgressNetwork"]++
		return
	}
	r.judge(out)
	r.objects.Routes = append(r.objects.Routes, out)
}

func httpMatch(m gateway.HTTPRouteMatch) route.Match {
	out := route.Match{Method: text(m.Method)}
	if m.Path != nil {
		out.Path = &route.PathMatch{Type: text(m.Path.Type), Value: text(m.Path.Value)}
	}
	for _, h := range m.Headers {
		out.Headers = append(out.Headers, route.FieldMatch{Type: text(h.Type), Name: string(h.Name), Value: h.Value})
	}
	for _, q := range m.QueryParams {
		out.Query = append(out.Query, route.FieldMatch{Type: text(q.Type), Name: string(q.Name), Value: q.Value})
	}
	return out
}

func grpcMatch(m gateway.GRPCRouteMatch) route.Match {
	var out route.Match
	if m.Method != nil {
		out.RPC = &route.RPCMatch{Type: text(m.Method.Type), Service: text(m.Method.Service), Method: text(m.Method.Method)}
	}
	for _, h := range m.Headers {
		out.Headers = append(out.Headers, route.FieldMatch{Type: text(h.Type), Name: string(h.Name), Value: h.Value})
	}
	return out
}

func httpFilter(f gateway.HTTPRouteFilter) route.Filter {
	out := route.Filter{Type: string(f.Type), RequestHeaders: modifier(f.RequestHeaderModifier), ResponseHeaders: modifier(f.ResponseHeaderModifier)}
	if d := f.RequestRedirect; d != nil {
		out.Redirect = &route.RequestRedirect{Scheme: text(d.Scheme), Hostname: text(d.Hostname), Path: path(d.Path), StatusCode: deref(d.StatusCode)}
		if d.Port != nil {
			out.Redirect.Port = int32(*d.Port)
		}
	}
	if w := f.URLRewrite; w != nil {
		out.Rewrite = &route.URLRewrite{Hostname: text(w.Hostname), Path: path(w.Path)}
	}
	return out
}

func grpcFilter(f gateway.GRPCRouteFilter) route.Filter {
	return route.Filter{Type: string(f.Type), RequestHeaders: modifier(f.RequestHeaderModifier), ResponseHeaders: modifier(f.ResponseHeaderModifier)}
}

func modifier(f *gateway.HTTPHeaderFilter) *route.HeaderModifier {
	if f == nil {
		return nil
	}
	out := &route.HeaderModifier{Remove: f.Remove}
	for _, h := range f.Set {
		out.Set = append(out.Set, route.Header{Name: string(h.Name), Value: h.Value})
	}
	for _, h := range f.Add {
		out.Add = append(out.Add, route.Header{Name: string(h.Name), Value: h.Value})
	}
	return out
}

func path(p *gateway.HTTPPathModifier) *route.PathModifier {
	if p == nil {
		return nil
	}
	return &route.PathModifier{Type: string(p.Type), ReplaceFullPath: p.ReplaceFullPath, ReplacePrefixMatch: p.ReplacePrefixMatch}
}

func backend(b gateway.BackendRef) route.BackendRef {
	out := route.BackendRef{Group: text(b.Group), Kind: text(b.Kind), Namespace: text(b.Namespace), Name: string(b.Name), Weight: b.Weight}
	if b.Port != nil {
		out.Port = int32(*b.Port)
	}
	return out
}

// text is an optional text of any of the API's types.
func text[T ~string](p *T) string {
	if p == nil {
		return ""
	}
	return string(*p)
}
