package forward

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/detect"
	"github.com/meshctl/meshctl/proxy/exchange"
	"github.com/meshctl/meshctl/proxy/l4"
	"github.com/meshctl/meshctl/proxy/mesh"
	"github.com/meshctl/meshctl/proxy/mesh/header"
	"github.com/meshctl/meshctl/proxy/metrics"
	"github.com/meshctl/meshctl/proxy/protocol"
)

// know goes on once the protocol is known: relay over the link that is there,
// or get one. b is what the client has sent so far.
func (fl *flow) know(b []byte) {
	if fl.mediated() {
		fl.mediate(b)
		return
	}
	if !fl.authorize() {
		return
	}
	fl.recordBypass()
	fl.phase = connecting
	if fl.link == unlinked || fl.link == failed {
		if e := fl.dial(); e != 0 {
			fl.hold(b)
			fl.notDialed(e)
			return
		}
		if fl.link == linked { // within this round: no event was seen of it
			fl.relay.Fresh[l4.Server] = true
			fl.relay.Fresh[l4.Client] = fl.reason == detect.ReasonDeclared && fl.peer == nil && !fl.late // nobody has read from it
		}
	}
	if fl.link == linked {
		fl.startRelay(b)
		return
	}
	fl.hold(b)
}

// dial begins to connect to the target.
func (fl *flow) dial() syscall.Errno {
	loop := fl.lane.loop
	if !fl.takePlace() {
		fl.link = failed
		return unix.EHOSTUNREACH
	}
	to := fl.to
	if fl.secures() {
		to = fl.place.Endpoint().Mesh.Addr(to)
	}
	done, e := loop.Dial(&fl.dst, to, fl)
	switch {
	case e != 0:
		fl.link = failed
	case done:
		fl.nowUp()
	default:
		fl.link = dialing
		loop.Start(&fl.dialTimer, fl.lane.forwarder.cfg.ConnectTimeout, fl)
	}
	return e
}

// dialEarly connects while the client is silent. A failure is nobody's business
// yet: the attempt is repeated when the client has spoken or at the deadline.
func (fl *flow) dialEarly() {
	if !fl.mayConnect() {
		return // it may be allowed as HTTP
	}
	fl.early = true
	if e := fl.dial(); e != 0 {
		fl.notDialed(e)
	}
}

// secures reports whether the connection to the endpoint is mTLS.
func (fl *flow) secures() bool {
	f := fl.lane.forwarder
	return f.cfg.Mesh != nil && fl.hasPlace && !fl.place.Endpoint().Mesh.IsZero() &&
		!(f.cfg.LeaveTLS && fl.kind == protocol.TLS)
}

// nowUp goes on with a TCP connection that is established.
func (fl *flow) nowUp() {
	if !fl.secures() {
		fl.nowLinked()
		return
	}
	f := fl.lane.forwarder
	fl.link = shaking
	fl.lane.loop.Start(&fl.dialTimer, mesh.HandshakeTimeout, fl)
	// The receiver finds out what this is where that is not known here either.
	h := header.Header{Port: fl.to.Port(), Detect: fl.early}
	fl.shake[l4.Server] = f.cfg.Mesh.Client(&fl.dst, fl.to, fl.place.Endpoint().Mesh, h, fl, fl.shaken)
}

// shaken ends the handshake with the endpoint.
func (fl *flow) shaken(_ *mesh.Session, err error) {
	fl.shake[l4.Server] = nil
	if err != nil {
		fl.lane.forwarder.unverified(fl.lane)(fl.place.Endpoint(), err)
		fl.dst.Close() // with a FIN: an alert may be under way
		fl.dialFailed(unix.EPROTO)
		return
	}
	fl.dst.Handle(fl)
	fl.nowLinked()
	if fl.phase == connecting {
		fl.startRelay(fl.head)
		return
	}
	fl.serverReady(conn.Readable) // TLS may hold bytes that make no event any more
}

func (fl *flow) nowLinked() {
	f := fl.lane.forwarder
	fl.link = linked
	fl.lane.loop.Cancel(&fl.dialTimer)
	fl.dstTCP = f.metrics.TCP(f.direction, metrics.Dst, fl.destination(), fl.serverTLS())
	fl.dstTCP.Open()
	fl.placed = true
	if fl.hasPlace {
		fl.place.Up(fl.lane.exchanges)
	}
}

// takePlace chooses what is dialed: the target, or one of its endpoints, as TCP
// would. It is false when no endpoint is ready.
func (fl *flow) takePlace() (ok bool) {
	fl.to = fl.route.Target
	if fl.route.Up == nil {
		return true
	}
	var to exchange.Endpoint
	if fl.place, to, fl.hasPlace = fl.route.Up.Pick(fl.lane.exchanges); fl.hasPlace {
		fl.to = to.Addr
	}
	return fl.hasPlace
}

// leavePlace ends the connection's part of an endpoint's load.
func (fl *flow) leavePlace() {
	switch {
	case !fl.hasPlace:
	case fl.placed:
		fl.place.Closed()
	default:
		fl.place.GivenUp(fl.lane.exchanges)
	}
	fl.hasPlace = false
}

// serverReady handles the target's socket before the relay runs.
func (fl *flow) serverReady(ev conn.Events) {
	if fl.link == dialing {
		switch e := fl.dst.Connected(); e {
		case 0:
			fl.nowUp()
		case unix.EINPROGRESS:
			return
		default:
			fl.dst.Close()
			fl.dialFailed(e)
			return
		}
		if fl.phase == connecting && fl.link == linked {
			fl.startRelay(fl.head)
			return
		}
	}
	if fl.phase == detecting && fl.link == linked && ev.Has(conn.Readable) {
		fl.serverSpoke()
	}
}

// dialFailed tells the client, with a RST, once it is waiting for the target.
func (fl *flow) dialFailed(e syscall.Errno) {
	fl.link = failed
	fl.lane.loop.Cancel(&fl.dialTimer)
	if fl.hasPlace {
		fl.place.Failed(fl.lane.exchanges)
		fl.hasPlace = false
	}
	if fl.phase == detecting {
		fl.recordEarly("failed")
		fl.early = false // the next attempt is not
		return
	}
	fl.recordDialFailed(e)
	if fl.elsewhere() {
		return
	}
	fl.end(l4.Server, e)
}

// placeEvery is how often a connection to a destination that has no endpoint
// looks whether it has got one.
const placeEvery = 100 * time.Millisecond

// notDialed handles a dial that did not even begin. If that is because there is no
// endpoint, one is waited for, as requests do; a client that has not spoken has
// all the time of detection.
func (fl *flow) notDialed(e syscall.Errno) {
	if fl.route.Up == nil || fl.hasPlace {
		fl.dialFailed(e)
		return
	}
	wait := placeEvery
	if fl.phase == connecting {
		wait = min(wait, fl.route.Up.Starved(fl.lane.exchanges))
	}
	if wait > 0 {
		fl.link, fl.early = unlinked, false
		fl.lane.loop.Start(&fl.dialTimer, wait, fl)
		return
	}
	fl.recordNoEndpoint()
	fl.end(l4.Server, e)
}

// dialLate connects for a client that has waited for an endpoint.
func (fl *flow) dialLate() {
	switch e := fl.dial(); {
	case e != 0:
		fl.notDialed(e)
	case fl.link == linked:
		fl.startRelay(fl.head)
	}
}

// elsewhere tries another endpoint, each once at most: the client's bytes are
// still here.
func (fl *flow) elsewhere() bool {
	up := fl.route.Up
	if fl.phase != connecting || up == nil {
		return false
	}
	for fl.refusals++; fl.refusals < up.Endpoints(); fl.refusals++ {
		switch e := fl.dial(); {
		case e == 0 && fl.link == linked:
			fl.startRelay(fl.head)
			return true
		case e == 0:
			return true
		case fl.hasPlace:
			fl.place.Failed(fl.lane.exchanges)
			fl.hasPlace = false
		}
	}
	return false
}
