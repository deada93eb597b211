package l7

// Method is a request method, folded to a closed set so that it can be a metric
// label. The zero value means "not said": the request was answered before its
// first line was over.
type Method uint8

// The methods of RFC 9110 section 9 and RFC 5789; every other one is Other.
const (
	NoMethod Method = iota
	Get
	Head
	Post
	Put
	Delete
	Connect
	Options
	Trace
	Patch
	Other
)

// String returns the method as it is written on the wire, "other" or "".
func (m Method) String() string {
	switch m {
	case Get:
		return "GET"
	case Head:
		return "HEAD"
	case Post:
		return "POST"
	case Put:
		return "PUT"
	case Delete:
		return "DELETE"
	case Connect:
		return "CONNECT"
	case Options:
		return "OPTIONS"
	case Trace:
		return "TRACE"
	case Patch:
		return "PATCH"
	case Other:
		return "other"
	default:
		return ""
	}
}

// parseMethod folds a token; methods are case-sensitive (RFC 9110, 9.1).
func parseMethod(b []byte) Method {
	switch string(b) {
	case "GET":
		return Get
	case "HEAD":
		return Head
	case "POST":
		return Post
	case "PUT":
		return Put
	case "DELETE":
		return Delete
	case "CONNECT":
		return Connect
	case "OPTIONS":
		return Options
	case "TRACE":
		return Trace
	case "PATCH":
		return Patch
	default:
		return Other
	}
}
