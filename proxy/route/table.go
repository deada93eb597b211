package route

import "github.com/meshctl/meshctl/proxy/message"

// Config is what a Table is made of.
type Config struct {
	// Routes are all routes attached to one port of one parent, in any order. If
	// there is a GRPCRoute among them, the HTTPRoutes do not count (GEP-1294: the
	// more specific type wins). None: every request goes to the parent itself.
	Routes []Route
	// Annotations are those of the parent, a Service or EgressNetwork: timeouts and
	// retries of routes that say nothing of theirs, and failure accrual.
	Annotations map[string]string
}

// Ref names a route. The zero value is the default of a parent without routes.
type Ref struct {
	Kind            Kind
	Namespace, Name string
}

// Backend is where requests are sent. The zero value is the parent itself.
type Backend struct {
	Namespace, Name string
	Port            uint16
}

// Table decides about requests to one port of one parent. It never changes, and
// may be used from several loops at once.
type Table struct {
	Backends []Backend // all that a Share may name by its index; the first is the parent itself
	Breaker  Breaker
	Penalty  Penalty
	Ignored  []Ref // HTTPRoutes that do not count beside a GRPCRoute
	// Routed: there are routes, not only annotations.
	Routed bool
	// Config is what the Table was made of, for those who pass it on. It is not to be
	// changed.
	Config Config
	// Actions are those of all rules, in the order of the routes; without routes that
	// of the parent.
	Actions []*Action

	exact map[string]*paths // by host
	wild  tails             // by ".example.com"
	any   *paths            // of routes without host names
}

// New judges the routes and compiles them. The error is a Problems.
func New(cfg Config) (*Table, error) {
	c := compiler{table: &Table{Backends: []Backend{{}}, Config: cfg, exact: map[string]*paths{}}}
	c.annotations(cfg.Annotations)
	grpc := false
	for i := range cfg.Routes {
		grpc = grpc || cfg.Routes[i].Kind == GRPC
	}
	for i := range cfg.Routes {
		r := &cfg.Routes[i]
		if grpc && r.Kind == HTTP {
			c.table.Ignored = append(c.table.Ignored, r.ref())
			continue
		}
		c.add(r)
	}
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	c.table.Routed = len(cfg.Routes) > 0
	if len(cfg.Routes) == 0 {
		c.addDefault()
	}
	c.build()
	return c.table, nil
}

func (r *Route) ref() Ref { return Ref{r.Kind, r.Namespace, r.Name} }

// Hit is the rule that a request comes under. The zero value is none: the
// answer is 404 (NOT_FOUND). It is valid for as long as its Table.
type Hit struct {
	*Action
	prefix int // bytes of the path that the rule's prefix stands for; -1: not by prefix
}

// Match finds the rule for a request, as it came in. By host: the name itself,
// the longest wildcard, then routes without host names, and on when no rule
// there matches. Within: exact paths, regular expressions, prefixes, each the
// longest first; then a method, more headers, more query parameters; the oldest
// route, its name, and the first of its rules. For GRPCRoutes: service and
// method, the service, then by the length of a regular expression or of a method
// alone; more headers, and so on. It allocates only for a query parameter that
// is escaped and has to match a regular expression.
func (t *Table) Match(h *message.Head) Hit {
	req := request{head: h}
	req.path, req.query = splitQuery(h.Path)
	if len(t.exact) > 0 || len(t.wild.lengths) > 0 {
		if hit := t.byHost(&req); hit.Action != nil {
			return hit
		}
	}
	if t.any == nil {
		return Hit{}
	}
	return t.any.find(&req)
}

// tails are paths by the end of a host, the longest first.
type tails struct {
	by      map[string]*paths
	lengths []int
}

// byHost asks the routes that have host names.
func (t *Table) byHost(req *request) Hit {
	var buf [maxHost]byte
	host := lowerHost(&buf, req.head.Authority)
	if p := t.exact[string(host)]; p != nil {
		if hit := p.find(req); hit.Action != nil {
			return hit
		}
	}
	for _, n := range t.wild.lengths {
		if n >= len(host) { // a wildcard stands for at least one byte
			continue
		}
		if p := t.wild.by[string(host[len(host)-n:])]; p != nil {
			if hit := p.find(req); hit.Action != nil {
				return hit
			}
		}
	}
	return Hit{}
}
