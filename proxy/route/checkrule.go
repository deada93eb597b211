package route

import (
	"fmt"
	"strings"
	"time"
)

// checkFilters looks at the filters of a rule, or of one of its backends.
func (j *judge) checkFilters(at string, filters []Filter, r *Rule, backend bool) {
	seen := map[string]bool{}
	for i := range filters {
		f, field := &filters[i], fmt.Sprintf("%s[%d]", at, i)
		if seen[f.Type] {
			j.wrong(field+".type", "a second %s", f.Type)
		}
		seen[f.Type] = true
		j.checkFilter(field, f, r, backend)
	}
	if seen["RequestRedirect"] && seen["URLRewrite"] {
		j.wrong(at, "both RequestRedirect and URLRewrite")
	}
}

func (j *judge) checkFilter(at string, f *Filter, r *Rule, backend bool) {
	switch {
	case f.Type == "RequestHeaderModifier" && f.RequestHeaders != nil:
		j.checkModifier(at+".requestHeaderModifier", f.RequestHeaders, true)
	case f.Type == "ResponseHeaderModifier" && f.ResponseHeaders != nil:
		j.checkModifier(at+".responseHeaderModifier", f.ResponseHeaders, false)
	case f.Type == "URLRewrite" && f.Rewrite != nil && j.route.Kind == HTTP:
		j.checkTargetHost(at+".urlRewrite.hostname", f.Rewrite.Hostname)
		j.checkPathModifier(at+".urlRewrite.path", f.Rewrite.Path, r)
	case f.Type == "RequestRedirect" && f.Redirect != nil && j.route.Kind == HTTP && !backend:
		j.checkRedirect(at+".requestRedirect", f.Redirect, r)
	case f.Type == "RequestHeaderModifier", f.Type == "ResponseHeaderModifier", f.Type == "URLRewrite" && j.route.Kind == HTTP,
		f.Type == "RequestRedirect" && j.route.Kind == HTTP && !backend:
		j.wrong(at, "the field of %s is missing", f.Type)
	case f.Type == "RequestRedirect" && j.route.Kind == HTTP:
		j.wrong(at+".type", "RequestRedirect of a backend is not supported")
	default:
		j.wrong(at+".type", "%q is not supported", f.Type)
	}
}

func (j *judge) checkModifier(at string, m *HeaderModifier, request bool) {
	for _, what := range []string{"set", "add"} {
		list := m.Set
		if what == "add" {
			list = m.Add
		}
		for i, h := range list {
			field := fmt.Sprintf("%s.%s[%d]", at, what, i)
			if err := checkEditedName(h.Name); err != nil {
				j.wrong(field+".name", "%w", err)
			}
			if err := checkValue(h.Value); err != nil {
				j.wrong(field+".value", "%w", err)
			}
			if strings.EqualFold(h.Name, "host") {
				j.checkHostEdit(field, what, h.Value, request)
			}
		}
	}
	for i, name := range m.Remove {
		err := checkEditedName(name)
		if err == nil && strings.EqualFold(name, "host") {
			err = fmt.Errorf("a request has to have a host")
		}
		if err != nil {
			j.wrong(fmt.Sprintf("%s.remove[%d]", at, i), "%w", err)
		}
	}
}

// checkHostEdit allows a request's Host to be set, as URLRewrite does.
func (j *judge) checkHostEdit(at, what, value string, request bool) {
	switch {
	case !request:
		j.wrong(at+".name", "a response has no host")
	case what != "set":
		j.wrong(at+".name", "a request has one host: set it")
	case strings.ContainsAny(value, " \t/?#@,") || value == "":
		j.wrong(at+".value", "%q is not a host", value)
	}
}

func (j *judge) checkTargetHost(at, name string) {
	if name == "" {
		return
	}
	if err := checkHostname(name, false); err != nil {
		j.wrong(at, "%w", err)
	}
}

func (j *judge) checkRedirect(at string, f *RequestRedirect, r *Rule) {
	if len(r.Backends) > 0 {
		j.wrong(at, "a rule that redirects has no use for backendRefs")
	}
	if f.Scheme != "" && f.Scheme != "http" && f.Scheme != "https" {
		j.wrong(at+".scheme", "%q is not supported", f.Scheme)
	}
	if f.Port < 0 || f.Port > 65535 {
		j.wrong(at+".port", "%d is not a port", f.Port)
	}
	switch f.StatusCode {
	case 0, 301, 302, 303, 307, 308:
	default:
		j.wrong(at+".statusCode", "%d is not supported", f.StatusCode)
	}
	j.checkTargetHost(at+".hostname", f.Hostname)
	j.checkPathModifier(at+".path", f.Path, r)
}

func (j *judge) checkPathModifier(at string, p *PathModifier, r *Rule) {
	if p == nil {
		return
	}
	switch {
	case p.Type == "ReplaceFullPath" && p.ReplaceFullPath != nil:
		if v := *p.ReplaceFullPath; v == "" || v[0] != '/' || !isTarget(v) {
			j.wrong(at+".replaceFullPath", "%q is not a path", v)
		}
	case p.Type == "ReplacePrefixMatch" && p.ReplacePrefixMatch != nil:
		if v := *p.ReplacePrefixMatch; v != "" && (v[0] != '/' || !isTarget(v) || strings.Contains(v, "?")) {
			j.wrong(at+".replacePrefixMatch", "%q is not a path", v)
		}
		for i := range r.Matches {
			if m := r.Matches[i].Path; m != nil && m.Type != "" && m.Type != "PathPrefix" {
				j.wrong(at+".type", "ReplacePrefixMatch, but matches[%d] is no prefix", i)
			}
		}
	case p.Type == "ReplaceFullPath", p.Type == "ReplacePrefixMatch":
		j.wrong(at, "the field of %s is missing", p.Type)
	default:
		j.wrong(at+".type", "%q is not supported", p.Type)
	}
}

// isTarget holds a path to what may stand in a request line and a Location.
func isTarget(v string) bool {
	if len(v) > maxPath {
		return false
	}
	for i := range len(v) {
		if c := v[i]; c <= ' ' || c >= 0x7f || c == '#' || c == '"' || c == '<' || c == '>' || c == '\\' {
			return false
		}
	}
	return true
}

func (j *judge) checkBackend(at string, b *BackendRef, r *Rule) {
	if b.Group != "" && b.Group != "core" || b.Kind != "" && b.Kind != "Service" {
		j.wrong(at+".kind", "%s is not supported: only a Service", strings.TrimPrefix(b.Group+"/"+b.Kind, "/"))
	}
	if b.Name == "" {
		j.wrong(at+".name", "%w", errEmpty)
	}
	if b.Port < 1 || b.Port > 65535 {
		j.wrong(at+".port", "a Service needs a port from 1 to 65535, not %d", b.Port)
	}
	if b.Weight != nil && (*b.Weight < 0 || *b.Weight > maxWeight) {
		j.wrong(at+".weight", "%d is not from 0 to %d", *b.Weight, maxWeight)
	}
	j.checkFilters(at+".filters", b.Filters, r, true)
}

func (j *judge) checkTimeouts(at string, t *TimeoutSpec) {
	if t == nil {
		return
	}
	if j.route.Kind == GRPC {
		j.wrong(at, "a GRPCRoute has none")
	}
	request := j.duration(at+".request", t.Request)
	backend := j.duration(at+".backendRequest", t.BackendRequest)
	if request > 0 && backend > request {
		j.wrong(at+".backendRequest", "%v is more than the whole request may take, %v", backend, request)
	}
}

// duration reads the Gateway API's form (GEP-2257); "" is 0.
func (j *judge) duration(at, v string) time.Duration {
	if v == "" {
		return 0
	}
	d, err := parseDuration(v)
	if err != nil {
		j.wrong(at, "%w", err)
	}
	return d
}

func parseDuration(v string) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if err != nil || strings.ContainsAny(v, ".-+µuμn") {
		return 0, fmt.Errorf("%q is not a duration such as 1m30s or 250ms", v)
	}
	return d, nil
}

func (j *judge) checkRetry(at string, r *RetrySpec) {
	if r == nil {
		return
	}
	if j.route.Kind == GRPC {
		j.wrong(at, "a GRPCRoute has none")
	}
	for i, code := range r.Codes {
		if code < 400 || code > 599 {
			j.wrong(fmt.Sprintf("%s.codes[%d]", at, i), "%d is not from 400 to 599", code)
		}
	}
	if r.Attempts != nil && (*r.Attempts < 1 || *r.Attempts > 65535) {
		j.wrong(at+".attempts", "%d is not a number of retries", *r.Attempts)
	}
	j.duration(at+".backoff", r.Backoff)
}
