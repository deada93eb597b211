package exchange

import (
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/message"
)

// unconnected handles an endpoint that could not be connected to: nothing was
// sent, so another one is tried.
func (x *Exchange) unconnected(e syscall.Errno) {
	defer x.contain()
	x.failed = ConnectFailed
	if ours(e) {
		x.fail(x.failed)
		return
	}
	x.trial = false
	x.left()
	x.backend.unreachable(x.lane, x.endpoint)
	if e == unix.ETIMEDOUT {
		x.failed = ConnectTimeout
	}
	x.phase = choosing
	x.choose()
}

// ours reports that this machine is short of something: that says nothing of the
// endpoint.
func ours(e syscall.Errno) bool {
	switch e {
	case unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS, unix.EADDRNOTAVAIL, unix.EAGAIN:
		return true
	}
	return false
}

// upstreamGone handles a stream that ended before its response.
func (x *Exchange) upstreamGone(code message.Code) {
	unlucky, reset := x.unlucky(code), x.wasReset(code)
	x.up = nil
	x.upHeld = false
	if x.headSent {
		x.failedIt()
		if reset {
			x.passReset(code)
		} else {
			x.cut(UpstreamBroken, code)
		}
		return
	}
	if code == message.Refused || unlucky {
		x.left() // it has not had its say
	} else {
		x.failedIt()
		x.left()
	}
	switch {
	case code == message.Refused && x.repeatFree(), unlucky && x.repeatFree():
	case x.repeat(0):
	case reset:
		x.passReset(code)
	default:
		x.fail(UpstreamBroken)
	}
}

// wasReset reports that the endpoint itself has reset the stream, which a client
// that speaks HTTP/2 is to see as it was: gRPC tells a deadline from a failure by
// the code.
func (x *Exchange) wasReset(code message.Code) bool {
	return code != message.Closed && code != message.Refused &&
		x.up.Version() == message.HTTP2 && x.down.Version() == message.HTTP2
}

// passReset ends the client's stream as the endpoint's has ended.
func (x *Exchange) passReset(code message.Code) {
	x.down.Abort(code)
	x.end(0, true)
}

// unlucky reports that the request met the end of a connection that was there
// before it, and that sending it again does no harm (RFC 9110, 9.2.2).
func (x *Exchange) unlucky(code message.Code) bool {
	if code != message.Closed || !x.idempotent() {
		return false
	}
	if s, ok := x.up.(interface{ Stale() bool }); ok {
		return s.Stale()
	}
	return x.up.Version() == message.HTTP2
}

// cut ends a response that has begun and will not end well: never as if it
// were whole.
func (x *Exchange) cut(f Failure, code message.Code) {
	if x.respGRPC && x.down.Version() == message.HTTP2 && !x.tunnel {
		_, status, _ := f.answer()
		h := &x.edited
		h.Reset()
		h.Add("grpc-status", strconv.Itoa(status))
		h.Add("grpc-message", f.String())
		x.grpcStatus = status
		x.down.SendTrailers(h)
		x.end(f, true)
		return
	}
	if code == message.Cancel || code == message.Refused {
		code = message.Internal // the client did not ask for it
	}
	x.down.Abort(code)
	x.end(f, true)
}

// fail answers in the endpoint's place.
func (x *Exchange) fail(f Failure) {
	if x.up != nil {
		x.up.Abort(message.Cancel)
		x.up = nil
	}
	if x.headSent {
		x.cut(f, message.Internal)
		return
	}
	status, code, fatal := f.answer()
	h := &x.edited
	h.Reset()
	h.Status = status
	if x.isGRPC {
		h.Status = 200
		x.respGRPC, x.grpcStatus = true, code
		h.Add("content-type", "application/grpc")
		h.Add("grpc-status", strconv.Itoa(code))
		h.Add("grpc-message", f.String())
	}
	h.Add(message.ProxyError, f.String())
	if fatal {
		h.Add(message.ProxyConnection, "close")
		if x.down.Version() != message.HTTP2 {
			h.Add("connection", "close")
		}
	}
	x.status = h.Status
	x.down.SendHead(h, true)
	x.end(f, false)
}

// redirect answers with a rule's redirect.
func (x *Exchange) redirect(status int, location []byte) {
	h := &x.edited
	h.Reset()
	h.Status = status
	h.Add("location", string(location))
	x.status = status
	x.down.SendHead(h, true)
	x.end(0, false)
}

// arm starts the timer for whatever comes first.
func (x *Exchange) arm() {
	if x.tunnel {
		return
	}
	first := time.Duration(0)
	if x.phase == waiting || x.phase == pausing {
		first = x.until
	}
	for _, d := range x.deadlines() {
		if d != 0 && (first == 0 || d < first) {
			first = d
		}
	}
	if first == 0 {
		if x.timer.Active() {
			x.lane.loop.Cancel(&x.timer)
		}
		return
	}
	x.lane.loop.StartAt(&x.timer, first, x)
}

// deadlines are those of the route; 0: none.
func (x *Exchange) deadlines() (all [5]time.Duration) {
	if x.hit.Action == nil {
		return all
	}
	t, retry := &x.hit.Policy.Timeouts, &x.hit.Policy.Retry
	if t.Request > 0 {
		all[0] = x.started + t.Request
	}
	if x.phase == running || x.phase == linking {
		if t.Backend > 0 {
			all[1] = x.tried + t.Backend
		}
		if t.Response > 0 && x.reqEnd {
			all[2] = x.reqAt + t.Response
		}
		if t.Idle > 0 {
			all[3] = x.moved + t.Idle
		}
		if retry.Timeout > 0 && x.reqEnd && !x.headSent && x.canRepeat() {
			all[4] = max(x.tried, x.reqAt) + retry.Timeout
		}
	}
	return all
}

// Expired handles what came first.
func (x *Exchange) Expired(*conn.Timer) {
	defer x.contain()
	now := x.lane.loop.Now()
	all := x.deadlines()
	due := func(i int) bool { return all[i] != 0 && all[i] <= now }
	switch {
	case due(0), due(2), due(3):
		x.timedOut()
	case due(4), due(1):
		x.tryTimedOut()
	case x.phase == pausing && x.until <= now:
		x.until = 0
		x.phase = choosing
		x.choose()
	case x.phase == waiting && x.until <= now:
		x.lane.unwait(x)
		x.phase = choosing
		x.fail(FailFast)
	default:
		x.arm() // what was due has moved
	}
}

func (x *Exchange) timedOut() {
	if x.phase == running || x.phase == linking {
		x.failedIt()
	}
	x.fail(TimedOut)
}

// tryTimedOut gives a try up; another may follow.
func (x *Exchange) tryTimedOut() {
	x.failedIt()
	if x.headSent {
		x.fail(TimedOut)
		return
	}
	if x.pool != nil {
		x.pool.leave(x)
	}
	if x.up != nil {
		x.up.Abort(message.Cancel)
		x.up = nil
	}
	x.left()
	if !x.repeat(0) {
		x.fail(TimedOut)
	}
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// Panicked implements conn.Expirer: a panic is contained before it gets here.
func (x *Exchange) Panicked(v any, _ []byte) { panic(v) }
