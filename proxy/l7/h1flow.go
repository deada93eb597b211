package l7

import (
	"bytes"
	"time"
)

// Limits of a message's head. They bound nothing but the patience for a head
// that never ends: heads are not kept.
const (
	maxHead   = 1 << 20 // bytes
	maxFields = 1000    // lines
)

// place is where in a message the next byte of a flow stands.
type place uint8

const (
	atStart    place = iota // before a message
	atFirst                 // in the request line or status line
	atFields                // in the fields
	atChunk                 // in the line with a chunk's size
	atChunkEnd              // in the CRLF after a chunk
	atTrailers              // in the fields after the last chunk
	inBody                  // in a body of known length
	inChunk                 // in a chunk's data
	toEOF                   // in a body that FIN ends
	held                    // a response has to say what comes
	ignored                 // nothing that is read
)

// flow is one direction of a connection.
type flow struct {
	at    place
	early bool // bytes came while held
	hold  bool // the request that is passing asks for another protocol
	head  head
	left  int64 // bytes of the body, or of the chunk
	size  int   // bytes of the head, or of the chunk's line
	count int   // lines of the head
	cut   cutLine
}

// start begins a message.
func (f *flow) start() {
	f.at, f.size, f.count = atFirst, 0, 0
	f.head = head{length: -1, grpc: -1}
}

// lines reads line after line, as long as lines are what comes.
func (h *H1) lines(from Side, f *flow, b []byte, now time.Duration) []byte {
	for len(b) > 0 && f.at >= atFirst && f.at <= atTrailers {
		i := bytes.IndexByte(b, '\n')
		n := i + 1
		if i < 0 {
			n = len(b)
		}
		if f.size += n; f.size > maxHead {
			h.lose(ReasonLimit)
			return nil
		}
		if i < 0 {
			f.cut.add(b)
			return nil
		}
		if i > 1 && f.at == atFields && f.cut.n == 0 && !mayMatter(b[0]) && f.count < maxFields {
			f.count++ // most lines end here, for a third of the cost
			f.head.ours = false
			b = b[n:]
			continue
		}
		l := wholeLine(b[:i])
		if f.cut.n > 0 {
			f.cut.add(b[:i])
			l = f.cut.take()
		}
		if why := h.line(from, f, &l, now); why != "" {
			h.lose(why)
			return nil
		}
		b = b[n:]
	}
	return b
}

// line reads one line.
func (h *H1) line(from Side, f *flow, l *line, now time.Duration) Reason {
	switch f.at {
	case atFirst:
		f.at = atFields
		if from == FromClient {
			return f.head.requestLine(l)
		}
		return f.head.statusLine(l)
	case atChunk:
		return f.chunkLine(l)
	case atChunkEnd:
		f.at, f.size = atChunk, 0
		if l.n != 1 || !l.hasCR() {
			return ReasonMalformed
		}
		return ""
	}
	if !l.blank() {
		if f.count++; f.count > maxFields {
			return ReasonLimit
		}
		return f.head.field(l)
	}
	if f.at == atTrailers {
		h.messageDone(from, f, now)
		return ""
	}
	if why := f.head.check(); why != "" {
		return why
	}
	if from == FromClient {
		h.requestHead(f, now)
	} else {
		h.responseHead(f, now)
	}
	return ""
}

// requestHead opens an exchange.
func (h *H1) requestHead(f *flow, now time.Duration) {
	f.hold = f.head.method == Connect || f.head.upgrade
	h.request(exchange{start: now, method: f.head.method, upgrade: f.head.upgrade, detail: f.head.detail})
	if h.state.Phase != Reading {
		return
	}
	h.frame(FromClient, f, now)
}

// responseHead decides what the response is to its request (RFC 9112, 6.3).
func (h *H1) responseHead(f *flow, now time.Duration) {
	e := h.open.front()
	status := f.head.status
	switch {
	case status == 101:
		h.switched(f, e, now)
		return
	case status < 200: // the real response follows
		f.at = atStart
		return
	}
	h.resp.verdict = verdict{status: status, content: f.head.content, grpcStatus: -1}
	switch {
	case e.method == Connect && status < 300:
		h.respond("", now)
		h.stop(Tunnel, ReasonConnect)
	case e.method == Head, status == 204, status == 304:
		h.messageDone(FromServer, f, now)
	case !f.head.chunked && f.head.length < 0:
		f.at = toEOF
	default:
		h.frame(FromServer, f, now)
	}
}

// frame goes to the body, or past it.
func (h *H1) frame(from Side, f *flow, now time.Duration) {
	switch {
	case f.head.chunked:
		f.at, f.size = atChunk, 0
	case f.head.length > 0:
		f.at, f.left = inBody, f.head.length
	default:
		h.messageDone(from, f, now)
	}
}

// bodyDone is called at the end of a body of known length or of a chunk.
func (h *H1) bodyDone(from Side, f *flow, now time.Duration) {
	if f.at == inChunk {
		f.at, f.size = atChunkEnd, 0
		return
	}
	h.messageDone(from, f, now)
}

// messageDone is called at the end of a message.
func (h *H1) messageDone(from Side, f *flow, now time.Duration) {
	f.at = atStart
	if from == FromClient {
		if f.hold {
			f.at = held
		}
		return
	}
	h.resp.grpcStatus = f.head.grpc
	h.respond("", now)
	h.release()
}

// release lets the client's next request be read once CONNECT or Upgrade was
// declined. Bytes that came before are lost: nobody could tell what they were.
func (h *H1) release() {
	f := &h.flows[FromClient]
	if !f.hold || h.open.len() > 0 {
		return
	}
	f.hold = false
	if f.early {
		h.lose(ReasonFraming)
	} else if f.at == held {
		f.at = atStart
	}
}

// switched follows a 101: HTTP/2 after h2c (RFC 7540, 3.2), else a tunnel.
func (h *H1) switched(f *flow, e *exchange, now time.Duration) {
	client := &h.flows[FromClient]
	switch {
	case !e.upgrade || h.open.len() > 1:
		h.lose(ReasonMalformed)
	case f.head.h2c && client.at == held && !client.early:
		h.h2 = NewH2(h.rec)
		if h.tell {
			h.h2.Tell()
		}
		h.h2.adopt(e)
		h.open, h.flows = queue{}, [2]flow{}
	default:
		h.resp.verdict = verdict{status: 101, grpcStatus: -1}
		h.respond("", now)
		h.stop(Tunnel, ReasonUpgrade)
	}
}

// chunkLine reads "size [;ext]" (RFC 9112, 7.1). A bare LF is one of the ways
// to be read differently by different ends.
func (f *flow) chunkLine(l *line) Reason {
	if !l.hasCR() {
		return ReasonFraming
	}
	n, i := int64(0), 0
	for ; i < len(l.start); i++ {
		d := hexDigit(l.start[i])
		if d < 0 {
			break
		}
		if i == 15 { // 60 bits
			return ReasonLimit
		}
		n = n<<4 | int64(d)
	}
	rest := trim(l.start[i:])
	if i == 0 || len(rest) > 0 && rest[0] != ';' {
		return ReasonMalformed
	}
	f.at, f.left = inChunk, n
	if n == 0 {
		f.at, f.size, f.count = atTrailers, 0, 0
	}
	return ""
}

// hexDigit returns the value of a digit, or -1.
func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	default:
		return -1
	}
}
