package exchange

import (
	"bytes"
	"strconv"

	"github.com/meshctl/meshctl/proxy/message"
)

// response passes a response's head on, unless the request is sent again.
func (x *Exchange) response(h *message.Head, end bool) {
	x.moved = x.lane.loop.Now()
	if h.Interim() {
		x.down.SendHead(h, false)
		return
	}
	grpc := bytes.HasPrefix(h.Get("content-type"), grpcType)
	code := -1
	if grpc && end {
		code = grpcCode(h.Get("grpc-status"))
	}
	if x.repeatAfter(h, code) {
		return
	}
	x.respGRPC, x.status = grpc, h.Status
	x.judgeHead(h, code)
	if x.share != nil && x.hit.Edited() {
		x.edited.CopyFrom(h)
		x.hit.EditResponse(&x.edited, x.share)
		h = &x.edited
	}
	x.headSent = true
	if h.Status == 101 || string(x.method) == "CONNECT" && h.Status/100 == 2 {
		x.tunnel = true
		x.lane.loop.Cancel(&x.timer)
	}
	x.answering()
	x.down.SendHead(h, end)
	if end {
		x.latent()
		x.grpcStatus = code
		x.over()
	}
}

// answering lets the kept body go: the request will not be sent again.
func (x *Exchange) answering() {
	x.keeps = false
	x.body = x.body[:0]
}

// judgeHead tells the endpoint's health what the head says already.
func (x *Exchange) judgeHead(h *message.Head, code int) {
	b, e := x.backend, x.endpoint
	switch {
	case h.Status >= 500 || code > 0 && badCode(code):
		b.answeredBadly(x.lane, e)
	default:
		b.worked(e)
	}
	if b.penalty.Latency > 0 && (h.Status >= 500 || h.Status == 429 || code > 0 && badCode(code)) {
		wait := b.penalty.Latency
		if after, err := strconv.Atoi(string(h.Get("retry-after"))); err == nil && after > 0 {
			wait = min(seconds(after), b.penalty.MaxRetryAfter)
		}
		x.flight.Penalize(wait, x.lane.now())
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

func (x *Exchange) responseData(b []byte, end bool) {
	x.moved = x.lane.loop.Now()
	x.latent()
	x.down.SendData(b, end)
	if x.tunnel {
		x.tunnelEnded(&x.downShut, end)
	} else if end {
		x.over()
	}
	if x.phase != running || x.up == nil {
		return
	}
	if !x.upHeld && x.down.Pending() > message.HighWater {
		x.upHeld = true
		x.up.Hold(true)
	}
}

func (x *Exchange) responseTrailers(h *message.Head) {
	x.latent()
	if x.respGRPC {
		x.grpcStatus = grpcCode(h.Get("grpc-status"))
		if badCode(x.grpcStatus) {
			x.backend.answeredBadly(x.lane, x.endpoint)
		}
	}
	x.down.SendTrailers(h)
	x.over()
}

// over ends an exchange whose response has ended: both streams have, too.
func (x *Exchange) over() {
	x.up = nil
	x.end(0, false)
}

// badCode reports a gRPC code that blames the server: UNKNOWN, DEADLINE_EXCEEDED,
// PERMISSION_DENIED, INTERNAL, UNAVAILABLE, DATA_LOSS, or none at all.
func badCode(code int) bool {
	switch code {
	case -1, 2, 4, 7, 13, 14, 15:
		return true
	}
	return false
}

// grpcCode reads a grpc-status: -1 if missing, 2 (UNKNOWN) if it is none.
func grpcCode(v []byte) int {
	if v == nil {
		return -1
	}
	n, err := strconv.Atoi(string(v))
	if err != nil || n < 0 || n > 16 {
		return 2
	}
	return n
}
