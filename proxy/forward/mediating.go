package forward

import (
	"errors"
	"io"
	"log/slog"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/exchange"
	"github.com/meshctl/meshctl/proxy/h1"
	"github.com/meshctl/meshctl/proxy/h2"
	"github.com/meshctl/meshctl/proxy/l4"
	"github.com/meshctl/meshctl/proxy/message"
	"github.com/meshctl/meshctl/proxy/metrics"
	"github.com/meshctl/meshctl/proxy/protocol"
)

// server is a client's connection whose requests are taken one by one.
type server interface {
	Start(head []byte)
	Drain()
}

// mediated reports whether requests of the connection go their own ways.
func (fl *flow) mediated() bool {
	return fl.kind.HTTP() && fl.mediates()
}

// mediates reports whether they do if it is HTTP.
func (fl *flow) mediates() bool {
	return (fl.route.Up != nil || fl.lane.forwarder.mediator != nil) && (fl.route.Mediate || fl.asks())
}

// upstream is where the requests of the connection go.
func (fl *flow) upstream() *exchange.Upstream {
	if fl.route.Up != nil {
		return fl.route.Up
	}
	return fl.lane.forwarder.mediator.Upstream(fl.route.Target)
}

// mediate gives the client's socket to a server of HTTP. b is what the client
// has sent so far.
func (fl *flow) mediate(b []byte) {
	ln, f := fl.lane, fl.lane.forwarder
	fl.phase = mediating
	fl.seen[0], fl.seen[1] = fl.src.Bytes() // counted already
	fl.http = f.metrics.HTTP(f.direction, fl.destination(), fl.tlsLabels())
	up := fl.upstream()
	fl.giveLink(up)
	client := exchange.Client{Upstream: up, Port: fl.route.Target.Port(), Recorder: fl, Mesh: fl.peer != nil && fl.peer.Verified(), Local: f.direction == metrics.Outbound}
	if f.cfg.Mesh != nil || f.cfg.Policy != nil {
		client.Gate = fl
	}
	open := ln.exchanges.Serve(client)
	if fl.kind == protocol.HTTP2 {
		fl.server = h2.NewServer(ln.loop, &fl.src, f.cfg.Exchange.H2, open, fl.served)
	} else {
		fl.server = h1.NewServer(ln.loop, &fl.src, f.cfg.Exchange.H1, open, fl.served)
	}
	fl.server.Start(b)
	fl.letGo()
}

// giveLink gives a connection that was dialed early to those that carry
// requests to its endpoint. One that is not up yet is of no use.
func (fl *flow) giveLink(up *exchange.Upstream) {
	ln := fl.lane
	if fl.link == linked && !fl.secures() { // a meshed endpoint has been told that anything may come
		count := fl.dstTCP
		started := ln.loop.Now()
		fl.dstTCP = nil
		to := exchange.Endpoint{Addr: fl.to}
		if fl.hasPlace {
			to = fl.place.Endpoint()
		}
		fl.leavePlace() // its requests are the load from now on
		version := message.HTTP11
		if fl.kind == protocol.HTTP2 {
			version = message.HTTP2
		}
		ln.exchanges.Adopt(up, to, &fl.dst, version, closed(count, &fl.dst, started))
		return
	}
	fl.shake[l4.Server].GiveUp()
	if fl.dstTCP != nil {
		fl.dstTCP.Close("", ln.loop.Now()-fl.started)
		fl.dstTCP = nil
	}
	fl.leavePlace()
	ln.loop.Cancel(&fl.dialTimer)
	fl.dst.Reset()
	fl.link = unlinked
}

// served is called when the client's connection is over.
func (fl *flow) served(err error) {
	fl.countServed()
	var errno syscall.Errno
	switch e, ok := errors.AsType[syscall.Errno](err); {
	case ok:
		errno = e
	case err != nil && !errors.Is(err, io.EOF):
		fl.lane.log(slog.LevelDebug, "HTTP connection ended", fl.about(slog.Any("err", err))...)
	}
	fl.over(l4.Client, errno)
}

// lookAfterServed is called about once a second.
func (fl *flow) lookAfterServed() {
	fl.countServed()
	if now := fl.lane.loop.Now(); now-fl.looked >= lookEvery {
		fl.looked = now
		if fl.src.Vanished(fl.lane.forwarder.vanishedAfter) {
			_ = unix.Shutdown(fl.src.FD(), unix.SHUT_RDWR) // the server reads the end
		}
	}
}

// countServed counts the client's bytes since it was last called.
func (fl *flow) countServed() {
	in, out := fl.src.Bytes()
	if n := int(in - fl.seen[0]); n > 0 {
		fl.bytes[l4.Client] += uint64(n)
		fl.last = fl.lane.loop.Now()
		fl.srcTCP.Read(n)
	}
	if n := int(out - fl.seen[1]); n > 0 {
		fl.bytes[l4.Server] += uint64(n)
		fl.last = fl.lane.loop.Now()
		fl.srcTCP.Write(n)
	}
	fl.seen = [2]uint64{in, out}
}

// dialed counts the connections that exchanges open to their endpoints.
func (f *Forwarder) dialed(ln *lane) func(sock *conn.Socket, to exchange.Endpoint) (closed func()) {
	return func(sock *conn.Socket, end exchange.Endpoint) func() {
		conn.Keepalive(sock.FD())
		count := f.metrics.TCP(f.direction, metrics.Dst, metrics.Destination{Addr: end.Addr}, f.serverTLS(end))
		count.Open()
		return closed(count, sock, ln.loop.Now())
	}
}

// closed returns what counts the end of a connection to an endpoint.
func closed(count *metrics.TCP, sock *conn.Socket, started time.Duration) func() {
	return func() {
		in, out := sock.Bytes()
		count.Read(int(in))
		count.Write(int(out))
		count.Close("", sock.Loop().Now()-started)
	}
}

// exchangePanicked records a panic that has ended one exchange.
func (ln *lane) exchangePanicked(v any, stack []byte) {
	ln.forwarder.metrics.Panic()
	ln.log(slog.LevelError, "panic in an exchange", slog.Any("err", v), slog.String("stack", string(stack)))
}
