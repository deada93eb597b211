package route

import (
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/proxy/message"
)

// ask makes a head from "METHOD authority target" and fields "name: value".
func ask(t testing.TB, line string, fields ...string) *message.Head {
	t.Helper()
	parts := strings.Split(line, " ")
	if len(parts) != 3 {
		t.Fatalf("%q is not a method, an authority and a target", line)
	}
	h := &message.Head{Version: message.HTTP11}
	h.Method, h.Authority, h.Path = h.HoldString(parts[0]), h.HoldString(parts[1]), h.HoldString(parts[2])
	for _, f := range fields {
		name, value, ok := strings.Cut(f, ": ")
		switch {
		case !ok:
			t.Fatalf("%q is not a field", f)
		case name == "Upgrade":
			h.Upgrade = h.HoldString(value)
		default:
			h.Add(name, value)
		}
	}
	return h
}

// table compiles routes, which must be right.
func table(t testing.TB, routes ...Route) *Table {
	t.Helper()
	tab, err := New(Config{Routes: routes})
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// by makes a route with one rule, which is named as the route is.
func by(name string, matches ...Match) Route {
	return Route{Kind: HTTP, Namespace: "shop", Name: name, Rules: []Rule{{Matches: matches}}}
}

func exact(v string) Match  { return Match{Path: &PathMatch{Type: "Exact", Value: v}} }
func prefix(v string) Match { return Match{Path: &PathMatch{Type: "PathPrefix", Value: v}} }
func regex(v string) Match  { return Match{Path: &PathMatch{Type: "RegularExpression", Value: v}} }

func header(name, value string) Match { return Match{Headers: []FieldMatch{{"", name, value}}} }
func headerLike(name, value string) Match {
	return Match{Headers: []FieldMatch{{"RegularExpression", name, value}}}
}
func query(name, value string) Match { return Match{Query: []FieldMatch{{"Exact", name, value}}} }
func queryLike(name, value string) Match {
	return Match{Query: []FieldMatch{{"RegularExpression", name, value}}}
}

// chosen is the name of the route that a request comes under, "" for none.
func chosen(tab *Table, h *message.Head) string {
	hit := tab.Match(h)
	if hit.Action == nil {
		return ""
	}
	return hit.Route.Name
}

func TestAMatchHoldsOrDoesNot(t *testing.T) {
	for _, c := range []struct {
		name  string
		match Match
		yes   []string
		no    []string
	}{
		{"an exact path", exact("/cart"), []string{"GET a /cart", "GET a /cart?x=1", "POST a /cart?"},
			[]string{"GET a /cart/", "GET a /Cart", "GET a /cart2", "GET a /", "GET a /c"}},
		{"an exact path of /", exact(""), []string{"GET a /", "GET a /?q"}, []string{"GET a /x", "OPTIONS a *"}},
		{"a prefix of whole elements", prefix("/shop"), []string{"GET a /shop", "GET a /shop/", "GET a /shop/x/y", "GET a /shop?x", "GET a /shop//"},
			[]string{"GET a /shopping", "GET a /sho", "GET a /Shop", "GET a /x/shop", "GET a /"}},
		{"a prefix with a slash at its end", prefix("/shop/"), []string{"GET a /shop", "GET a /shop/x"}, []string{"GET a /shopping"}},
		{"the prefix / matches everything", prefix("/"), []string{"GET a /", "GET a /x", "OPTIONS a *", "CONNECT a:443 "}, nil},
		{"no condition matches everything", Match{}, []string{"GET a /", "OPTIONS a *", "CONNECT a:443 "}, nil},
		{"a regular expression matches the whole path", regex("/v[0-9]+/items|/new"), []string{"GET a /v1/items", "GET a /v22/items?x=/", "GET a /new"},
			[]string{"GET a /v1/items/3", "GET a /x/v1/items", "GET a /v/items", "GET a /newer"}},
		{"an alternative that is the head of another", regex("/a|/ab"), []string{"GET a /a", "GET a /ab"}, []string{"GET a /abc"}},
		{"a method", Match{Method: "PUT"}, []string{"PUT a /"}, []string{"GET a /", "put a /", "PUTT a /"}},
		{"a header, its name in any case", header("X-Tenant", "blue"), []string{"GET a / x-tenant: blue", "GET a / X-TENANT: blue", "GET a / X-Tenant: red|X-Tenant: blue"},
			[]string{"GET a /", "GET a / x-tenant: Blue", "GET a / x-tenant: blue2", "GET a / x-tenants: blue", "GET a / x_tenant: blue"}},
		{"a header by expression", headerLike("x-user", "u[0-9]*"), []string{"GET a / X-User: u", "GET a / X-User: u77"}, []string{"GET a / X-User: xu1", "GET a / X-User: u1 "}},
		{"the host as a header", header("Host", "a:80"), []string{"GET a:80 /"}, []string{"GET a /"}},
		{"the protocol to upgrade to", header("upgrade", "websocket"), []string{"GET a / Upgrade: websocket"}, []string{"GET a /", "GET a / Upgrade: other"}},
		{"a query parameter", query("q", "new shoes"), []string{"GET a /?q=new+shoes", "GET a /?x=1&q=new%20shoes", "GET a /?%71=new%20shoes&q=other"},
			[]string{"GET a /", "GET a /?q=newshoes", "GET a /?q=other&q=new+shoes", "GET a /?Q=new+shoes", "GET a /?q=new+shoes2", "GET a /?q"}},
		{"a query parameter with a broken escape", query("q", "100%"), []string{"GET a /?q=100%", "GET a /?q=100%25"}, []string{"GET a /?q=100%2", "GET a /?q=100"}},
		{"a query parameter by expression", queryLike("q", "[a-z ]+"), []string{"GET a /?q=abc", "GET a /?q=a+b", "GET a /?q=%61"}, []string{"GET a /?q=", "GET a /?q=a1", "GET a /?x=abc"}},
		{"a line end within a value", queryLike("q", "a.b"), []string{"GET a /?q=a%0Ab"}, []string{"GET a /?q=ab"}},
		{"all conditions must hold",
			Match{Method: "GET", Path: &PathMatch{Value: "/a"}, Headers: []FieldMatch{{"", "x", "1"}, {"", "y", "2"}}, Query: []FieldMatch{{"", "q", "3"}}},
			[]string{"GET a /a?q=3 X: 1|Y: 2"},
			[]string{"GET a /a?q=3 X: 1", "GET a /a?q=3 Y: 2", "GET a /a X: 1|Y: 2", "POST a /a?q=3 X: 1|Y: 2", "GET a /b?q=3 X: 1|Y: 2"}},
		{"the first of two conditions on one header counts", Match{Headers: []FieldMatch{{"", "X", "1"}, {"", "x", "2"}}},
			[]string{"GET a / x: 1"}, []string{"GET a / x: 2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tab := table(t, by("r", c.match))
			for want, lines := range map[string][]string{"r": c.yes, "": c.no} {
				for _, line := range lines {
					if got := chosen(tab, asked(t, line)); got != want {
						t.Errorf("%q: matched %q, want %q", line, got, want)
					}
				}
			}
		})
	}
}

// asked makes a head from "METHOD authority target name: value|name: value".
func asked(t testing.TB, line string) *message.Head {
	t.Helper()
	parts := strings.SplitN(line, " ", 4)
	var fields []string
	if len(parts) == 4 {
		fields = strings.Split(parts[3], "|")
	}
	return ask(t, strings.Join(parts[:3], " "), fields...)
}

func TestAHostNameIsMatchedWithoutPortAndCase(t *testing.T) {
	at := func(name string, hosts ...string) Route {
		r := by(name)
		r.Hostnames = hosts
		return r
	}
	tab := table(t, at("name", "shop.example.com"), at("wild", "*.example.com"), at("deep", "*.eu.example.com"), at("two", "a.test", "*.b.test"))
	for host, want := range map[string]string{
		"shop.example.com": "name", "SHOP.example.COM:8080": "name", "shop.example.com.": "name", "shop.example.com.:80": "name",
		"user@shop.example.com":   "name",
		"other.example.com":       "wild",
		"a.b.example.com":         "wild",
		"a.shop.example.com":      "wild",
		"example.com":             "",
		".example.com":            "",
		"notexample.com":          "",
		"x.eu.example.com":        "deep",
		"eu.example.com":          "wild",
		"a.test":                  "two",
		"x.b.test":                "two",
		"b.test":                  "",
		"":                        "",
		"[::1]:80":                "",
		strings.Repeat("a.", 400): "",
	} {
		if got := chosen(tab, ask(t, "GET "+host+" /")); got != want {
			t.Errorf("host %q: matched %q, want %q", host, got, want)
		}
	}
}

func TestOfSeveralMatchesTheMoreSpecificWins(t *testing.T) {
	both := func(a, b Match) Match {
		if b.Path != nil {
			a.Path = b.Path
		}
		if b.Method != "" {
			a.Method = b.Method
		}
		a.Headers = append(a.Headers, b.Headers...)
		a.Query = append(a.Query, b.Query...)
		return a
	}
	const request = "GET shop.example.com /a/b?q=1&r=2 X: 1|Y: 2"
	hx, hy, qq, qr := header("x", "1"), header("y", "2"), query("q", "1"), query("r", "2")
	for _, c := range []struct {
		name        string
		win, lose   Match
		hosts, than []string
	}{
		{name: "an exact path before a regular expression", win: exact("/a/b"), lose: both(regex("/a/b.*"), both(hx, qq))},
		{name: "a regular expression before a prefix", win: regex("/a/b"), lose: both(prefix("/a/b"), hx)},
		{name: "the longer of two regular expressions", win: regex("/[a]/[b]"), lose: both(regex("/a/b"), hx)},
		{name: "the longer prefix", win: prefix("/a/b"), lose: both(prefix("/a"), both(hx, Match{Method: "GET"}))},
		{name: "a slash at the end does not make a prefix longer", win: both(prefix("/a"), hx), lose: prefix("/a/")},
		{name: "a method before headers", win: Match{Method: "GET"}, lose: both(hx, hy)},
		{name: "more headers", win: both(hx, hy), lose: both(hx, both(qq, qr))},
		{name: "more query parameters", win: both(qq, qr), lose: qq},
		{name: "a host before none", win: prefix("/"), lose: exact("/a/b"), hosts: []string{"shop.example.com"}},
		{name: "a host before a wildcard", win: prefix("/"), lose: exact("/a/b"), hosts: []string{"shop.example.com"}, than: []string{"*.example.com"}},
		{name: "a longer wildcard", win: prefix("/"), lose: exact("/a/b"), hosts: []string{"*.example.com"}, than: []string{"*.com"}},
		{name: "a wildcard before none", win: prefix("/"), lose: exact("/a/b"), hosts: []string{"*.com"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			win, lose := by("zz-win", c.win), by("aa-lose", c.lose)
			win.Hostnames, lose.Hostnames = c.hosts, c.than
			for _, tab := range []*Table{table(t, win, lose), table(t, lose, win)} {
				if got := chosen(tab, asked(t, request)); got != "zz-win" {
					t.Errorf("%s won", got)
				}
			}
			if got := chosen(table(t, lose), asked(t, request)); got != "aa-lose" {
				t.Errorf("the other does not match at all: %q", got)
			}
		})
	}
}

func TestTiesGoToTheOldestThenTheFirstName(t *testing.T) {
	day := func(n int) time.Time { return time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC) }
	old, young, same := by("z", prefix("/a")), by("a", prefix("/a")), by("b", prefix("/a/"))
	old.Created, young.Created, same.Created = day(1), day(2), day(2)
	if got := chosen(table(t, same, young, old), asked(t, "GET a /a")); got != "z" {
		t.Errorf("the oldest lost to %q", got)
	}
	if got := chosen(table(t, same, young), asked(t, "GET a /a")); got != "a" {
		t.Errorf("the first by name lost to %q", got)
	}
	other := young
	other.Namespace = "another"
	if hit := table(t, young, other).Match(asked(t, "GET a /a")); hit.Route.Namespace != "another" {
		t.Errorf("the first by namespace lost to %q", hit.Route.Namespace)
	}
}

func TestWithinARouteTheFirstRuleWins(t *testing.T) {
	r := by("r")
	r.Rules = []Rule{
		{Name: "zero", Matches: []Match{exact("/x"), prefix("/a")}},
		{Name: "one", Matches: []Match{prefix("/a/"), prefix("/a/b")}},
	}
	tab := table(t, r)
	for path, want := range map[string]string{"/a": "zero", "/a/c": "zero", "/a/b/c": "one", "/x": "zero"} {
		if hit := tab.Match(asked(t, "GET a "+path)); hit.Action == nil || hit.Name != want {
			t.Errorf("%s: came under %+v, want rule %s", path, hit.Action, want)
		}
	}
}

func TestALessSpecificRouteIsTriedWhenTheMoreSpecificDoesNotMatch(t *testing.T) {
	host := by("host", exact("/only"))
	host.Hostnames = []string{"shop.test"}
	tab := table(t, host, by("prefix", Match{Path: &PathMatch{Value: "/a/b"}, Method: "PUT"}), by("rest", prefix("/")))
	for line, want := range map[string]string{"GET shop.test /only": "host", "GET shop.test /other": "rest", "PUT a /a/b": "prefix", "GET a /a/b": "rest"} {
		if got := chosen(tab, asked(t, line)); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func TestAParentWithoutRoutesTakesEverythingItself(t *testing.T) {
	tab, err := New(Config{Annotations: map[string]string{"timeout.linkerd.io/request": "3s"}})
	if err != nil {
		t.Fatal(err)
	}
	hit := tab.Match(asked(t, "GET a /"))
	if hit.Action == nil || hit.Route != (Ref{}) || hit.Policy.Timeouts.Request != 3*time.Second {
		t.Fatalf("got %+v", hit.Action)
	}
	if s := hit.Pick(1 << 31); s == nil || s.Backend != 0 || tab.Backends[0] != (Backend{}) {
		t.Errorf("picked %+v of %v, not the parent itself", s, tab.Backends)
	}
}
