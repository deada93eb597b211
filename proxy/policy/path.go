package policy

import "bytes"

// ambiguous reports whether a server may read a path as another one than a route
// does, which compares bytes: it has a dot element, an empty element, or a
// separator or dot that is escaped (RFC 3986, 6.2.2). What is after the first ?
// is no path.
func ambiguous(target []byte) bool {
	path, _, _ := bytes.Cut(target, []byte{'?'})
	if len(path) == 0 || path[0] != '/' {
		return false // "*", and CONNECT's empty path
	}
	if bytes.IndexByte(path, '\\') >= 0 || escaped(path) {
		return true
	}
	for rest := path[1:]; len(rest) > 0; {
		element, after, more := bytes.Cut(rest, []byte{'/'})
		// Some servers drop parameters ("..;x") before they look for dots.
		name, _, _ := bytes.Cut(element, []byte{';'})
		if string(name) == "." || string(name) == ".." || len(name) == 0 && (more || len(element) > 0) {
			return true
		}
		rest = after
	}
	return false
}

// escaped finds %2e, %2f, %5c and %00, in either case.
func escaped(path []byte) bool {
	for i := bytes.IndexByte(path, '%'); i >= 0 && i+2 < len(path); {
		hi, lo := path[i+1], path[i+2]|0x20
		if hi == '2' && (lo == 'e' || lo == 'f') || hi == '5' && lo == 'c' || hi == '0' && path[i+2] == '0' {
			return true
		}
		next := bytes.IndexByte(path[i+1:], '%')
		if next < 0 {
			break
		}
		i += 1 + next
	}
	return false
}
