package h1

import (
	"bytes"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/message"
)

const (
	// direct is the size from which a piece of body is written at once, with
	// what was collected before it; smaller ones are collected.
	direct = 16 << 10
	// roundBytes is how much one connection reads before others get their turn.
	roundBytes = 1 << 20
)

// link is what both roles have: a socket, bytes that were read and cannot be
// understood yet, and bytes that wait to be written. While idle it holds no
// buffer.
type link struct {
	loop *conn.Loop
	lane *lane
	sock *conn.Socket
	cfg  Config
	in   []byte // read, kept for later
	out  []byte // to be written, from off on
	off  int
	sent int64 // bytes of this exchange that the kernel took

	readable bool // there may be something to read
	held     bool // the middle wants no more data
	blocked  bool // the kernel took no more
	high     bool // Pending was above HighWater
	queued   bool // for Flush
	mute     bool // nothing can be sent any more
}

func newLink(loop *conn.Loop, sock *conn.Socket, cfg Config) link {
	return link{loop: loop, lane: conn.Local[lane](loop), sock: sock, cfg: cfg.withDefaults(), readable: true}
}

// soon has f flushed at the end of the round.
func (l *link) soon(f conn.Flusher) {
	if !l.queued {
		l.queued = true
		l.loop.FlushSoon(f)
	}
}

// Pending implements message.Stream.
func (l *link) Pending() int { return len(l.out) - l.off }

// buffer returns out, to be appended to.
func (l *link) buffer() []byte {
	if l.out == nil {
		l.out = l.lane.take()
	}
	return l.out
}

// write sends or collects bytes. What goes wrong shows in the next Flush or read.
func (l *link) write(b []byte) {
	if l.mute {
		return
	}
	if len(b) >= direct && !l.blocked {
		b = l.writeNow(b)
	}
	if len(b) > 0 {
		l.out = append(l.buffer(), b...)
	}
	l.high = l.high || l.Pending() > message.HighWater
}

// writeNow writes what was collected and then b, and returns what is left of b.
func (l *link) writeNow(b []byte) []byte {
	before := l.Pending()
	n, e := l.sock.WriteTwo(l.out[l.off:], b)
	if e != 0 {
		l.blocked = e == unix.EAGAIN // another error comes again in Flush
		return b
	}
	l.sent += int64(n)
	l.blocked = n < before+len(b)
	if n < before {
		l.off += n
		return b
	}
	l.out, l.off = l.out[:0], 0
	return b[n-before:]
}

// push writes what was collected.
func (l *link) push() syscall.Errno {
	if l.Pending() > 0 && !l.blocked {
		n, e := l.sock.Write(l.out[l.off:])
		if e != 0 && e != unix.EAGAIN {
			return e
		}
		if e == 0 {
			l.off += n
			l.sent += int64(n)
		}
		l.blocked = l.Pending() > 0
	}
	if l.Pending() == 0 && l.out != nil {
		l.dropOut()
	}
	return 0
}

func (l *link) dropOut() {
	l.lane.give(l.out)
	l.out, l.off = nil, 0
}

// drained reports, once, that a sender that had to stop may go on.
func (l *link) drained() bool {
	if !l.high || l.Pending() > message.HighWater/2 {
		return false
	}
	l.high = false
	return true
}

// read reads once into the loop's scratch buffer. ok: there are bytes; else e is
// EAGAIN, an error, or 0 for the peer's FIN.
func (l *link) read() (b []byte, ok bool, e syscall.Errno) {
	n, e := l.sock.Read(l.loop.Scratch)
	switch {
	case e != 0:
		l.readable = false
		return nil, false, e
	case n == 0:
		l.readable = false
		return nil, false, 0
	}
	l.readable = n == len(l.loop.Scratch) || !l.sock.Drained()
	return l.loop.Scratch[:n], true, 0
}

// joined puts b behind what was kept. more: b can complete a head or trailers,
// which end with a line.
func (l *link) joined(b []byte) (all []byte, more bool) {
	if len(l.in) == 0 {
		return b, true
	}
	l.in = append(l.in, b...)
	return l.in, len(l.in) > l.cfg.MaxHead || bytes.IndexByte(b, '\n') >= 0
}

// keep keeps rest, which may be a part of what was kept, for later.
func (l *link) keep(rest []byte) {
	if len(rest) == 0 {
		if l.in != nil {
			l.lane.give(l.in)
			l.in = nil
		}
		return
	}
	if l.in == nil {
		l.in = l.lane.take()
	}
	l.in = append(l.in[:0], rest...)
}

// release gives the buffers back at the end of the connection.
func (l *link) release() {
	l.keep(nil)
	if l.out != nil {
		l.dropOut()
	}
}

// parser readies the loop's parser.
func (l *link) parser(response bool) *parser {
	p := &l.lane.parser
	p.maxHead, p.maxFields, p.response = l.cfg.MaxHead, l.cfg.MaxFields, response
	return p
}

// outgoing is the framing of the message that is being sent.
type outgoing struct {
	coding coding
	said   int64 // Content-Length to write, message.Unknown: none
	left   int64 // byLength: to come
}

// content sends a piece of body. It reports false when that is not what the
// head said: the message cannot be ended then, only cut.
func (l *link) content(o *outgoing, b []byte, end bool) bool {
	if l.mute {
		return true
	}
	switch o.coding {
	case byLength:
		if o.left -= int64(len(b)); o.left < 0 || end && o.left > 0 {
			return false
		}
		l.write(b)
	case byChunks:
		if len(b) > 0 {
			l.out = appendChunk(l.buffer(), len(b))
			l.write(b)
			l.out = append(l.buffer(), '\r', '\n')
		}
		if end {
			l.out = append(l.buffer(), "0\r\n\r\n"...)
		}
	case byClose:
		l.write(b)
	}
	return true
}

// trailer ends a message with trailer fields; only chunks can carry them.
func (l *link) trailer(o *outgoing, h *message.Head) bool {
	if o.coding != byChunks || l.mute {
		return l.content(o, nil, true)
	}
	var w headWriter
	w.begin(append(l.buffer(), '0', '\r', '\n'))
	w.fields(h.Fields)
	ok := w.close()
	l.out = w.b
	return ok
}
