package hpack

// Name is a field name that is known: of the static table by its lowest index
// (RFC 7541, appendix A), and of the others that HTTP/2 has rules for. Zero is
// any other name.
type Name uint8

// The names that HTTP/2 has rules for (RFC 9113, 8.2.2, 8.2.3, 8.3).
const (
	Authority        Name = 1
	Method           Name = 2
	Path             Name = 4
	Scheme           Name = 6
	Status           Name = 8
	Authorization    Name = 23
	ContentLength    Name = 28
	Cookie           Name = 32
	Expect           Name = 35
	Host             Name = 38
	ProxyAuthorize   Name = 49
	SetCookie        Name = 55
	TransferEncoding Name = 57
)

// The names that are not in the static table.
const (
	Connection Name = iota + Name(staticSize) + 1
	KeepAlive
	ProxyConnection
	TE
	Upgrade
	Pseudo // any other name that begins with a colon
)

const staticSize = 61

// static is the static table; index 0 is not used.
var static = [staticSize + 1]struct{ name, value string }{
	1: {":authority", ""},
	2: {":method", "GET"}, 3: {":method", "POST"},
	4: {":path", "/"}, 5: {":path", "/index.html"},
	6: {":scheme", "http"}, 7: {":scheme", "https"},
	8: {":status", "200"}, 9: {":status", "204"}, 10: {":status", "206"}, 11: {":status", "304"},
	12: {":status", "400"}, 13: {":status", "404"}, 14: {":status", "500"},
	15: {"accept-charset", ""}, 16: {"accept-encoding", "gzip, deflate"}, 17: {"accept-language", ""},
	18: {"accept-ranges", ""}, 19: {"accept", ""}, 20: {"access-control-allow-origin", ""},
	21: {"age", ""}, 22: {"allow", ""}, 23: {"authorization", ""}, 24: {"cache-control", ""},
	25: {"content-disposition", ""}, 26: {"content-encoding", ""}, 27: {"content-language", ""},
	28: {"content-length", ""}, 29: {"content-location", ""}, 30: {"content-range", ""},
	31: {"content-type", ""}, 32: {"cookie", ""}, 33: {"date", ""}, 34: {"etag", ""},
	35: {"expect", ""}, 36: {"expires", ""}, 37: {"from", ""}, 38: {"host", ""}, 39: {"if-match", ""},
	40: {"if-modified-since", ""}, 41: {"if-none-match", ""}, 42: {"if-range", ""},
	43: {"if-unmodified-since", ""}, 44: {"last-modified", ""}, 45: {"link", ""}, 46: {"location", ""},
	47: {"max-forwards", ""}, 48: {"proxy-authenticate", ""}, 49: {"proxy-authorization", ""},
	50: {"range", ""}, 51: {"referer", ""}, 52: {"refresh", ""}, 53: {"retry-after", ""},
	54: {"server", ""}, 55: {"set-cookie", ""}, 56: {"strict-transport-security", ""},
	57: {"transfer-encoding", ""}, 58: {"user-agent", ""}, 59: {"vary", ""}, 60: {"via", ""},
	61: {"www-authenticate", ""},
}

// staticFields is static as decoded fields, so that an indexed one is a copy.
var staticFields = fieldsOf()

func fieldsOf() (fields [staticSize + 1]Field) {
	for i := 1; i <= staticSize; i++ {
		s := static[i]
		fields[i] = Field{Name: []byte(s.name), Value: []byte(s.value),
			Size: len(s.name) + len(s.value) + fieldCost, ID: NameOf([]byte(s.name))}
	}
	return fields
}

// others are the names that are known and not in the static table, from Connection on.
var others = [...]string{"connection", "keep-alive", "proxy-connection", "te", "upgrade"}

// names finds a Name by its text: open addressing by spread, about a quarter full.
var names = namesOf()

func namesOf() (table [256]Name) {
	add := func(s string, n Name) {
		i := spread([]byte(s))
		for ; table[i] != 0; i++ {
			if textOf(table[i]) == s { // a name stands at its lowest index
				return
			}
		}
		table[i] = n
	}
	for i := 1; i <= staticSize; i++ {
		add(static[i].name, Name(i))
	}
	for i, s := range others {
		add(s, Connection+Name(i))
	}
	return table
}

// spread is where the search for a name begins. What differs most between the
// names is their length and their last bytes.
func spread(s []byte) uint8 {
	n := len(s)
	return uint8(n*37) ^ s[n-1]*11 ^ s[n/2]*5
}

func textOf(n Name) string {
	if n > staticSize {
		return others[n-Connection]
	}
	return static[n].name
}

// NameOf names a field; its name is in lower case.
func NameOf(name []byte) Name {
	if len(name) == 0 {
		return 0
	}
	for i := spread(name); names[i] != 0; i++ {
		if textOf(names[i]) == string(name) {
			return names[i]
		}
	}
	if name[0] == ':' {
		return Pseudo
	}
	return 0
}

// Text returns the name of the static table that n is, nil if it is none. It
// must not be changed.
func Text(n Name) []byte {
	if n > staticSize {
		return nil
	}
	return staticFields[n].Name
}
