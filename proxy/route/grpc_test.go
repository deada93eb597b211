package route

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func rpcRoute(name string, m ...Match) Route {
	r := by(name, m...)
	r.Kind = GRPC
	return r
}

func rpcMatch(service, method string) Match {
	return Match{RPC: &RPCMatch{"", service, method}}
}

func rpcLike(service, method string) Match {
	return Match{RPC: &RPCMatch{"RegularExpression", service, method}}
}

func TestAGRPCMatchHoldsOrDoesNot(t *testing.T) {
	for _, c := range []struct {
		name    string
		match   Match
		yes, no []string
	}{
		{"service and method", rpcMatch("shop.Cart", "Add"), []string{"POST a /shop.Cart/Add"},
			[]string{"POST a /shop.Cart/Remove", "POST a /shop.Carts/Add", "POST a /shop.Cart/add", "GET a /shop.Cart/Add", "POST a /x/shop.Cart/Add"}},
		{"a service", rpcMatch("shop.Cart", ""), []string{"POST a /shop.Cart/Add", "POST a /shop.Cart/Remove"}, []string{"POST a /shop.CartX/Add", "POST a /Cart/Add"}},
		{"a method of any service", rpcMatch("", "Add"), []string{"POST a /shop.Cart/Add", "POST a /x/Add"}, []string{"POST a /Add", "POST a /shop.Cart/AddAll", "OPTIONS a *"}},
		{"a service by expression", rpcLike(`shop\..*`, ""), []string{"POST a /shop.Cart/Add", "POST a /shop.X/Y"}, []string{"POST a /shopXCart/Add", "POST a /my.shop.X/Y"}},
		{"a method by expression", rpcLike("", "Get.*|Add"), []string{"POST a /s/GetAll", "POST a /s/Add"}, []string{"POST a /s/AddAll", "POST a /s/ForGetting"}},
		{"both by expression", rpcLike("a|b", "c|d"), []string{"POST a /a/c", "POST a /b/d"}, []string{"POST a /a/b", "POST a /c/d"}},
		{"every call", Match{}, []string{"POST a /s/M"}, []string{"GET a /s/M", "POST a *"}},
		{"a header", header("x-tenant", "blue"), []string{"POST a /s/M x-tenant: blue"}, []string{"POST a /s/M"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tab := table(t, rpcRoute("r", c.match))
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

func TestOfSeveralGRPCMatchesTheMoreSpecificWins(t *testing.T) {
	with := func(m Match, fields ...FieldMatch) Match {
		m.Headers = append(m.Headers, fields...)
		return m
	}
	one, two := FieldMatch{"", "x", "1"}, FieldMatch{"", "y", "2"}
	for _, c := range []struct {
		name      string
		win, lose Match
	}{
		{"service and method before the service", rpcMatch("s.A", "Get"), with(rpcMatch("s.A", ""), one, two)},
		{"the service before the method", rpcMatch("s.A", ""), with(rpcMatch("", "Get"), one)},
		{"a service before an expression of it", rpcMatch("s.A", ""), with(rpcLike("s.A|other.One", "Get"), one)},
		{"an expression of a service before a method", rpcLike("s.A", ""), with(rpcMatch("", "Get"), one)},
		{"the longer expression of a service", rpcLike("s.A|x", ""), with(rpcLike("s.A", "Get"), one)},
		{"the longer expression of a method", rpcLike("s.A", "Get|x"), with(rpcLike("s.A", "Get"), one)},
		{"a method before none", rpcMatch("", "Get"), with(Match{}, one, two)},
		{"more headers", with(rpcMatch("s.A", "Get"), one, two), with(rpcMatch("s.A", "Get"), one)},
	} {
		t.Run(c.name, func(t *testing.T) {
			win, lose := rpcRoute("zz-win", c.win), rpcRoute("aa-lose", c.lose)
			const call = "POST a /s.A/Get x: 1|y: 2"
			for _, tab := range []*Table{table(t, win, lose), table(t, lose, win)} {
				if got := chosen(tab, asked(t, call)); got != "zz-win" {
					t.Errorf("%q won", got)
				}
			}
			if got := chosen(table(t, lose), asked(t, call)); got != "aa-lose" {
				t.Errorf("the other does not match at all: %q", got)
			}
		})
	}
}

func TestHTTPRoutesDoNotCountBesideAGRPCRoute(t *testing.T) {
	tab := table(t, by("http", exact("/s/M")), rpcRoute("grpc", rpcMatch("s", "")))
	if got := chosen(tab, asked(t, "POST a /s/M")); got != "grpc" {
		t.Errorf("the call came under %q", got)
	}
	if got := chosen(tab, asked(t, "GET a /s/M")); got != "" {
		t.Errorf("a request that is no call came under %q", got)
	}
	if diff := cmp.Diff([]Ref{{HTTP, "shop", "http"}}, tab.Ignored); diff != "" {
		t.Error(diff)
	}
}
