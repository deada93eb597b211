package l7

import (
	"bytes"
	"math"
)

// head is what matters of a message's head: what delimits the body (RFC 9112,
// 6) and what classifies the response.
type head struct {
	method  Method
	status  int16
	minor   byte    // of HTTP/1.x
	length  int64   // Content-Length; -1: none
	coded   bool    // a Transfer-Encoding is there
	chunked bool    // and ends in chunked
	upgrade bool    // an Upgrade field is there
	h2c     bool    // and names h2c
	content content // of Content-Type
	grpc    int16   // grpc-status, also from trailers; -1: none
	detail  *Detail // of a request, if it is wanted
	ours    bool    // the last field was one of these, so a folded line would change it
}

// requestLine reads "METHOD target HTTP/1.x" (RFC 9112, 3).
func (h *head) requestLine(l *line) Reason {
	sp := bytes.IndexByte(l.start, ' ')
	end, n := l.end, l.n
	if l.hasCR() {
		end, n = end[:len(end)-1], n-1
	}
	const version = " HTTP/1."
	at := len(end) - len(version) - 1
	if sp <= 0 || at < 0 || n-len(version)-1 < sp+2 || string(end[at:len(end)-1]) != version {
		return ReasonMalformed
	}
	h.minor = end[len(end)-1] - '0'
	h.method = parseMethod(l.start[:sp])
	if h.minor > 9 || h.method == Other && !token(l.start[:sp]) {
		return ReasonMalformed
	}
	if h.detail != nil {
		target := l.start[sp+1:]
		if l.n == len(l.start) {
			target = target[:n-len(version)-1-sp-1]
		}
		h.detail.Path = bytes.Clone(target)
	}
	return ""
}

// statusLine reads "HTTP/1.x NNN reason" (RFC 9112, 4).
func (h *head) statusLine(l *line) Reason {
	b := l.start
	if l.hasCR() && l.n == len(b) {
		b = b[:len(b)-1]
	}
	const version = "HTTP/1."
	if len(b) < len(version)+5 || string(b[:len(version)]) != version || b[8] != ' ' || len(b) > 12 && b[12] != ' ' {
		return ReasonMalformed
	}
	h.minor = b[7] - '0'
	h.status = parseStatus(b[9:12])
	if h.minor > 9 || h.status == 0 {
		return ReasonMalformed
	}
	return ""
}

// field reads a field line. Most are none of ours, which their first letter tells.
func (h *head) field(l *line) Reason {
	if c := l.start[0]; c == ' ' || c == '\t' {
		if h.ours { // obs-fold (RFC 9112, 5.2): the ends may differ on it
			return ReasonFraming
		}
		return ""
	}
	h.ours = false
	if !mayMatter(l.start[0]) {
		return ""
	}
	return h.named(l)
}

// mayMatter reports that a field line that begins with c may be one of ours, or
// go on with one.
func mayMatter(c byte) bool {
	switch c | 0x20 {
	case 'c', 't', 'u', 'g', ' ', '\t' | 0x20:
		return true
	}
	return false
}

// named reads a field line that may be one of ours.
func (h *head) named(l *line) Reason {
	colon := bytes.IndexByte(l.start, ':')
	if colon < 0 {
		if l.n > len(l.start) { // a name that long is none of ours
			return ""
		}
		return ReasonMalformed
	}
	name, v := l.start[:colon], trim(l.start[colon+1:])
	if c := name[colon-1]; c == ' ' || c == '\t' {
		return ReasonFraming // RFC 9112, 5.1: refused or misread
	}
	whole := l.n == len(l.start)
	switch colon {
	case len("upgrade"):
		h.readUpgrade(name, v)
	case len("grpc-status"):
		if equalFold(name, "grpc-status") {
			h.ours, h.grpc = true, parseGRPCStatus(v)
		} else if h.detail != nil && equalFold(name, "traceparent") {
			h.detail.TraceParent = bytes.Clone(v)
		}
	case len("content-type"):
		if equalFold(name, "content-type") {
			h.ours, h.content = true, parseContent(v)
		}
	case len("content-length"):
		if equalFold(name, "content-length") {
			h.ours = true
			return h.readLength(v, whole)
		}
	case len("transfer-encoding"):
		if equalFold(name, "transfer-encoding") {
			h.ours, h.coded = true, true
			return h.readCoding(v, whole)
		}
	}
	return ""
}

// readUpgrade reads an Upgrade field (RFC 9110, 7.8).
func (h *head) readUpgrade(name, v []byte) {
	if !equalFold(name, "upgrade") {
		return
	}
	h.ours, h.upgrade = true, true
	for len(v) > 0 {
		var item []byte
		item, v, _ = bytes.Cut(v, []byte(","))
		h.h2c = h.h2c || equalFold(trim(item), "h2c")
	}
}

// readLength reads a Content-Length. The same length twice is one length; two
// different ones, or a list, are read differently by different ends.
func (h *head) readLength(v []byte, whole bool) Reason {
	if len(v) == 0 || !whole {
		return ReasonFraming
	}
	n := int64(0)
	for _, c := range v {
		if c < '0' || c > '9' || n > (math.MaxInt64-9)/10 {
			return ReasonFraming
		}
		n = n*10 + int64(c-'0')
	}
	if h.length >= 0 && h.length != n {
		return ReasonFraming
	}
	h.length = n
	return ""
}

// readCoding reads a Transfer-Encoding. Only one that ends in chunked, once,
// delimits a message without doubt (RFC 9112, 6.3).
func (h *head) readCoding(v []byte, whole bool) Reason {
	if len(v) == 0 || !whole {
		return ReasonFraming
	}
	for len(v) > 0 {
		var item []byte
		item, v, _ = bytes.Cut(v, []byte(","))
		if h.chunked { // something follows it
			return ReasonFraming
		}
		h.chunked = equalFold(trim(item), "chunked")
	}
	return ""
}

// check judges the framing once the head is whole.
func (h *head) check() Reason {
	if h.chunked && (h.length >= 0 || h.minor == 0) || h.coded && !h.chunked {
		return ReasonFraming
	}
	return ""
}

// parseStatus reads a status code, 100 to 999; 0 if it is none.
func parseStatus(b []byte) int16 {
	if len(b) != 3 {
		return 0
	}
	n := int16(0)
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0
		}
		n = n*10 + int16(c-'0')
	}
	if n < 100 {
		return 0
	}
	return n
}

// token reports that b is made of tchar only (RFC 9110, 5.6.2).
func token(b []byte) bool {
	const marks = "!#$%&'*+-.^_`|~"
	for _, c := range b {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && bytes.IndexByte([]byte(marks), c) < 0 {
			return false
		}
	}
	return true
}
