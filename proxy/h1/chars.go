package h1

import "encoding/binary"

// Classes of bytes; a byte may be in several.
const (
	tokenChar  uint8 = 1 << iota // RFC 9110, 5.6.2
	valueChar                    // field-value: HTAB, SP, VCHAR, obs-text (RFC 9110, 5.5)
	targetChar                   // request-target: VCHAR and obs-text, without '#'
	hostChar                     // reg-name (RFC 3986, 3.2.2)
	hexChar
	digitChar
	schemeChar // RFC 3986, 3.1, after the first letter
)

const (
	digits  = "0123456789"
	letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// class is never written to after start-up. A '#' begins a fragment, which no
// request target has (RFC 9112, 3.2): readers differ about what is before it.
// Bytes above 127 in targets are against RFC 3986 but in daily use.
var class = classes()

func classes() (t [256]uint8) {
	mark := func(chars string, c uint8) {
		for i := range len(chars) {
			t[chars[i]] |= c
		}
	}
	for c := range 256 {
		if c == '\t' || c >= ' ' && c != 0x7f {
			t[c] |= valueChar
		}
		if c > ' ' && c != 0x7f && c != '#' {
			t[c] |= targetChar
		}
	}
	mark(digits+letters+"!#$%&'*+-.^_`|~", tokenChar)
	mark(digits+letters+"-._~!$&'()*+,;=%", hostChar)
	mark(digits+"abcdefABCDEF", hexChar)
	mark(digits, digitChar)
	mark(digits+letters+"+-.", schemeChar)
	return t
}

// all reports whether every byte of b is of class c.
func all(b []byte, c uint8) bool {
	for _, x := range b {
		if class[x]&c == 0 {
			return false
		}
	}
	return true
}

// isToken reports whether b is a token.
func isToken(b []byte) bool { return len(b) > 0 && all(b, tokenChar) }

// is compares without regard to case; lower is in lower case.
func is(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i := range len(b) {
		c := b[i]
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// trim takes optional white space off both ends (RFC 9110, 5.6.3).
func trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// element cuts the first element off a comma-separated list.
func element(list []byte) (first, rest []byte) {
	for i, c := range list {
		if c == ',' {
			return trim(list[:i]), list[i+1:]
		}
	}
	return trim(list), nil
}

// validValue reports whether b is a field value, eight bytes at a time: a word
// without a byte below SP and without a DEL is good.
func validValue(b []byte) bool {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for len(b) >= 8 {
		x := binary.LittleEndian.Uint64(b)
		del := x ^ 0x7f*ones
		if ((x-' '*ones)&^x|(del-ones)&^del)&high != 0 && !all(b[:8], valueChar) {
			return false
		}
		b = b[8:]
	}
	return all(b, valueChar)
}
