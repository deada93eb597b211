package wire

import (
	"math"
	"slices"
	"strings"
	"time"

	httproute "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	types "github.com/linkerd/linkerd2-proxy-api/go/http_types"
	meta "github.com/linkerd/linkerd2-proxy-api/go/meta"
	outbound "github.com/linkerd/linkerd2-proxy-api/go/outbound"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/route"
)

// parsed collects the routes of one policy.
type parsed struct {
	cfg      route.Config
	byItself *route.Policy // of the route that sends everything on
	paths    map[route.Backend]string
	missing  map[route.Backend]bool
}

// routes makes the Table of what Linkerd's controller says.
func (r Reader) routes(p *Plan, said *outbound.ProxyProtocol) error {
	in := &parsed{paths: map[route.Backend]string{}, missing: map[route.Backend]bool{}}
	var accrual *outbound.FailureAccrual
	switch k := said.GetKind().(type) {
	case *outbound.ProxyProtocol_Detect_:
		in.http(k.Detect.GetHttp1().GetRoutes())
		accrual = k.Detect.GetHttp1().GetFailureAccrual()
	case *outbound.ProxyProtocol_Http1_:
		in.http(k.Http1.GetRoutes())
		accrual = k.Http1.GetFailureAccrual()
	case *outbound.ProxyProtocol_Http2_:
		in.http(k.Http2.GetRoutes())
		accrual = k.Http2.GetFailureAccrual()
	case *outbound.ProxyProtocol_Grpc_:
		in.grpc(k.Grpc.GetRoutes())
		accrual = k.Grpc.GetFailureAccrual()
	}
	breaker := breakerOf(accrual)
	if len(in.cfg.Routes) == 0 && (in.byItself == nil || *in.byItself == (route.Policy{})) && breaker == (route.Breaker{}) {
		return nil
	}
	t, err := route.New(in.cfg)
	if err != nil {
		return err
	}
	t.Breaker = breaker
	if len(in.cfg.Routes) == 0 && in.byItself != nil {
		t.Actions[0].Policy = *in.byItself
	}
	v := &p.view
	v.Table, v.Backends = t, []discovery.Backend{{}}
	for _, b := range t.Backends[1:] {
		one := discovery.Backend{Namespace: b.Namespace, Name: b.Name, Port: b.Port}
		path := in.paths[b]
		if path != "" && !in.missing[b] {
			one.Object = discovery.Object{Kind: "Service", Namespace: b.Namespace, Name: b.Name}
			one.Protocol = discovery.Decision{Reason: discovery.ControlPlane}
		} else {
			path = ""
		}
		v.Backends, p.others = append(v.Backends, one), append(p.others, path)
	}
	return nil
}

func breakerOf(a *outbound.FailureAccrual) route.Breaker {
	c := a.GetConsecutiveFailures()
	if c.GetMaxFailures() == 0 {
		return route.Breaker{}
	}
	b := c.GetBackoff()
	return route.Breaker{MaxFailures: c.GetMaxFailures(), MinPenalty: span(b.GetMinBackoff()), MaxPenalty: max(span(b.GetMaxBackoff()), span(b.GetMinBackoff())),
		Jitter: ratio(b.GetJitterRatio())}
}

// ratio keeps the digits that were written: a float32 has seven.
func ratio(f float32) float64 {
	if math.IsNaN(float64(f)) || f < 0 {
		return 0
	}
	return math.Round(float64(f)*1e6) / 1e6
}

// name gives a route its name, and its place: what comes first wins a tie.
func name(kind route.Kind, m *meta.Metadata, place int) route.Route {
	r := m.GetResource()
	out := route.Route{Kind: kind, Namespace: r.GetNamespace(), Name: r.GetName(), Created: time.Unix(int64(place), 0)}
	if r == nil {
		out.Name = m.GetDefault()
	}
	return out
}

func (in *parsed) http(routes []*outbound.HttpRoute) {
	for i, from := range routes {
		if from.GetMetadata().GetResource() == nil && len(routes) == 1 && len(from.GetRules()) == 1 && !hasFilters(from.GetRules()[0]) {
			p := httpPolicy(from.GetRules()[0])
			in.byItself = &p
			return
		}
		to := name(route.HTTP, from.GetMetadata(), i)
		to.Hostnames = hostnames(from.GetHosts())
		for _, rule := range from.GetRules() {
			to.Rules = append(to.Rules, in.httpRule(rule))
		}
		in.cfg.Routes = append(in.cfg.Routes, to)
	}
}

func hasFilters(r *outbound.HttpRoute_Rule) bool { return len(r.GetFilters()) > 0 }

func hostnames(list []*httproute.HostMatch) []string {
	var out []string
	for _, h := range list {
		if s := h.GetSuffix(); s != nil {
			labels := slices.Clone(s.GetReverseLabels())
			slices.Reverse(labels)
			out = append(out, "*."+strings.Join(labels, "."))
			continue
		}
		out = append(out, h.GetExact())
	}
	return out
}

func (in *parsed) httpRule(from *outbound.HttpRoute_Rule) route.Rule {
	policy := httpPolicy(from)
	to := route.Rule{}
	for _, m := range from.GetMatches() {
		to.Matches = append(to.Matches, matchOf(m))
	}
	failing := false
	to.Filters, failing = httpFiltersOf(from.GetFilters())
	redirects := slices.ContainsFunc(to.Filters, func(f route.Filter) bool { return f.Type == "RequestRedirect" })
	random := from.GetBackends().GetRandomAvailable()
	switch {
	case redirects: // nothing is sent on
	case failing, random == nil && from.GetBackends().GetFirstAvailable() == nil:
		to.Backends = []route.BackendRef{nobody()}
	case random != nil:
		for _, w := range random.GetBackends() {
			b := w.GetBackend()
			ref, itself := in.ref(b.GetBackend())
			if itself {
				continue
			}
			weight := int32(min(w.GetWeight(), 1_000_000))
			ref.Weight = &weight
			var gone bool
			ref.Filters, gone = httpFiltersOf(b.GetFilters())
			if gone {
				in.missing[backendOf(ref)] = true
			}
			//lint:ignore SA1019 it is what ours write
			if t := span(b.GetRequestTimeout()); t > 0 {
				policy.Timeouts.Backend = t
			}
			to.Backends = append(to.Backends, ref)
		}
	}
	to.Policy = &policy
	return to
}

// nobody is a backend that gets nothing: requests are answered 500.
func nobody() route.BackendRef {
	return route.BackendRef{Namespace: "none", Name: "none", Port: 1, Weight: new(int32)}
}

func backendOf(r route.BackendRef) route.Backend {
	return route.Backend{Namespace: r.Namespace, Name: r.Name, Port: uint16(r.Port)}
}

// ref reads a backend; itself is true of one that is no Service.
func (in *parsed) ref(b *outbound.Backend) (ref route.BackendRef, itself bool) {
	o, port := object(b.GetMetadata())
	if o.Kind != "Service" {
		return ref, true
	}
	ref = route.BackendRef{Namespace: o.Namespace, Name: o.Name, Port: int32(port)}
	if path := b.GetBalancer().GetDiscovery().GetDst().GetPath(); path != "" {
		in.paths[backendOf(ref)] = path
	}
	return ref, false
}

func matchOf(m *httproute.HttpRouteMatch) route.Match {
	out := route.Match{Headers: headersOf(m.GetHeaders()), Method: methodOf(m.GetMethod())}
	switch p := m.GetPath().GetKind().(type) {
	case *httproute.PathMatch_Exact:
		out.Path = &route.PathMatch{Type: "Exact", Value: p.Exact}
	case *httproute.PathMatch_Prefix:
		out.Path = &route.PathMatch{Type: "PathPrefix", Value: p.Prefix}
	case *httproute.PathMatch_Regex:
		out.Path = &route.PathMatch{Type: regular, Value: p.Regex}
	}
	for _, q := range m.GetQueryParams() {
		one := route.FieldMatch{Type: "Exact", Name: q.GetName(), Value: q.GetExact()}
		if v, ok := q.GetValue().(*httproute.QueryParamMatch_Regex); ok {
			one.Type, one.Value = regular, v.Regex
		}
		out.Query = append(out.Query, one)
	}
	return out
}

func headersOf(list []*httproute.HeaderMatch) []route.FieldMatch {
	var out []route.FieldMatch
	for _, h := range list {
		one := route.FieldMatch{Type: "Exact", Name: h.GetName(), Value: string(h.GetExact())}
		if v, ok := h.GetValue().(*httproute.HeaderMatch_Regex); ok {
			one.Type, one.Value = regular, v.Regex
		}
		out = append(out, one)
	}
	return out
}

func methodOf(m *types.HttpMethod) string {
	switch t := m.GetType().(type) {
	case *types.HttpMethod_Registered_:
		return t.Registered.String()
	case *types.HttpMethod_Unregistered:
		return t.Unregistered
	default:
		return ""
	}
}

// httpFiltersOf reads filters; failing is true if the request is to be answered
// with an error.
func httpFiltersOf(list []*outbound.HttpRoute_Filter) (out []route.Filter, failing bool) {
	for _, f := range list {
		switch k := f.GetKind().(type) {
		case *outbound.HttpRoute_Filter_RequestHeaderModifier:
			out = append(out, requestHeadersOf(k.RequestHeaderModifier))
		case *outbound.HttpRoute_Filter_ResponseHeaderModifier:
			m := k.ResponseHeaderModifier
			out = append(out, route.Filter{Type: "ResponseHeaderModifier", ResponseHeaders: &route.HeaderModifier{
				Add: fieldsOf(m.GetAdd()), Set: fieldsOf(m.GetSet()), Remove: m.GetRemove()}})
		case *outbound.HttpRoute_Filter_Redirect:
			out = append(out, route.Filter{Type: "RequestRedirect", Redirect: redirectOf(k.Redirect)})
		default: // a failure, or what is newer than this program
			failing = true
		}
	}
	return out, failing
}

func requestHeadersOf(m *httproute.RequestHeaderModifier) route.Filter {
	return route.Filter{Type: "RequestHeaderModifier", RequestHeaders: &route.HeaderModifier{
		Add: fieldsOf(m.GetAdd()), Set: fieldsOf(m.GetSet()), Remove: m.GetRemove()}}
}

func fieldsOf(h *types.Headers) []route.Header {
	var out []route.Header
	for _, f := range h.GetHeaders() {
		out = append(out, route.Header{Name: f.GetName(), Value: string(f.GetValue())})
	}
	return out
}

func redirectOf(r *httproute.RequestRedirect) *route.RequestRedirect {
	out := &route.RequestRedirect{Hostname: r.GetHost(), Port: int32(min(r.GetPort(), math.MaxInt32)), StatusCode: int(r.GetStatus())}
	if out.StatusCode == 0 {
		out.StatusCode = 301 // as the API says
	}
	switch s := r.GetScheme().GetType().(type) {
	case *types.Scheme_Registered_:
		out.Scheme = strings.ToLower(s.Registered.String())
	case *types.Scheme_Unregistered:
		out.Scheme = s.Unregistered
	}
	switch p := r.GetPath().GetReplace().(type) {
	case *httproute.PathModifier_Full:
		out.Path = &route.PathModifier{Type: "ReplaceFullPath", ReplaceFullPath: &p.Full}
	case *httproute.PathModifier_Prefix:
		out.Path = &route.PathModifier{Type: "ReplacePrefixMatch", ReplacePrefixMatch: &p.Prefix}
	}
	return out
}

func timeoutsOf(t *httproute.Timeouts) route.Timeouts {
	return route.Timeouts{Request: span(t.GetRequest()), Response: span(t.GetResponse()), Idle: span(t.GetIdle())}
}

func httpPolicy(r *outbound.HttpRoute_Rule) route.Policy {
	p := route.Policy{Timeouts: timeoutsOf(r.GetTimeouts())}
	retry := r.GetRetry()
	if retry.GetMaxRetries() == 0 {
		return p
	}
	p.Retry = route.Retry{Limit: uint16(min(retry.GetMaxRetries(), math.MaxUint16)), Timeout: span(retry.GetTimeout()), Backoff: backoffOf(retry.GetBackoff())}
	for _, s := range retry.GetConditions().GetStatusRanges() {
		for status := s.GetStart(); status <= min(s.GetEnd(), 599); status++ {
			p.Retry.Statuses.Add(int(status))
		}
	}
	return p
}

func backoffOf(b *outbound.ExponentialBackoff) time.Duration {
	if d := span(b.GetMinBackoff()); d != leastBackoff {
		return d
	}
	return 0 // the default
}

func (in *parsed) grpc(routes []*outbound.GrpcRoute) {
	for i, from := range routes {
		to := name(route.GRPC, from.GetMetadata(), i)
		to.Hostnames = hostnames(from.GetHosts())
		for _, rule := range from.GetRules() {
			to.Rules = append(to.Rules, in.grpcRule(rule))
		}
		in.cfg.Routes = append(in.cfg.Routes, to)
	}
}

func (in *parsed) grpcRule(from *outbound.GrpcRoute_Rule) route.Rule {
	policy := grpcPolicy(from)
	to := route.Rule{Policy: &policy}
	for _, m := range from.GetMatches() {
		to.Matches = append(to.Matches, grpcMatchOf(m))
	}
	failing := false
	to.Filters, failing = grpcFiltersOf(from.GetFilters())
	random := from.GetBackends().GetRandomAvailable()
	switch {
	case failing, random == nil && from.GetBackends().GetFirstAvailable() == nil:
		to.Backends = []route.BackendRef{nobody()}
	case random != nil:
		for _, w := range random.GetBackends() {
			ref, itself := in.ref(w.GetBackend().GetBackend())
			if itself {
				continue
			}
			weight := int32(min(w.GetWeight(), 1_000_000))
			ref.Weight = &weight
			var gone bool
			ref.Filters, gone = grpcFiltersOf(w.GetBackend().GetFilters())
			if gone {
				in.missing[backendOf(ref)] = true
			}
			to.Backends = append(to.Backends, ref)
		}
	}
	return to
}

func grpcFiltersOf(list []*outbound.GrpcRoute_Filter) (out []route.Filter, failing bool) {
	for _, f := range list {
		if k, ok := f.GetKind().(*outbound.GrpcRoute_Filter_RequestHeaderModifier); ok {
			out = append(out, requestHeadersOf(k.RequestHeaderModifier))
			continue
		}
		failing = true
	}
	return out, failing
}

func grpcPolicy(r *outbound.GrpcRoute_Rule) route.Policy {
	p := route.Policy{Timeouts: timeoutsOf(r.GetTimeouts())}
	retry := r.GetRetry()
	if retry.GetMaxRetries() == 0 {
		return p
	}
	p.Retry = route.Retry{Limit: uint16(min(retry.GetMaxRetries(), math.MaxUint16)), Timeout: span(retry.GetTimeout()), Backoff: backoffOf(retry.GetBackoff())}
	c := retry.GetConditions()
	for code, on := range map[int]bool{1: c.GetCancelled(), 4: c.GetDeadineExceeded(), 8: c.GetResourceExhausted(), 13: c.GetInternal(), 14: c.GetUnavailable()} {
		if on {
			p.Retry.Codes.Add(code)
		}
	}
	return p
}
