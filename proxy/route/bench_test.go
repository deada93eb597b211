package route

import (
	"fmt"
	"testing"

	"github.com/meshctl/meshctl/proxy/message"
)

// hundred are a hundred routes as a service has them: most by prefix.
func hundred(b testing.TB) *Table {
	var routes []Route
	for i := range 100 {
		r := by(fmt.Sprintf("r%02d", i), prefix(fmt.Sprintf("/api/v1/thing%02d", i)), exact(fmt.Sprintf("/old/thing%02d", i)))
		r.Rules[0].Backends = []BackendRef{{Name: "a", Port: 80, Weight: weigh(9)}, {Name: "b", Port: 80}}
		if i%10 == 0 {
			r.Rules[0].Matches[0].Headers = []FieldMatch{{"", "x-canary", "always"}}
		}
		if i%4 == 0 {
			r.Hostnames = []string{fmt.Sprintf("h%d.shop.test", i), "*.api.test"}
		}
		routes = append(routes, r)
	}
	return table(b, routes...)
}

// browser is a request with as many fields as a browser sends.
func browser(t testing.TB, line string) *message.Head {
	return ask(t, line, "user-agent: Mozilla/5.0 (X11; Linux x86_64)", "accept: text/html", "accept-language: en", "accept-encoding: gzip",
		"cookie: session=0123456789abcdef", "cache-control: no-cache", "x-request-id: 1", "x-forwarded-for: 10.0.0.1", "traceparent: 00-1-2-01", "referer: /")
}

func BenchmarkMatch100Routes(b *testing.B) {
	tab := hundred(b)
	for _, c := range []struct{ name, line string }{
		{"prefix", "GET shop:80 /api/v1/thing77/items/1?x=1"}, {"exact", "GET shop /old/thing77"},
		{"host", "GET h76.shop.test /api/v1/thing76/x"}, {"none", "GET shop /nothing/here"},
	} {
		h := browser(b, c.line)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if hit := tab.Match(h); (hit.Action == nil) != (c.name == "none") {
					b.Fatal("matched the wrong way")
				}
			}
		})
	}
}

// A service with a canary by header in front of everything else.
func BenchmarkMatchByHeader(b *testing.B) {
	tab := table(b, by("canary", header("x-canary", "yes")), by("user", headerLike("cookie", ".*session=f.*")), by("rest", prefix("/")))
	h := browser(b, "GET shop /")
	b.ReportAllocs()
	for b.Loop() {
		if tab.Match(h).Route.Name != "rest" {
			b.Fatal("matched the wrong way")
		}
	}
}

func BenchmarkMatchWithoutRoutes(b *testing.B) {
	tab, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	h := browser(b, "GET shop:80 /api/v1/thing77")
	b.ReportAllocs()
	for b.Loop() {
		hit := tab.Match(h)
		hit.EditRequest(h, hit.Pick(7))
	}
}

func BenchmarkNew100Routes(b *testing.B) {
	for b.Loop() {
		hundred(b)
	}
}

func TestARequestIsRoutedWithoutAllocation(t *testing.T) {
	tab := allKinds(t)
	if underRace {
		tab = table(t, filtered(prefix("/"), rewriteTo("new.test", newPrefix("/new")), requestHeaders(HeaderModifier{Set: []Header{{"x", "1"}}})))
	}
	src := []*message.Head{
		browser(t, "GET shop.test:80 /x"), browser(t, "POST h /old/x?q=1"), browser(t, "POST h /moved/x"), browser(t, "POST h /a/b"),
		browser(t, "POST h /v22/x"), browser(t, "POST h /?q=a+b"), browser(t, "POST h /?r=ab"), browser(t, "POST h /nothing"),
	}
	if underRace {
		src = src[:len(src)-1] // "nothing" matches, too: it would be counted wrong
	}
	h, matched := &message.Head{}, 0
	n := testing.AllocsPerRun(200, func() {
		for _, s := range src {
			h.Reset()
			h.CopyFrom(s)
			hit := tab.Match(h)
			if hit.Action == nil {
				continue
			}
			matched++
			hit.Redirect(h, 80)
			hit.EditRequest(h, hit.Pick(1<<31))
			hit.EditResponse(h, hit.Pick(0))
		}
	})
	if n != 0 {
		t.Errorf("%v allocations for %d requests", n, len(src))
	}
	if want := 201 * 7; matched != want {
		t.Errorf("%d requests matched, want %d", matched, want)
	}
}
