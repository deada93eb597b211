package forward

import (
	"errors"
	"log/slog"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/detect"
	"github.com/meshctl/meshctl/proxy/l4"
	"github.com/meshctl/meshctl/proxy/mesh"
	"github.com/meshctl/meshctl/proxy/mesh/header"
	"github.com/meshctl/meshctl/proxy/metrics"
	"github.com/meshctl/meshctl/proxy/protocol"
)

// This file is the side of a client that is another proxy: its handshake, and the
// transport header that says where a connection to the proxy's own port goes.

// errTooSlow ends a handshake, or the wait for a transport header.
var errTooSlow = errors.New("the client has not finished in the time for detection")

// errCrowded ends a handshake before it has begun.
var errCrowded = errors.New("too many clients are in the middle of theirs")

// takesDirect reports whether clients may be other proxies.
func (f *Forwarder) takesDirect() bool { return f.cfg.Mesh != nil && f.direction == metrics.Inbound }

// ours reports whether what the client has begun is TLS with this proxy, not with
// the application behind it. Within our TLS it is the application's.
func (fl *flow) ours(r detect.Result) bool {
	f := fl.lane.forwarder
	return fl.peer == nil && r.SNI != "" && f.takesDirect() && r.For(f.cfg.Mesh.Name())
}

// secure begins the handshake with the client. b is what it has sent so far. The
// deadline of detection is that of the handshake and the header too; nobody who
// lets it pass gets anywhere.
func (fl *flow) secure(b []byte) {
	f, loop := fl.lane.forwarder, fl.lane.loop
	fl.phase = securing
	if !fl.waiting && !fl.beginWaiting() {
		fl.insecure("tls handshake", errCrowded)
		return
	}
	loop.StartAt(&fl.deadline, fl.started+f.cfg.DetectTimeout, fl)
	if fl.link == unlinked {
		loop.Cancel(&fl.dialTimer)
	}
	fl.shake[l4.Client] = f.cfg.Mesh.Server(&fl.src, b, fl.direct, fl, fl.secured)
	fl.letGo()
}

// secured ends the handshake.
func (fl *flow) secured(s *mesh.Session, err error) {
	fl.shake[l4.Client] = nil
	if err != nil {
		fl.insecure("tls handshake", err)
		return
	}
	peer := s.Peer()
	fl.peer = &peer
	fl.src.Handle(fl)
	if fl.direct {
		fl.phase = directed
		fl.readHeader()
		return
	}
	fl.countClient()
	fl.phase = detecting
	fl.doneWaiting() // the wait for the first words inside is another
	fl.readHead()
}

// insecure ends a connection that cannot be told who it is from. The alert that
// says so goes out before the FIN.
func (fl *flow) insecure(what string, err error) {
	f := fl.lane.forwarder
	f.metrics.TCPError(f.direction, what)
	fl.lane.log(slog.LevelWarn, what+" failed", fl.about(slog.Any("err", err))...)
	fl.src.Close()
	fl.dst.Reset()
	fl.over(l4.Client, unix.EPROTO)
}

// readHeader reads the transport header, and goes where it says.
func (fl *flow) readHeader() {
	for {
		buf := fl.lane.loop.Scratch
		n, e := fl.src.Read(buf)
		switch {
		case e == unix.EAGAIN:
			return
		case e != 0:
			fl.end(l4.Client, e)
			return
		case n == 0:
			fl.end(l4.Client, unix.ECONNRESET)
			return
		}
		b := buf[:n]
		if fl.head != nil {
			fl.head = append(fl.head, b...)
			b = fl.head
		}
		h, used, err := header.Parse(b)
		switch {
		case err != nil:
			fl.insecure("transport header", err)
			return
		case used > 0:
			fl.follow(h, b[used:])
			return
		}
		fl.hold(b)
		if fl.crowded() {
			fl.end(l4.Client, unix.ENOBUFS)
			return
		}
	}
}

// follow goes where the header says. b is what came behind it.
func (fl *flow) follow(h header.Header, b []byte) {
	f := fl.lane.forwarder
	fl.lane.loop.Cancel(&fl.deadline)
	fl.doneWaiting()
	dst := netip.AddrPortFrom(fl.route.Target.Addr(), h.Port)
	f.metrics.TransportHeader(h.Session.String(), h.Port, h.Name, fl.peer.ID)
	var err error
	if fl.route, err = f.router.Route(fl.client, dst); err == nil && h.Name != "" {
		err = &Refusal{Reason: "gateway"} // between clusters: not one of those
	}
	if err != nil {
		fl.src.Close()
		fl.refuse(dst, err)
		return
	}
	if fl.route.Pending {
		fl.letGo()
		fl.hold(b)
		fl.await(func(fl *flow) { fl.lead(h, fl.head) })
		return
	}
	fl.lead(h, b)
}

// lead goes where the header says, which is known.
func (fl *flow) lead(h header.Header, b []byte) {
	fl.countClient()
	switch {
	case h.Session == header.HTTP1, h.Session == header.HTTP2:
		fl.kind, fl.reason = protocol.HTTP1, detect.ReasonDeclared
		if h.Session == header.HTTP2 {
			fl.kind = protocol.HTTP2
		}
		fl.route.Mediate = true // also where the port is declared opaque: the client's proxy has changed the form
		fl.know(b)
	case fl.route.Kind == protocol.Unknown && (h.Detect || fl.strict()), fl.route.Kind.HTTP():
		// Where only HTTP is let through, leaving the protocol out makes nobody TCP.
		fl.phase, fl.hasten, fl.declared = detecting, h.Detect, fl.route.Kind.HTTP()
		fl.letGo()
		fl.hold(b)
		if len(b) == 0 || fl.sniff(b) {
			fl.readHead()
		}
	default:
		fl.kind, fl.reason = protocol.Opaque, detect.ReasonDeclared
		fl.know(b)
	}
}

// countClient begins to count the client's side of the connection, once.
func (fl *flow) countClient() {
	if fl.srcTCP != nil {
		return
	}
	f := fl.lane.forwarder
	fl.srcTCP = f.metrics.TCP(f.direction, metrics.Src, fl.destination(), fl.clientTLS())
	fl.srcTCP.Open()
	fl.srcTCP.Read(int(fl.bytes[l4.Client]))
}

// clientTLS is what metrics say of the client's TLS.
func (fl *flow) clientTLS() metrics.TLSLabels {
	switch d := fl.lane.forwarder.direction; {
	case fl.peer != nil:
		return metrics.TLSLabels{TLS: "true", ClientID: fl.peer.ID}
	case d == metrics.Inbound && fl.kind == protocol.TLS:
		return metrics.TLSLabels{TLS: "opaque", SNI: fl.sni}
	case d == metrics.Inbound && fl.reason == detect.ReasonDeclared && fl.kind == protocol.Opaque:
		return metrics.TLSLabels{TLS: "no_identity", NoTLSReason: "port_skipped"}
	default:
		return tlsLabels(d)
	}
}
