package forward

import (
	"errors"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/detect"
	"github.com/meshctl/meshctl/proxy/exchange"
	"github.com/meshctl/meshctl/proxy/l4"
	"github.com/meshctl/meshctl/proxy/l7"
	"github.com/meshctl/meshctl/proxy/mesh"
	"github.com/meshctl/meshctl/proxy/metrics"
	"github.com/meshctl/meshctl/proxy/protocol"
)

// phase is where a connection is on its way:
//
//	begin -> (resolving) -> detecting -> connecting -> relaying -> over
//	     \                   ^      \ \______ mediating __________/
//	      \                  |       \_ declared ____/^
//	       securing -> directed -> (resolving) -> (any of them)
type phase uint8

const (
	detecting  phase = iota // the protocol is not known; the target may be dialed already
	resolving               // the Router does not know yet; nothing is read
	securing                // the TLS handshake of a client that is another proxy
	directed                // its transport header is read
	connecting              // known; waiting for the target
	relaying
	mediating // requests go their own ways: see server
	over
)

// link is the state of the connection to the target.
type link uint8

const (
	unlinked link = iota
	dialing
	shaking // hands with an endpoint, by mTLS
	linked
	failed // an early attempt failed; it is repeated when the protocol is known
)

// flow is one connection being served, with both its sockets. It is the
// handler of both and of its timers, all on one loop, and holds no buffer
// while idle.
type flow struct {
	lane       *lane
	prev, next *flow
	client     netip.AddrPort
	route      Route
	src, dst   conn.Socket
	deadline   conn.Timer // of detection
	dialTimer  conn.Timer // early dial, then connect timeout
	relay      l4.Relay
	observer   l7.Observer // nil: nothing to observe
	srcTCP     *metrics.TCP
	dstTCP     *metrics.TCP
	http       *metrics.HTTP
	head       []byte // client bytes read before the relay runs
	held       int    // of them, counted in Forwarder.held
	sni, alpn  string
	detected   string // name of an opaque payload, for people
	started    time.Duration
	last       time.Duration       // something passed
	looked     time.Duration       // after peers that have vanished
	bytes      [2]uint64           // read from each side
	server     server              // while mediating
	seen       [2]uint64           // of src.Bytes, counted
	to         netip.AddrPort      // what is dialed
	place      exchange.Connection // of an opaque connection, among the endpoints
	shake      [2]*mesh.Handshake  // by side; nil: none is under way
	peer       *mesh.Peer          // the client, which has begun TLS with us; nil: it has not
	resolved   func(*flow)         // what comes when the route is known; nil: it is
	hasPlace   bool
	placed     bool // counted as load there
	fd         int  // of the client; -1 once src has it
	refusals   int  // endpoints that could not be connected to
	phase      phase
	link       link
	kind       protocol.Kind
	reason     detect.Reason
	early      bool // dialed before the client spoke
	waiting    bool // counted in Forwarder.detecting
	counted    bool // in the lane
	keepalive  bool // set on dst
	draining   bool // the server was told
	declared   bool // HTTP of either version
	direct     bool // the client connected to the proxy itself: a transport header says where to
	hasten     bool // the client's proxy has waited already: dial at once
	late       bool // events of the client may have come before anybody looked at them
}

// begin resolves, then dials or reads.
func (fl *flow) begin() {
	ln := fl.lane
	f := ln.forwarder
	fl.started = ln.loop.Now()
	fl.last, fl.looked = fl.started, fl.started
	dst, err := f.origin(fl.fd, fl.client)
	switch {
	case (err == nil || errors.Is(err, conn.ErrNotRedirected)) && f.takesDirect() && f.cfg.Direct.Contains(dst.Port()):
		fl.direct, fl.route.Target, err = true, dst, nil // conntrack knows such connections, or it does not
	case errors.Is(err, conn.ErrNotRedirected):
		err = &Refusal{Reason: reasonNotRedirected}
	case err == nil:
		fl.route, err = f.router.Route(fl.client, dst)
	}
	if err != nil {
		fl.refuse(dst, err)
		return
	}
	ln.add(fl)
	fl.counted = true
	if err := ln.loop.Attach(&fl.src, fl.fd, fl); err != nil {
		fl.end(l4.Client, toErrno(err))
		return
	}
	fl.fd = -1
	if fl.direct {
		fl.secure(nil)
		return
	}
	if fl.route.Pending {
		fl.await((*flow).serve)
		return
	}
	fl.serve()
}

// serve begins to serve the client where the route is known.
func (fl *flow) serve() {
	if !fl.lane.forwarder.takesDirect() { // else TLS decides how it is counted
		fl.countClient()
	}
	if fl.route.Kind == protocol.HTTP1 && fl.mediates() || fl.route.Kind.HTTP() && fl.lane.forwarder.takesDirect() {
		fl.declared = true // but the client may speak HTTP/2, or begin with TLS
		fl.recordDeclared()
		fl.readHead()
		return
	}
	if fl.route.Kind != protocol.Unknown {
		fl.kind, fl.reason = fl.route.Kind, detect.ReasonDeclared
		fl.countClient()
		fl.recordDeclared()
		fl.know(nil)
		return
	}
	fl.readHead()
}

// Ready handles readiness of either socket.
func (fl *flow) Ready(s *conn.Socket, ev conn.Events) {
	switch {
	case fl.phase == relaying && s == &fl.src:
		fl.relay.Ready(l4.Client, ev)
	case fl.phase == relaying:
		fl.relay.Ready(l4.Server, ev)
	case s == &fl.dst:
		fl.serverReady(ev)
	case fl.phase == detecting && ev.Has(conn.Readable):
		fl.readHead()
	case fl.phase == directed && ev.Has(conn.Readable):
		fl.readHeader()
	case (fl.phase == connecting || fl.phase == resolving) && ev.Has(conn.Failed):
		fl.end(l4.Client, unix.ECONNRESET) // nobody is left to connect for
	}
	if fl.lane.draining {
		fl.drainIfIdle()
	}
}

// Expired handles the flow's timers.
func (fl *flow) Expired(t *conn.Timer) {
	switch {
	case t == &fl.deadline:
		fl.detectTimeout()
	case fl.phase == resolving:
		fl.resolveLate()
	case fl.phase == relaying:
		fl.relay.Expired()
	case fl.link == unlinked && fl.phase == connecting:
		fl.dialLate()
	case fl.link == unlinked:
		fl.dialEarly()
	case fl.link == dialing, fl.link == shaking:
		fl.shake[l4.Server].GiveUp()
		fl.dst.Reset()
		fl.dialFailed(unix.ETIMEDOUT)
	}
}

// Panicked ends this connection, and only this one.
func (fl *flow) Panicked(v any, stack []byte) {
	f := fl.lane.forwarder
	f.metrics.Panic()
	fl.lane.log(slog.LevelError, "panic in a connection", fl.about(slog.Any("err", v), slog.String("stack", string(stack)))...)
	fl.observer = nil // it may be what panicked, and would again
	if fl.phase != over {
		fl.end(l4.Client, unix.EIO)
	}
}

// contain calls f where the loop does not: a panic ends fl, and nothing else.
func (fl *flow) contain(f func(*flow)) {
	defer func() {
		if v := recover(); v != nil {
			fl.Panicked(v, debug.Stack())
		}
	}()
	f(fl)
}

// end closes both sockets with a RST, before or instead of relaying.
func (fl *flow) end(from l4.Side, err syscall.Errno) {
	if fl.phase == relaying {
		fl.relay.Abort(from, err) // ends the flow, unless it is what panicked
	}
	if fl.phase == over {
		return
	}
	fl.src.Reset()
	if fl.phase != mediating { // else it is somebody else's by now
		fl.dst.Reset()
	}
	fl.over(from, err)
}

// over is the last thing that happens to a flow.
func (fl *flow) over(from l4.Side, err syscall.Errno) {
	if fl.phase == over {
		return
	}
	fl.phase = over
	fl.shake[l4.Client].GiveUp()
	fl.shake[l4.Server].GiveUp()
	fl.letGo()
	loop := fl.lane.loop
	loop.Cancel(&fl.deadline)
	loop.Cancel(&fl.dialTimer)
	fl.doneResolving()
	fl.doneWaiting()
	fl.recordEnd(from, err)
	fl.leavePlace()
	if fl.fd >= 0 {
		closeFD(fl.fd)
		fl.fd = -1
	}
	if fl.counted {
		fl.lane.remove(fl)
	} else {
		loop.AddLoad(-1)
	}
}
