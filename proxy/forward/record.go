package forward

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/detect"
	"github.com/meshctl/meshctl/proxy/exchange"
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

// serverTLS is what metrics say of TLS with an endpoint.
func (f *Forwarder) serverTLS(to exchange.Endpoint) metrics.TLSLabels {
	switch {
	case f.cfg.Mesh == nil && !to.Mesh.IsZero():
		return metrics.TLSLabels{TLS: "disabled"}
	case !to.Mesh.IsZero():
		return metrics.TLSLabels{TLS: "true", ServerID: to.Mesh.ID}
	case f.direction == metrics.Inbound:
		return metrics.TLSLabels{TLS: "no_identity", NoTLSReason: "loopback"}
	}
	l := tlsLabels(f.direction)
	if to.NoTLS != "" {
		l.NoTLSReason = to.NoTLS
	}
	return l
}

// serverTLS is that of the connection's own endpoint.
func (fl *flow) serverTLS() metrics.TLSLabels {
	f := fl.lane.forwarder
	if !fl.hasPlace {
		return tlsLabels(f.direction)
	}
	return f.serverTLS(fl.place.Endpoint())
}

// tlsLabels are those of requests: inbound the client's, outbound those of the
// endpoints, which are all of one identity as a rule.
func (fl *flow) tlsLabels() metrics.TLSLabels {
	switch f := fl.lane.forwarder; {
	case f.direction == metrics.Inbound:
		return fl.clientTLS()
	case fl.route.Up != nil:
		return f.serverTLS(fl.route.Up.First())
	default:
		return tlsLabels(f.direction)
	}
}

// unverified records that an endpoint is not who it has to be, or that this proxy
// has no identity to show.
func (f *Forwarder) unverified(ln *lane) func(to exchange.Endpoint, err error) {
	return func(to exchange.Endpoint, err error) {
		f.metrics.TCPError(f.direction, "tls handshake")
		ln.log(slog.LevelWarn, "tls handshake with the endpoint failed: not connected, and never without", slog.Any("endpoint", to.Addr),
			slog.String("server_id", to.Mesh.ID), slog.Any("err", err))
	}
}

// refuse resets a connection that has no business here.
func (fl *flow) refuse(dst netip.AddrPort, err error) {
	f := fl.lane.forwarder
	reason := "error"
	if r, ok := errors.AsType[*Refusal](err); ok {
		reason = r.Reason
	}
	f.metrics.Refused(f.direction, reason)
	fl.route.Target = dst
	fl.lane.log(slog.LevelWarn, "connection refused", fl.about(slog.String("reason", reason), slog.Any("err", err))...)
	fl.over(l4.Client, 0)
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
		switch fl.reason {
		case detect.ReasonServerFirst, detect.ReasonServerEnded, detect.ReasonTimeout, detect.ReasonEOF:
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
		fl.lane.log(slog.LevelDebug, "opaque payload recognized", fl.about(slog.String("protocol", fl.detected))...)
	}
}

func (fl *flow) logTimeout() {
	f := fl.lane.forwarder
	shown := fl.head[:min(len(fl.head), shownHead)]
	fl.lane.log(slog.LevelInfo, "protocol detection timed out after "+f.cfg.DetectTimeout.String(), fl.about(
		slog.Int("bytes_in", len(fl.head)), slog.String("seen", strconv.QuoteToASCII(string(shown))),
		slog.String("hint", "declare the port opaque, or skip it, to avoid the wait"))...)
}

func (fl *flow) recordDialFailed(e syscall.Errno) {
	f := fl.lane.forwarder
	f.metrics.TCPError(f.direction, "i/o")
	fl.lane.log(slog.LevelWarn, "connecting to the target failed", fl.about(slog.String("protocol", fl.kind.String()),
		slog.String("reason", fl.reason.String()), slog.Any("err", e))...)
}

// recordNoEndpoint tells of a connection that is given up because its destination
// has no endpoint.
func (fl *flow) recordNoEndpoint() {
	f := fl.lane.forwarder
	f.metrics.Refused(f.direction, "no_endpoints")
	f.metrics.TCPError(f.direction, "failfast")
	fl.lane.log(slog.LevelWarn, "connection refused", fl.about(slog.String("reason", "no_endpoints"))...)
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
	if fl.counted {
		fl.logConnection(took, err)
	}
	if f.log.Enabled(context.Background(), slog.LevelDebug) { // spares the attributes
		fl.lane.log(slog.LevelDebug, "connection closed", fl.about(slog.String("protocol", fl.kind.String()),
			slog.String("reason", fl.reason.String()), slog.Uint64("bytes_in", fl.bytes[l4.Client]), slog.Uint64("bytes_out", fl.bytes[l4.Server]),
			slog.Duration("took", took), slog.String("err", name), slog.String("broke", sideName(from, err)))...)
	}
}

// Request counts a request; it is called by the observer.
func (fl *flow) Request(l7.Request) { fl.http.Request() }

// Response counts a response; it is called by the observer.
func (fl *flow) Response(r l7.Response) {
	fl.http.Response(metrics.ResponseLabels{Status: r.Status, GRPC: r.GRPC, GRPCStatus: r.GRPCStatus, Success: r.Success, Err: r.Err},
		r.Latency, r.HasLatency)
	fl.logObserved(&r)
}

// noteLost counts an observer that has just lost its way; it is not fed again.
func (fl *flow) noteLost() {
	if st := fl.observer.State(); st.Phase == l7.Lost {
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
