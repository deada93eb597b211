package detect

// maxEmptyLines is how many empty lines may stand before a request line. RFC
// 9112, 2.2 wants at least one ignored, since old clients end a body with it.
const maxEmptyLines = 4

// request reports how far b has come towards an HTTP/1 request line:
//
//	*4( [CR] LF ) method SP target SP "HTTP/1." ( "0" / "1" ) ( CR / LF )
func request(b []byte) progress {
	b, p := skipEmptyLines(b)
	if p != whole {
		return p
	}
	switch n, p := registered(b); p {
	case whole:
		return afterMethod(b[n:])
	case part:
		return part
	}
	return unregistered(b)
}

// believable reports whether b, which request calls a part, has at least
// minAtEnd bytes of a request line with a registered method.
func believable(b []byte) bool {
	b, p := skipEmptyLines(b)
	if p != whole || len(b) < minAtEnd {
		return false
	}
	n, p := registered(b)
	return p == whole && afterMethod(b[n:]) == part
}

// skipEmptyLines returns what follows the empty lines at the start of b; part
// if nothing follows yet, never if they are too many or broken.
func skipEmptyLines(b []byte) ([]byte, progress) {
	for n := 0; ; n++ {
		switch {
		case len(b) == 0:
			return b, part
		case b[0] != '\r' && b[0] != '\n':
			return b, whole
		case n == maxEmptyLines:
			return b, never
		case b[0] == '\n':
			b = b[1:]
		case len(b) == 1:
			return b, part
		case b[1] != '\n':
			return b, never
		default:
			b = b[2:]
		}
	}
}

// unregistered judges a line whose first word is no registered method. Any
// token may be a method (RFC 9110, 9.1), but a line of words is also what most
// text protocols start with: it has to be whole, there is no waiting for it.
func unregistered(b []byte) progress {
	n := 0
	for n < len(b) && tokenChars.has(b[n]) {
		n++
	}
	if n == 0 || n == len(b) || b[n] != ' ' || afterMethod(b[n+1:]) != whole {
		return never
	}
	return whole
}

// afterMethod judges what follows "method SP" in a request line.
func afterMethod(b []byte) progress {
	n := target(b)
	switch {
	case n == len(b):
		return part
	case n == 0 || b[n] != ' ':
		return never
	default:
		return version(b[n+1:])
	}
}

// maxAuthority bounds what may stand in a target before its first slash, in
// bytes: a user, a password and a name of 253 bytes at most.
const maxAuthority = 1024

// target returns how many bytes at the start of b can be a request target (RFC
// 9112, 3.2). The authority of a target is held to the letters of RFC 3986;
// behind its first slash or question mark anything visible goes, since browsers
// and curl send '"', '{', '|' and bytes above 127 as they are.
func target(b []byte) int {
	if len(b) > 0 && b[0] == '*' {
		return 1
	}
	n := 0
	for n < min(len(b), maxAuthority) && authorityChars.has(b[n]) {
		n++
	}
	if n == len(b) || b[n] != '/' && b[n] != '?' {
		return n
	}
	return n + leadingVisible(b[n:])
}

// leadingVisible returns how many bytes at the start of b are visible. It takes
// them by eight, since a client may send a target of 64 KiB byte by byte and have
// all of it looked at each time.
func leadingVisible(b []byte) int {
	n := 0
	for n+8 <= len(b) && allVisible(le.Uint64(b[n:])) {
		n += 8
	}
	for n < len(b) && visible(b[n]) {
		n++
	}
	return n
}

// allVisible is visible for eight bytes at once. Subtraction borrows into the
// top bit of the first byte that is too small, and of none if there is none.
func allVisible(x uint64) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	del := x ^ ones*0x7f
	return ((x-ones*0x21)&^x|(del-ones)&^del)&tops == 0
}

// visible reports whether c is neither a control character nor a space.
func visible(c byte) bool { return c > ' ' && c != 0x7f }

// version judges what follows "method SP target SP". Versions other than 1.0
// and 1.1 do not exist on the wire in this form.
func version(b []byte) progress {
	const name = "HTTP/1."
	if p := follow(b, name); p != whole {
		return p
	}
	b = b[len(name):]
	switch {
	case len(b) == 0:
		return part
	case b[0] != '0' && b[0] != '1':
		return never
	case len(b) == 1:
		return part
	case b[1] != '\r' && b[1] != '\n':
		return never
	default:
		return whole
	}
}
