package wire

import (
	"cmp"
	"slices"
	"strings"
	"time"

	grpcroute "github.com/linkerd/linkerd2-proxy-api/go/grpc_route"
	httproute "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	types "github.com/linkerd/linkerd2-proxy-api/go/http_types"
	outbound "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/route"
)

// maxRetriedBody is how long a request may be that is sent again.
const maxRetriedBody = 64 << 10

// httpRoutes are the routes of a port, or the one that sends everything on.
func (e encoder) httpRoutes() []*outbound.HttpRoute {
	t := e.v.Table
	if t == nil || !t.Routed {
		rule := &outbound.HttpRoute_Rule{Matches: []*httproute.HttpRouteMatch{{Path: prefix("/")}}, Backends: e.httpItself()}
		if t != nil && len(t.Actions) > 0 {
			setPolicy(rule, t.Actions[0].Policy)
		}
		return []*outbound.HttpRoute{{Metadata: implicit("http"), Rules: []*outbound.HttpRoute_Rule{rule}}}
	}
	var out []*outbound.HttpRoute
	for _, r := range sorted(t) {
		to := &outbound.HttpRoute{Metadata: resource(discovery.Object{Kind: r.Kind.String(), Namespace: r.Namespace, Name: r.Name}, 0), Hosts: hosts(r.Hostnames)}
		for i := range r.Rules {
			to.Rules = append(to.Rules, e.httpRule(&r, i))
		}
		out = append(out, to)
	}
	return out
}

func prefix(p string) *httproute.PathMatch {
	return &httproute.PathMatch{Kind: &httproute.PathMatch_Prefix{Prefix: p}}
}

func (e encoder) httpItself() *outbound.HttpRoute_Distribution {
	return &outbound.HttpRoute_Distribution{Kind: &outbound.HttpRoute_Distribution_FirstAvailable_{
		FirstAvailable: &outbound.HttpRoute_Distribution_FirstAvailable{Backends: []*outbound.HttpRoute_RouteBackend{{Backend: e.itself()}}}}}
}

func hosts(names []string) []*httproute.HostMatch {
	var out []*httproute.HostMatch
	for _, n := range names {
		tail, wild := strings.CutPrefix(n, "*.")
		if !wild {
			out = append(out, &httproute.HostMatch{Match: &httproute.HostMatch_Exact{Exact: n}})
			continue
		}
		labels := strings.Split(tail, ".")
		slices.Reverse(labels)
		out = append(out, &httproute.HostMatch{Match: &httproute.HostMatch_Suffix_{Suffix: &httproute.HostMatch_Suffix{ReverseLabels: labels}}})
	}
	return out
}

func (e encoder) httpRule(r *route.Route, index int) *outbound.HttpRoute_Rule {
	from := &r.Rules[index]
	out := &outbound.HttpRoute_Rule{Filters: httpFilters(from.Filters)}
	for _, m := range from.Matches {
		out.Matches = append(out.Matches, httpMatch(m))
	}
	if len(out.Matches) == 0 {
		out.Matches = []*httproute.HttpRouteMatch{{Path: prefix("/")}}
	}
	var try time.Duration
	if a := action(e.v.Table, r, index); a != nil {
		setPolicy(out, a.Policy)
		try = a.Policy.Timeouts.Backend
	}
	if len(from.Backends) == 0 {
		out.Backends = e.httpItself()
		return out
	}
	random := &outbound.HttpRoute_Distribution_RandomAvailable{}
	for _, b := range from.Backends {
		w := weightOf(b)
		if w == 0 {
			continue
		}
		one := &outbound.HttpRoute_RouteBackend{Backend: e.balancer(cmp.Or(b.Namespace, r.Namespace), b.Name, uint16(b.Port)),
			Filters: httpFilters(b.Filters)}
		//lint:ignore SA1019 proxies other than ours do not read it
		one.RequestTimeout = duration(try)
		if e.missing(cmp.Or(b.Namespace, r.Namespace), b.Name, uint16(b.Port)) {
			one.Filters = append(one.Filters, failing("there is no such Service"))
		}
		random.Backends = append(random.Backends, &outbound.HttpRoute_WeightedRouteBackend{Backend: one, Weight: w})
	}
	out.Backends = &outbound.HttpRoute_Distribution{Kind: &outbound.HttpRoute_Distribution_Empty_{Empty: &outbound.HttpRoute_Distribution_Empty{}}}
	if len(random.Backends) > 0 {
		out.Backends.Kind = &outbound.HttpRoute_Distribution_RandomAvailable_{RandomAvailable: random}
	}
	return out
}

func weightOf(b route.BackendRef) uint32 {
	if b.Weight == nil {
		return 1
	}
	return uint32(*b.Weight)
}

func failing(why string) *outbound.HttpRoute_Filter {
	return &outbound.HttpRoute_Filter{Kind: &outbound.HttpRoute_Filter_FailureInjector{
		FailureInjector: &httproute.HttpFailureInjector{Status: 500, Message: why}}}
}

func httpMatch(m route.Match) *httproute.HttpRouteMatch {
	out := &httproute.HttpRouteMatch{Headers: headers(m.Headers)}
	if p := m.Path; p != nil {
		value := cmp.Or(p.Value, "/")
		switch p.Type {
		case "Exact":
			out.Path = &httproute.PathMatch{Kind: &httproute.PathMatch_Exact{Exact: value}}
		case "RegularExpression":
			out.Path = &httproute.PathMatch{Kind: &httproute.PathMatch_Regex{Regex: value}}
		default:
			out.Path = prefix(value)
		}
	}
	for _, q := range m.Query {
		one := &httproute.QueryParamMatch{Name: q.Name, Value: &httproute.QueryParamMatch_Exact{Exact: q.Value}}
		if q.Type == regular {
			one.Value = &httproute.QueryParamMatch_Regex{Regex: q.Value}
		}
		out.QueryParams = append(out.QueryParams, one)
	}
	if m.Method != "" {
		out.Method = method(m.Method)
	}
	return out
}

const regular = "RegularExpression"

func headers(list []route.FieldMatch) []*httproute.HeaderMatch {
	var out []*httproute.HeaderMatch
	for _, h := range list {
		one := &httproute.HeaderMatch{Name: h.Name, Value: &httproute.HeaderMatch_Exact{Exact: []byte(h.Value)}}
		if h.Type == regular {
			one.Value = &httproute.HeaderMatch_Regex{Regex: h.Value}
		}
		out = append(out, one)
	}
	return out
}

func method(name string) *types.HttpMethod {
	if n, ok := types.HttpMethod_Registered_value[name]; ok {
		return &types.HttpMethod{Type: &types.HttpMethod_Registered_{Registered: types.HttpMethod_Registered(n)}}
	}
	return &types.HttpMethod{Type: &types.HttpMethod_Unregistered{Unregistered: name}}
}

func httpFilters(list []route.Filter) []*outbound.HttpRoute_Filter {
	var out []*outbound.HttpRoute_Filter
	for _, f := range list {
		switch f.Type {
		case "RequestHeaderModifier":
			out = append(out, &outbound.HttpRoute_Filter{Kind: &outbound.HttpRoute_Filter_RequestHeaderModifier{RequestHeaderModifier: requestHeaders(f.RequestHeaders)}})
		case "ResponseHeaderModifier":
			m := f.ResponseHeaders
			out = append(out, &outbound.HttpRoute_Filter{Kind: &outbound.HttpRoute_Filter_ResponseHeaderModifier{
				ResponseHeaderModifier: &httproute.ResponseHeaderModifier{Add: fields(m.Add), Set: fields(m.Set), Remove: m.Remove}}})
		case "RequestRedirect":
			out = append(out, &outbound.HttpRoute_Filter{Kind: &outbound.HttpRoute_Filter_Redirect{Redirect: redirect(f.Redirect)}})
		default: // a request that is not rewritten must not go where it was not meant to
			out = append(out, failing(f.Type+" is not in this API"))
		}
	}
	return out
}

func requestHeaders(m *route.HeaderModifier) *httproute.RequestHeaderModifier {
	return &httproute.RequestHeaderModifier{Add: fields(m.Add), Set: fields(m.Set), Remove: m.Remove}
}

func fields(list []route.Header) *types.Headers {
	if len(list) == 0 {
		return nil
	}
	out := &types.Headers{}
	for _, h := range list {
		out.Headers = append(out.Headers, &types.Headers_Header{Name: h.Name, Value: []byte(h.Value)})
	}
	return out
}

func redirect(r *route.RequestRedirect) *httproute.RequestRedirect {
	out := &httproute.RequestRedirect{Host: r.Hostname, Port: uint32(r.Port), Status: uint32(cmp.Or(r.StatusCode, 302))}
	switch r.Scheme {
	case "":
	case "http":
		out.Scheme = &types.Scheme{Type: &types.Scheme_Registered_{Registered: types.Scheme_HTTP}}
	case "https":
		out.Scheme = &types.Scheme{Type: &types.Scheme_Registered_{Registered: types.Scheme_HTTPS}}
	default:
		out.Scheme = &types.Scheme{Type: &types.Scheme_Unregistered{Unregistered: r.Scheme}}
	}
	if p := r.Path; p != nil && p.ReplaceFullPath != nil {
		out.Path = &httproute.PathModifier{Replace: &httproute.PathModifier_Full{Full: *p.ReplaceFullPath}}
	} else if p != nil && p.ReplacePrefixMatch != nil {
		out.Path = &httproute.PathModifier{Replace: &httproute.PathModifier_Prefix{Prefix: *p.ReplacePrefixMatch}}
	}
	return out
}

func timeouts(t route.Timeouts) *httproute.Timeouts {
	if t.Request == 0 && t.Response == 0 && t.Idle == 0 {
		return nil
	}
	return &httproute.Timeouts{Request: duration(t.Request), Response: duration(t.Response), Idle: duration(t.Idle)}
}

func backoff(r route.Retry) *outbound.ExponentialBackoff {
	least := cmp.Or(r.Backoff, leastBackoff)
	return &outbound.ExponentialBackoff{MinBackoff: durationpb.New(least), MaxBackoff: durationpb.New(max(10*leastBackoff, least)), JitterRatio: 1}
}

// leastBackoff is the wait before a retry where none is said.
const leastBackoff = 25 * time.Millisecond

func setPolicy(to *outbound.HttpRoute_Rule, p route.Policy) {
	to.Timeouts = timeouts(p.Timeouts)
	//lint:ignore SA1019 the API asks servers to go on setting it
	to.RequestTimeout = duration(p.Timeouts.Response)
	if p.Retry.Limit == 0 {
		return
	}
	conditions := &outbound.HttpRoute_Retry_Conditions{}
	for status := 100; status < 600; status++ {
		if !p.Retry.Statuses.Has(status) {
			continue
		}
		if n := len(conditions.StatusRanges); n > 0 && conditions.StatusRanges[n-1].End == uint32(status-1) {
			conditions.StatusRanges[n-1].End = uint32(status)
			continue
		}
		conditions.StatusRanges = append(conditions.StatusRanges, &outbound.HttpRoute_Retry_Conditions_StatusRange{Start: uint32(status), End: uint32(status)})
	}
	to.Retry = &outbound.HttpRoute_Retry{MaxRetries: uint32(p.Retry.Limit), MaxRequestBytes: maxRetriedBody, Conditions: conditions,
		Timeout: duration(p.Retry.Timeout), Backoff: backoff(p.Retry)}
}

// grpcRoutes are the GRPCRoutes of a port.
func (e encoder) grpcRoutes() []*outbound.GrpcRoute {
	var out []*outbound.GrpcRoute
	for _, r := range sorted(e.v.Table) {
		to := &outbound.GrpcRoute{Metadata: resource(discovery.Object{Kind: r.Kind.String(), Namespace: r.Namespace, Name: r.Name}, 0), Hosts: hosts(r.Hostnames)}
		for i := range r.Rules {
			to.Rules = append(to.Rules, e.grpcRule(&r, i))
		}
		out = append(out, to)
	}
	return out
}

func (e encoder) grpcRule(r *route.Route, index int) *outbound.GrpcRoute_Rule {
	from := &r.Rules[index]
	out := &outbound.GrpcRoute_Rule{Filters: grpcFilters(from.Filters)}
	for _, m := range from.Matches {
		one := &grpcroute.GrpcRouteMatch{Headers: headers(m.Headers)}
		if m.RPC != nil { // a regular expression is no name of a service: it matches nothing
			one.Rpc = &grpcroute.GrpcRpcMatch{Service: m.RPC.Service, Method: m.RPC.Method}
		}
		out.Matches = append(out.Matches, one)
	}
	if len(out.Matches) == 0 {
		out.Matches = []*grpcroute.GrpcRouteMatch{{}}
	}
	if a := action(e.v.Table, r, index); a != nil {
		setGRPCPolicy(out, a.Policy)
	}
	if len(from.Backends) == 0 {
		out.Backends = &outbound.GrpcRoute_Distribution{Kind: &outbound.GrpcRoute_Distribution_FirstAvailable_{
			FirstAvailable: &outbound.GrpcRoute_Distribution_FirstAvailable{Backends: []*outbound.GrpcRoute_RouteBackend{{Backend: e.itself()}}}}}
		return out
	}
	random := &outbound.GrpcRoute_Distribution_RandomAvailable{}
	for _, b := range from.Backends {
		w, namespace := weightOf(b), cmp.Or(b.Namespace, r.Namespace)
		if w == 0 {
			continue
		}
		one := &outbound.GrpcRoute_RouteBackend{Backend: e.balancer(namespace, b.Name, uint16(b.Port)), Filters: grpcFilters(b.Filters)}
		if e.missing(namespace, b.Name, uint16(b.Port)) {
			one.Filters = append(one.Filters, failingCall("there is no such Service"))
		}
		random.Backends = append(random.Backends, &outbound.GrpcRoute_WeightedRouteBackend{Backend: one, Weight: w})
	}
	out.Backends = &outbound.GrpcRoute_Distribution{Kind: &outbound.GrpcRoute_Distribution_Empty_{Empty: &outbound.GrpcRoute_Distribution_Empty{}}}
	if len(random.Backends) > 0 {
		out.Backends.Kind = &outbound.GrpcRoute_Distribution_RandomAvailable_{RandomAvailable: random}
	}
	return out
}

func failingCall(why string) *outbound.GrpcRoute_Filter {
	return &outbound.GrpcRoute_Filter{Kind: &outbound.GrpcRoute_Filter_FailureInjector{
		FailureInjector: &grpcroute.GrpcFailureInjector{Code: 14, Message: why}}}
}

// grpcFilters leaves changes of responses out: the API has none for gRPC, and
// without them a call still goes where it was meant to.
func grpcFilters(list []route.Filter) []*outbound.GrpcRoute_Filter {
	var out []*outbound.GrpcRoute_Filter
	for _, f := range list {
		if f.Type == "RequestHeaderModifier" {
			out = append(out, &outbound.GrpcRoute_Filter{Kind: &outbound.GrpcRoute_Filter_RequestHeaderModifier{RequestHeaderModifier: requestHeaders(f.RequestHeaders)}})
		}
	}
	return out
}

func setGRPCPolicy(to *outbound.GrpcRoute_Rule, p route.Policy) {
	to.Timeouts = timeouts(p.Timeouts)
	//lint:ignore SA1019 the API asks servers to go on setting it
	to.RequestTimeout = duration(p.Timeouts.Response)
	if p.Retry.Limit == 0 {
		return
	}
	c := p.Retry.Codes
	to.Retry = &outbound.GrpcRoute_Retry{MaxRetries: uint32(p.Retry.Limit), MaxRequestBytes: maxRetriedBody,
		Conditions: &outbound.GrpcRoute_Retry_Conditions{Cancelled: c.Has(1), DeadineExceeded: c.Has(4), ResourceExhausted: c.Has(8), Internal: c.Has(13), Unavailable: c.Has(14)},
		Timeout:    duration(p.Retry.Timeout), Backoff: backoff(p.Retry)}
}
