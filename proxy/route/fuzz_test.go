package route

import (
	"bytes"
	"net/url"
	"strings"
	"testing"

	"github.com/meshctl/meshctl/proxy/message"
)

// allKinds are routes with one condition of every sort, and edits.
func allKinds(t testing.TB) *Table {
	wild, edited := by("wild", Match{Method: "GET"}), filtered(prefix("/old"), rewriteTo("new.test", newPrefix("/new")),
		requestHeaders(HeaderModifier{Set: []Header{{"x", "1"}}, Remove: []string{"y"}}))
	wild.Hostnames = []string{"*.test", "a.test"}
	moved := filtered(prefix("/moved"), Filter{Type: "RequestRedirect", Redirect: &RequestRedirect{Path: newPrefix("")}})
	moved.Name = "moved"
	return table(t, wild, edited, moved, by("exact", exact("/a/b")), by("regex", regex("/v[0-9]+/.*")),
		by("query", query("q", "a b"), queryLike("r", "[a-z]*")), by("header", header("x", "1"), headerLike("y", ".+")))
}

func FuzzMatchAndEdit(f *testing.F) {
	for _, s := range []string{"/a/b", "/old", "/old/x?q=1", "/old?", "/moved//x?%", "*", "", "/v1/x", "/?q=a+b&r=%61", "/%2e%2e?q=%", "/old/" + strings.Repeat("x", 600)} {
		f.Add("GET", "a.test:80", s, "x", "1")
	}
	f.Add("", "user@[::1]:1", "/old", "Y", "")
	f.Add("POST", strings.Repeat("a.", 200), "/", "", "z")
	tab := allKinds(f)
	f.Fuzz(func(t *testing.T, method, authority, target, name, value string) {
		h := &message.Head{Version: message.HTTP11, Method: []byte(method), Authority: []byte(authority), Path: []byte(target)}
		h.Fields = []message.Field{{Name: []byte(name), Value: []byte(value)}}
		before := written(h)
		hit := tab.Match(h)
		if written(h) != before {
			t.Fatalf("matching changed %q into %q", before, written(h))
		}
		if hit.Action == nil {
			return
		}
		status, location := hit.Redirect(h, 8080)
		if (status != 0) != (hit.Route.Name == "moved") || status != 0 && !bytes.HasPrefix(location, []byte("http://")) {
			t.Errorf("%q: redirected with %d to %q", target, status, location)
		}
		hit.EditRequest(h, hit.Pick(0))
		_, query, has := strings.Cut(target, "?")
		_, after, hasAfter := strings.Cut(string(h.Path), "?")
		if query != after || has != hasAfter {
			t.Errorf("the query %q became %q", query, after)
		}
		if hit.Route.Name == "r" && target != "" && target[0] == '/' && (!bytes.HasPrefix(h.Path, []byte("/new")) || string(h.Authority) != "new.test") {
			t.Errorf("%q became %q of %q", target, h.Path, h.Authority)
		}
	})
}

// FuzzQuery holds the comparison of parameters to net/url's reading, where that
// has one: it refuses semicolons and broken escapes.
func FuzzQuery(f *testing.F) {
	for _, s := range []string{"q=1", "q=a+b&q=2", "%71=1", "a&q=%20&b", "q", "&&q=", "q=1=2", "q=%zz", "q=%"} {
		f.Add(s, "q", "a b")
	}
	f.Fuzz(func(t *testing.T, query, name, value string) {
		all, err := url.ParseQuery(query)
		if err != nil || strings.Contains(query, ";") {
			return
		}
		list, ok := all[name]
		want := ok && list[0] == value
		// An empty pair is no parameter to net/url, one without a name to us.
		if name == "" || value == "" {
			return
		}
		if got := (&field{name: name, exact: value}).inQuery([]byte(query)); got != want {
			t.Errorf("%q has %q=%q: %v, net/url says %v (%q)", query, name, value, got, want, list)
		}
		if ok {
			if got := (&field{name: name, exact: list[0]}).inQuery([]byte(query)); !got && list[0] != "" {
				t.Errorf("%q does not have its own %q=%q", query, name, list[0])
			}
		}
	})
}
