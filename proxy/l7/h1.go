package l7

import "time"

// H1 observes an HTTP/1.0 or HTTP/1.1 connection. Each side is a flow:
//
//	        first byte           LF              empty line
//	atStart ----------> atFirst ----> atFields -----------+
//	  ^ ^                                                 |
//	  | +---- no body, 1xx -------------------------------+--> inBody, inChunk.., toEOF
//	  +------ end of body --------------------------------------------+
//
// Requests wait in open for their responses. After CONNECT or Upgrade the client
// is held: what its next bytes are is for the response to say. After 101 to h2c
// an H2 goes on where this one stops; other protocols make it a tunnel.
type H1 struct {
	rec   Recorder
	state State
	flows [2]flow
	open  queue
	resp  answer
	ended bool // the server has sent FIN
	tell  bool // details are wanted
	h2    *H2  // takes over after 101 to h2c
}

var _ Observer = (*H1)(nil)

// NewH1 returns an observer of a connection that begins with HTTP/1.
func NewH1(rec Recorder) *H1 { return &H1{rec: rec} }

// answer is the response that is passing.
type answer struct {
	verdict
	latency time.Duration
	begun   bool // a byte of its body has passed; latency is set
}

// Feed implements Observer.
func (h *H1) Feed(from Side, b []byte, now time.Duration) {
	f := &h.flows[from]
	for len(b) > 0 && h.state.Phase == Reading && h.h2 == nil {
		b = h.next(from, f, b, now)
	}
	if h.h2 != nil {
		h.h2.Feed(from, b, now)
	}
}

// next reads some of b and returns the rest.
func (h *H1) next(from Side, f *flow, b []byte, now time.Duration) []byte {
	switch f.at {
	case atStart:
		return h.begin(from, f, b, now)
	case inBody, inChunk:
		n := int(min(f.left, int64(len(b))))
		h.body(from, now)
		if f.left -= int64(n); f.left == 0 {
			h.bodyDone(from, f, now)
		}
		return b[n:]
	case toEOF:
		h.body(from, now)
		return nil
	case held:
		f.early = true
		return nil
	case ignored:
		return nil
	default:
		return h.lines(from, f, b, now)
	}
}

// begin starts a message. Empty lines before a request are skipped (RFC 9112,
// 2.2); a response needs a request.
func (h *H1) begin(from Side, f *flow, b []byte, now time.Duration) []byte {
	if from == FromClient {
		for len(b) > 0 && (b[0] == '\r' || b[0] == '\n') {
			b = b[1:]
		}
		if len(b) == 0 {
			return nil
		}
	} else if h.open.len() == 0 && !h.imply(now) {
		return nil
	}
	f.start()
	if h.tell && from == FromClient {
		f.head.detail = new(Detail)
	}
	return b
}

// imply opens an exchange for a request that is being answered before its head
// is over, as with 400, 408 and 431. What else the client sends then belongs to
// no message that anybody reads.
func (h *H1) imply(now time.Duration) bool {
	f := &h.flows[FromClient]
	if f.at != atFirst && f.at != atFields {
		h.lose(ReasonUnsolicited)
		return false
	}
	h.request(exchange{start: now, method: f.head.method, detail: f.head.detail})
	f.at = ignored
	return true
}

// request counts a request and waits for its response.
func (h *H1) request(e exchange) {
	if !h.open.push(e) {
		h.lose(ReasonLimit)
		return
	}
	h.rec.Request(Request{Method: e.method})
}

// body notes that bytes of a body pass.
func (h *H1) body(from Side, now time.Duration) {
	if from == FromServer && !h.resp.begun {
		h.resp.begun = true
		h.resp.latency = now - h.open.front().start
	}
}

// respond ends the response to the oldest open request.
func (h *H1) respond(err string, now time.Duration) {
	e := h.open.pop()
	r := h.resp.response(err)
	r.Method, r.Total, r.Detail = e.method, now-e.start, e.detail
	r.Latency, r.HasLatency = h.resp.latency, h.resp.begun
	if !h.resp.begun && r.Status != 0 {
		r.Latency, r.HasLatency = r.Total, true
	}
	h.resp = answer{}
	h.rec.Response(r)
}

// fail ends every open exchange.
func (h *H1) fail(err string, now time.Duration) {
	for h.open.len() > 0 {
		h.respond(err, now)
	}
}

// End implements Observer. The server's FIN is the end of a response that has
// no other, and of every hope for the rest; the client's is its right.
func (h *H1) End(from Side, now time.Duration) {
	switch {
	case h.h2 != nil:
		h.h2.End(from, now)
	case h.state.Phase != Reading:
	case from == FromServer:
		h.ended = true
		if h.flows[FromServer].at == toEOF && h.open.len() > 0 {
			h.respond("", now)
		}
		h.flows[FromServer].at = ignored
		h.fail(ErrEOF, now)
	case h.ended:
		h.fail(ErrEOF, now)
	}
}

// Abort implements Observer.
func (h *H1) Abort(now time.Duration) {
	if h.h2 != nil {
		h.h2.Abort(now)
		return
	}
	h.flows[FromClient].at, h.flows[FromServer].at = ignored, ignored
	h.fail(ErrAborted, now)
}

// Idle implements Observer.
func (h *H1) Idle() bool {
	if h.h2 != nil {
		return h.h2.Idle()
	}
	at := h.flows[FromClient].at
	return h.state.Phase == Reading && h.open.len() == 0 && (at == atStart || at == ignored)
}

// Passive implements Observer.
func (h *H1) Passive() bool { return h.State().Phase != Reading }

// Tell implements Observer.
func (h *H1) Tell() { h.tell = true }

// State implements Observer.
func (h *H1) State() State {
	if h.h2 != nil {
		return h.h2.State()
	}
	return h.state
}

// lose stops reading for good and lets go of what it holds.
func (h *H1) lose(why Reason) { h.stop(Lost, why) }

func (h *H1) stop(p Phase, why Reason) {
	h.state = State{Phase: p, Reason: why}
	h.open, h.flows = queue{}, [2]flow{}
}
