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

// NameOf names a field; its name is in lower case.
func NameOf(name []byte) Name {
	switch string(name) {
	case ":authority":
		return 1
	case ":method":
		return 2
	case ":path":
		return 4
	case ":scheme":
		return 6
	case ":status":
		return 8
	case "accept-charset":
		return 15
	case "accept-encoding":
		return 16
	case "accept-language":
		return 17
	case "accept-ranges":
		return 18
	case "accept":
		return 19
	case "access-control-allow-origin":
		return 20
	case "age":
		return 21
	case "allow":
		return 22
	case "authorization":
		return 23
	case "cache-control":
		return 24
	case "content-disposition":
		return 25
	case "content-encoding":
		return 26
	case "content-language":
		return 27
	case "content-length":
		return 28
	case "content-location":
		return 29
	case "content-range":
		return 30
	case "content-type":
		return 31
	case "cookie":
		return 32
	case "date":
		return 33
	case "etag":
		return 34
	case "expect":
		return 35
	case "expires":
		return 36
	case "from":
		return 37
	case "host":
		return 38
	case "if-match":
		return 39
	case "if-modified-since":
		return 40
	case "if-none-match":
		return 41
	case "if-range":
		return 42
	case "if-unmodified-since":
		return 43
	case "last-modified":
		return 44
	case "link":
		return 45
	case "location":
		return 46
	case "max-forwards":
		return 47
	case "proxy-authenticate":
		return 48
	case "proxy-authorization":
		return 49
	case "range":
		return 50
	case "referer":
		return 51
	case "refresh":
		return 52
	case "retry-after":
		return 53
	case "server":
		return 54
	case "set-cookie":
		return 55
	case "strict-transport-security":
		return 56
	case "transfer-encoding":
		return 57
	case "user-agent":
		return 58
	case "vary":
		return 59
	case "via":
		return 60
	case "www-authenticate":
		return 61
	case "connection":
		return Connection
	case "keep-alive":
		return KeepAlive
	case "proxy-connection":
		return ProxyConnection
	case "te":
		return TE
	case "upgrade":
		return Upgrade
	}
	if len(name) > 0 && name[0] == ':' {
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
