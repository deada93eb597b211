package exchange

import (
	"bytes"

	"github.com/meshctl/meshctl/proxy/mesh/origproto"
	"github.com/meshctl/meshctl/proxy/message"
)

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
	x.from.Recorder.Requested(x.method)
	x.from.Upstream.budget.earn(ln.now())
	if !x.admitted() {
		return
	}
	if ln.open > ln.cfg.MaxInFlight {
		x.fail(LoadShed)
		return
	}
	x.from.Upstream.fresh()
	x.plan = x.from.Upstream.plan.Load()
	if x.routed() {
		x.choose()
	}
}

// admitted restores what another proxy has changed for the way here, and asks the
// gate; false when the request was answered instead.
func (x *Exchange) admitted() bool {
	if x.lane.cfg.Mesh != nil {
		if x.from.Mesh {
			_, x.restored = origproto.Restore(&x.req)
		} else {
			origproto.Strip(&x.req) // anybody can write that
		}
	}
	if x.from.Local {
		if id := x.req.Get(message.RequireID); id != nil {
			x.required = string(id) // rare: it may cost
			x.req.Del(message.RequireID)
		}
	}
	if x.from.Gate != nil {
		if f := x.from.Gate.Admit(&x.req); f != 0 {
			x.fail(f)
			return false
		}
	}
	return true
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
	if status, location := x.hit.Redirect(&x.req, x.from.Port); status != 0 {
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
	x.endpoint = x.backend.balancer.Pick(now, ln.random())
	if x.endpoint == nil {
		if x.from.Upstream.plan.Load() != x.plan { // the backend has left with its endpoints
			x.again()
			return
		}
		x.noEndpoint()
		return
	}
	if x.required != "" && (ln.cfg.Mesh == nil || x.endpoint.Value.Mesh.ID != x.required) {
		x.endpoint = nil
		x.fail(IdentityRequired)
		return
	}
	b := x.backend
	x.phase = linking
	x.trial, x.judged = b.try(x.endpoint), false
	x.flight = x.endpoint.Start(now)
	x.tried = ln.loop.Now()
	x.arm()
	version := b.speaks(x.req.Version)
	if len(x.req.Upgrade) > 0 { // no other version can carry it
		version = x.req.Version
	}
	to := x.endpoint.Value
	x.carried = ln.cfg.Mesh != nil && !to.Mesh.IsZero() && !to.Opaque && version != message.HTTP2 && origproto.Possible(&x.req)
	ln.pool(to, version == message.HTTP2 || x.carried).get(x)
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
	x.again()
}

// again chooses by what is in force by now.
func (x *Exchange) again() {
	x.from.Upstream.fresh()
	if plan := x.from.Upstream.plan.Load(); plan != x.plan {
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
	if x.carried {
		if h != &x.edited {
			x.edited.CopyFrom(&x.req)
			h = &x.edited
		}
		origproto.Upgrade(h)
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
