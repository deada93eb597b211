package detect

// methods holds, by first letter, the methods whose line is worth waiting for:
// the IANA registry of HTTP methods (RFC 9110, 16.1; PRI belongs to HTTP/2),
// and those of UPnP and of caches that are in daily use. Each word more is one
// more start of a line that makes an opaque client wait.
var methods = [26][]string{
	0:         {"ACL"},
	'B' - 'A': {"BAN", "BASELINE-CONTROL", "BIND"},
	'C' - 'A': {"CHECKIN", "CHECKOUT", "CONNECT", "COPY"},
	'D' - 'A': {"DELETE"},
	'G' - 'A': {"GET"},
	'H' - 'A': {"HEAD"},
	'L' - 'A': {"LABEL", "LINK", "LOCK"},
	'M' - 'A': {"M-SEARCH", "MERGE", "MKACTIVITY", "MKCALENDAR", "MKCOL", "MKREDIRECTREF", "MKWORKSPACE", "MOVE"},
	'N' - 'A': {"NOTIFY"},
	'O' - 'A': {"OPTIONS", "ORDERPATCH"},
	'P' - 'A': {"POST", "PUT", "PATCH", "PROPFIND", "PROPPATCH", "PURGE"},
	'Q' - 'A': {"QUERY"},
	'R' - 'A': {"REBIND", "REPORT"},
	'S' - 'A': {"SEARCH", "SUBSCRIBE"},
	'T' - 'A': {"TRACE"},
	'U' - 'A': {"UNBIND", "UNCHECKOUT", "UNLINK", "UNLOCK", "UNSUBSCRIBE", "UPDATE", "UPDATEREDIRECTREF"},
	'V' - 'A': {"VERSION-CONTROL"},
}

// registered looks for a method of the table and the space behind it at the
// start of b, which is not empty. With whole, n bytes are method and space.
func registered(b []byte) (n int, p progress) {
	if b[0] < 'A' || b[0] > 'Z' {
		return 0, never
	}
	for _, m := range methods[b[0]-'A'] {
		switch follow(b, m) {
		case part:
			p = part
		case whole:
			if len(b) == len(m) {
				p = part
			} else if b[len(m)] == ' ' {
				return len(m) + 1, whole
			}
		}
	}
	return 0, p
}

// byteSet is a set of bytes.
type byteSet [4]uint64

func setOf(chars string) (s byteSet) {
	for i := range len(chars) {
		s[chars[i]>>6] |= 1 << (chars[i] & 63)
	}
	return s
}

// andAbove127 returns s with all bytes that are not ASCII.
func (s byteSet) andAbove127() byteSet {
	s[2], s[3] = ^uint64(0), ^uint64(0)
	return s
}

func (s *byteSet) has(c byte) bool { return s[c>>6]&(1<<(c&63)) != 0 }

const alphanumeric = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

var (
	// tokenChars are the bytes of a token (RFC 9110, 5.6.2).
	tokenChars = setOf(alphanumeric + "!#$%&'*+-.^_`|~")
	// authorityChars are the bytes of a URI (RFC 3986, 2) but '/' and '?', and
	// those of names in other alphabets that clients forgot to encode.
	authorityChars = setOf(alphanumeric + "-._~%:#[]@!$&'()*+,;=").andAbove127()
)
