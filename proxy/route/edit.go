package route

import (
	"bytes"
	"strings"

	"github.com/meshctl/meshctl/proxy/message"
)

// edits are the filters of a rule or a backend.
type edits struct {
	request, response modifier
	host              string // "": as it is
	path              pathEdit
}

func (e *edits) none() bool {
	return e.request.none() && e.response.none() && e.host == "" && e.path.how == keep
}

// apply changes a request. prefix is how much of its path was matched.
func (e *edits) apply(h *message.Head, prefix int) {
	e.request.apply(h)
	if e.host != "" {
		h.Authority = h.HoldString(e.host)
	}
	if e.path.how != keep && len(h.Path) > 0 && h.Path[0] == '/' { // CONNECT and OPTIONS * have no path
		var buf [512]byte
		h.Path = h.Hold(e.path.append(buf[:0], h.Path, prefix))
	}
}

// line is a field to be written.
type line struct{ name, lower, value string }

// modifier changes header fields.
type modifier struct {
	remove   []string // lower case
	set, add []line
}

func newModifier(m *HeaderModifier) modifier {
	var out modifier
	for _, name := range m.Remove {
		out.remove = append(out.remove, strings.ToLower(name))
	}
	for _, h := range m.Set {
		out.set = append(out.set, line{h.Name, strings.ToLower(h.Name), h.Value})
	}
	for _, h := range m.Add {
		out.add = append(out.add, line{h.Name, strings.ToLower(h.Name), h.Value})
	}
	return out
}

func (m *modifier) none() bool { return len(m.remove)+len(m.set)+len(m.add) == 0 }

func (m *modifier) apply(h *message.Head) {
	for _, name := range m.remove {
		dropAfter(h, name, 0)
	}
	for i := range m.set {
		m.set[i].set(h)
	}
	for i := range m.add {
		m.add[i].add(h)
	}
}

// set replaces the first field of that name where it stands, and drops the others.
func (l *line) set(h *message.Head) {
	for i := range h.Fields {
		if f := &h.Fields[i]; len(f.Name) == len(l.lower) && equalFold(f.Name, l.lower) {
			f.Value = h.HoldString(l.value)
			dropAfter(h, l.lower, i+1)
			return
		}
	}
	l.add(h)
}

// add appends a field. HTTP/2 has names in lower case only (RFC 9113, 8.2.1).
func (l *line) add(h *message.Head) {
	name := l.name
	if h.Version == message.HTTP2 {
		name = l.lower
	}
	h.Add(name, l.value)
}

// dropAfter removes the fields of that name from the index on.
func dropAfter(h *message.Head, lower string, from int) {
	kept := h.Fields[:from]
	for _, f := range h.Fields[from:] {
		if len(f.Name) != len(lower) || !equalFold(f.Name, lower) {
			kept = append(kept, f)
		}
	}
	h.Fields = kept
}

// how a path changes.
type how uint8

const (
	keep how = iota
	replaceFull
	replacePrefix
)

// pathEdit changes the path of a target and keeps its query.
type pathEdit struct {
	how   how
	value string // of replacePrefix: without the slash at its end
}

func newPathEdit(p *PathModifier) pathEdit {
	switch {
	case p == nil:
		return pathEdit{}
	case p.Type == "ReplaceFullPath":
		return pathEdit{replaceFull, *p.ReplaceFullPath}
	default:
		return pathEdit{replacePrefix, strings.TrimSuffix(*p.ReplacePrefixMatch, "/")}
	}
}

// append writes what target becomes. A full path that has a query of its own
// replaces the target's.
func (p pathEdit) append(to, target []byte, prefix int) []byte {
	path, query := splitQuery(target)
	switch {
	case p.how == replaceFull:
		to = append(to, p.value...)
		if strings.Contains(p.value, "?") {
			return to
		}
	case p.how == replacePrefix && prefix >= 0 && prefix <= len(path):
		n := len(to)
		to = append(append(to, p.value...), path[prefix:]...)
		if len(to) == n {
			to = append(to, '/')
		}
	default:
		return append(to, target...)
	}
	if len(path) < len(target) {
		to = append(append(to, '?'), query...)
	}
	return to
}

// redirect is what a client is sent to.
type redirect struct {
	status       int
	scheme, host string
	port         uint16 // 0: by the scheme, else the connection's
	path         pathEdit
}

// Redirect returns the status and the Location of a rule that redirects, which is
// the whole answer; 0 of one that does not. port is the one the client asked.
// The location lies in head's buffer.
func (h Hit) Redirect(head *message.Head, port uint16) (status int, location []byte) {
	r := h.redirect
	if r == nil {
		return 0, nil
	}
	scheme := r.scheme
	switch {
	case scheme != "":
	case bytes.EqualFold(head.Scheme, []byte("https")):
		scheme = "https"
	default:
		scheme = "http"
	}
	var buf [512]byte
	to := append(append(buf[:0], scheme...), "://"...)
	if r.host != "" {
		to = append(to, r.host...)
	} else {
		to = append(to, cutPort(head.Authority)...)
	}
	to = appendPort(to, r, scheme, port)
	if len(head.Path) > 0 && head.Path[0] == '/' {
		to = r.path.append(to, head.Path, h.prefix)
	} else {
		to = r.path.append(to, []byte("/"), h.prefix)
	}
	return r.status, head.Hold(to)
}

// appendPort writes the port unless the scheme implies it. A scheme that the
// rule names brings its own.
func appendPort(to []byte, r *redirect, scheme string, port uint16) []byte {
	known := uint16(80)
	if scheme == "https" {
		known = 443
	}
	switch {
	case r.port != 0:
		port = r.port
	case r.scheme != "" || port == 0:
		port = known
	}
	if port == known {
		return to
	}
	return appendUint(append(to, ':'), port)
}

func appendUint(to []byte, n uint16) []byte {
	if n >= 10 {
		to = appendUint(to, n/10)
	}
	return append(to, byte('0'+n%10))
}
