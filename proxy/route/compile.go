package route

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// compiler fills a Table.
type compiler struct {
	table    *Table
	parent   Policy // from the parent's annotations
	problems Problems
}

// annotations reads those of the parent.
func (c *compiler) annotations(list map[string]string) {
	said, problems := ParseAnnotations(0, list)
	c.problems = append(c.problems, problems...)
	c.parent = Policy{said.Timeouts, said.Retry}
	c.table.Breaker, c.table.Penalty = said.Breaker, said.Penalty
}

// add judges a route and, if nothing is wrong with it, compiles it.
func (c *compiler) add(r *Route) {
	j := judge{route: r}
	j.check()
	said, problems := ParseAnnotations(r.Kind, r.Annotations)
	for _, p := range problems {
		j.wrong(p.Field, "%w", p.Err)
	}
	c.problems = append(c.problems, j.problems...)
	if len(j.problems) > 0 {
		return
	}
	policy := c.parent
	if said.HasTimeouts {
		policy.Timeouts = said.Timeouts
	}
	if said.HasRetry {
		policy.Retry = said.Retry
	}
	for i := range r.Rules {
		c.addRule(r, i, policy)
	}
}

func (c *compiler) addRule(r *Route, index int, policy Policy) {
	rule := &r.Rules[index]
	a := &Action{Route: r.ref(), Rule: index, Name: rule.Name, Policy: rulePolicy(policy, rule)}
	a.edits, a.redirect = compileFilters(rule.Filters)
	a.edited = !a.edits.none()
	c.shares(a, r, rule)
	c.table.Actions = append(c.table.Actions, a)
	matches := rule.Matches
	if len(matches) == 0 {
		matches = []Match{{}}
	}
	for i := range matches {
		cond := &condition{action: a, rank: rank{created: r.Created, name: r.Namespace + "/" + r.Name, rule: index, match: i}}
		for _, host := range hostsOf(r) {
			c.place(r, c.pathsOf(host), &matches[i], cond)
		}
	}
}

func hostsOf(r *Route) []string {
	if len(r.Hostnames) == 0 {
		return []string{""}
	}
	hosts := slices.Clone(r.Hostnames)
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// rulePolicy is a route's policy with what the rule says itself.
func rulePolicy(p Policy, rule *Rule) Policy {
	if rule.Policy != nil {
		return *rule.Policy
	}
	if t := rule.Timeouts; t != nil {
		if t.Request != "" {
			p.Timeouts.Request, _ = parseDuration(t.Request)
		}
		if t.BackendRequest != "" {
			p.Timeouts.Backend, _ = parseDuration(t.BackendRequest)
		}
	}
	if r := rule.Retry; r != nil {
		p.Retry = Retry{Limit: 1}
		if r.Attempts != nil {
			p.Retry.Limit = uint16(*r.Attempts)
		}
		for _, code := range r.Codes {
			p.Retry.Statuses.Add(code)
		}
		if r.Backoff != "" {
			p.Retry.Backoff, _ = parseDuration(r.Backoff)
		}
	}
	return p
}

func compileFilters(filters []Filter) (e edits, to *redirect) {
	for i := range filters {
		switch f := &filters[i]; f.Type {
		case "RequestHeaderModifier":
			e.request = newModifier(f.RequestHeaders)
			e.request.set = slices.DeleteFunc(e.request.set, func(l line) bool {
				if l.lower == "host" && e.host == "" {
					e.host = l.value
				}
				return l.lower == "host"
			})
		case "ResponseHeaderModifier":
			e.response = newModifier(f.ResponseHeaders)
		case "URLRewrite":
			if f.Rewrite.Hostname != "" {
				e.host = f.Rewrite.Hostname
			}
			e.path = newPathEdit(f.Rewrite.Path)
		case "RequestRedirect":
			to = newRedirect(f.Redirect)
		}
	}
	return e, to
}

func newRedirect(f *RequestRedirect) *redirect {
	return &redirect{
		status: cmp.Or(f.StatusCode, 302), scheme: f.Scheme, host: f.Hostname,
		port: uint16(f.Port), path: newPathEdit(f.Path),
	}
}

// shares adds up a rule's weights.
func (c *compiler) shares(a *Action, r *Route, rule *Rule) {
	if len(rule.Backends) == 0 {
		a.shares, a.total = []Share{{upTo: 1}}, 1
		return
	}
	for i := range rule.Backends {
		b := &rule.Backends[i]
		weight := uint32(1)
		if b.Weight != nil {
			weight = uint32(*b.Weight)
		}
		if weight == 0 {
			continue
		}
		a.total += weight
		s := Share{Backend: c.backend(r, b), upTo: a.total}
		if e, _ := compileFilters(b.Filters); !e.none() {
			s.edits = &e
			a.edited = true
		}
		a.shares = append(a.shares, s)
	}
}

// backend gives a backend its place in the table.
func (c *compiler) backend(r *Route, b *BackendRef) int {
	want := Backend{cmp.Or(b.Namespace, r.Namespace), b.Name, uint16(b.Port)}
	t := c.table
	if i := slices.Index(t.Backends, want); i > 0 {
		return i
	}
	t.Backends = append(t.Backends, want)
	return len(t.Backends) - 1
}

// addDefault sends every request to the parent.
func (c *compiler) addDefault() {
	a := &Action{Policy: c.parent, shares: []Share{{upTo: 1}}, total: 1}
	c.table.Actions = append(c.table.Actions, a)
	c.pathsOf("").addPrefix("", &condition{action: a})
}

// pathsOf finds or makes the rules of a host: "", a name or a wildcard.
func (c *compiler) pathsOf(host string) *paths {
	t := c.table
	tail, wild := strings.CutPrefix(host, "*")
	switch {
	case host == "" && t.any == nil:
		t.any = newPaths()
	case host == "":
	case wild && t.wild.by == nil:
		t.wild.by = map[string]*paths{tail: newPaths()}
	case wild && t.wild.by[tail] == nil:
		t.wild.by[tail] = newPaths()
	case !wild && t.exact[host] == nil:
		t.exact[host] = newPaths()
	}
	switch {
	case host == "":
		return t.any
	case wild:
		return t.wild.by[tail]
	default:
		return t.exact[host]
	}
}

func newPaths() *paths {
	return &paths{exact: map[string][]*condition{}, prefix: map[string][]*condition{}}
}

func (p *paths) addPrefix(prefix string, c *condition) {
	p.prefix[prefix] = append(p.prefix[prefix], c)
}

// build sorts everything into the order in which it is tried.
func (c *compiler) build() {
	t := c.table
	all := []*paths{}
	for _, p := range t.exact {
		all = append(all, p)
	}
	for tail, p := range t.wild.by {
		t.wild.lengths = append(t.wild.lengths, len(tail))
		all = append(all, p)
	}
	t.wild.lengths = descending(t.wild.lengths)
	if t.any != nil {
		all = append(all, t.any)
	}
	for _, p := range all {
		p.sort()
	}
}

func (p *paths) sort() {
	byRank := func(a, b *condition) int { return a.rank.compare(&b.rank) }
	for _, list := range p.exact {
		slices.SortFunc(list, byRank)
	}
	for prefix, list := range p.prefix {
		slices.SortFunc(list, byRank)
		p.lengths = append(p.lengths, len(prefix))
	}
	p.lengths = descending(p.lengths)
	slices.SortFunc(p.patterns, byRank)
	slices.SortFunc(p.rest, byRank)
}

func descending(list []int) []int {
	slices.SortFunc(list, func(a, b int) int { return b - a })
	return slices.Compact(list)
}

// rank is the precedence of a condition; of two, the one that compares lower is
// tried first.
type rank struct {
	service, path  int  // characters of a gRPC service; of a regular expression, a gRPC method
	method         bool // an HTTP method
	headers, query int
	created        time.Time
	name           string // namespace/name
	rule, match    int
}

func (r *rank) compare(o *rank) int {
	return cmp.Or(
		cmp.Compare(o.service, r.service), cmp.Compare(o.path, r.path),
		yesFirst(r.method, o.method),
		cmp.Compare(o.headers, r.headers), cmp.Compare(o.query, r.query),
		r.created.Compare(o.created), cmp.Compare(r.name, o.name),
		cmp.Compare(r.rule, o.rule), cmp.Compare(r.match, o.match),
	)
}

func yesFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}
