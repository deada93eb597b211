package h2

import "encoding/binary"

// parse takes whole frames, and DATA as it comes, and returns what is left.
func (l *link) parse(b []byte) (left []byte) {
	for l.phase < lingering {
		if l.preface > 0 {
			n := min(l.preface, len(b))
			if string(b[:n]) != preface[len(preface)-l.preface:][:n] {
				l.fail(protocolError, "connection does not begin with the preface")
				return nil
			}
			l.preface -= n
			b = b[n:]
		}
		if b = l.takeBody(b); len(b) < frameHead || l.phase >= lingering {
			return b
		}
		h := parseHeader(b)
		if !l.expects(h) {
			return nil
		}
		switch {
		case h.kind == dataFrame:
			if h.flags&flagPadded != 0 && h.size > 0 && len(b) == frameHead {
				return b // the padding's length is still to come
			}
			b = b[l.beginData(h, b[frameHead:]):]
		case h.kind > continuationFrame:
			b = b[frameHead:]
			l.body = bodyFrame{pad: h.size}
			l.bother(costFrame)
		case len(b) < frameHead+h.size:
			return b
		default:
			l.handle(h, b[frameHead:frameHead+h.size])
			b = b[frameHead+h.size:]
		}
	}
	return nil
}

// expects checks what a frame's header alone can be wrong about.
func (l *link) expects(h header) bool {
	switch {
	case !l.settled && (h.kind != settingsFrame || h.flags&flagAck != 0):
		l.fail(protocolError, "first frame is not SETTINGS") // RFC 9113, 3.4
	case h.size > ownFrame:
		l.fail(frameSizeError, "frame is larger than allowed")
	case l.blockOf.id != 0 && (h.kind != continuationFrame || h.id != l.blockOf.id):
		l.fail(protocolError, "frame within a header block") // RFC 9113, 4.3
	case l.blockOf.id == 0 && h.kind == continuationFrame:
		l.fail(protocolError, "CONTINUATION without a header block")
	case h.kind == pushFrame:
		l.fail(protocolError, "PUSH_PROMISE was not allowed") // RFC 9113, 8.4
	case !l.addressed(h):
		l.fail(protocolError, "frame on the wrong stream")
	default:
		return true
	}
	return false
}

// addressed checks that a frame is about the connection, or about a stream, as
// its type wants; and about no stream that only this side, or nobody, opens.
func (l *link) addressed(h header) bool {
	switch h.kind {
	case settingsFrame, pingFrame, goAwayFrame:
		return h.id == 0
	case dataFrame, resetFrame:
		return h.id != 0 && !l.unopened(h.id)
	case headersFrame:
		return h.id&1 == 1 && (l.server || !l.unopened(h.id))
	case windowFrame:
		return h.id == 0 || !l.unopened(h.id)
	case priorityFrame:
		return h.id != 0
	default:
		return true
	}
}

// unopened reports that a stream is idle (RFC 9113, 5.1). Even ones, which only
// pushes open, are for ever.
func (l *link) unopened(id uint32) bool { return id > l.newest || id&1 == 0 }

// handle takes a whole frame other than DATA.
func (l *link) handle(h header, p []byte) {
	switch h.kind {
	case headersFrame:
		l.openBlock(h, p)
	case continuationFrame:
		l.moreBlock(h, p)
	case priorityFrame:
		l.takePriority(h, p)
	case resetFrame:
		l.takeReset(h, p)
	case settingsFrame:
		l.takeSettings(h, p)
	case pingFrame:
		l.takePing(h, p)
	case goAwayFrame:
		l.takeGoAway(p)
	case windowFrame:
		l.takeWindow(h, p)
	}
}

// takePriority only checks: priorities are obsolete (RFC 9113, 5.3.2).
func (l *link) takePriority(h header, p []byte) {
	switch {
	case len(p) != 5:
		l.streamError(h.id, frameSizeError)
	case binary.BigEndian.Uint32(p)&maxStreamID == h.id:
		l.streamError(h.id, protocolError) // RFC 7540, 5.3.1
	default:
		l.bother(costFrame)
	}
}

// takeReset ends a stream (RFC 9113, 6.4).
func (l *link) takeReset(h header, p []byte) {
	if len(p) != 4 {
		l.fail(frameSizeError, "RST_STREAM has no four bytes")
		return
	}
	s := l.streams.get(h.id)
	if s == nil {
		l.bother(costFrame)
		return
	}
	told, answered, young := s.over, s.headSent, l.loop.Now()-s.born < early
	s.over = true
	l.remove(s, byPeer)
	if !told {
		s.recv.Aborted(s, errorCode(binary.BigEndian.Uint32(p)).meaning())
	}
	if !answered && young {
		l.upset()
	}
}

// takePing answers (RFC 9113, 6.7).
func (l *link) takePing(h header, p []byte) {
	switch {
	case len(p) != 8:
		l.fail(frameSizeError, "PING has no eight bytes")
	case h.flags&flagAck != 0:
		if l.bother(costFrame) {
			l.pong()
		}
	case l.bother(costFrame):
		l.roomFor(frameHead + 8)
		l.out = append(appendHeader(l.out, header{kind: pingFrame, flags: flagAck, size: 8}), p...)
		l.flushSoon()
	}
}

// takeGoAway notes that the peer takes no more streams (RFC 9113, 6.8). A client
// may still open some: it has only said that it wants no pushes.
func (l *link) takeGoAway(p []byte) {
	if len(p) < 8 {
		l.fail(frameSizeError, "GOAWAY has no eight bytes")
		return
	}
	code := errorCode(binary.BigEndian.Uint32(p[4:]))
	if code != noError {
		l.cause = &Error{Code: code.String()}
	}
	l.leaving, l.roomy = true, true
	l.flushSoon()
	if !l.server {
		l.refused(binary.BigEndian.Uint32(p) & maxStreamID)
	}
	if l.streams.n == 0 {
		l.finish(l.cause)
	}
}

// refused ends the streams that the server says it has not taken.
func (l *link) refused(last uint32) {
	l.streams.each(func(s *stream) {
		if s.id > last {
			told := s.over
			s.over = true
			l.remove(s, byUs)
			if !told {
				s.recv.Aborted(s, refusedStream.meaning())
			}
		}
	})
}
