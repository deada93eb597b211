package metrics

import (
	"strconv"
	"sync/atomic"
	"time"
)

type httpKey struct {
	direction Direction
	target    target
	tls       TLSLabels
	route     Route // its requests alone; none: all of the target's
}

func (k httpKey) folded() bool { return k.target.folded }

func (k httpKey) fold() httpKey {
	k.target = target{folded: true}
	k.tls = k.tls.folded()
	if k.route != (Route{}) {
		k.route = Route{other, other, other}
	}
	return k
}

// ResponseLabels says how an exchange ended.
type ResponseLabels struct {
	Status     int    // HTTP status, 100 to 999; anything else is no status (the exchange failed before one came)
	GRPC       bool   // the request was gRPC: GRPCStatus says how it went
	GRPCStatus int    // grpc-status, 0 to 16; -1 if it is missing, counted apart unless Err says why
	Success    bool   // classification
	Err        string // "" or a word of the observer's: reset, cancel, eof ...
}

// cut reports whether the exchange ended before a grpc-status could come: it is
// then not the server that forgot it.
func (r ResponseLabels) cut() bool { return r.Err != "" && r.GRPCStatus == grpcMissing }

// HTTP counts the requests of one direction, target and TLS state. It is shared
// by their connections and safe for concurrent use. Request and Response are
// atomic additions and take no lock once a status has been seen.
type HTTP struct {
	series
	key   httpKey
	owner *Metrics

	requests  atomic.Uint64
	responses cells[responseKey, atomic.Uint64]
	latencies cells[uint16, histogram] // by status
}

// HTTP returns the counters for one connection on which HTTP is observed and
// takes a reference, which Release gives back.
func (m *Metrics) HTTP(d Direction, dst Destination, tls TLSLabels) *HTTP {
	tls = tls.clean()
	tls.SNI = m.sni.admit(tls.SNI)
	return m.http.acquire(httpKey{direction: d, target: toTarget(dst), tls: tls})
}

// Route returns the counters for the requests to a Service that come under r, and
// takes a reference.
func (m *Metrics) Route(d Direction, to Service, r Route) *HTTP {
	return m.http.acquire(httpKey{direction: d, target: target{service: to.clean()}, route: r.clean()})
}

func (m *Metrics) newHTTP(k httpKey) *HTTP {
	h := &HTTP{key: k, owner: m}
	l := &m.room
	if k.folded() {
		l = &m.foldedRoom
	}
	h.responses.build, h.responses.limit = newCounter, &l.responses
	h.latencies.build, h.latencies.limit = m.newLatency, &l.latencies
	return h
}

// Release gives the reference back: call it once a connection.
func (h *HTTP) Release() { h.owner.http.release(h, h.owner.cfg.Now()) }

// Request counts a request.
func (h *HTTP) Request() { h.requests.Add(1) }

// Response counts the end of an exchange. latency is the time from the request
// to the first byte of the response's body, or to its end if it has none;
// without hasLatency no latency is recorded.
func (h *HTTP) Response(r ResponseLabels, latency time.Duration, hasLatency bool) {
	k := toResponseKey(r)
	h.responses.get(k, k.fold()).Add(1)
	if hasLatency {
		h.latencies.get(k.status, statusOther).observe(latency)
	}
	if r.GRPC && r.GRPCStatus == grpcMissing && !r.cut() {
		h.owner.grpcStatusMissing.Add(1)
	}
}

func newCounter() *atomic.Uint64 { return new(atomic.Uint64) }

func (m *Metrics) newLatency() *histogram {
	h := newHistogram(&m.page.latencyBounds)
	return &h
}

// collect sends the request and response families of h.
func (h *HTTP) collect(p *page, send sender) {
	l := labels{}.with("direction", h.key.direction.String())
	f := p.ofTarget
	if h.key.route != (Route{}) {
		l, f = h.key.route.appendTo(l), p.ofRoute
		if !h.key.folded() {
			l = h.key.target.appendTo(l)
		}
	} else {
		l = h.key.tls.appendTo(h.key.target.appendTo(l))
	}
	l = l.sorted()
	send.counter(f.requests, h.requests.Load(), l)
	for k, n := range h.responses.all() {
		send.counter(f.responses, n.Load(), k.appendTo(l).sorted())
	}
	for status, hist := range h.latencies.all() {
		send.histogram(f.latency, hist, l.known("status_code", statusLabel(status)).sorted())
	}
}

// Values of responseKey.status that are no status.
const (
	statusNone  = 0
	statusOther = 1 // folded
)

func statusLabel(status uint16) string {
	switch status {
	case statusNone:
		return ""
	case statusOther:
		return other
	}
	return strconv.Itoa(int(status))
}

// dropped gives the room of h's label sets back.
func dropped(h *HTTP) {
	for k := range h.responses.all() {
		if k != k.fold() {
			h.responses.limit.live.Add(-1)
		}
	}
	for status := range h.latencies.all() {
		if status != statusOther {
			h.latencies.limit.live.Add(-1)
		}
	}
}
