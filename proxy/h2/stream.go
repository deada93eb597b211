package h2

import (
	"time"

	"github.com/meshctl/meshctl/proxy/message"
)

// stream is one exchange on a link, a message.Stream to the middle.
//
//	           in: head -> data -> end          (inEnded)
//	          out: head -> data -> end          (closing: asked for, outEnded: written)
//	over: the Receiver hears nothing more. A server's stream lives on in the table
//	      until what it owes the client is written, then it is buried.
type stream struct {
	link *link
	recv message.Receiver
	id   uint32 // 0: a client's stream whose head was not sent

	over     bool
	inEnded  bool
	headSeen bool // the final head has come
	headSent bool // the final head was sent
	closing  bool
	outEnded bool
	held     bool
	full     bool // Pending was above HighWater
	listed   bool // in link.ready
	tunnel   bool // CONNECT
	bodiless bool // the response to HEAD has no body
	noBody   bool // nor has what comes in now: that, 204, 304

	sendLeft int64 // the peer's window
	recvLeft int   // ours
	unacked  int   // bytes of ours to be given back
	want     int64 // content-length of what comes in, or message.Unknown
	got      int64

	first, tail *chunk // body that waits
	pend        int    // bytes of it
	trailers    []byte // encoded, to follow it
	moved       time.Duration
	born        time.Duration

	next, prev *stream // in link.ready; next also in the pool
}

var _ message.Stream = (*stream)(nil)

// Version implements message.Stream.
func (s *stream) Version() message.Version { return message.HTTP2 }

// SendHead implements message.Stream.
func (s *stream) SendHead(h *message.Head, end bool) {
	l := s.link
	if s.over || s.closing || s.headSent {
		return
	}
	if s.id == 0 && !l.client.begin(s, h) || l.phase >= lingering {
		return
	}
	interim := l.server && h.Interim()
	end = end && !interim && !(s.tunnel && !l.server)
	s.headSent = !interim
	if l.server && !interim {
		s.tunnel = s.tunnel && h.Status/100 == 2
	}
	if end {
		s.closing = true
	}
	l.writeHead(s, h, end)
	if end {
		l.ended(s)
	}
}

// SendData implements message.Stream.
func (s *stream) SendData(b []byte, end bool) {
	if s.over || s.closing || !s.headSent {
		return
	}
	s.closing = end
	s.link.send(s, b)
}

// SendTrailers implements message.Stream.
func (s *stream) SendTrailers(h *message.Head) {
	if len(h.Fields) == 0 {
		s.SendData(nil, true)
		return
	}
	if s.over || s.closing || !s.headSent {
		return
	}
	s.closing = true
	s.link.writeTrailers(s, h)
}

// finished reports that the Receiver has heard, or caused, the end of all: of
// the response, or of both directions of a tunnel.
func (s *stream) finished() bool {
	if s.tunnel {
		return s.closing && s.inEnded
	}
	return s.link.server && s.closing || !s.link.server && s.inEnded
}

// Abort implements message.Stream.
func (s *stream) Abort(code message.Code) {
	if s.over {
		return
	}
	l := s.link
	s.over = true
	if s.id == 0 {
		l.client.giveUp(s)
		return
	}
	l.writeReset(s.id, codeOf(code, s.tunnel))
	l.remove(s, byUs)
}

// Pending implements message.Stream. While all streams of the connection hold
// too much together, each says that it is full as soon as it holds anything.
func (s *stream) Pending() int {
	if s.pend > 0 && s.link.pend > crowded {
		return s.pend + message.HighWater
	}
	return s.pend
}

// Hold implements message.Stream.
func (s *stream) Hold(on bool) {
	if s.over || s.held == on {
		return
	}
	if s.held = on; !on {
		s.link.giveBack(s)
	}
}

// take notes that the middle got n bytes, which may come again once it goes on.
func (s *stream) take(n int) { s.unacked += n }

// push appends to the body that waits.
func (s *stream) push(p *pool, b []byte) {
	s.pend += len(b)
	for len(b) > 0 {
		c := s.tail
		if c == nil || c.w == len(c.b) {
			c = p.chunk()
			if s.tail == nil {
				s.first = c
			} else {
				s.tail.next = c
			}
			s.tail = c
		}
		n := copy(c.b[c.w:], b)
		c.w += n
		b = b[n:]
	}
}

// pop moves n bytes of the body that waits to dst.
func (s *stream) pop(p *pool, dst []byte, n int) []byte {
	s.pend -= n
	for n > 0 {
		c := s.first
		m := min(n, c.w-c.r)
		dst = append(dst, c.b[c.r:c.r+m]...)
		c.r += m
		n -= m
		if c.r == c.w {
			if s.first = c.next; s.first == nil {
				s.tail = nil
			}
			p.giveChunk(c)
		}
	}
	return dst
}

// drop gives up what waits and returns how much that was.
func (s *stream) drop(p *pool) int {
	n := s.pend
	for c := s.first; c != nil; {
		next := c.next
		p.giveChunk(c)
		c = next
	}
	if s.trailers != nil {
		p.give(s.trailers)
	}
	s.first, s.tail, s.pend, s.trailers = nil, nil, 0, nil
	return n
}
