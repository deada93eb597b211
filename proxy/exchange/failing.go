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
	x.flight.Done(x.lane.now())
	x.backend.unreachable(x.lane, x.endpoint)
	x.failed = ConnectFailed
	if e == unix.ETIMEDOUT {
		x.failed = ConnectTimeout
	}
	x.phase = choosing
	x.choose()
}

// upstreamGone handles a stream that ended before its response.
func (x *Exchange) upstreamGone(code message.Code) {
	stale := x.stale()
	x.up = nil
	x.upHeld = false
	x.flight.Done(x.lane.now())
	if x.headSent {
		x.cut(code)
		return
	}
	x.backend.answeredBadly(x.lane, x.endpoint)
	switch {
	case code == message.Refused && x.repeatFree(true), stale && x.repeatFree(x.idempotent()):
	case x.repeat(0):
	default:
		x.fail(UpstreamBroken)
	}
}

// stale reports that the connection had most likely been closed while idle.
func (x *Exchange) stale() bool {
	s, ok := x.up.(interface{ Stale() bool })
	return ok && s.Stale()
}

// cut ends a response that has begun and will not end well: never as if it
// were whole.
func (x *Exchange) cut(code message.Code) {
	if x.respGRPC && x.down.Version() == message.HTTP2 && !x.tunnel {
		x.edited.Reset()
		x.edited.Add("grpc-status", "14")
		x.edited.Add("grpc-message", UpstreamBroken.String())
		x.grpcStatus = 14
		x.down.SendTrailers(&x.edited)
		x.end(UpstreamBroken, true)
		return
	}
	if code == message.Cancel || code == message.Refused {
		code = message.Internal // the client did not ask for it
	}
	x.down.Abort(code)
	x.end(UpstreamBroken, true)
}

// fail answers in the endpoint's place.
func (x *Exchange) fail(f Failure) {
	if x.up != nil {
		x.up.Abort(message.Cancel)
		x.up = nil
	}
	if x.headSent {
		x.down.Abort(message.Internal)
		x.end(f, true)
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
	h.Add("l5d-proxy-error", f.String())
	if fatal {
		h.Add("l5d-proxy-connection", "close")
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
	first := x.until
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
		if t.Response > 0 && x.reqAt > 0 {
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
	now := x.lane.loop.Now()
	all := x.deadlines()
	due := func(i int) bool { return all[i] != 0 && all[i] <= now }
	switch {
	case due(0), due(2), due(3):
		x.timedOut()
	case due(4), due(1):
		x.tryTimedOut()
	case x.until != 0 && x.until <= now && x.phase == pausing:
		x.until = 0
		x.phase = choosing
		x.choose()
	case x.until != 0 && x.until <= now:
		x.lane.unwait(x)
		x.phase = choosing
		x.fail(FailFast)
	default:
		x.arm() // what was due has moved
	}
}

func (x *Exchange) timedOut() {
	if x.endpoint != nil {
		x.backend.answeredBadly(x.lane, x.endpoint)
	}
	x.fail(TimedOut)
}

// tryTimedOut gives a try up; another may follow.
func (x *Exchange) tryTimedOut() {
	x.backend.answeredBadly(x.lane, x.endpoint)
	if x.headSent {
		x.fail(TimedOut)
		return
	}
	if x.pool != nil {
		x.pool.leave(x)
		x.pool = nil
	}
	if x.up != nil {
		x.up.Abort(message.Cancel)
		x.up = nil
	}
	x.flight.Done(x.lane.now())
	if !x.repeat(0) {
		x.fail(TimedOut)
	}
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// Panicked ends this exchange only.
func (x *Exchange) Panicked(any, []byte) {
	x.down.Abort(message.Internal)
	x.end(UpstreamBroken, true)
}
