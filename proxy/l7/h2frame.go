package l7

import (
	"encoding/binary"
	"time"
)

// Limits of what is kept of a connection until it is whole.
const (
	maxBlock         = 256 << 10 // bytes of a header block, encoded, and of a SETTINGS frame
	maxContinuations = 512       // CONTINUATION frames of one header block
	keepBuffer       = 4 << 10   // bytes of a buffer that is kept for the next time
)

// frameType is the type of a frame (RFC 9113, 6).
type frameType uint8

const (
	dataFrame         frameType = 0
	headersFrame      frameType = 1
	rstStreamFrame    frameType = 3
	settingsFrame     frameType = 4
	pushPromiseFrame  frameType = 5
	goAwayFrame       frameType = 7
	continuationFrame frameType = 9
)

// Flags of frames (RFC 9113, 6). END_STREAM and ACK share a bit.
const (
	flagEndStream  = 1
	flagAck        = 1
	flagEndHeaders = 4
	flagPadded     = 8
	flagPriority   = 0x20
)

const (
	frameHead = 9         // bytes of a frame's header
	streamID  = 1<<31 - 1 // the highest bit is reserved
)

// frame is a frame's header.
type frame struct {
	kind  frameType
	flags uint8
	id    uint32
	size  int
}

// h2Side is one direction of an HTTP/2 connection.
type h2Side struct {
	preface int // bytes of the client's preface that are still to come
	settled bool
	inside  bool // a frame's header is read and its payload is not
	headN   uint8
	head    [frameHead]byte // of a frame header that was cut
	frame   frame
	left    int    // bytes of the payload still to come
	want    int    // bytes of the payload to keep, from its start
	kept    []byte // what was kept of a payload that was cut

	block  []byte // a header block that goes on in CONTINUATION
	opened frame  // the frame that began it; id 0: none
	target uint32 // the stream it is about
	more   int    // how many CONTINUATION frames it had

	hpack hpackDecoder
}

// inHeaders reports that a header block is half read.
func (s *h2Side) inHeaders() bool {
	return s.opened.id != 0 || s.inside && s.frame.kind == headersFrame
}

// Feed implements Observer.
func (h *H2) Feed(from Side, b []byte, now time.Duration) {
	if h.state.Phase != Reading {
		return
	}
	s := &h.sides[from]
	if s.preface > 0 {
		if b = h.readPreface(s, b); len(b) == 0 {
			return
		}
	}
	for {
		if !s.inside {
			if b = s.readHead(b); !s.inside {
				return
			}
			h.begin(from, s, now)
		}
		n := min(s.left, len(b))
		s.left -= n
		p := s.keep(b[:n])
		b = b[n:]
		if s.left > 0 || h.state.Phase != Reading {
			return
		}
		s.inside = false
		h.finish(from, s, p, now)
		if h.state.Phase != Reading {
			return
		}
		s.drop()
		if len(b) == 0 {
			return
		}
	}
}

// readPreface compares the client's preface.
func (h *H2) readPreface(s *h2Side, b []byte) []byte {
	n := min(s.preface, len(b))
	want := clientPreface[len(clientPreface)-s.preface:][:n]
	if string(b[:n]) != want {
		h.lose(ReasonMalformed)
		return nil
	}
	s.preface -= n
	return b[n:]
}

// readHead reads a frame's header as far as b has it.
func (s *h2Side) readHead(b []byte) []byte {
	p := b
	if s.headN > 0 || len(b) < frameHead {
		n := copy(s.head[s.headN:], b)
		s.headN += uint8(n)
		if b = b[n:]; s.headN < frameHead {
			return nil
		}
		s.headN, p = 0, s.head[:]
	} else {
		b = b[frameHead:]
	}
	s.frame = frame{
		kind:  frameType(p[3]),
		flags: p[4],
		id:    binary.BigEndian.Uint32(p[5:]) & streamID,
		size:  int(p[0])<<16 | int(p[1])<<8 | int(p[2]),
	}
	s.inside, s.left = true, s.frame.size
	return b
}

// begin decides what of the frame's payload is kept, and refuses what could not
// be followed.
func (h *H2) begin(from Side, s *h2Side, now time.Duration) {
	f := s.frame
	s.want = 0
	switch f.kind {
	case dataFrame:
		if f.size > 0 {
			h.data(from, f.id, now)
		}
	case headersFrame, pushPromiseFrame, continuationFrame, settingsFrame:
		s.want = f.size
	case rstStreamFrame:
		s.want = min(f.size, 4)
	case goAwayFrame:
		s.want = min(f.size, 8)
	}
	switch {
	case !s.settled && f.kind != settingsFrame: // RFC 9113, 3.4: what else it is, it is not HTTP/2
		h.lose(ReasonMalformed)
	case (s.opened.id != 0) != (f.kind == continuationFrame) || s.opened.id != 0 && f.id != s.opened.id:
		h.lose(ReasonMalformed)
	case s.want+len(s.block) > maxBlock:
		h.lose(ReasonLimit)
	}
	s.settled = true
}

// keep takes the next piece of a payload and returns what is kept of it so far. A
// payload in one piece is not copied.
func (s *h2Side) keep(p []byte) []byte {
	p = p[:min(len(p), s.want-len(s.kept))]
	if len(s.kept) == 0 && (s.left == 0 || len(p) == 0) {
		return p
	}
	s.kept = append(s.kept, p...)
	return s.kept
}

// drop empties the buffers of a frame that is over, and gives large ones back.
func (s *h2Side) drop() {
	s.kept = emptied(s.kept)
	if s.opened.id == 0 {
		s.block = emptied(s.block)
	}
}

func emptied(b []byte) []byte {
	if cap(b) > keepBuffer {
		return nil
	}
	return b[:0]
}

// finish reads a whole frame, of which p was kept.
func (h *H2) finish(from Side, s *h2Side, p []byte, now time.Duration) {
	f := s.frame
	ok := true
	switch f.kind {
	case dataFrame:
		if st := h.streams.get(f.id); st != nil && f.flags&flagEndStream != 0 {
			h.end(from, st, now)
		}
	case headersFrame, pushPromiseFrame:
		ok = h.openBlock(from, s, f, p, now)
	case continuationFrame:
		ok = h.moreBlock(from, s, f, p, now)
	case rstStreamFrame:
		if ok = f.size == 4; ok {
			h.reset(from, f.id, binary.BigEndian.Uint32(p), now)
		}
	case settingsFrame:
		ok = h.settings(from, f, p)
	case goAwayFrame:
		if ok = f.size >= 8; ok {
			h.goAway(from, binary.BigEndian.Uint32(p)&streamID, now)
		}
	}
	if !ok {
		h.lose(ReasonMalformed)
	}
}

// settings reads how large a table the other side's encoder may use.
func (h *H2) settings(from Side, f frame, p []byte) bool {
	const headerTableSize = 1 // RFC 9113, 6.5.2
	if f.id != 0 || len(p)%6 != 0 {
		return false
	}
	for ; len(p) > 0 && f.flags&flagAck == 0; p = p[6:] {
		if binary.BigEndian.Uint16(p) == headerTableSize {
			h.sides[from.other()].hpack.allow(binary.BigEndian.Uint32(p[2:]))
		}
	}
	return true
}

// openBlock reads HEADERS and PUSH_PROMISE down to the header block.
func (h *H2) openBlock(from Side, s *h2Side, f frame, p []byte, now time.Duration) bool {
	if f.id == 0 {
		return false
	}
	if f.flags&flagPadded != 0 {
		if len(p) == 0 || int(p[0]) >= len(p) {
			return false
		}
		p = p[1 : len(p)-int(p[0])]
	}
	target, skip := f.id, 0
	switch {
	case f.kind == pushPromiseFrame:
		skip = 4
	case f.flags&flagPriority != 0:
		skip = 5
	}
	if len(p) < skip {
		return false
	}
	if f.kind == pushPromiseFrame {
		target = binary.BigEndian.Uint32(p) & streamID
	}
	p = p[skip:]
	s.opened, s.target, s.more = f, target, 0
	if f.flags&flagEndHeaders == 0 {
		s.block = append(s.block[:0], p...)
		return true
	}
	h.closeBlock(from, s, p, now)
	return true
}

// moreBlock reads a CONTINUATION.
func (h *H2) moreBlock(from Side, s *h2Side, f frame, p []byte, now time.Duration) bool {
	if s.more++; s.more > maxContinuations {
		h.lose(ReasonLimit)
		return true
	}
	s.block = append(s.block, p...)
	if f.flags&flagEndHeaders != 0 {
		h.closeBlock(from, s, s.block, now)
	}
	return true
}

// closeBlock decodes a whole header block.
func (h *H2) closeBlock(from Side, s *h2Side, block []byte, now time.Duration) {
	f := s.opened
	s.opened = frame{}
	fields, ok := s.hpack.decode(block)
	switch {
	case !ok:
		h.lose(ReasonCompression)
		return
	case from == FromClient && h.texts != nil:
		fields.detail = h.texts.read(block)
	}
	switch {
	case f.kind == headersFrame:
		h.headers(from, s.target, f.flags&flagEndStream != 0, fields, now)
	case from == FromServer && s.target&1 == 0 && s.target != 0 && h.streams.get(s.target) == nil:
		h.request(s.target, fields, true, now)
	}
}
