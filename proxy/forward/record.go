package forward

import (
	"errors"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/detect"
	"github.com/meshctl/meshctl/proxy/l4"
	"github.com/meshctl/meshctl/proxy/l7"
	"github.com/meshctl/meshctl/proxy/metrics"
	"github.com/meshctl/meshctl/proxy/protocol"
)

// This file is where everything that happens to a connection is recorded.

// shownHead is how many of a client's bytes a log line shows.
const shownHead = 32

func tlsLabels(d metrics.Direction) metrics.TLSLabels {
	if d == metrics.Inbound {
		return metrics.TLSLabels{TLS: "no_identity", NoTLSReason: "no_tls_from_remote"}
	}
	return metrics.TLSLabels{TLS: "no_identity", NoTLSReason: "not_provided_by_service_discovery"}
}

// refuse resets a connection that has no business here.
func (fl *flow) refuse(dst netip.AddrPort, err error) {
	f := fl.lane.forwarder
	reason := "error"
	if r, ok := errors.AsType[*Refusal](err); ok {
		reason = r.Reason
	}
	f.metrics.Refused(f.direction, reason)
	f.log.Warn("connection refused", "client", fl.client, "orig_dst", dst, "reason", reason, "err", err)
	closeFD(fl.fd)
	fl.phase = over
	fl.lane.loop.AddLoad(-1)
}

// recordDeclared counts a connection that nothing had to be found out about.
func (fl *flow) recordDeclared() {
	if f := fl.lane.forwarder; f.direction == metrics.Outbound {
		f.metrics.OutboundProtocol("opaq")
	}
}

func (fl *flow) recordDetection() {
	f := fl.lane.forwarder
	if f.direction == metrics.Outbound {
		f.metrics.OutboundProtocol("detect")
	}
	result := metrics.ResultNotHTTP
	switch {
	case fl.kind == protocol.TLS:
		result = metrics.ResultTLS
	case fl.kind.HTTP():
		result = fl.kind.String()
	case fl.reason == detect.ReasonTimeout:
		result = metrics.ResultReadTimeout
	case fl.reason == detect.ReasonEOF:
		result = metrics.ResultError
	}
	f.metrics.Detected(f.direction, fl.route.Target.Port(), result, fl.reason.String(), fl.lane.loop.Now()-fl.started)
	if fl.early {
		outcome := "client_first"
		if fl.reason == detect.ReasonServerFirst || fl.reason == detect.ReasonServerEnded || fl.reason == detect.ReasonTimeout {
			outcome = fl.reason.String()
		}
		fl.recordEarly(outcome)
	}
}

func (fl *flow) recordEarly(outcome string) {
	fl.lane.forwarder.metrics.EarlyDial(fl.lane.forwarder.direction, outcome)
}

func (fl *flow) recordDetected() {
	f := fl.lane.forwarder
	f.metrics.DetectedName(f.direction, fl.detected)
	if fl.reason == detect.ReasonTimeout || fl.reason == detect.ReasonServerFirst {
		f.log.Debug("opaque payload recognized", "orig_dst", fl.route.Target, "protocol", fl.detected)
	}
}

func (fl *flow) logTimeout() {
	f := fl.lane.forwarder
	shown := fl.head[:min(len(fl.head), shownHead)]
	f.log.Info("protocol detection timed out after "+f.cfg.DetectTimeout.String(),
		"client", fl.client, "orig_dst", fl.route.Target, "bytes_in", len(fl.head), "seen", hexBytes(shown),
		"hint", "declare the port opaque or skip it to avoid the wait")
}

func (fl *flow) recordDialFailed(e syscall.Errno) {
	f := fl.lane.forwarder
	f.metrics.TCPError(f.direction, "i/o")
	f.log.Warn("connecting to the target failed", "client", fl.client, "orig_dst", fl.route.Target,
		"protocol", fl.kind.String(), "reason", fl.reason.String(), "err", e)
}

func (fl *flow) recordEnd(from l4.Side, err syscall.Errno) {
	f := fl.lane.forwarder
	took := fl.lane.loop.Now() - fl.started
	name := ""
	if err != 0 {
		name = errnoName(err)
	}
	if fl.srcTCP != nil {
		fl.srcTCP.Close(name, took)
	}
	if fl.dstTCP != nil {
		fl.dstTCP.Close(name, took)
	}
	if fl.http != nil {
		fl.http.Release()
	}
	if f.log.Enabled(nil, -4) {
		f.log.Debug("connection closed", "client", fl.client, "orig_dst", fl.route.Target, "protocol", fl.kind.String(),
			"reason", fl.reason.String(), "bytes_in", fl.bytes[l4.Client], "bytes_out", fl.bytes[l4.Server], "took", took, "err", name, "broke", sideName(from, err))
	}
}

// Request counts a request; it is called by the observer.
func (fl *flow) Request(l7.Request) { fl.http.Request() }

// Response counts a response; it is called by the observer.
func (fl *flow) Response(r l7.Response) {
	fl.http.Response(metrics.ResponseLabels{Status: r.Status, GRPC: r.GRPC, GRPCStatus: r.GRPCStatus, Success: r.Success, Err: r.Err},
		r.Latency, r.HasLatency)
}

// noteLost counts an observer that has just stopped reading, and lets go of
// one that will never read again.
func (fl *flow) noteLost() {
	if st := fl.observer.State(); st.Phase == l7.Lost && fl.kind != protocol.Opaque {
		fl.lane.forwarder.metrics.ObserverLost(fl.kind, string(st.Reason))
	}
}

func toErrno(err error) syscall.Errno {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e
	}
	return unix.EIO
}

// errnoName returns ECONNRESET and the like: a closed set.
func errnoName(err error) string {
	if name := unix.ErrnoName(toErrno(err)); name != "" {
		return name
	}
	return "EIO"
}

func sideName(s l4.Side, err syscall.Errno) string {
	switch {
	case err == 0:
		return ""
	case s == l4.Client:
		return "client"
	default:
		return "server"
	}
}

// hexBytes formats only when a log line is really written.
type hexBytes []byte

// String is the bytes in hexadecimal.
func (b hexBytes) String() string {
	const digits = "0123456789abcdef"
	out := make([]byte, 0, 2*len(b))
	for _, c := range b {
		out = append(out, digits[c>>4], digits[c&15])
	}
	return string(out)
}
