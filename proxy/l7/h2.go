package l7

import "time"

// clientPreface is the first that a client says (RFC 9113, 3.4).
const clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// H2 observes an HTTP/2 connection, with prior knowledge or after an upgrade
// from HTTP/1. Frames are followed on each side and streams in one table:
//
//	bytes -> frame header -> payload kept (HEADERS, SETTINGS ...) or counted down (DATA ...)
//	      -> header block -> HPACK -> stream opened, answered or closed
//
// A stream is counted as answered when its response ends; it leaves the table
// when the client has ended too, or either side has reset it. CONNECT, extended
// or not (RFC 8441), is a stream like any other.
type H2 struct {
	rec     Recorder
	state   State
	sides   [2]h2Side
	streams streamTable
	newest  uint32 // the highest stream that the client has opened
	refuses uint32 // the lowest stream that the server has said it will not take
	ended   bool   // the server has sent FIN
	texts   *texts // of the client; nil: no details are wanted
}

var _ Observer = (*H2)(nil)

// NewH2 returns an observer of a connection that begins with the HTTP/2 preface.
func NewH2(rec Recorder) *H2 {
	h := &H2{rec: rec, refuses: streamID + 1}
	h.sides[FromClient].preface = len(clientPreface)
	for i := range h.sides {
		h.sides[i].hpack = newHPACKDecoder()
	}
	return h
}

// adopt makes the request that asked for an upgrade stream 1 (RFC 7540, 3.2). Its
// HTTP2-Settings are not read, so that any table that is followed is allowed.
func (h *H2) adopt(e *exchange) {
	h.newest = 1
	h.streams.add(stream{id: 1, method: e.method, start: e.start, detail: e.detail, clientDone: true, verdict: verdict{grpcStatus: -1}})
	h.sides[FromServer].hpack.allow(maxTable)
}

// request opens a stream and counts its request.
func (h *H2) request(id uint32, f header, done bool, now time.Duration) {
	s := stream{id: id, method: f.method, detail: f.detail, start: now, clientDone: done, verdict: verdict{grpcStatus: -1}}
	if !h.streams.add(s) {
		h.lose(ReasonLimit)
		return
	}
	h.rec.Request(Request{Method: f.method})
}

// headers reads the header block of a HEADERS frame.
func (h *H2) headers(from Side, id uint32, end bool, f header, now time.Duration) {
	s := h.streams.get(id)
	switch {
	case s == nil && from == FromClient && id&1 == 1 && id > h.newest:
		h.newest = id
		h.request(id, f, end, now)
		if id >= h.refuses {
			h.refuse(id, now)
		}
		return
	case s == nil: // closed: the other side had reset it
		return
	case from == FromServer && s.status == 0:
		if f.status >= 200 || end {
			s.status, s.content = f.status, f.content
		}
		fallthrough
	case from == FromServer: // trailers, or a head that is all
		if end {
			s.grpcStatus = f.grpcStatus
		}
	}
	if end {
		h.end(from, s, now)
	}
}

// data notes that a DATA frame begins.
func (h *H2) data(from Side, id uint32, now time.Duration) {
	if from == FromClient {
		return
	}
	if s := h.streams.get(id); s != nil && !s.begun {
		s.begun, s.latency = true, now-s.start
	}
}

// end notes END_STREAM.
func (h *H2) end(from Side, s *stream, now time.Duration) {
	if from == FromServer {
		h.respond(s, "", now)
	} else {
		s.clientDone = true
	}
	if s.answered && s.clientDone {
		h.streams.remove(s)
	}
}

// reset notes RST_STREAM. After the end of the response it changes nothing (RFC
// 9113, 8.1: a server may so tell a client to stop sending).
func (h *H2) reset(from Side, id, code uint32, now time.Duration) {
	const refused = 7 // REFUSED_STREAM (RFC 9113, 7)
	s := h.streams.get(id)
	if s == nil {
		return
	}
	switch {
	case from == FromClient:
		h.respond(s, ErrCancel, now)
	case code == refused:
		h.respond(s, ErrRefused, now)
	default:
		h.respond(s, ErrReset, now)
	}
	h.streams.remove(s)
}

// goAway ends the streams that the server says it will not take (RFC 9113, 6.8).
// A client's GOAWAY is about promised streams.
func (h *H2) goAway(from Side, last uint32, now time.Duration) {
	if from == FromClient || last+1 >= h.refuses {
		return
	}
	h.refuses = last + 1
	var ids []uint32
	h.streams.all(func(s *stream) {
		if s.id&1 == 1 && s.id > last {
			ids = append(ids, s.id)
		}
	})
	for _, id := range ids {
		h.refuse(id, now)
	}
}

// refuse ends a stream that the server does not take.
func (h *H2) refuse(id uint32, now time.Duration) {
	if s := h.streams.get(id); s != nil {
		h.respond(s, ErrRefused, now)
		h.streams.remove(s)
	}
}

// respond counts a response, once.
func (h *H2) respond(s *stream, err string, now time.Duration) {
	if s.answered {
		return
	}
	s.answered = true
	r := s.response(err)
	r.Method, r.Total, r.Detail = s.method, now-s.start, s.detail
	r.Latency, r.HasLatency = s.latency, s.begun
	if !s.begun && r.Status != 0 {
		r.Latency, r.HasLatency = r.Total, true
	}
	h.rec.Response(r)
}

// fail ends every open exchange.
func (h *H2) fail(err string, now time.Duration) {
	h.streams.all(func(s *stream) { h.respond(s, err, now) })
	h.streams = streamTable{}
}

// End implements Observer. The server's FIN ends all that is open; after the
// client's the server may still answer.
func (h *H2) End(from Side, now time.Duration) {
	h.ended = h.ended || from == FromServer
	if h.ended {
		h.fail(ErrEOF, now)
	}
}

// Abort implements Observer.
func (h *H2) Abort(now time.Duration) { h.fail(ErrAborted, now) }

// Idle implements Observer.
func (h *H2) Idle() bool {
	return h.state.Phase == Reading && h.streams.n == 0 && !h.sides[FromClient].inHeaders()
}

// Tell implements Observer.
func (h *H2) Tell() { h.texts = newTexts() }

// Passive implements Observer.
func (h *H2) Passive() bool { return h.state.Phase != Reading }

// State implements Observer.
func (h *H2) State() State { return h.state }

// lose stops reading for good and lets go of what is held.
func (h *H2) lose(why Reason) {
	h.state = State{Phase: Lost, Reason: why}
	h.streams, h.sides, h.texts = streamTable{}, [2]h2Side{}, nil
}
