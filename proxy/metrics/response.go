package metrics

import (
	"strconv"
)

// Values of responseKey.grpc that are no grpc-status, and the one that
// ResponseLabels.GRPCStatus uses for "missing".
const (
	grpcMissing = -1
	grpcNone    = -2 // not gRPC
	grpcOther   = -3 // a number that gRPC does not have
)

// responseKey is what tells the series of response_total of one target apart.
type responseKey struct {
	status  uint16
	grpc    int8
	success bool
	err     uint8 // index in errs
}

func toResponseKey(r ResponseLabels) responseKey {
	k := responseKey{grpc: grpcNone, success: r.Success, err: errIndex(r.Err)}
	if r.Status >= 100 && r.Status <= 999 {
		k.status = uint16(r.Status)
	}
	switch {
	case !r.GRPC, r.cut():
	case r.GRPCStatus >= grpcMissing && r.GRPCStatus <= 16:
		k.grpc = int8(r.GRPCStatus)
	default:
		k.grpc = grpcOther
	}
	return k
}

// fold keeps the classification only, so that a target's success rate stays
// right whatever statuses its server invents.
func (k responseKey) fold() responseKey {
	return responseKey{status: statusOther, grpc: grpcNone, success: k.success}
}

func (k responseKey) appendTo(l labels) labels {
	class := "failure"
	if k.success {
		class = "success"
	}
	l = l.known("status_code", statusLabel(k.status)).with("classification", class)
	return l.known("grpc_status", k.grpcLabel()).known("error", errs[k.err])
}

func (k responseKey) grpcLabel() string {
	switch k.grpc {
	case grpcNone:
		return ""
	case grpcMissing:
		return "missing"
	case grpcOther:
		return other
	}
	return strconv.Itoa(int(k.grpc))
}

// errs are the values of the label error of response_total. The first is no
// error, the last whatever is not in the list.
var errs = [...]string{"", "reset", "cancel", "eof", "aborted", "timeout", "refused", "goaway", "protocol", "lost", "io", other}

func errIndex(s string) uint8 {
	for i := range errs {
		if errs[i] == s {
			return uint8(i)
		}
	}
	return uint8(len(errs) - 1)
}
