package route

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// The limits of the Gateway API's schema, which objects from a file have not
// been through.
const (
	maxPath   = 1024
	maxWeight = 1_000_000
)

// check looks at everything of a route but its annotations.
func (j *judge) check() {
	r := j.route
	if r.Kind != HTTP && r.Kind != GRPC {
		j.wrong("kind", "neither an HTTPRoute nor a GRPCRoute")
		return
	}
	for i, name := range r.Hostnames {
		if err := checkHostname(name, true); err != nil {
			j.wrong(fmt.Sprintf("spec.hostnames[%d]", i), "%w", err)
		}
	}
	for i := range r.Rules {
		j.checkRule(fmt.Sprintf("spec.rules[%d]", i), &r.Rules[i])
	}
}

func (j *judge) checkRule(at string, r *Rule) {
	for i := range r.Matches {
		field := fmt.Sprintf("%s.matches[%d]", at, i)
		if j.route.Kind == GRPC {
			j.checkRPC(field, &r.Matches[i])
		} else {
			j.checkMatch(field, &r.Matches[i])
		}
		j.checkFields(field+".headers", r.Matches[i].Headers, checkMatchedName)
	}
	j.checkFilters(at+".filters", r.Filters, r, false)
	for i := range r.Backends {
		j.checkBackend(fmt.Sprintf("%s.backendRefs[%d]", at, i), &r.Backends[i], r)
	}
	j.checkTimeouts(at+".timeouts", r.Timeouts)
	j.checkRetry(at+".retry", r.Retry)
	if r.Session {
		j.wrong(at+".sessionPersistence", "not supported")
	}
}

func (j *judge) checkMatch(at string, m *Match) {
	if m.RPC != nil {
		j.wrong(at+".method", "a gRPC method in an HTTPRoute")
	}
	if m.Path != nil {
		j.checkPath(at+".path", m.Path)
	}
	switch m.Method {
	case "", "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH":
	default:
		j.wrong(at+".method", "unknown method %q", m.Method)
	}
	j.checkFields(at+".queryParams", m.Query, func(name string) error {
		if name == "" {
			return errEmpty
		}
		return nil
	})
}

func (j *judge) checkPath(at string, p *PathMatch) {
	switch p.Type {
	case "", "PathPrefix", "Exact":
		if err := checkPathValue(p.Value); err != nil {
			j.wrong(at+".value", "%w", err)
		}
	case "RegularExpression":
		j.checkPattern(at+".value", p.Value)
	default:
		j.wrong(at+".type", "%q is not supported", p.Type)
	}
}

// checkPathValue holds a path to the schema's rules: an element that a server
// might read as another path would make the match a guess.
func checkPathValue(v string) error {
	switch {
	case v == "":
		return nil // "/"
	case len(v) > maxPath:
		return fmt.Errorf("longer than %d bytes", maxPath)
	case v[0] != '/':
		return fmt.Errorf("%q does not begin with /", v)
	case strings.ContainsAny(v, "#? \t\r\n\x00"):
		return fmt.Errorf("%q is not a path", v)
	}
	for _, odd := range []string{"//", "/./", "/../", "%2f", "%2F"} {
		if strings.Contains(v, odd) {
			return fmt.Errorf("%q contains %q", v, odd)
		}
	}
	if strings.HasSuffix(v, "/.") || strings.HasSuffix(v, "/..") {
		return fmt.Errorf("%q ends in a dot element", v)
	}
	return nil
}

func (j *judge) checkRPC(at string, m *Match) {
	if m.Path != nil || m.Method != "" || len(m.Query) > 0 {
		j.wrong(at, "a condition of HTTP in a GRPCRoute")
	}
	p := m.RPC
	if p == nil {
		return
	}
	switch p.Type {
	case "", "Exact":
		if strings.ContainsAny(p.Service, "/?# ") {
			j.wrong(at+".method.service", "%q is not the name of a service", p.Service)
		}
		if strings.ContainsAny(p.Method, "/?# ") {
			j.wrong(at+".method.method", "%q is not the name of a method", p.Method)
		}
	case "RegularExpression":
		j.checkPattern(at+".method.service", p.Service)
		j.checkPattern(at+".method.method", p.Method)
	default:
		j.wrong(at+".method.type", "%q is not supported", p.Type)
	}
	if p.Service == "" && p.Method == "" {
		j.wrong(at+".method", "neither service nor method")
	}
}

func (j *judge) checkFields(at string, list []FieldMatch, checkName func(string) error) {
	for i, f := range list {
		field := fmt.Sprintf("%s[%d]", at, i)
		if err := checkName(f.Name); err != nil {
			j.wrong(field+".name", "%w", err)
		}
		switch f.Type {
		case "", "Exact":
			if f.Value == "" {
				j.wrong(field+".value", "%w", errEmpty)
			}
		case "RegularExpression":
			j.checkPattern(field+".value", f.Value)
		default:
			j.wrong(field+".type", "%q is not supported", f.Type)
		}
	}
}

func (j *judge) checkPattern(at, pattern string) {
	if _, err := compilePattern(pattern); err != nil {
		j.wrong(at, "%w", err)
	}
}

// compilePattern makes an expression (RE2) that has to match the whole of a
// value: one that matched a part of it would let more through than is seen.
func compilePattern(pattern string) (*regexp.Regexp, error) {
	if len(pattern) > 4096 {
		return nil, fmt.Errorf("longer than %d bytes", 4096)
	}
	if _, err := regexp.Compile(pattern); err != nil { // unbalanced, before it is put in brackets
		return nil, err
	}
	return regexp.Compile(`(?s)\A(?:` + pattern + `)\z`)
}

// checkHostname holds a name to RFC 1123, in lower case; a wildcard is a whole
// first label.
func checkHostname(name string, wildcard bool) error {
	rest := name
	if wildcard {
		rest = strings.TrimPrefix(name, "*.")
	}
	if len(name) > 253 {
		return fmt.Errorf("longer than 253 bytes")
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return fmt.Errorf("%q is an address, not a name", name)
	}
	for label := range strings.SplitSeq(rest, ".") {
		if !isLabel(label) {
			return fmt.Errorf("%q is not a host name in lower case", name)
		}
	}
	return nil
}

func isLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}
