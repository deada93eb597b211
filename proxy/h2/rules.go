package h2

import (
	"bytes"

	"github.com/meshctl/meshctl/proxy/message"
)

// part is a part of a request's head, as a bit of partOf.
type part uint8

const (
	inMethod    part = 1 << iota // tchar (RFC 9110, 9.1)
	inPath                       // anything but controls, blank and '#': what no parser of HTTP/1 stumbles over
	inAuthority                  // RFC 3986, 3.2 without user information (RFC 9113, 8.3.1)
	inScheme                     // RFC 3986, 3.1
)

// partOf says for each byte which parts may have it.
var partOf = parts()

func parts() (set [256]part) {
	for c := range 256 {
		if c > ' ' && c != 0x7f && c != '#' {
			set[c] |= inPath
		}
	}
	letters := "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	for p, s := range map[part]string{
		inMethod:    letters + "!#$%&'*+-.^_`|~",
		inAuthority: letters + "-._~%!$&'()*+,;=:[]",
		inScheme:    letters + "+-.",
	} {
		for i := range len(s) {
			set[s[i]] |= p
		}
	}
	return set
}

func only(b []byte, p part) bool {
	for _, c := range b {
		if partOf[c]&p == 0 {
			return false
		}
	}
	return true
}

// complete checks a head as a whole, when all of its fields are in.
func (r *reading) complete(h *message.Head) bool {
	switch r.what {
	case requestBlock:
		return r.authority(h) && r.wholeRequest(h)
	case responseBlock:
		// There is no 101 in HTTP/2 (RFC 9113, 8.6).
		return r.seen == seenStatus && h.Status >= 100 && h.Status != 101
	default:
		return true
	}
}

// authority settles :authority and host, which may not differ (RFC 9113, 8.3.1).
func (r *reading) authority(h *message.Head) bool {
	if r.hosted {
		if r.seen&seenAuthority != 0 && !bytes.EqualFold(r.host, h.Authority) {
			return false
		}
		h.Authority = r.host
	}
	return only(h.Authority, inAuthority)
}

func (r *reading) wholeRequest(h *message.Head) bool {
	if len(h.Method) == 0 || !only(h.Method, inMethod) {
		return false
	}
	if string(h.Method) == "CONNECT" { // RFC 9113, 8.5
		return r.seen == seenMethod|seenAuthority && port(h.Authority)
	}
	if len(h.Path) == 0 || len(h.Scheme) == 0 || len(h.Authority) == 0 ||
		!only(h.Path, inPath) || !only(h.Scheme, inScheme) {
		return false
	}
	return h.Path[0] == '/' || string(h.Path) == "*" && string(h.Method) == "OPTIONS"
}

// port reports whether an authority ends in one, which CONNECT needs.
func port(authority []byte) bool {
	i := bytes.LastIndexByte(authority, ':')
	digits := authority[i+1:]
	if i < 1 || len(digits) == 0 || len(digits) > 5 {
		return false
	}
	for _, c := range digits {
		if c-'0' > 9 {
			return false
		}
	}
	return true
}

// status reads three digits, 0 if that is not what v is.
func status(v []byte) int {
	if len(v) != 3 || v[0]-'1' > 4 || v[1]-'0' > 9 || v[2]-'0' > 9 {
		return 0
	}
	return int(v[0]-'0')*100 + int(v[1]-'0')*10 + int(v[2]-'0')
}

// length reads a content-length: digits only (RFC 9110, 8.6).
func length(v []byte) (n int64, ok bool) {
	if len(v) == 0 || len(v) > 18 {
		return 0, false
	}
	for _, c := range v {
		if c-'0' > 9 {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, true
}

// trimmed takes blanks from around a value. They are malformed (RFC 9113, 8.2.1),
// but sent: a gRPC status whose message ends in a blank has one. To refuse it
// would break what works without a proxy; to pass it on would leave the blanks
// to parsers that differ.
func trimmed(v []byte) []byte {
	for len(v) > 0 && (v[0] == ' ' || v[0] == '\t') {
		v = v[1:]
	}
	for len(v) > 0 && (v[len(v)-1] == ' ' || v[len(v)-1] == '\t') {
		v = v[:len(v)-1]
	}
	return v
}
