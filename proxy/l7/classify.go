package l7

import "bytes"

// grpcFailures are the gRPC codes that blame the server: UNKNOWN 2,
// DEADLINE_EXCEEDED 4, PERMISSION_DENIED 7, INTERNAL 13, UNAVAILABLE 14 and
// DATA_LOSS 15, the set that Linkerd counts as failures.
const grpcFailures = 1<<2 | 1<<4 | 1<<7 | 1<<13 | 1<<14 | 1<<15

// grpcUnknown is how a gRPC client reads a code that it cannot read.
const grpcUnknown = 2

// Success classifies a response that has ended without a transport error. A
// gRPC response is judged by grpcStatus alone, where -1 (missing) is a failure
// because a gRPC client reads it as UNKNOWN; any other response fails from
// status 500 on.
func Success(status int, grpc bool, grpcStatus int) bool {
	if !grpc {
		return status > 0 && status < 500
	}
	return grpcStatus >= 0 && grpcStatus < 32 && grpcFailures>>grpcStatus&1 == 0
}

// content is what a content type says about how to classify.
type content uint8

const (
	plainContent   content = iota // classified by HTTP status
	grpcContent                   // status in trailers
	grpcWebContent                // status in the body, unless the response is a head only
)

const grpcType = "application/grpc"

// parseContent reads the start of a content-type value. gRPC-Web is told apart
// from gRPC: its trailers travel in the body, where nobody here looks, and a
// status that cannot be seen must not count as one that is missing.
func parseContent(v []byte) content {
	if len(v) < len(grpcType) || !equalFold(v[:len(grpcType)], grpcType) {
		return plainContent
	}
	rest := v[len(grpcType):]
	switch {
	case len(rest) == 0, rest[0] == '+', rest[0] == ';', rest[0] == ' ', rest[0] == '\t':
		return grpcContent
	case bytes.HasPrefix(rest, []byte("-web")):
		return grpcWebContent
	default:
		return plainContent
	}
}

// JudgedByGRPC reports whether a response is judged by its grpc-status: gRPC is,
// gRPC-Web only if the status stands in the head. The values are those of the
// head's fields; nil: it has none.
func JudgedByGRPC(contentType, grpcStatus []byte) bool {
	c := parseContent(contentType)
	return c == grpcContent || c == grpcWebContent && grpcStatus != nil
}

// GRPCStatus reads a grpc-status field: -1 if it is nil, which is missing, and 2
// (UNKNOWN), as a client reads it, if it is no code.
func GRPCStatus(v []byte) int {
	if v == nil {
		return -1
	}
	return int(parseGRPCStatus(v))
}

// parseGRPCStatus reads a grpc-status value: 0 to 16, all else is UNKNOWN.
func parseGRPCStatus(v []byte) int16 {
	if len(v) == 0 || len(v) > 2 {
		return grpcUnknown
	}
	n := int16(0)
	for _, c := range v {
		if c < '0' || c > '9' {
			return grpcUnknown
		}
		n = n*10 + int16(c-'0')
	}
	if n > 16 {
		return grpcUnknown
	}
	return n
}

// verdict is what is known of a response while it passes.
type verdict struct {
	status     int16 // 0: no final head yet
	grpcStatus int16 // -1: missing
	content    content
}

// response fills the part of a Response that classification decides.
func (v verdict) response(err string) Response {
	r := Response{Status: int(v.status), GRPCStatus: -1, Err: err}
	r.GRPC = v.content == grpcContent || v.content == grpcWebContent && v.grpcStatus >= 0
	if r.GRPC {
		r.GRPCStatus = int(v.grpcStatus)
	}
	r.Success = err == "" && Success(r.Status, r.GRPC, r.GRPCStatus)
	return r
}

// equalFold compares ASCII without regard to case; lower must be lower case.
func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if c == lower[i] {
			continue
		}
		if c < 'A' || c > 'Z' || c|0x20 != lower[i] {
			return false
		}
	}
	return true
}
