package h2

import (
	"fmt"

	"github.com/meshctl/meshctl/proxy/message"
)

// ring is the streams that have something to send and window for it, in turn.
type ring struct{ first, last *stream }

func (r *ring) push(s *stream) {
	s.listed, s.prev, s.next = true, r.last, nil
	if r.last == nil {
		r.first = s
	} else {
		r.last.next = s
	}
	r.last = s
}

func (r *ring) remove(s *stream) {
	if s.prev == nil {
		r.first = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next == nil {
		r.last = s.prev
	} else {
		s.next.prev = s.prev
	}
	s.listed, s.next, s.prev = false, nil, nil
}

// list puts s into the ring if it has something to send and may.
func (l *link) list(s *stream) {
	if s.pend > 0 && s.sendLeft > 0 && !s.listed {
		l.ready.push(s)
		l.flushSoon()
	}
}

// send sends body bytes: at once what the windows allow, unless others wait.
func (l *link) send(s *stream, b []byte) {
	if l.phase >= lingering {
		return
	}
	if s.pend == 0 && (len(b) == 0 || l.ready.first == nil) {
		b = l.sendNow(s, b)
		if len(b) == 0 {
			if s.outEnded {
				l.ended(s)
			}
			return
		}
	}
	if s.pend == 0 {
		s.moved = l.now()
		if l.cfg.StallTimeout > 0 {
			l.arm(s.moved + l.cfg.StallTimeout)
		}
	}
	s.push(l.pool, b)
	l.pend += len(b)
	s.over = s.over || s.finished()
	s.full = s.full || s.Pending() > message.HighWater
	l.list(s)
}

// sendNow appends frames to out and returns what could not be. An end with
// nothing before it needs no window.
func (l *link) sendNow(s *stream, b []byte) []byte {
	if len(b) == 0 && !s.closing {
		return nil
	}
	for {
		if room := l.space(); room < min(len(b), outMax/8) || room <= 0 {
			if !l.write() && room <= 0 && len(b) > 0 {
				return b
			}
		}
		n := l.portion(s, len(b))
		if n == 0 && len(b) > 0 {
			return b
		}
		l.frame(s, n, n == len(b) && s.closing)
		l.out = append(l.out, b[:n]...)
		if b = b[n:]; len(b) == 0 {
			return nil
		}
	}
}

// space is how much of a body still fits into out.
func (l *link) space() int { return outMax - len(l.out) - frameHead }

// portion is how many of n bytes can go into the next frame.
func (l *link) portion(s *stream, n int) int {
	return max(0, int(min(int64(min(n, l.peer.frame, l.space())), s.sendLeft, l.sendLeft)))
}

// frame appends the header of a DATA frame of n bytes.
func (l *link) frame(s *stream, n int, end bool) {
	h := header{kind: dataFrame, id: s.id, size: n}
	if end {
		h.flags, s.outEnded = flagEnd, true
	}
	l.roomFor(frameHead + n)
	l.out = appendHeader(l.out, h)
	s.sendLeft -= int64(n)
	l.sendLeft -= int64(n)
	l.owed += 2 * int64(n) // the stream's window and the connection's
	earn := int32(earnTiny)
	if n >= dripWindow {
		earn = earnData
	}
	l.bothers.earn(earn, botherBudget)
	l.flushSoon()
}

// pump moves what waits to out, a frame of each stream in turn, until out is
// full or the windows are closed.
func (l *link) pump() {
	for s := l.ready.first; s != nil; s = l.ready.first {
		if s.sendLeft <= 0 { // the initial window has become smaller
			l.ready.remove(s)
			continue
		}
		n := l.portion(s, s.pend)
		if n == 0 || l.space() < min(s.pend, outMax/8) {
			return
		}
		last := n == s.pend
		l.ready.remove(s)
		l.frame(s, n, last && s.closing && s.trailers == nil)
		l.out = s.pop(l.pool, l.out, n)
		l.pend -= n
		s.moved = l.now()
		if last && s.trailers != nil {
			l.flushTrailers(s)
		}
		switch {
		case s.outEnded:
			l.ended(s)
			continue
		case s.full && (s.pend == 0 || s.pend < message.HighWater/2 && l.pend <= crowded):
			s.full = false
			l.pool.drained = append(l.pool.drained, s)
		}
		l.list(s)
	}
}

// flushTrailers writes trailers that waited for the body.
func (l *link) flushTrailers(s *stream) {
	n := len(s.trailers)
	l.roomFor(n + 1)
	start := len(l.out)
	l.out = append(l.enc.Begin(append(l.out, s.trailers[:frameHead]...)), s.trailers[frameHead:]...)
	l.pool.give(s.trailers)
	s.trailers, s.outEnded = nil, true
	l.seal(start, s.id, true)
}

// Flush writes what was collected and what the windows allow.
func (l *link) Flush() {
	l.queued = false
	if l.phase == dead {
		return
	}
	for l.broken == 0 {
		if l.phase < lingering {
			l.pump()
		}
		if len(l.out) == 0 || !l.write() {
			break
		}
	}
	if l.broken != 0 {
		l.pool.drained = l.pool.drained[:0]
		l.lose(fmt.Errorf("writing: %w", l.broken))
		return
	}
	if len(l.out) == 0 && l.out != nil {
		l.pool.give(l.out)
		l.out = nil
	}
	l.tell()
	if l.phase == lingering && l.out == nil && l.spilled == 0 {
		l.spilled = 1
		l.sock.CloseWrite()
	}
	if l.readable && !l.blocked && l.phase != dead {
		l.sock.Again() // reading had stopped for what is written now
	}
}

// tell calls those who wait for room.
func (l *link) tell() {
	list := l.pool.drained
	for i, s := range list {
		list[i] = nil
		if !s.over && s.link == l {
			s.recv.Drained(s)
		}
	}
	l.pool.drained = list[:0]
	if l.roomy {
		l.roomy = false
		if l.room != nil {
			l.room()
		}
	}
}
