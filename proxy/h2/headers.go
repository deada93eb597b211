package h2

import (
	"encoding/binary"

	"github.com/meshctl/meshctl/proxy/message"
)

const (
	maxPieces = 128      // CONTINUATION frames of one block
	maxSpare  = 64 << 10 // bytes that a block may have beyond MaxHead and still be decoded
)

// openBlock takes HEADERS (RFC 9113, 6.2).
func (l *link) openBlock(h header, p []byte) {
	if h.flags&flagPadded != 0 {
		if len(p) == 0 || int(p[0]) >= len(p) {
			l.fail(protocolError, "padding is longer than its frame")
			return
		}
		p = p[1 : len(p)-int(p[0])]
	}
	l.oneself = false
	if h.flags&flagPriority != 0 {
		if len(p) < 5 {
			l.fail(frameSizeError, "HEADERS is too short for its priority")
			return
		}
		l.oneself = binary.BigEndian.Uint32(p)&maxStreamID == h.id
		p = p[5:]
	}
	if h.flags&flagEndHeaders != 0 {
		l.closeBlock(h, p)
		return
	}
	l.blockOf, l.pieces, l.since = h, 0, l.now()
	l.arm(l.since + l.cfg.HeadTimeout)
	l.block = append(l.pool.grow(l.block[:0], len(p)), p...)
}

// moreBlock takes CONTINUATION (RFC 9113, 6.10). A block that is far too large
// is not decoded, which ends the connection, but not before its request is
// answered.
func (l *link) moreBlock(h header, p []byte) {
	l.pieces++
	switch {
	case len(p) == 0 && h.flags&flagEndHeaders == 0 && !l.bother(costEmpty):
		return
	case l.pieces > maxPieces:
		l.fail(enhanceYourCalm, "too many CONTINUATION frames")
		return
	case len(l.block)+len(p) > l.cfg.MaxHead+maxSpare:
		if l.server && l.unopened(l.blockOf.id) {
			l.newest = l.blockOf.id
			l.tooLarge(l.blockOf)
		}
		l.fail(enhanceYourCalm, "header block is too large")
		return
	}
	l.block = append(l.pool.grow(l.block, len(p)), p...)
	if h.flags&flagEndHeaders != 0 {
		of := l.blockOf
		l.blockOf.id = 0
		l.closeBlock(of, l.block)
		l.pool.give(l.block)
		l.block = nil
	}
}

// closeBlock decodes a whole header block, whatever becomes of it: later ones
// depend on it (RFC 9113, 4.3).
func (l *link) closeBlock(h header, block []byte) {
	s := l.streams.get(h.id)
	what := trailersBlock
	switch {
	case s == nil && l.server:
		what = requestBlock
	case s == nil || !s.headSeen:
		what = responseBlock
	}
	head := &l.pool.head
	found := l.decode(head, block, what)
	switch {
	case found == undecodable:
		l.fail(compressionError, "header block does not decode")
	case s != nil:
		l.moreHead(s, h, head, found)
	case !l.unopened(h.id):
		l.strayHead(h.id)
	default:
		l.request(h, head, found)
	}
}

// strayHead is HEADERS of a stream that is closed (RFC 9113, 5.1), or was
// skipped (5.1.1).
func (l *link) strayHead(id uint32) {
	how, known, full := l.gone.find(id)
	switch {
	case !l.server, known && how == byUs, !known && full, id > l.refuseAt:
		l.bother(costFrame)
	case known:
		l.fail(streamClosed, "HEADERS on a closed stream")
	default:
		l.fail(protocolError, "stream number is lower than an earlier one")
	}
}

// request takes the head of a new stream.
func (l *link) request(h header, head *message.Head, found finding) {
	l.newest = h.id
	switch {
	case h.id > l.refuseAt: // it has been told that these are not taken
	case l.streams.n >= int(l.cfg.MaxStreams):
		l.streamError(h.id, refusedStream)
	case l.oneself, found == malformed:
		l.streamError(h.id, protocolError)
	case found == oversized:
		l.tooLarge(h)
		l.upset()
	case h.end() && head.Length > 0:
		l.streamError(h.id, protocolError) // RFC 9113, 8.1.1
	default:
		l.openStream(h, head)
	}
}

// openStream hands a request to the middle.
func (l *link) openStream(h header, head *message.Head) {
	s := l.pool.stream()
	s.link, s.id = l, h.id
	s.headSeen, s.inEnded = true, h.end()
	s.tunnel = string(head.Method) == "CONNECT"
	s.bodiless = string(head.Method) == "HEAD"
	if s.tunnel {
		head.Length = message.Unknown
	} else if s.inEnded {
		head.Length = 0
	}
	s.want = head.Length
	l.enter(s)
	l.bothers.earn(earnHead, botherBudget)
	s.recv = l.opener.Open(s)
	if !s.tunnel {
		s.recv.Head(s, head, s.inEnded)
		return
	}
	s.recv.Head(s, head, false)
	if s.inEnded && !s.over {
		s.over = s.finished()
		s.recv.Data(s, nil, true)
		l.heardOut(s)
	}
}

// enter puts a stream that has its number into the table.
func (l *link) enter(s *stream) {
	s.sendLeft, s.recvLeft = l.peer.window, int(l.cfg.StreamWindow)
	s.born = l.now()
	s.moved = s.born
	if l.streams.n == 0 {
		l.ping()
	}
	l.streams.add(s)
}

// moreHead takes what is not the first block of a request: a response or trailers.
func (l *link) moreHead(s *stream, h header, head *message.Head, found finding) {
	switch {
	case s.inEnded:
		l.streamError(s.id, streamClosed)
	case found != wellFormed, l.oneself:
		l.streamError(s.id, protocolError)
	case s.headSeen && !h.end():
		l.streamError(s.id, protocolError) // RFC 9113, 8.1: trailers end it
	case s.headSeen && s.want >= 0 && !s.noBody && s.got != s.want:
		l.streamError(s.id, protocolError)
	case s.headSeen:
		l.trailers(s, head)
	case head.Interim() && h.end():
		l.streamError(s.id, protocolError)
	case head.Interim():
		l.bother(costFrame)
		s.recv.Head(s, head, false)
	default:
		l.response(s, h, head)
	}
}

// trailers ends a message.
func (l *link) trailers(s *stream, head *message.Head) {
	s.inEnded = true
	if s.over {
		return
	}
	s.over = s.finished()
	s.recv.Trailers(s, head)
	l.heardOut(s)
}

// response takes a final head.
func (l *link) response(s *stream, h header, head *message.Head) {
	s.headSeen, s.inEnded = true, h.end()
	s.noBody = s.bodiless || head.Status == 204 || head.Status == 304
	s.tunnel = s.tunnel && head.Status/100 == 2
	s.want = head.Length
	switch {
	case s.tunnel:
		s.want = message.Unknown
	case s.noBody: // what is not said of a body that is not sent stays unsaid
	case h.end() && head.Length == message.Unknown:
		head.Length = 0
	case h.end() && head.Length > 0:
		l.streamError(s.id, protocolError) // RFC 9113, 8.1.1
		return
	}
	s.over = s.finished()
	s.recv.Head(s, head, s.inEnded && !s.tunnel)
	if s.inEnded && s.tunnel && l.streams.get(s.id) == s {
		s.over = s.finished()
		s.recv.Data(s, nil, true)
	}
	if s.inEnded {
		l.heardOut(s)
	}
}
