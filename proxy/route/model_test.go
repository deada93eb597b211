package route

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/proxy/message"
)

// The model: every condition of every rule is tried, and of those that hold the
// best is taken, one criterion of the Gateway API after the other.

// verdict is how a match that holds compares; less is better.
type verdict []int

func modelChoice(routes []Route, h *message.Head) string {
	best, name := verdict(nil), ""
	for i := range routes {
		r := &routes[i]
		for n := range r.Rules {
			for m := range r.Rules[n].Matches {
				v := judgeMatch(r, n, m, h)
				if v != nil && (best == nil || slices.Compare(v, best) < 0) {
					best, name = v, fmt.Sprintf("%s/%d", r.Name, n)
				}
			}
		}
	}
	return name
}

func judgeMatch(r *Route, rule, match int, h *message.Head) verdict {
	host := strings.ToLower(string(h.Authority))
	host, _, _ = strings.Cut(host, ":")
	hosts := r.Hostnames
	if len(hosts) == 0 {
		hosts = []string{""}
	}
	best := verdict(nil)
	for _, name := range hosts {
		exact, chars, ok := 0, 0, name == ""
		switch tail, wild := strings.CutPrefix(name, "*"); {
		case wild && strings.HasSuffix(host, tail) && host != tail:
			chars, ok = len(name), true
		case !wild && name == host && name != "":
			exact, chars, ok = len(name), len(name), true
		}
		rest := judgeConditions(r, rule, match, h)
		if ok && rest != nil {
			v := append(verdict{-exact, -chars}, rest...)
			v = append(v, int(r.Created.Unix()), nameOrder(r), rule, match)
			if best == nil || slices.Compare(v, best) < 0 {
				best = v
			}
		}
	}
	return best
}

// nameOrder is the number at the end of a generated route's name.
func nameOrder(r *Route) (n int) {
	fmt.Sscanf(r.Name, "r%d", &n)
	return n
}

func judgeConditions(r *Route, rule, match int, h *message.Head) verdict {
	m := &r.Rules[rule].Matches[match]
	path, rawQuery, _ := strings.Cut(string(h.Path), "?")
	kind, length := 2, 0 // exact, regular expression, prefix
	switch p := m.Path; {
	case p == nil:
	case p.Type == "Exact":
		if path != p.Value {
			return nil
		}
		kind, length = 0, len(p.Value)
	case p.Type == "RegularExpression":
		if regexp.MustCompile("^("+p.Value+")$").FindString(path) != path {
			return nil
		}
		kind, length = 1, len(p.Value)
	default:
		value := strings.TrimRight(p.Value, "/")
		if !strings.HasPrefix(path+"/", value+"/") {
			return nil
		}
		length = len(value)
	}
	method := 1
	if m.Method != "" {
		if m.Method != string(h.Method) {
			return nil
		}
		method = 0
	}
	for _, f := range m.Headers {
		if v := string(h.Get(f.Name)); v != f.Value {
			return nil
		}
	}
	values, _ := url.ParseQuery(rawQuery)
	for _, f := range m.Query {
		if values.Get(f.Name) != f.Value {
			return nil
		}
	}
	return verdict{kind, -length, method, -len(m.Headers), -len(m.Query)}
}

// pick returns one of a list.
func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func randomRoutes(r *rand.Rand) []Route {
	routes := make([]Route, 1+r.IntN(12))
	for i, order := range r.Perm(len(routes)) {
		routes[i] = Route{Kind: HTTP, Namespace: "n", Name: fmt.Sprintf("r%02d", order), Created: time.Unix(int64(r.IntN(2)), 0).UTC()}
		for _, host := range []string{"a.test", "b.a.test", "*.test", "*.a.test"} {
			if r.IntN(4) == 0 {
				routes[i].Hostnames = append(routes[i].Hostnames, host)
			}
		}
		for range 1 + r.IntN(3) {
			var rule Rule
			for range 1 + r.IntN(3) {
				rule.Matches = append(rule.Matches, randomMatch(r))
			}
			routes[i].Rules = append(routes[i].Rules, rule)
		}
	}
	return routes
}

func randomMatch(r *rand.Rand) (m Match) {
	switch r.IntN(5) {
	case 0:
		m.Path = &PathMatch{"Exact", pick(r, "/", "/a", "/a/", "/a/b", "/b")}
	case 1:
		m.Path = &PathMatch{"RegularExpression", pick(r, "/.*", "/[ab]", "/a/b|/b", "/a.*")}
	case 2, 3:
		m.Path = &PathMatch{"PathPrefix", pick(r, "/", "/a", "/a/", "/a/b", "/b")}
	}
	if r.IntN(3) == 0 {
		m.Method = pick(r, "GET", "POST")
	}
	for _, name := range []string{"x", "y"} {
		if r.IntN(4) == 0 {
			m.Headers = append(m.Headers, FieldMatch{"", name, pick(r, "1", "2")})
		}
		if r.IntN(4) == 0 {
			m.Query = append(m.Query, FieldMatch{"", name, pick(r, "1", "2")})
		}
	}
	return m
}

func randomHead(t testing.TB, r *rand.Rand) *message.Head {
	target := pick(r, "/", "/a", "/a/", "/a/b", "/a/b/c", "/ab", "/b", "/c")
	for i, name := range []string{"x", "y"} {
		if r.IntN(2) == 0 {
			target += pick(r, "?", "?", "&")[:1] + name + "=" + pick(r, "1", "2", "%31", "3")
			if i == 1 {
				target = strings.Replace(target, "?y", pick(r, "?y", "?z&y"), 1)
			}
		}
	}
	h := ask(t, pick(r, "GET", "POST", "PUT")+" "+pick(r, "a.test", "b.a.test:80", "C.a.test", "test", "x.test", "y.other")+" "+
		strings.Replace(strings.ReplaceAll(target, "?", "&"), "&", "?", 1))
	for _, name := range []string{"X", "y"} {
		if r.IntN(2) == 0 {
			h.Add(name, pick(r, "1", "2", "3"))
		}
	}
	return h
}

func TestTheTableChoosesWhatTheModelChooses(t *testing.T) {
	matched := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 9))
		routes := randomRoutes(r)
		tab := table(t, routes...)
		for range 100 {
			h := randomHead(t, r)
			want, got := modelChoice(routes, h), ""
			if hit := tab.Match(h); hit.Action != nil {
				got = fmt.Sprintf("%s/%d", hit.Route.Name, hit.Rule)
				matched++
			}
			if got != want {
				t.Fatalf("seed %d: %s: %q, the model says %q\nroutes: %+v", seed, written(h), got, want, routes)
			}
		}
	}
	if matched < 5_000 {
		t.Errorf("only %d of 20000 requests matched anything: the test shows little", matched)
	}
}

func TestRanksAreATotalOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	ranks := make([]rank, 60)
	for i := range ranks {
		ranks[i] = rank{service: r.IntN(2), path: r.IntN(2), method: r.IntN(2) == 0, headers: r.IntN(2), query: r.IntN(2),
			created: time.Unix(int64(r.IntN(2)), 0), name: pick(r, "a", "b"), rule: r.IntN(2), match: r.IntN(2)}
	}
	for i := range ranks {
		for j := range ranks {
			a := ranks[i].compare(&ranks[j])
			if a != -ranks[j].compare(&ranks[i]) || a == 0 && ranks[i] != ranks[j] {
				t.Fatalf("%+v and %+v compare %d", ranks[i], ranks[j], a)
			}
			for k := range ranks {
				if b := ranks[j].compare(&ranks[k]); a < 0 && b < 0 && cmp.Compare(ranks[i].compare(&ranks[k]), 0) >= 0 {
					t.Fatalf("%+v, %+v and %+v go round", ranks[i], ranks[j], ranks[k])
				}
			}
		}
	}
}
