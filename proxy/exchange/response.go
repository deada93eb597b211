package exchange

import (
	"strconv"

	"github.com/meshctl/meshctl/proxy/l7"
	"github.com/meshctl/meshctl/proxy/mesh/origproto"
	"github.com/meshctl/meshctl/proxy/message"
)

// response passes a response's head on, unless the request is sent again.
func (x *Exchange) response(h *message.Head, end bool) {
	x.moved = x.lane.loop.Now()
	if h.Interim() {
		x.down.SendHead(x.translated(h), false)
		return
	}
	status := h.Get("grpc-status")
	grpc := l7.JudgedByGRPC(h.Get("content-type"), status)
	code := -1
	if grpc && end {
		code = l7.GRPCStatus(status)
	}
	if !grpc || end || h.Status >= 500 { // else the trailers tell
		x.judge(h, code)
	}
	if x.repeatAfter(h, code) {
		return
	}
	x.respGRPC, x.status = grpc, h.Status
	if x.share != nil && x.hit.Edited() {
		x.edited.CopyFrom(h)
		x.hit.EditResponse(&x.edited, x.share)
		h = &x.edited
	}
	h = x.translated(h)
	x.headSent = true
	x.keeps = false // it will not be sent again
	x.dropBody()
	if h.Status == 101 || string(x.method) == "CONNECT" && h.Status/100 == 2 {
		x.enterTunnel(h, end)
		return
	}
	if !end {
		makeRoom(h, x.up, x.down)
	}
	x.down.SendHead(h, end)
	if end {
		x.latent()
		x.grpcStatus = code
		x.over()
	}
}

// translated is the head of a response in the form of the client's connection,
// where a proxy has carried the request in another one.
func (x *Exchange) translated(h *message.Head) *message.Head {
	if !x.carried && !x.restored {
		return h
	}
	if h != &x.edited {
		x.edited.CopyFrom(h)
	}
	if x.carried {
		origproto.Unmark(&x.edited)
	}
	if x.restored {
		origproto.Mark(&x.edited)
	}
	return &x.edited
}

// enterTunnel leaves HTTP. Only the request to CONNECT is the beginning of what
// the client sends through the tunnel; one that asks for an upgrade is before it.
func (x *Exchange) enterTunnel(h *message.Head, end bool) {
	x.tunnel = true
	x.upShut = h.Status != 101 && x.reqEnd
	x.lane.loop.Cancel(&x.timer)
	x.down.SendHead(h, false)
	if end {
		x.down.SendData(nil, true)
		x.tunnelEnded(&x.downShut, true)
	}
}

// judge tells the endpoint's health and load what an answer means. code is a
// gRPC status, -1: none.
func (x *Exchange) judge(h *message.Head, code int) {
	x.judged, x.trial = true, false
	b := x.backend
	b.answered(x.lane, x.endpoint, h.Status < 500 && !blames(code))
	if b.penalty.Latency > 0 && (h.Status >= 500 || h.Status == 429 || refuses(code)) {
		wait := b.penalty.Latency
		if after, err := strconv.Atoi(string(h.Get("retry-after"))); err == nil && after > 0 {
			wait = min(seconds(after), b.penalty.MaxRetryAfter)
		}
		x.flight.Penalize(wait, x.lane.now())
	}
}

// failedIt tells the endpoint's health that no (whole) answer came.
func (x *Exchange) failedIt() {
	trial := x.trial
	x.judged, x.trial = true, false
	x.backend.answered(x.lane, x.endpoint, false)
	if trial {
		x.backend.untried(x.endpoint) // where no breaker has an opinion
	}
}

// latent ends the sample of the endpoint's latency: the first byte of the body
// has come, or the end.
func (x *Exchange) latent() {
	if !x.hasLatency {
		x.hasLatency = true
		x.latency = x.lane.loop.Now() - x.started
		x.flight.Done(x.lane.now())
	}
}

var noHead message.Head

func (x *Exchange) responseData(b []byte, end bool) {
	x.moved = x.lane.loop.Now()
	x.bytesOut += int64(len(b))
	x.latent()
	x.down.SendData(b, end)
	switch {
	case x.tunnel:
		x.tunnelEnded(&x.downShut, end)
	case end:
		if !x.judged {
			x.judge(&noHead, -1)
		}
		x.over()
	}
	if x.phase == running && !x.upHeld && x.down.Pending() > message.HighWater {
		x.upHeld = true
		x.up.Hold(true)
	}
}

func (x *Exchange) responseTrailers(h *message.Head) {
	if x.respGRPC {
		x.grpcStatus = l7.GRPCStatus(h.Get("grpc-status"))
	}
	if !x.judged {
		x.judge(h, x.grpcStatus)
	}
	x.latent()
	x.down.SendTrailers(h)
	x.over()
}

// over ends an exchange whose response has ended: both streams have, too.
func (x *Exchange) over() {
	x.up = nil
	x.end(0, false)
}

// blames reports a gRPC code that blames the server; a missing one does not.
func blames(code int) bool { return code >= 0 && !l7.Success(0, true, code) }

// refuses reports a gRPC code that comes fast because the server does not do its
// work: the same with RESOURCE_EXHAUSTED, and without PERMISSION_DENIED.
func refuses(code int) bool { return code == 8 || code != 7 && blames(code) }

// makeRoom lets trailers that HTTP/2 announces pass to HTTP/1, where only chunks
// can carry them.
func makeRoom(h *message.Head, from, to message.Stream) {
	if h.Length >= 0 && from.Version() == message.HTTP2 && to.Version() != message.HTTP2 && h.Get("trailer") != nil {
		h.Length = message.Unknown
	}
}
