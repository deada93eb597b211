package route

import "bytes"

// maxHost is the longest host that is compared with names; a longer one matches
// none (RFC 1035, 2.3.4: names have at most 253 characters).
const maxHost = 256

// lowerHost writes the host of an authority to buf, in lower case, without port
// and without the dot that may end a name. It is empty for none and for one that
// is too long.
func lowerHost(buf *[maxHost]byte, authority []byte) []byte {
	host := cutPort(authority)
	if n := len(host); n > 0 && host[n-1] == '.' {
		host = host[:n-1]
	}
	if len(host) > len(buf) {
		return nil
	}
	for i, c := range host {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		buf[i] = c
	}
	return buf[:len(host)]
}

// cutPort takes the port and a user part from an authority.
func cutPort(authority []byte) []byte {
	if i := bytes.LastIndexByte(authority, '@'); i >= 0 {
		authority = authority[i+1:]
	}
	if i := bytes.LastIndexByte(authority, ':'); i >= 0 && bytes.IndexByte(authority[i:], ']') < 0 {
		return authority[:i]
	}
	return authority
}

// splitQuery cuts a request target; the query comes without its question mark.
func splitQuery(target []byte) (path, query []byte) {
	if i := bytes.IndexByte(target, '?'); i >= 0 {
		return target[:i], target[i+1:]
	}
	return target, nil
}

// inQuery reports whether the first parameter of that name has the value. Names
// and values are compared as application/x-www-form-urlencoded means them:
// %-escapes decoded, + a blank.
func (f *field) inQuery(query []byte) bool {
	for len(query) > 0 {
		var pair []byte
		if i := bytes.IndexByte(query, '&'); i >= 0 {
			pair, query = query[:i], query[i+1:]
		} else {
			pair, query = query, nil
		}
		name, value, _ := bytes.Cut(pair, []byte{'='})
		if !equalDecoded(name, f.name) {
			continue
		}
		if f.pattern == nil {
			return equalDecoded(value, f.exact)
		}
		if bytes.IndexByte(value, '%') >= 0 || bytes.IndexByte(value, '+') >= 0 {
			value = decode(value)
		}
		return f.pattern.Match(value)
	}
	return false
}

// equalDecoded compares without making the decoded form.
func equalDecoded(raw []byte, want string) bool {
	for len(raw) > 0 {
		c, n := decodeByte(raw)
		if want == "" || want[0] != c {
			return false
		}
		raw, want = raw[n:], want[1:]
	}
	return want == ""
}

func decode(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for len(raw) > 0 {
		c, n := decodeByte(raw)
		out, raw = append(out, c), raw[n:]
	}
	return out
}

// decodeByte decodes the first byte and says how long it was; an escape that is
// none stands for itself.
func decodeByte(raw []byte) (c byte, n int) {
	switch {
	case raw[0] == '+':
		return ' ', 1
	case raw[0] == '%' && len(raw) >= 3 && hex(raw[1]) < 16 && hex(raw[2]) < 16:
		return hex(raw[1])<<4 | hex(raw[2]), 3
	}
	return raw[0], 1
}

func hex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10
	}
	return 16
}
