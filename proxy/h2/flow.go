package h2

import "encoding/binary"

// beginData takes the header of a DATA frame and its padding's length, and
// returns how many bytes that were. b is what follows the header.
func (l *link) beginData(h header, b []byte) int {
	n, content := frameHead, h.size
	l.body = bodyFrame{counts: true}
	if h.flags&flagPadded != 0 {
		if h.size == 0 || int(b[0]) >= h.size {
			l.fail(protocolError, "padding is longer than its frame") // RFC 9113, 6.1
			return n
		}
		n++
		l.body.pad = int(b[0])
		content -= 1 + l.body.pad
	}
	if h.size > l.recvLeft {
		l.fail(flowControlError, "more bytes than the connection's window")
		return n
	}
	l.recvLeft -= h.size
	l.unacked += h.size - content - l.body.pad // the byte of the padding's length
	s := l.streams.get(h.id)
	if s == nil {
		l.body.pad += content
		l.strayData(h.id)
		return n
	}
	if code := s.accepts(h, content); code != noError {
		l.body.pad += content
		l.streamError(h.id, code)
		return n
	}
	s.recvLeft -= h.size
	s.take(h.size - content)
	s.got += int64(content)
	s.inEnded = h.end()
	l.body.s, l.body.left, l.body.end = s, content, h.end()
	switch {
	case content == 0 && h.end():
		l.deliver(nil)
	case content == 0:
		l.bother(costEmpty)
	default:
		l.bothers.earn(earnTiny, botherBudget)
	}
	return n
}

// accepts says what is wrong with a DATA frame of so many bytes of content.
func (s *stream) accepts(h header, content int) errorCode {
	got := s.got + int64(content)
	switch {
	case s.inEnded:
		return streamClosed
	case h.size > s.recvLeft:
		return flowControlError
	case !s.headSeen, s.noBody && content > 0:
		return protocolError
	case s.want >= 0 && !s.noBody && (got > s.want || h.end() && got < s.want):
		return protocolError // RFC 9113, 8.1.1
	}
	return noError
}

// strayData is DATA of a stream that is closed: under way when we reset it, or
// wrong (RFC 9113, 5.1).
func (l *link) strayData(id uint32) {
	how, known, _ := l.gone.find(id)
	if l.server && !(known && how == byUs) && id <= l.refuseAt {
		l.writeReset(id, streamClosed)
	}
	l.bother(costFrame)
}

// takeBody hands on what b has of the DATA frame at hand, and steps over its
// padding.
func (l *link) takeBody(b []byte) []byte {
	d := &l.body
	if n := min(d.left, len(b)); n > 0 {
		d.left -= n
		l.deliver(b[:n])
		b = b[n:]
	}
	if n := min(d.pad, len(b)); n > 0 && d.left == 0 {
		d.pad -= n
		if d.counts {
			l.restore(n)
		}
		b = b[n:]
	}
	return b
}

// deliver hands content to the stream's receiver. The window is given back as
// long as the receiver holds nothing up.
func (l *link) deliver(b []byte) {
	d, s := &l.body, l.body.s
	l.restore(len(b))
	if s == nil {
		return
	}
	end := d.end && d.left == 0
	s.take(len(b))
	if s.over { // answered already: what still comes is not wanted
		return
	}
	s.over = end && s.finished()
	s.recv.Data(s, b, end)
	switch {
	case end:
		l.heardOut(s)
	case d.s == s && !s.inEnded:
		l.giveBack(s)
	}
}

// restore gives n bytes of the connection's window back: what the middle does
// with them is bounded by the stream's.
func (l *link) restore(n int) {
	if l.unacked += n; l.unacked >= int(l.cfg.ConnWindow)/2 && l.phase < lingering {
		l.roomFor(frameHead + 4)
		l.out = appendWord(l.out, windowFrame, 0, uint32(l.unacked))
		l.recvLeft += l.unacked
		l.unacked = 0
		l.flushSoon()
	}
}

// giveBack gives a stream's window back.
func (l *link) giveBack(s *stream) {
	if s.held || s.inEnded || s.over || s.unacked < int(l.cfg.StreamWindow)/2 || s.id == 0 || l.phase >= lingering {
		return
	}
	l.roomFor(frameHead + 4)
	l.out = appendWord(l.out, windowFrame, s.id, uint32(s.unacked))
	s.recvLeft += s.unacked
	s.unacked = 0
	l.flushSoon()
}

// takeWindow opens a window of the peer's (RFC 9113, 6.9).
func (l *link) takeWindow(h header, p []byte) {
	if len(p) != 4 {
		l.fail(frameSizeError, "WINDOW_UPDATE has no four bytes")
		return
	}
	by := int64(binary.BigEndian.Uint32(p) & maxWindow)
	if !l.paid(by) {
		return
	}
	if h.id == 0 {
		l.widen(by)
		return
	}
	s := l.streams.get(h.id)
	switch {
	case by == 0:
		l.streamError(h.id, protocolError)
	case s == nil: // closed meanwhile
	case s.sendLeft+by > maxWindow:
		l.streamError(h.id, flowControlError)
	default:
		s.sendLeft += by
		l.list(s)
	}
}

// paid charges for a WINDOW_UPDATE. One that gives back a piece of what was sent
// is what bodies need, however late it comes.
func (l *link) paid(by int64) bool {
	switch {
	case by < dripWindow:
		return l.bother(costDrip)
	case by >= pieceWindow && by <= l.owed:
		l.owed -= by
		return true
	default:
		return l.bother(costFrame)
	}
}

// widen opens the connection's window.
func (l *link) widen(by int64) {
	switch l.sendLeft += by; {
	case by == 0:
		l.fail(protocolError, "WINDOW_UPDATE of zero")
	case l.sendLeft > maxWindow:
		l.fail(flowControlError, "WINDOW_UPDATE overflows the connection's window")
	case l.ready.first != nil:
		l.flushSoon()
	}
}
