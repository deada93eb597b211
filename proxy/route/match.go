package route

import (
	"bytes"
	"regexp"

	"github.com/meshctl/meshctl/proxy/message"
)

// request is a head, cut for matching.
type request struct {
	head        *message.Head
	path, query []byte
}

// paths are the rules of one host, in the order in which they are tried.
type paths struct {
	exact    map[string][]*condition
	patterns []*condition // regular expressions of paths
	prefix   map[string][]*condition
	lengths  []int        // of the prefixes, the longest first; without the last slash, so that 0 is "/"
	rest     []*condition // gRPC: regular expressions, then methods of any service, then all
}

// condition is what a request must be beside its host and, if it is found by
// that, its path.
type condition struct {
	rank    rank
	method  string
	pattern *regexp.Regexp // of the path
	rpc     *rpc           // of what stands in rest
	fields  []field
	query   []field
	action  *Action
}

func (p *paths) find(req *request) Hit {
	for _, c := range p.exact[string(req.path)] {
		if c.matches(req) {
			return Hit{c.action, -1}
		}
	}
	for _, c := range p.patterns {
		if c.pattern.Match(req.path) && c.matches(req) {
			return Hit{c.action, -1}
		}
	}
	for _, n := range p.lengths {
		// "/" is every request, CONNECT and OPTIONS * as well.
		if n > len(req.path) || n > 0 && n < len(req.path) && req.path[n] != '/' {
			continue
		}
		for _, c := range p.prefix[string(req.path[:n])] {
			if c.matches(req) {
				return Hit{c.action, n}
			}
		}
	}
	for _, c := range p.rest {
		if c.rpc.matches(req.path) && c.matches(req) {
			return Hit{c.action, -1}
		}
	}
	return Hit{}
}

// matches tests what is left after host and path.
func (c *condition) matches(req *request) bool {
	if c.method != "" && c.method != string(req.head.Method) {
		return false
	}
	for i := range c.fields {
		if !c.fields[i].inHead(req.head) {
			return false
		}
	}
	for i := range c.query {
		if !c.query[i].inQuery(req.query) {
			return false
		}
	}
	return true
}

// rpc is a condition on a gRPC path, /service/method, that no map can hold.
type rpc struct {
	service, method               string // exact, empty: any
	servicePattern, methodPattern *regexp.Regexp
}

func (r *rpc) matches(path []byte) bool {
	if len(path) == 0 || path[0] != '/' {
		return false
	}
	service, method, ok := bytes.Cut(path[1:], []byte{'/'})
	if !ok {
		return false
	}
	return matchPart(service, r.service, r.servicePattern) && matchPart(method, r.method, r.methodPattern)
}

func matchPart(v []byte, exact string, pattern *regexp.Regexp) bool {
	if pattern != nil {
		return pattern.Match(v)
	}
	return exact == "" || exact == string(v)
}

// place is where in a head a field stands.
type place uint8

const (
	inFields    place = iota
	inAuthority       // Host
	inUpgrade         // Upgrade
)

// field is a condition on a header field or a query parameter.
type field struct {
	name    string
	place   place
	exact   string
	pattern *regexp.Regexp // nil: exact
}

func (f *field) is(v []byte) bool {
	if f.pattern != nil {
		return f.pattern.Match(v)
	}
	return f.exact == string(v)
}

// inHead reports whether any line of the field has the value: a list that is
// sent in several lines is not joined.
func (f *field) inHead(h *message.Head) bool {
	switch f.place {
	case inAuthority:
		return f.is(h.Authority)
	case inUpgrade:
		return len(h.Upgrade) > 0 && f.is(h.Upgrade)
	}
	for i := range h.Fields {
		if l := &h.Fields[i]; len(l.Name) == len(f.name) && equalFold(l.Name, f.name) && f.is(l.Value) {
			return true
		}
	}
	return false
}

// equalFold compares tokens of the same length without regard to case; lower is
// in lower case.
func equalFold(b []byte, lower string) bool {
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
