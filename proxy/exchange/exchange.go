package exchange

import (
	"time"

	"github.com/meshctl/meshctl/proxy/balance"
	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/message"
	"github.com/meshctl/meshctl/proxy/route"
)

// phase is where an exchange is on its way:
//
//	unrouted -> choosing <-> waiting
//	               |  ^
//	               v  | (retry, after pausing)
//	           linking -> running -> ended
type phase uint8

const (
	unrouted phase = iota // the request's head has not come
	choosing              // an endpoint
	waiting               // no endpoint is ready
	linking               // for a connection to the endpoint
	running               // the request is on its way
	pausing               // before it is sent again
	ended
)

// Exchange carries one request and its response between a stream of a client's
// connection and one of an endpoint's. It is the Receiver of both.
type Exchange struct {
	lane *Lane
	from *opener
	down message.Stream // to the client
	up   message.Stream // to the endpoint; nil before and between

	req      message.Head // as it came, kept to be sent (again)
	edited   message.Head // as it goes out, if a rule changes it
	trailers message.Head // of the request, kept
	body     []byte       // of the request, kept
	method   []byte

	plan     *plan
	hit      route.Hit
	share    *route.Share
	backend  *backend
	endpoint *balance.Endpoint[Endpoint]
	flight   balance.Flight[Endpoint]
	pool     *pool // in whose queue it waits

	timer   conn.Timer
	until   time.Duration // of waiting and pausing; loop time, 0: none
	started time.Duration
	tried   time.Duration // when this try began
	reqAt   time.Duration // when the request had ended
	moved   time.Duration // when something last came

	phase      phase
	failed     Failure // of the last attempt to connect
	tries      int     // that were sent and retried
	free       int     // tries that cost nothing, because nothing was processed
	status     int
	grpcStatus int
	latency    time.Duration
	bytesIn    int64
	bytesOut   int64

	reqEnd     bool // the request has ended
	hasTrail   bool // with trailers
	keeps      bool // body holds all of the request's body
	isGRPC     bool // the request
	respGRPC   bool
	trial      bool // of an endpoint that was shut
	judged     bool // the endpoint's health knows of the answer
	headSent   bool // the response's final head was sent
	hasLatency bool
	overBudget bool
	tunnel     bool
	upShut     bool // in a tunnel, the client has ended
	downShut   bool // and the endpoint
	upHeld     bool
	downHeld   bool
	carried    bool   // the request goes as HTTP/2 to another proxy, which makes it HTTP/1 again
	restored   bool   // the same, where it came from
	required   string // identity that the client wants the endpoint to have; "": any
	spoilt     bool   // not to be used again
}

func (x *Exchange) reset() {
	if x.spoilt {
		*x = Exchange{lane: x.lane}
		return
	}
	x.dropBody()
	*x = Exchange{lane: x.lane, req: x.req, edited: x.edited, trailers: x.trailers, body: x.body[:0]}
	x.req.Reset()
	x.edited.Reset()
	x.trailers.Reset()
}

// Head implements message.Receiver.
func (x *Exchange) Head(s message.Stream, h *message.Head, end bool) {
	defer x.contain()
	switch s {
	case x.down:
		x.request(h, end)
	case x.up:
		x.response(h, end)
	}
}

// Data implements message.Receiver.
func (x *Exchange) Data(s message.Stream, b []byte, end bool) {
	defer x.contain()
	switch s {
	case x.down:
		x.requestData(b, end)
	case x.up:
		x.responseData(b, end)
	}
}

// Trailers implements message.Receiver.
func (x *Exchange) Trailers(s message.Stream, h *message.Head) {
	defer x.contain()
	switch s {
	case x.down:
		x.requestTrailers(h)
	case x.up:
		x.responseTrailers(h)
	}
}

// Drained implements message.Receiver: the other side may be read again.
func (x *Exchange) Drained(s message.Stream) {
	defer x.contain()
	switch {
	case s == x.down && x.upHeld && x.up != nil:
		x.upHeld = false
		x.up.Hold(false)
	case s == x.up && x.downHeld:
		x.downHeld = false
		x.down.Hold(false)
	}
}

// Aborted implements message.Receiver.
func (x *Exchange) Aborted(s message.Stream, code message.Code) {
	defer x.contain()
	switch s {
	case x.down:
		x.clientGone()
	case x.up:
		x.upstreamGone(code)
	}
}

// clientGone gives everything up for a client that is not there any more.
func (x *Exchange) clientGone() {
	if x.up != nil {
		x.up.Abort(message.Cancel)
	}
	x.end(ClientGone, true)
}

// end is the last thing that happens to an exchange.
func (x *Exchange) end(f Failure, aborted bool) {
	if x.phase == ended {
		return
	}
	ln := x.lane
	was := x.phase
	x.phase = ended
	ln.loop.Cancel(&x.timer)
	var to Endpoint
	if x.endpoint != nil {
		to = x.endpoint.Value
		x.left()
	}
	switch {
	case x.pool != nil:
		x.pool.leave(x)
	case was == waiting:
		ln.unwait(x)
	}
	if was != unrouted {
		x.from.Recorder.Responded(Result{Method: x.method, Status: x.status, GRPC: x.respGRPC, GRPCStatus: x.grpcStatus,
			HasLatency: x.hasLatency, Latency: x.latency, Total: ln.loop.Now() - x.started, Retries: x.tries, Failure: f, Aborted: aborted,
			Request: &x.req, Route: x.hit.Action, Endpoint: to, BytesIn: x.bytesIn, BytesOut: x.bytesOut, OverBudget: x.overBudget})
	}
	ln.give(x)
}
