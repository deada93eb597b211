package route

import "strings"

// place completes a condition from its Match, and puts it where it will be found.
func (c *compiler) place(r *Route, at *paths, m *Match, shared *condition) {
	cond := *shared
	cond.fields = compileFields(m.Headers, true)
	cond.query = compileFields(m.Query, false)
	cond.rank.headers, cond.rank.query = len(cond.fields), len(cond.query)
	if r.Kind == GRPC {
		placeRPC(at, m.RPC, &cond)
		return
	}
	cond.method = m.Method
	cond.rank.method = m.Method != ""
	path := PathMatch{}
	if m.Path != nil {
		path = *m.Path
	}
	switch path.Type {
	case "Exact":
		if path.Value == "" {
			path.Value = "/"
		}
		at.exact[path.Value] = append(at.exact[path.Value], &cond)
	case "RegularExpression":
		cond.pattern, _ = compilePattern(path.Value)
		cond.rank.path = len(path.Value)
		at.patterns = append(at.patterns, &cond)
	default:
		at.addPrefix(strings.TrimSuffix(path.Value, "/"), &cond)
	}
}

// placeRPC puts a condition on a gRPC method where HTTP's paths stand: a method
// is the exact path /service/method, a service the prefix /service.
func placeRPC(at *paths, m *RPCMatch, c *condition) {
	c.method = "POST" // of every call (gRPC over HTTP/2, Request-Headers)
	switch {
	case m == nil:
		c.rpc = &rpc{}
		at.rest = append(at.rest, c)
	case m.Type == "RegularExpression":
		c.rpc = &rpc{}
		if m.Service != "" {
			c.rpc.servicePattern, _ = compilePattern(m.Service)
		}
		if m.Method != "" {
			c.rpc.methodPattern, _ = compilePattern(m.Method)
		}
		c.rank.service, c.rank.path = len(m.Service), len(m.Method)
		at.rest = append(at.rest, c)
	case m.Service == "":
		c.rpc = &rpc{method: m.Method}
		c.rank.path = len(m.Method)
		at.rest = append(at.rest, c)
	case m.Method == "":
		at.addPrefix("/"+m.Service, c)
	default:
		path := "/" + m.Service + "/" + m.Method
		at.exact[path] = append(at.exact[path], c)
	}
}

// compileFields takes the first of several conditions on one name, as the
// Gateway API says.
func compileFields(list []FieldMatch, header bool) []field {
	var out []field
	seen := map[string]bool{}
	for _, m := range list {
		f := field{name: m.Name}
		if header {
			f.name = strings.ToLower(m.Name)
			switch f.name {
			case "host":
				f.place = inAuthority
			case "upgrade":
				f.place = inUpgrade
			}
		}
		if seen[f.name] {
			continue
		}
		seen[f.name] = true
		if m.Type == "RegularExpression" {
			f.pattern, _ = compilePattern(m.Value)
		} else {
			f.exact = m.Value
		}
		out = append(out, f)
	}
	return out
}
