package h2

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/hpack"
	"github.com/meshctl/meshctl/proxy/message"
)

// flushSoon has what is collected written when the round's events are handled.
func (l *link) flushSoon() {
	if !l.queued && l.phase != dead {
		l.queued = true
		l.loop.FlushSoon(l)
	}
}

// roomFor sees to it that n bytes can be appended to out without growing it.
func (l *link) roomFor(n int) {
	if cap(l.out)-len(l.out) < n {
		l.out = l.pool.grow(l.out, n)
	}
}

// write writes what is collected and reports whether all of it was taken. An
// error is kept for Flush: a Stream's methods end no connection.
func (l *link) write() bool {
	if l.blocked || l.broken != 0 {
		return false
	}
	if l.sent == len(l.out) {
		return true
	}
	n, e := l.sock.Write(l.out[l.sent:])
	l.bytesOut += uint64(n)
	l.sent += n
	switch {
	case e != 0 && e != unix.EAGAIN:
		l.broken = e
		l.flushSoon()
		return false
	case l.sent < len(l.out):
		if n > 0 || l.stuck == 0 {
			l.stuck = l.now()
		}
		l.blocked = true
		l.out = l.out[:copy(l.out, l.out[l.sent:])]
		l.sent = 0
		if l.cfg.StallTimeout > 0 {
			l.arm(l.stuck + l.cfg.StallTimeout)
		}
		return false
	}
	l.out, l.sent, l.stuck = l.out[:0], 0, 0
	return true
}

// writeGoAway writes GOAWAY (RFC 9113, 6.8).
func (l *link) writeGoAway(last uint32, code errorCode) {
	if !l.server {
		last = 0 // pushes, of which there are none
	}
	l.roomFor(frameHead + 8)
	l.out = appendHeader(l.out, header{kind: goAwayFrame, size: 8})
	l.out = binary.BigEndian.AppendUint32(l.out, min(last, l.refuseAt))
	l.out = binary.BigEndian.AppendUint32(l.out, uint32(code))
	l.flushSoon()
}

// writeReset writes RST_STREAM.
func (l *link) writeReset(id uint32, code errorCode) {
	if l.phase >= lingering {
		return
	}
	l.roomFor(frameHead + 4)
	l.out = appendWord(l.out, resetFrame, id, uint32(code))
	l.flushSoon()
}

// streamError ends a stream, or refuses to open it, because of what the peer
// did (RFC 9113, 5.4.2).
func (l *link) streamError(id uint32, code errorCode) {
	l.writeReset(id, code)
	if s := l.streams.get(id); s != nil {
		told := s.over
		s.over = true
		l.remove(s, byUs)
		if !told {
			s.recv.Aborted(s, code.meaning())
		}
	} else if !l.unopened(id) {
		l.gone.add(id, byUs)
	}
	l.upset()
}

// writeHead encodes a head straight into out.
func (l *link) writeHead(s *stream, h *message.Head, end bool) {
	bound := frameHead + 64 + len(h.Method) + len(h.Scheme) + len(h.Authority) + len(h.Path)
	for i := range h.Fields {
		bound += hpack.Bound(h.Fields[i].Name, h.Fields[i].Value)
	}
	l.roomFor(bound)
	start := len(l.out)
	b := l.enc.Begin(append(l.out, make([]byte, frameHead)...))
	if l.server {
		b = hpack.AppendStatus(b, h.Status)
	} else {
		b = l.appendRequest(b, s, h)
	}
	if h.Length > 0 || h.Length == 0 && !end && !h.Interim() && !s.tunnel {
		b = hpack.AppendLength(b, h.Length)
	}
	b = appendFields(b, h)
	l.out = b
	l.seal(start, s.id, end)
}

// appendRequest writes the pseudo-headers of a request (RFC 9113, 8.3.1).
func (l *link) appendRequest(b []byte, s *stream, h *message.Head) []byte {
	b = hpack.AppendMethod(b, h.Method)
	if !s.tunnel {
		scheme, path := h.Scheme, h.Path
		if len(scheme) == 0 {
			scheme = plainScheme
		}
		if len(path) == 0 {
			path = root
		}
		b = hpack.AppendPath(hpack.AppendScheme(b, scheme), path)
	}
	if len(h.Authority) > 0 {
		b = hpack.AppendAuthority(b, h.Authority)
	}
	return b
}

var plainScheme, root = []byte("http"), []byte("/")

func appendFields(b []byte, h *message.Head) []byte {
	for i := range h.Fields {
		b = hpack.AppendField(b, h.Fields[i].Name, h.Fields[i].Value, h.Fields[i].Secret)
	}
	return b
}

// seal puts the frame headers before and into a header block that begins with
// room for the first of them at start (RFC 9113, 4.3).
func (l *link) seal(start int, id uint32, end bool) {
	l.out = sealed(l.out, start, id, end, l.peer.frame)
	l.flushSoon()
}

func sealed(b []byte, start int, id uint32, end bool, largest int) []byte {
	size := len(b) - start - frameHead
	h := header{kind: headersFrame, id: id, size: min(size, largest)}
	if end {
		h.flags = flagEnd
	}
	if size <= largest {
		h.flags |= flagEndHeaders
		putHeader(b[start:], h)
		return b
	}
	putHeader(b[start:], h)
	rest := append([]byte(nil), b[start+frameHead+largest:]...)
	b = b[:start+frameHead+largest]
	for len(rest) > 0 {
		h = header{kind: continuationFrame, id: id, size: min(len(rest), largest)}
		if h.size == len(rest) {
			h.flags = flagEndHeaders
		}
		b = append(appendHeader(b, h), rest[:h.size]...)
		rest = rest[h.size:]
	}
	return b
}

// writeTrailers writes trailers, or keeps them behind a body that waits.
func (l *link) writeTrailers(s *stream, h *message.Head) {
	if l.phase >= lingering {
		return
	}
	bound := frameHead + 8
	for i := range h.Fields {
		bound += hpack.Bound(h.Fields[i].Name, h.Fields[i].Value)
	}
	if s.pend > 0 {
		b := append(l.pool.buffer(bound), make([]byte, frameHead)...)
		s.trailers = appendFields(b, h)
		s.over = s.over || s.finished()
		return
	}
	l.roomFor(bound)
	start := len(l.out)
	l.out = appendFields(l.enc.Begin(append(l.out, make([]byte, frameHead)...)), h)
	l.seal(start, s.id, true)
	l.ended(s)
}

// tooLarge answers a request whose head is too large (RFC 6585, 5).
func (l *link) tooLarge(h header) {
	l.roomFor(frameHead + 16)
	start := len(l.out)
	l.out = hpack.AppendStatus(l.enc.Begin(append(l.out, make([]byte, frameHead)...)), 431)
	l.seal(start, h.id, true)
	if !h.end() {
		l.writeReset(h.id, noError)
	}
	l.gone.add(h.id, byUs)
}
