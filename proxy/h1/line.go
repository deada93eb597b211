package h1

import (
	"bytes"

	"github.com/meshctl/meshctl/proxy/message"
)

// requestLine reads method, target and version (RFC 9112, 3). There is exactly
// one space between them.
func (p *parser) requestLine(line []byte, h *message.Head) *Refusal {
	i := bytes.IndexByte(line, ' ')
	if i < 0 {
		return bad("request line without a target")
	}
	method, rest := line[:i], line[i+1:]
	if !isToken(method) {
		return bad("method is not a token")
	}
	if i = bytes.IndexByte(rest, ' '); i < 0 {
		return bad("request line without a version")
	}
	target := rest[:i]
	if len(target) == 0 || !all(target, targetChar) {
		return bad("bad byte in the request target")
	}
	var r *Refusal
	if p.version, r = versionOf(rest[i+1:]); r != nil {
		return r
	}
	if string(method) == "PRI" { // RFC 9113, 11.6: reserved, so that HTTP/2 is never taken for HTTP/1
		return bad("method PRI")
	}
	h.Version, h.Method = p.version, method
	return p.target(target, h)
}

// versionOf reads a version: capitals, one digit each (RFC 9112, 2.3).
func versionOf(b []byte) (message.Version, *Refusal) {
	switch {
	case string(b) == "HTTP/1.1":
		return message.HTTP11, nil
	case string(b) == "HTTP/1.0":
		return message.HTTP10, nil
	case len(b) == 8 && string(b[:5]) == "HTTP/" && class[b[5]]&digitChar != 0 && b[6] == '.' && class[b[7]]&digitChar != 0:
		return 0, refuse(505, "HTTP version not supported")
	}
	return 0, bad("bad HTTP version")
}

// target sorts out the four forms (RFC 9112, 3.2).
func (p *parser) target(t []byte, h *message.Head) *Refusal {
	connect := string(h.Method) == "CONNECT"
	switch {
	case connect && p.version == message.HTTP10:
		return bad("CONNECT in HTTP/1.0")
	case connect:
		if !validAuthority(t, true) {
			return bad("CONNECT target is not host:port")
		}
		h.Authority = t
	case t[0] == '/':
		h.Path = t
	case len(t) == 1 && t[0] == '*':
		if !mayStar(h.Method) {
			return bad("target * with a method that needs a resource")
		}
		h.Path = t
	default:
		return absolute(t, h)
	}
	return nil
}

// mayStar reports whether "*" may be the target of a method: OPTIONS (RFC 9112,
// 3.2.4) and methods that are not of RFC 9110, such as the M-SEARCH of UPnP.
func mayStar(method []byte) bool {
	switch string(method) {
	case "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "PATCH":
		return false
	}
	return true
}

// absolute reads scheme://authority/path; user information is refused (RFC
// 9110, 4.2.4). An empty path is "/", or "*" with OPTIONS.
func absolute(t []byte, h *message.Head) *Refusal {
	i := bytes.Index(t, []byte("://"))
	if i <= 0 || class[t[0]]&tokenChar == 0 || class[t[0]]&digitChar != 0 || !all(t[:i], schemeChar) {
		return bad("request target of no known form")
	}
	h.Scheme, h.Absolute = t[:i], true
	rest := t[i+3:]
	end := bytes.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	h.Authority, h.Path = rest[:end], rest[end:]
	if len(h.Authority) == 0 || !validAuthority(h.Authority, false) {
		return bad("bad authority in the request target")
	}
	switch {
	case len(h.Path) == 0 && string(h.Method) == "OPTIONS":
		h.Path = h.HoldString("*")
	case len(h.Path) == 0:
		h.Path = h.HoldString("/")
	case h.Path[0] == '?':
		b := make([]byte, 0, 1+len(h.Path)) // rare: http://host?query
		h.Path = h.Hold(append(append(b, '/'), h.Path...))
	}
	return nil
}

// validAuthority checks host[:port]. An empty host is valid: it is what a
// client sends when the target has none (RFC 9112, 3.2).
func validAuthority(b []byte, port bool) bool {
	end := 0
	if len(b) > 0 && b[0] == '[' { // IPv6 (RFC 3986, 3.2.2)
		end = bytes.IndexByte(b, ']') + 1
		if end < 4 {
			return false
		}
		for _, c := range b[1 : end-1] {
			if class[c]&hexChar == 0 && c != ':' && c != '.' {
				return false
			}
		}
	} else {
		for end < len(b) && class[b[end]]&hostChar != 0 {
			end++
		}
	}
	if port && end == 0 {
		return false
	}
	rest := b[end:]
	if len(rest) == 0 {
		return !port
	}
	if rest[0] != ':' || len(rest) > 6 || !all(rest[1:], digitChar) || port && len(rest) == 1 {
		return false
	}
	return true
}

// statusLine reads version, status and phrase (RFC 9112, 4). The space before
// an empty phrase is missing in some servers' answers.
func (p *parser) statusLine(line []byte, h *message.Head) *Refusal {
	if len(line) < 12 || line[8] != ' ' {
		return bad("bad status line")
	}
	var r *Refusal
	if p.version, r = versionOf(line[:8]); r != nil {
		return r
	}
	code := line[9:12]
	if !all(code, digitChar) || code[0] < '1' || code[0] > '5' {
		return bad("bad status code")
	}
	h.Version = p.version
	h.Status = int(code[0]-'0')*100 + int(code[1]-'0')*10 + int(code[2]-'0')
	if len(line) > 12 {
		if line[12] != ' ' || !validValue(line[13:]) {
			return bad("bad reason phrase")
		}
		h.Phrase = line[13:]
	}
	return nil
}
