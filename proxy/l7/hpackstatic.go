package l7

// kind is what a header field is to an observer.
type kind uint8

const (
	otherKind kind = iota // none of its business
	statusKind
	methodKind
	contentKind
	grpcStatusKind
)

// fact is all that an observer keeps of a header field: what it means, not what
// it says. Lengths are those of the name and value, decoded, because the size
// of the dynamic table is counted with them (RFC 7541, 4.1).
type fact struct {
	kind  kind
	value int16 // by kind: status, Method, content, grpc-status
	nameN uint16
	valN  uint16
}

// staticFacts is the static table (RFC 7541, appendix A); index 0 is not used.
// Only names are said with their lengths: values of it never enter the dynamic
// table.
var staticFacts = [62]fact{
	1: {nameN: 10}, // :authority
	2: {kind: methodKind, value: int16(Get), nameN: 7},
	3: {kind: methodKind, value: int16(Post), nameN: 7},
	4: {nameN: 5}, 5: {nameN: 5}, // :path
	6: {nameN: 7}, 7: {nameN: 7}, // :scheme
	8:  {kind: statusKind, value: 200, nameN: 7},
	9:  {kind: statusKind, value: 204, nameN: 7},
	10: {kind: statusKind, value: 206, nameN: 7},
	11: {kind: statusKind, value: 304, nameN: 7},
	12: {kind: statusKind, value: 400, nameN: 7},
	13: {kind: statusKind, value: 404, nameN: 7},
	14: {kind: statusKind, value: 500, nameN: 7},
	15: {nameN: 14}, // accept-charset
	16: {nameN: 15}, // accept-encoding
	17: {nameN: 15}, // accept-language
	18: {nameN: 13}, // accept-ranges
	19: {nameN: 6},  // accept
	20: {nameN: 27}, // access-control-allow-origin
	21: {nameN: 3},  // age
	22: {nameN: 5},  // allow
	23: {nameN: 13}, // authorization
	24: {nameN: 13}, // cache-control
	25: {nameN: 19}, // content-disposition
	26: {nameN: 16}, // content-encoding
	27: {nameN: 16}, // content-language
	28: {nameN: 14}, // content-length
	29: {nameN: 16}, // content-location
	30: {nameN: 13}, // content-range
	31: {kind: contentKind, value: int16(plainContent), nameN: 12},
	32: {nameN: 6},  // cookie
	33: {nameN: 4},  // date
	34: {nameN: 4},  // etag
	35: {nameN: 6},  // expect
	36: {nameN: 7},  // expires
	37: {nameN: 4},  // from
	38: {nameN: 4},  // host
	39: {nameN: 8},  // if-match
	40: {nameN: 17}, // if-modified-since
	41: {nameN: 13}, // if-none-match
	42: {nameN: 8},  // if-range
	43: {nameN: 19}, // if-unmodified-since
	44: {nameN: 13}, // last-modified
	45: {nameN: 4},  // link
	46: {nameN: 8},  // location
	47: {nameN: 12}, // max-forwards
	48: {nameN: 18}, // proxy-authenticate
	49: {nameN: 19}, // proxy-authorization
	50: {nameN: 5},  // range
	51: {nameN: 7},  // referer
	52: {nameN: 7},  // refresh
	53: {nameN: 11}, // retry-after
	54: {nameN: 6},  // server
	55: {nameN: 10}, // set-cookie
	56: {nameN: 25}, // strict-transport-security
	57: {nameN: 17}, // transfer-encoding
	58: {nameN: 10}, // user-agent
	59: {nameN: 4},  // vary
	60: {nameN: 3},  // via
	61: {nameN: 16}, // www-authenticate
}

// longestName is the length of the longest name that kindOf knows.
const longestName = len("content-type")

// kindOf names a field. Names are lower case in HTTP/2 (RFC 9113, 8.2.1).
func kindOf(name []byte) kind {
	switch string(name) {
	case ":status":
		return statusKind
	case ":method":
		return methodKind
	case "content-type":
		return contentKind
	case "grpc-status":
		return grpcStatusKind
	default:
		return otherKind
	}
}

// longestValue is how much of a value meaning needs at most.
const longestValue = 32

// meaning reads the first longestValue bytes of a value; one that is longer is
// only right for a content type.
func (k kind) meaning(start []byte) int16 {
	switch k {
	case statusKind:
		return parseStatus(start)
	case methodKind:
		return int16(parseMethod(start))
	case contentKind:
		return int16(parseContent(start))
	case grpcStatusKind:
		return parseGRPCStatus(start)
	default:
		return 0
	}
}
