package route

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func number(n int) *int         { return &n }
func weigh(n int32) *int32      { return &n }
func ruled(r Rule) Route        { return Route{Kind: HTTP, Namespace: "shop", Name: "r", Rules: []Rule{r}} }
func onlyFilter(f Filter) Route { return filtered(Match{}, f) }
func onlyBackend(b BackendRef) Route {
	return ruled(Rule{Backends: []BackendRef{b}})
}

func TestWhatIsWrongOrNotSupportedIsAProblemOfItsField(t *testing.T) {
	grpc := func(r Route) Route { r.Kind = GRPC; return r }
	hosts := func(names ...string) Route { r := by("r"); r.Hostnames = names; return r }
	annotated := func(key, value string) Route {
		r := by("r")
		r.Annotations = map[string]string{key: value}
		return r
	}
	for _, c := range []struct {
		field, says string
		route       Route
	}{
		{"kind", "neither", Route{Namespace: "shop", Name: "r"}},
		{"spec.hostnames[1]", "not a host name", hosts("a.test", "A.test")},
		{"spec.hostnames[0]", "address", hosts("10.0.0.1")},
		{"spec.hostnames[0]", "not a host name", hosts("a.*.test")},
		{"spec.hostnames[0]", "not a host name", hosts("*")},
		{"spec.hostnames[0]", "not a host name", hosts("a.test:80")},
		{"spec.hostnames[0]", "not a host name", hosts("-a.test")},
		{"spec.hostnames[0]", "not a host name", hosts("")},
		{"spec.hostnames[0]", "longer", hosts(strings.Repeat("a.", 127) + "a")},
		{"spec.rules[0].matches[0].path.value", "begin", by("r", prefix("shop"))},
		{"spec.rules[0].matches[0].path.value", "//", by("r", prefix("/a//b"))},
		{"spec.rules[0].matches[0].path.value", "/../", by("r", exact("/a/../b"))},
		{"spec.rules[0].matches[0].path.value", "dot element", by("r", exact("/a/.."))},
		{"spec.rules[0].matches[0].path.value", "%2F", by("r", exact("/a%2Fb"))},
		{"spec.rules[0].matches[0].path.value", "not a path", by("r", exact("/a?b"))},
		{"spec.rules[0].matches[0].path.value", "longer", by("r", exact("/"+strings.Repeat("a", 1024)))},
		{"spec.rules[0].matches[0].path.value", "missing", by("r", regex("/a("))},
		{"spec.rules[0].matches[0].path.value", "unexpected )", by("r", regex("a)|(b"))},
		{"spec.rules[0].matches[1].path.type", "not supported", by("r", prefix("/"), Match{Path: &PathMatch{"Glob", "/*"}})},
		{"spec.rules[0].matches[0].method", "unknown method", by("r", Match{Method: "get"})},
		{"spec.rules[0].matches[0].method", "gRPC", by("r", rpcMatch("s", "M"))},
		{"spec.rules[0].matches[0].headers[0].name", "not the name", by("r", header("x y", "1"))},
		{"spec.rules[0].matches[0].headers[0].name", "not the name", by("r", header(":path", "1"))},
		{"spec.rules[0].matches[0].headers[0].name", "belongs to the connection", by("r", header("Content-Length", "1"))},
		{"spec.rules[0].matches[0].headers[0].value", "empty", by("r", header("x", ""))},
		{"spec.rules[0].matches[0].headers[0].value", "missing", by("r", headerLike("x", "[a"))},
		{"spec.rules[0].matches[0].headers[0].type", "not supported", by("r", Match{Headers: []FieldMatch{{"Present", "x", "1"}}})},
		{"spec.rules[0].matches[0].queryParams[0].name", "empty", by("r", query("", "1"))},
		{"spec.rules[0].matches[0].queryParams[0].value", "empty", by("r", query("q", ""))},
		{"spec.rules[0].matches[0]", "condition of HTTP", grpc(by("r", prefix("/a")))},
		{"spec.rules[0].matches[0].method", "neither", grpc(by("r", rpcMatch("", "")))},
		{"spec.rules[0].matches[0].method.service", "not the name", grpc(by("r", rpcMatch("/s", "M")))},
		{"spec.rules[0].matches[0].method.method", "not the name", grpc(by("r", rpcMatch("s", "M/N")))},
		{"spec.rules[0].matches[0].method.service", "missing", grpc(by("r", rpcLike("s(", "M")))},
		{"spec.rules[0].matches[0].method.type", "not supported", grpc(by("r", Match{RPC: &RPCMatch{"Prefix", "s", ""}}))},
		{"spec.rules[0].filters[0].type", "RequestMirror", onlyFilter(Filter{Type: "RequestMirror"})},
		{"spec.rules[0].filters[0].type", "ExtensionRef", onlyFilter(Filter{Type: "ExtensionRef"})},
		{"spec.rules[0].filters[0].type", "CORS", onlyFilter(Filter{Type: "CORS"})},
		{"spec.rules[0].filters[0].type", "ExternalAuth", onlyFilter(Filter{Type: "ExternalAuth"})},
		{"spec.rules[0].filters[0].type", "not supported", onlyFilter(Filter{})},
		{"spec.rules[0].filters[0]", "missing", onlyFilter(Filter{Type: "URLRewrite"})},
		{"spec.rules[0].filters[0]", "missing", onlyFilter(Filter{Type: "RequestRedirect"})},
		{"spec.rules[0].filters[0]", "missing", onlyFilter(Filter{Type: "ResponseHeaderModifier", RequestHeaders: &HeaderModifier{}})},
		{"spec.rules[0].filters[0].type", "URLRewrite", grpc(onlyFilter(rewriteTo("b.test", nil)))},
		{"spec.rules[0].filters[1].type", "second", filtered(Match{}, rewriteTo("a.test", nil), rewriteTo("b.test", nil))},
		{"spec.rules[0].filters", "both", filtered(Match{}, rewriteTo("a.test", nil), Filter{Type: "RequestRedirect", Redirect: &RequestRedirect{}})},
		{"spec.rules[0].filters[0].requestHeaderModifier.set[0].name", "belongs to the connection",
			onlyFilter(requestHeaders(HeaderModifier{Set: []Header{{"Transfer-Encoding", "chunked"}}}))},
		{"spec.rules[0].filters[0].requestHeaderModifier.add[0].name", "one host", onlyFilter(requestHeaders(HeaderModifier{Add: []Header{{"host", "b"}}}))},
		{"spec.rules[0].filters[0].requestHeaderModifier.set[0].value", "not a host", onlyFilter(requestHeaders(HeaderModifier{Set: []Header{{"host", "a b"}}}))},
		{"spec.rules[0].filters[0].requestHeaderModifier.remove[0]", "has to have a host", onlyFilter(requestHeaders(HeaderModifier{Remove: []string{"Host"}}))},
		{"spec.rules[0].filters[0].requestHeaderModifier.set[0].value", "control", onlyFilter(requestHeaders(HeaderModifier{Set: []Header{{"a", "b\r\nc: d"}}}))},
		{"spec.rules[0].filters[0].requestHeaderModifier.add[0].value", "blank", onlyFilter(requestHeaders(HeaderModifier{Add: []Header{{"a", " b"}}}))},
		{"spec.rules[0].filters[0].responseHeaderModifier.set[0].name", "no host",
			onlyFilter(Filter{Type: "ResponseHeaderModifier", ResponseHeaders: &HeaderModifier{Set: []Header{{"host", "b"}}}})},
		{"spec.rules[0].filters[0].urlRewrite.hostname", "not a host name", onlyFilter(rewriteTo("*.test", nil))},
		{"spec.rules[0].filters[0].urlRewrite.path.replaceFullPath", "not a path", onlyFilter(rewriteTo("", full("new")))},
		{"spec.rules[0].filters[0].urlRewrite.path.replaceFullPath", "not a path", onlyFilter(rewriteTo("", full("/a b")))},
		{"spec.rules[0].filters[0].urlRewrite.path.replacePrefixMatch", "not a path", onlyFilter(rewriteTo("", newPrefix("/a?b")))},
		{"spec.rules[0].filters[0].urlRewrite.path.type", "matches[0] is no prefix", filtered(exact("/a"), rewriteTo("", newPrefix("/b")))},
		{"spec.rules[0].filters[0].urlRewrite.path.type", "not supported", onlyFilter(rewriteTo("", &PathModifier{Type: "Regex"}))},
		{"spec.rules[0].filters[0].urlRewrite.path", "missing", onlyFilter(rewriteTo("", &PathModifier{Type: "ReplaceFullPath", ReplacePrefixMatch: text("/")}))},
		{"spec.rules[0].filters[0].requestRedirect.scheme", "not supported", onlyFilter(Filter{Type: "RequestRedirect", Redirect: &RequestRedirect{Scheme: "ftp"}})},
		{"spec.rules[0].filters[0].requestRedirect.port", "not a port", onlyFilter(Filter{Type: "RequestRedirect", Redirect: &RequestRedirect{Port: 70000}})},
		{"spec.rules[0].filters[0].requestRedirect.statusCode", "not supported", onlyFilter(Filter{Type: "RequestRedirect", Redirect: &RequestRedirect{StatusCode: 200}})},
		{"spec.rules[0].filters[0].requestRedirect", "no use", ruled(Rule{Filters: []Filter{{Type: "RequestRedirect", Redirect: &RequestRedirect{}}},
			Backends: []BackendRef{{Name: "a", Port: 80}}})},
		{"spec.rules[0].backendRefs[0].kind", "other.io/Thing", onlyBackend(BackendRef{Group: "other.io", Kind: "Thing", Name: "a", Port: 80})},
		{"spec.rules[0].backendRefs[0].kind", "only a Service", onlyBackend(BackendRef{Kind: "Pod", Name: "a", Port: 80})},
		{"spec.rules[0].backendRefs[0].name", "empty", onlyBackend(BackendRef{Port: 80})},
		{"spec.rules[0].backendRefs[0].port", "needs a port", onlyBackend(BackendRef{Name: "a"})},
		{"spec.rules[0].backendRefs[0].port", "needs a port", onlyBackend(BackendRef{Name: "a", Port: 65536})},
		{"spec.rules[0].backendRefs[0].weight", "-1", onlyBackend(BackendRef{Name: "a", Port: 80, Weight: weigh(-1)})},
		{"spec.rules[0].backendRefs[0].weight", "1000001", onlyBackend(BackendRef{Name: "a", Port: 80, Weight: weigh(1_000_001)})},
		{"spec.rules[0].backendRefs[0].filters[0].type", "of a backend", onlyBackend(BackendRef{Name: "a", Port: 80,
			Filters: []Filter{{Type: "RequestRedirect", Redirect: &RequestRedirect{}}}})},
		{"spec.rules[0].backendRefs[0].filters[0].type", "RequestMirror", onlyBackend(BackendRef{Name: "a", Port: 80, Filters: []Filter{{Type: "RequestMirror"}}})},
		{"spec.rules[0].timeouts.request", "not a duration", ruled(Rule{Timeouts: &TimeoutSpec{Request: "10"}})},
		{"spec.rules[0].timeouts.request", "not a duration", ruled(Rule{Timeouts: &TimeoutSpec{Request: "1.5s"}})},
		{"spec.rules[0].timeouts.request", "not a duration", ruled(Rule{Timeouts: &TimeoutSpec{Request: "-1s"}})},
		{"spec.rules[0].timeouts.backendRequest", "more than", ruled(Rule{Timeouts: &TimeoutSpec{Request: "1s", BackendRequest: "2s"}})},
		{"spec.rules[0].timeouts", "has none", grpc(ruled(Rule{Timeouts: &TimeoutSpec{}}))},
		{"spec.rules[0].retry", "has none", grpc(ruled(Rule{Retry: &RetrySpec{}}))},
		{"spec.rules[0].retry.codes[1]", "399", ruled(Rule{Retry: &RetrySpec{Codes: []int{400, 399}}})},
		{"spec.rules[0].retry.attempts", "0", ruled(Rule{Retry: &RetrySpec{Attempts: number(0)}})},
		{"spec.rules[0].retry.backoff", "not a duration", ruled(Rule{Retry: &RetrySpec{Backoff: "soon"}})},
		{"spec.rules[0].sessionPersistence", "not supported", ruled(Rule{Session: true})},
		{"metadata.annotations[timeout.linkerd.io/request]", "no duration", annotated("timeout.linkerd.io/request", "soon")},
		{"metadata.annotations[retry.linkerd.io/grpc]", "no meaning", annotated("retry.linkerd.io/grpc", "internal")},
		{"metadata.annotations[balancer.linkerd.io/failure-accrual]", "belongs to a Service", annotated("balancer.linkerd.io/failure-accrual", "consecutive")},
	} {
		t.Run(c.field+" "+c.says, func(t *testing.T) {
			tab, err := New(Config{Routes: []Route{c.route}})
			problems, ok := errors.AsType[Problems](err)
			if !ok || tab != nil {
				t.Fatalf("got a table, and the error %v", err)
			}
			if len(problems) != 1 || problems[0].Field != c.field || !strings.Contains(problems[0].Err.Error(), c.says) {
				t.Errorf("the error is %q, want one of %s that says %q", err, c.field, c.says)
			}
		})
	}
}

func TestAllProblemsAreToldAtOnceWithTheirObject(t *testing.T) {
	bad, other := by("bad", prefix("x"), Match{Method: "FOO"}), by("other", header("", "1"))
	_, err := New(Config{Routes: []Route{bad, by("good", prefix("/")), other}, Annotations: map[string]string{"retry.linkerd.io/limt": "3"}})
	want := `metadata.annotations[retry.linkerd.io/limt]: unknown: there are http, grpc, limit and timeout
HTTPRoute shop/bad: spec.rules[0].matches[0].path.value: "x" does not begin with /
HTTPRoute shop/bad: spec.rules[0].matches[1].method: unknown method "FOO"
HTTPRoute shop/other: spec.rules[0].matches[0].headers[0].name: "" is not the name of a header field`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error(diff)
	}
	if p, ok := errors.AsType[*Problem](err); !ok || p.Field != "metadata.annotations[retry.linkerd.io/limt]" {
		t.Errorf("errors.AsType finds %v", p)
	}
}
