package route

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/meshctl/meshctl/proxy/message"
)

// written is a head as text: what a codec would send, without framing.
func written(h *message.Head) string {
	var b strings.Builder
	if h.Status != 0 {
		b.WriteString("response")
	} else {
		b.WriteString(string(h.Method) + " " + string(h.Authority) + " " + string(h.Path))
	}
	for _, f := range h.Fields {
		b.WriteString("|" + string(f.Name) + ": " + string(f.Value))
	}
	return b.String()
}

func text(s string) *string { return &s }

func full(path string) *PathModifier {
	return &PathModifier{Type: "ReplaceFullPath", ReplaceFullPath: &path}
}

func newPrefix(path string) *PathModifier {
	return &PathModifier{Type: "ReplacePrefixMatch", ReplacePrefixMatch: &path}
}

func requestHeaders(m HeaderModifier) Filter {
	return Filter{Type: "RequestHeaderModifier", RequestHeaders: &m}
}

func rewriteTo(host string, path *PathModifier) Filter {
	return Filter{Type: "URLRewrite", Rewrite: &URLRewrite{Hostname: host, Path: path}}
}

// filtered is a route of one rule with these filters.
func filtered(m Match, filters ...Filter) Route {
	r := by("r", m)
	r.Rules[0].Filters = filters
	return r
}

func TestARequestIsEdited(t *testing.T) {
	for _, c := range []struct {
		name     string
		route    Route
		in, want string
	}{
		{"nothing to do", filtered(Match{}), "GET a:80 /x?y A: 1", "GET a:80 /x?y|A: 1"},
		{"a field is added after those of its name", filtered(Match{}, requestHeaders(HeaderModifier{Add: []Header{{"x-a", "2"}}})),
			"GET a / X-A: 1|B: b", "GET a /|X-A: 1|B: b|x-a: 2"},
		{"a field is set where it stands, and the others of its name go", filtered(Match{}, requestHeaders(HeaderModifier{Set: []Header{{"x-a", "2"}}})),
			"GET a / B: b|X-A: 1|C: c|X-a: 3", "GET a /|B: b|X-A: 2|C: c"},
		{"a field that is missing is set at the end", filtered(Match{}, requestHeaders(HeaderModifier{Set: []Header{{"X-A", "2"}}})),
			"GET a / B: b", "GET a /|B: b|X-A: 2"},
		{"fields are removed, however their name is written", filtered(Match{}, requestHeaders(HeaderModifier{Remove: []string{"X-A", "c"}})),
			"GET a / x-a: 1|B: b|C: c|X-A: 2", "GET a /|B: b"},
		{"removed first, then set, then added", filtered(Match{}, requestHeaders(HeaderModifier{
			Remove: []string{"x"}, Set: []Header{{"x", "set"}}, Add: []Header{{"x", "add"}}})),
			"GET a / X: 0|B: b", "GET a /|B: b|x: set|x: add"},
		{"the host is set as a field", filtered(Match{}, requestHeaders(HeaderModifier{Set: []Header{{"Host", "b.test:81"}}})), "GET a:80 /", "GET b.test:81 /"},
		{"the host is rewritten", filtered(Match{}, rewriteTo("b.test", nil)), "GET a:80 /x", "GET b.test /x"},
		{"the path is replaced and the query kept", filtered(Match{}, rewriteTo("", full("/new"))), "GET a /x/y?q=1", "GET a /new?q=1"},
		{"the path and the query are replaced", filtered(Match{}, rewriteTo("", full("/new?r=2"))), "GET a /x/y?q=1", "GET a /new?r=2"},
		{"an empty query stays empty", filtered(Match{}, rewriteTo("", full("/new"))), "GET a /x?", "GET a /new?"},
		{"OPTIONS * has no path", filtered(Match{}, rewriteTo("", full("/new"))), "OPTIONS a *", "OPTIONS a *"},
		{"CONNECT has no path", filtered(Match{}, rewriteTo("b.test", full("/new"))), "CONNECT a:1 ", "CONNECT b.test "},
		{"host and path and fields", filtered(prefix("/x"), rewriteTo("b.test", newPrefix("/z")), requestHeaders(HeaderModifier{Add: []Header{{"h", "v"}}})),
			"GET a /x/y?q", "GET b.test /z/y?q|h: v"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := asked(t, c.in)
			hit := table(t, c.route).Match(h)
			hit.EditRequest(h, hit.Pick(0))
			if diff := cmp.Diff(c.want, written(h)); diff != "" {
				t.Error(diff)
			}
			if edits := len(c.route.Rules[0].Filters) > 0; hit.Edited() != edits {
				t.Errorf("Edited says %v", hit.Edited())
			}
		})
	}
}

func TestAPrefixIsReplacedByWholeElements(t *testing.T) {
	for _, c := range []struct{ path, prefix, with, want string }{
		{"/shop/cart", "/shop", "/store", "/store/cart"},
		{"/shop/cart", "/shop", "/store/", "/store/cart"},
		{"/shop/cart", "/shop/", "/store", "/store/cart"},
		{"/shop/cart", "/shop/", "/store/", "/store/cart"},
		{"/shop", "/shop", "/store", "/store"},
		{"/shop/", "/shop", "/store", "/store/"},
		{"/shop", "/shop/", "/store", "/store"},
		{"/shop/cart", "/shop", "", "/cart"},
		{"/shop/", "/shop", "", "/"},
		{"/shop", "/shop", "", "/"},
		{"/shop/", "/shop", "/", "/"},
		{"/shop", "/shop", "/", "/"},
		{"/cart", "/", "/store", "/store/cart"},
		{"/", "/", "/store", "/store/"},
		{"/cart/x?q=/shop", "/", "/", "/cart/x?q=/shop"},
		{"/shop?q=1", "/shop", "", "/?q=1"},
		{"/shop//x", "/shop", "/a/b", "/a/b//x"},
	} {
		h := ask(t, "GET a "+c.path)
		hit := table(t, filtered(prefix(c.prefix), rewriteTo("", newPrefix(c.with)))).Match(h)
		if hit.Action == nil {
			t.Errorf("%s does not come under %s", c.path, c.prefix)
			continue
		}
		hit.EditRequest(h, hit.Pick(0))
		if got := string(h.Path); got != c.want {
			t.Errorf("%s, %s by %q: %s, want %s", c.path, c.prefix, c.with, got, c.want)
		}
	}
}

func TestALongPathIsRewrittenWhole(t *testing.T) {
	long := strings.Repeat("/element", 1000)
	h := ask(t, "GET a /x"+long+"?q")
	hit := table(t, filtered(prefix("/x"), rewriteTo("", newPrefix("/y")))).Match(h)
	hit.EditRequest(h, hit.Pick(0))
	if string(h.Path) != "/y"+long+"?q" {
		t.Errorf("became %.40s ...", h.Path)
	}
}

func TestAResponseIsEdited(t *testing.T) {
	r := filtered(Match{}, Filter{Type: "ResponseHeaderModifier", ResponseHeaders: &HeaderModifier{
		Set: []Header{{"Server", "none"}}, Remove: []string{"x-powered-by"}}})
	r.Rules[0].Backends = []BackendRef{{Name: "b", Port: 80, Filters: []Filter{{Type: "ResponseHeaderModifier",
		ResponseHeaders: &HeaderModifier{Set: []Header{{"Server", "backend"}}, Add: []Header{{"X-From", "b"}}}}}}}
	hit := table(t, r).Match(asked(t, "GET a /"))
	h := &message.Head{Version: message.HTTP2, Status: 200}
	h.Add("x-powered-by", "magic")
	h.Add("server", "real")
	hit.EditResponse(h, hit.Pick(0))
	if got, want := written(h), "response|server: none|x-from: b"; got != want {
		t.Errorf("became %s, want %s: the rule's edits come last, names of HTTP/2 are in lower case", got, want)
	}
}

func TestOnlyTheChosenBackendsFiltersApply(t *testing.T) {
	r := filtered(prefix("/x"), requestHeaders(HeaderModifier{Add: []Header{{"by", "rule"}}}))
	r.Rules[0].Backends = []BackendRef{
		{Name: "a", Port: 80, Filters: []Filter{requestHeaders(HeaderModifier{Set: []Header{{"by", "a"}, {"host", "a.test"}}})}},
		{Name: "b", Port: 80},
	}
	tab := table(t, r)
	for random, want := range map[uint32]string{0: "GET a.test /x|by: a", math.MaxUint32: "GET h /x|by: rule"} {
		h := asked(t, "GET h /x")
		hit := tab.Match(h)
		hit.EditRequest(h, hit.Pick(random))
		if got := written(h); got != want {
			t.Errorf("became %s, want %s", got, want)
		}
	}
}

func TestABackendsFiltersApplyToARuleWithoutAny(t *testing.T) {
	r := by("r", prefix("/x"))
	r.Rules[0].Backends = []BackendRef{{Name: "a", Port: 80, Filters: []Filter{rewriteTo("a.test", newPrefix("/y"))}}}
	h := asked(t, "GET h /x/z")
	hit := table(t, r).Match(h)
	hit.EditRequest(h, hit.Pick(0))
	if got := written(h); got != "GET a.test /y/z" || !hit.Edited() {
		t.Errorf("became %s, Edited says %v", got, hit.Edited())
	}
}

func TestARedirectSaysWhereTo(t *testing.T) {
	to := func(m Match, f RequestRedirect) Route {
		return filtered(m, Filter{Type: "RequestRedirect", Redirect: &f})
	}
	for _, c := range []struct {
		name   string
		route  Route
		in     string
		port   uint16
		status int
		want   string
	}{
		{"another host", to(Match{}, RequestRedirect{Hostname: "b.test"}), "GET a /x?q=1", 80, 302, "http://b.test/x?q=1"},
		{"the port of the connection stays", to(Match{}, RequestRedirect{Hostname: "b.test"}), "GET a:8080 /x", 8080, 302, "http://b.test:8080/x"},
		{"https brings its port", to(Match{}, RequestRedirect{Scheme: "https", StatusCode: 301}), "GET a:8080 /x", 8080, 301, "https://a/x"},
		{"http brings its port", to(Match{}, RequestRedirect{Scheme: "http"}), "GET a:8080 /x", 8080, 302, "http://a/x"},
		{"a port of the rule's own", to(Match{}, RequestRedirect{Port: 8443, Scheme: "https", StatusCode: 308}), "GET a /x", 80, 308, "https://a:8443/x"},
		{"a port that the scheme implies", to(Match{}, RequestRedirect{Port: 443, Scheme: "https"}), "GET a /x", 80, 302, "https://a/x"},
		{"port 80 of https is said", to(Match{}, RequestRedirect{Port: 80, Scheme: "https"}), "GET a /x", 80, 302, "https://a:80/x"},
		{"another path", to(Match{}, RequestRedirect{Path: full("/new"), StatusCode: 307}), "GET a /x?q=1", 80, 307, "http://a/new?q=1"},
		{"another prefix", to(prefix("/old"), RequestRedirect{Path: newPrefix("/new"), StatusCode: 303}), "GET a /old/x", 80, 303, "http://a/new/x"},
		{"the host of an IPv6 address", to(Match{}, RequestRedirect{Path: full("/new")}), "GET [fd00::1]:81 /", 81, 302, "http://[fd00::1]:81/new"},
		{"the host of an IPv6 address without a port", to(Match{}, RequestRedirect{}), "GET [fd00::1] /", 80, 302, "http://[fd00::1]/"},
		{"the host without its port, when that is not known", to(Match{}, RequestRedirect{}), "GET a:81 /", 0, 302, "http://a/"},
		{"OPTIONS *", to(Match{}, RequestRedirect{Hostname: "b.test"}), "OPTIONS a *", 80, 302, "http://b.test/"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := asked(t, c.in)
			status, location := table(t, c.route).Match(h).Redirect(h, c.port)
			if status != c.status || string(location) != c.want {
				t.Errorf("%d to %s, want %d to %s", status, location, c.status, c.want)
			}
		})
	}
	h := asked(t, "GET a /")
	if status, _ := table(t, by("r")).Match(h).Redirect(h, 80); status != 0 {
		t.Errorf("a rule that does not redirect says %d", status)
	}
	h = asked(t, "GET a /x")
	h.Scheme = h.HoldString("https")
	if _, to := table(t, to(Match{}, RequestRedirect{Hostname: "b.test"})).Match(h).Redirect(h, 443); string(to) != "https://b.test/x" {
		t.Errorf("a request by https is sent to %s", to)
	}
}

func TestBackendsGetWhatTheirWeightsSay(t *testing.T) {
	weight := func(n int32) *int32 { return &n }
	r := by("r", Match{})
	r.Rules[0].Backends = []BackendRef{
		{Name: "a", Port: 80, Weight: weight(90)}, {Name: "none", Port: 80, Weight: weight(0)},
		{Name: "b", Port: 80, Weight: weight(9)}, {Namespace: "other", Name: "a", Port: 80}, // 1
	}
	tab := table(t, r)
	a := tab.Match(asked(t, "GET a /")).Action
	got := map[string]int{}
	const rounds = 100_000
	for i := range rounds {
		b := tab.Backends[a.Pick(uint32(uint64(i)<<32/rounds)).Backend]
		got[b.Namespace+"/"+b.Name]++
	}
	for name, want := range map[string]int{"shop/a": 90_000, "shop/b": 9_000, "other/a": 1_000} {
		if n := got[name]; n < want-1 || n > want+1 {
			t.Errorf("%s got %d of %d, want %d", name, n, rounds, want)
		}
	}
	if len(got) != 3 {
		t.Errorf("picked %v", got)
	}
	if a.Pick(math.MaxUint32) == nil || len(a.Shares()) != 3 {
		t.Errorf("the last share is not reached, or there are %d", len(a.Shares()))
	}
	r.Rules[0].Backends = r.Rules[0].Backends[1:2]
	if s := table(t, r).Match(asked(t, "GET a /")).Pick(7); s != nil {
		t.Errorf("picked %+v, though there is no weight at all", s)
	}
}

func TestOneBackendHasOnePlaceInTheTable(t *testing.T) {
	one, two := by("one", exact("/1")), by("two", exact("/2"))
	one.Rules[0].Backends = []BackendRef{{Name: "a", Port: 80}, {Name: "b", Port: 80}}
	two.Rules[0].Backends = []BackendRef{{Namespace: "shop", Name: "b", Port: 80}, {Name: "b", Port: 81, Kind: "Service"}}
	tab := table(t, one, two)
	want := []Backend{{}, {"shop", "a", 80}, {"shop", "b", 80}, {"shop", "b", 81}}
	if diff := cmp.Diff(want, tab.Backends); diff != "" {
		t.Error(diff)
	}
	if got := tab.Match(asked(t, "GET a /2")).Pick(0).Backend; got != 2 {
		t.Errorf("the second rule's first backend is %d", got)
	}
}
