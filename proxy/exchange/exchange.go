package exchange

import (
	"bytes"
	"net/netip"
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
	spoilt     bool // not to be used again
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

var grpcType = []byte("application/grpc")

// request begins the exchange.
func (x *Exchange) request(h *message.Head, end bool) {
	ln := x.lane
	x.phase = choosing
	x.req.CopyFrom(h)
	x.method = x.req.Method
	x.reqEnd, x.keeps = end, true
	x.started = ln.loop.Now()
	x.moved = x.started
	if end {
		x.reqAt = x.started
	}
	x.grpcStatus = -1
	x.isGRPC = h.Version == message.HTTP2 && bytes.HasPrefix(h.Get("content-type"), grpcType)
	x.from.rec.Requested(x.method)
	ln.budget.earn(x.started, budgetRatio)
	if ln.open > ln.cfg.MaxInFlight {
		x.fail(LoadShed)
		return
	}
	x.from.upstream.fresh()
	x.plan = x.from.upstream.plan.Load()
	if x.routed() {
		x.choose()
	}
}

// routed finds out by which rule, and to which backend, the request goes; false
// when it was answered instead.
func (x *Exchange) routed() bool {
	t := x.plan.table
	if t == nil {
		x.backend = x.plan.backends[0]
		return true
	}
	if x.hit = t.Match(&x.req); x.hit.Action == nil {
		x.fail(NoRoute)
		return false
	}
	if status, location := x.hit.Redirect(&x.req, x.from.port); status != 0 {
		x.redirect(status, location)
		return false
	}
	if x.share = x.hit.Pick(uint32(x.lane.random())); x.share == nil {
		x.fail(NoBackend)
		return false
	}
	x.backend = x.plan.backends[x.share.Backend]
	return true
}

// choose picks an endpoint and gets a connection to it.
func (x *Exchange) choose() {
	ln := x.lane
	now := ln.now()
	b := x.backend
	x.endpoint = b.balancer.Pick(now, ln.random())
	if x.endpoint == nil {
		x.noEndpoint()
		return
	}
	x.phase = linking
	x.trial, x.judged = b.try(x.endpoint), false
	x.flight = x.endpoint.Start(now)
	x.tried = ln.loop.Now()
	x.arm()
	version := b.speaks(x.req.Version)
	if len(x.req.Upgrade) > 0 { // no other version can carry it
		version = x.req.Version
	}
	ln.pool(x.endpoint.Value.Addr, version == message.HTTP2).get(x)
}

// left ends the part that the endpoint has in this exchange.
func (x *Exchange) left() {
	x.flight.Done(x.lane.now())
	if x.trial {
		x.trial = false
		x.backend.untried(x.endpoint)
	}
}

// noEndpoint waits for one, unless all have just been tried in vain, or there
// was none for long.
func (x *Exchange) noEndpoint() {
	ln := x.lane
	if x.failed != 0 {
		x.fail(x.failed)
		return
	}
	if len(ln.queue) >= ln.cfg.MaxQueue {
		x.fail(LoadShed)
		return
	}
	left := x.backend.starvedFor(ln.now(), ln.cfg.FailFast)
	if left <= 0 {
		x.fail(FailFast)
		return
	}
	x.phase = waiting
	x.holdClient()
	x.until = ln.loop.Now() + left
	x.arm()
	ln.wait(x)
}

// awake looks for an endpoint again, where the request goes by now.
func (x *Exchange) awake() {
	defer x.contain()
	x.phase = choosing
	x.from.upstream.fresh()
	if plan := x.from.upstream.plan.Load(); plan != x.plan {
		x.plan, x.share = plan, nil
		if !x.routed() {
			return
		}
	}
	x.choose()
}

// holdClient stops reading a body that cannot be passed on yet.
func (x *Exchange) holdClient() {
	if !x.reqEnd && !x.downHeld {
		x.downHeld = true
		x.down.Hold(true)
	}
}

// connected sends the request on the stream of a connection.
func (x *Exchange) connected(s message.Stream) {
	defer x.contain()
	x.up = s
	x.phase = running
	x.failed, x.until = 0, 0
	x.backend.reached(x.endpoint)
	h := &x.req
	if x.share != nil && x.hit.Edited() {
		x.edited.CopyFrom(&x.req)
		x.hit.EditRequest(&x.edited, x.share)
		h = &x.edited
	}
	x.arm()
	whole := x.reqEnd && !x.hasTrail
	if !whole {
		makeRoom(h, x.down, s)
	}
	s.SendHead(h, whole && len(x.body) == 0)
	if len(x.body) > 0 {
		s.SendData(x.body, whole)
	}
	if x.hasTrail {
		s.SendTrailers(&x.trailers)
	}
	if !x.keeps {
		x.dropBody()
	}
	if x.downHeld && s.Pending() <= message.HighWater {
		x.downHeld = false
		x.down.Hold(false)
	}
}

// requestData passes the client's bytes on, and keeps them for as long as the
// request may have to be sent again.
func (x *Exchange) requestData(b []byte, end bool) {
	x.moved = x.lane.loop.Now()
	x.bytesIn += int64(len(b))
	if x.tunnel {
		x.up.SendData(b, end)
		x.pressUp()
		x.tunnelEnded(&x.upShut, end)
		return
	}
	if end {
		x.reqEnd, x.reqAt = true, x.moved
		x.arm()
	}
	if x.up == nil { // at most a window, or one read, comes while held
		x.keepBody(b)
		x.keeps = x.keeps && len(x.body) <= replayMost
		x.holdClient()
		return
	}
	if x.keeps && len(b) > 0 {
		if x.keeps = len(x.body)+len(b) <= replayMost; x.keeps {
			x.keepBody(b)
		} else {
			x.dropBody()
		}
	}
	x.up.SendData(b, end)
	x.pressUp()
}

// tunnelEnded notes one side's FIN; after the second the exchange is over.
func (x *Exchange) tunnelEnded(side *bool, end bool) {
	if *side = *side || end; x.upShut && x.downShut {
		x.over()
	}
}

func (x *Exchange) pressUp() {
	if !x.downHeld && x.up.Pending() > message.HighWater {
		x.downHeld = true
		x.down.Hold(true)
	}
}

func (x *Exchange) requestTrailers(h *message.Head) {
	x.moved = x.lane.loop.Now()
	x.reqEnd, x.reqAt = true, x.moved
	x.hasTrail = true
	x.trailers.CopyFrom(h)
	if x.up != nil {
		x.up.SendTrailers(h)
	}
	x.arm()
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
	var to netip.AddrPort
	if x.endpoint != nil {
		to = x.endpoint.Value.Addr
		x.left()
	}
	switch {
	case x.pool != nil:
		x.pool.leave(x)
	case was == waiting:
		ln.unwait(x)
	}
	if was != unrouted {
		x.from.rec.Responded(Result{Method: x.method, Status: x.status, GRPC: x.respGRPC, GRPCStatus: x.grpcStatus,
			HasLatency: x.hasLatency, Latency: x.latency, Total: ln.loop.Now() - x.started, Retries: x.tries, Failure: f, Aborted: aborted,
			Request: &x.req, Route: x.hit.Action, Endpoint: to, BytesIn: x.bytesIn, BytesOut: x.bytesOut, OverBudget: x.overBudget})
	}
	ln.give(x)
}
