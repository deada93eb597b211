package h2

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/hpack"
	"github.com/meshctl/meshctl/proxy/message"
)

// phase is how far a connection has come. Draining ones take no new streams.
type phase uint8

const (
	open      phase = iota
	warned          // a server has said that it will take no more, and waits for streams under way
	draining        // no new streams; ends with the last
	lingering       // our FIN is sent or about to be; what still comes is thrown away
	dead
)

const (
	crowded     = 1 << 20   // bytes waiting on a connection above which each stream is full
	outMax      = 64 << 10  // bytes collected for one write
	outChoked   = 128 << 10 // bytes unsent above which nothing more is read
	readRounds  = 4         // reads before other connections get their turn
	lingerBytes = 16 << 20  // thrown away after our FIN, so that the peer can read why
	lingerTime  = time.Second
	lastCall    = time.Second // from the warning to the final GOAWAY, if the peer is silent
)

// link is one connection, in either role. All of it runs on the loop's goroutine.
type link struct {
	sock   *conn.Socket
	loop   *conn.Loop
	pool   *pool
	cfg    Config
	server bool
	phase  phase
	opener message.Opener // of a server
	client *Client        // nil: a server
	room   func()         // of a client: a stream has ended
	done   func(error)    // the socket is closed

	streams  table
	newest   uint32 // highest number that was opened
	refuseAt uint32 // of a server: streams above it are not taken
	gone     closedStreams

	// What comes in.
	readable bool
	settled  bool   // the first SETTINGS has come
	preface  int    // bytes of it still to come
	rest     []byte // a frame that is cut
	body     bodyFrame
	block    []byte        // a header block that goes on
	blockOf  header        // the frame that began it; id 0: none
	pieces   int           // CONTINUATION frames of it
	oneself  bool          // it depends on itself (RFC 7540, 5.3.1)
	since    time.Duration // when what is cut began; 0: nothing is
	dec      hpack.Decoder
	recvLeft int
	unacked  int
	peer     settings

	// What goes out.
	out      []byte
	sent     int // of out
	blocked  bool
	stuck    time.Duration // since when
	queued   bool          // for Flush
	roomy    bool          // room is to be called
	leaving  bool          // the peer has said GOAWAY
	broken   syscall.Errno
	enc      hpack.Encoder
	sendLeft int64
	owed     int64 // bytes sent that the peer may give window back for
	ready    ring  // streams with something to send and window for it
	pend     int   // bytes waiting on all streams

	resets  budget
	bothers budget
	timer   conn.Timer
	due     time.Duration
	heard   time.Duration // last bytes
	idle    time.Duration // since when there are no streams
	pinged  time.Duration // a PING is not answered since; 0: none
	until   time.Duration // of warned and lingering
	spilled int           // thrown away while lingering
	cause   error

	bytesIn, bytesOut uint64
}

// settings are the peer's.
type settings struct {
	window     int64
	frame      int
	maxStreams uint32
}

// bodyFrame is the DATA frame at hand.
type bodyFrame struct {
	s      *stream // nil: nobody wants it
	left   int     // bytes of content still to come
	pad    int     // and of padding, or of a frame that is skipped
	end    bool
	counts bool // in the connection's window
}

// setUp makes l a connection on sock.
func (l *link) setUp(loop *conn.Loop, sock *conn.Socket, cfg Config) {
	l.sock, l.loop, l.cfg = sock, loop, cfg.withDefaults()
	l.pool = poolOf(loop, l.cfg.MaxHead)
	l.refuseAt = maxStreamID
	l.dec = hpack.NewDecoder()
	l.recvLeft, l.sendLeft = int(l.cfg.ConnWindow), defaultWindow
	l.peer = settings{window: defaultWindow, frame: ownFrame, maxStreams: 100}
	l.resets.fill(resetBudget, loop.Now())
	l.bothers.fill(botherBudget, loop.Now())
	l.heard, l.idle = l.now(), l.now()
	sock.Handle(l)
}

// Ready handles readiness of the socket.
func (l *link) Ready(_ *conn.Socket, ev conn.Events) {
	if ev.Has(conn.Writable) && l.blocked {
		l.blocked = false
		l.Flush()
	}
	if ev.Has(conn.Readable) {
		l.readable = true
	}
	l.read()
}

// Panicked ends the connection that panicked.
func (l *link) Panicked(v any, stack []byte) {
	l.cause = fmt.Errorf("panic: %v\n%s", v, stack)
	l.lose(l.cause)
}

// read reads until nothing is there, others have to get their turn, or the peer
// takes nothing of what it is told.
func (l *link) read() {
	for round := 0; l.readable && l.phase != dead; round++ {
		if l.blocked && len(l.out)-l.sent > outChoked {
			return // goes on when that is written
		}
		if round == readRounds {
			l.sock.Again()
			return
		}
		buf := l.loop.Scratch
		old := copy(buf, l.rest)
		n, e := l.sock.Read(buf[old:])
		switch {
		case e == unix.EAGAIN:
			l.readable = false
			return
		case e != 0:
			l.lose(fmt.Errorf("reading: %w", e))
			return
		case n == 0:
			l.lose(io.EOF)
			return
		}
		if n < len(buf)-old && l.sock.Drained() {
			l.readable = false
		}
		l.heard = l.now()
		l.bytesIn += uint64(n)
		l.feed(buf[:old+n])
	}
}

// feed takes bytes that begin with what was left of the last ones.
func (l *link) feed(b []byte) {
	if l.phase == lingering {
		l.spill(len(b))
		return
	}
	left := l.parse(b)
	if l.phase >= lingering {
		left = nil
	}
	if len(left) > 0 {
		l.rest = append(l.pool.grow(l.rest[:0], len(left)), left...)
	} else if l.rest != nil {
		l.pool.give(l.rest)
		l.rest = nil
	}
	l.clock(len(left) < len(b), len(left) > 0)
}

// clock notes since when a frame or a header block is incomplete. moved tells
// that whole frames have come since the last call.
func (l *link) clock(moved, cut bool) {
	within := l.preface > 0 || l.blockOf.id != 0
	switch {
	case !cut && !within:
		l.since = 0
	case l.since == 0, moved && !within:
		l.since = l.now()
		l.arm(l.since + l.cfg.HeadTimeout)
	}
}

// now is the loop's time, never zero, which means "not at all" here.
func (l *link) now() time.Duration { return max(l.loop.Now(), 1) }

// spill throws away what comes after the end.
func (l *link) spill(n int) {
	if l.spilled += n; l.spilled > lingerBytes {
		l.close()
	}
}

// fail ends the connection because the peer broke the protocol.
func (l *link) fail(code errorCode, reason string) {
	if l.phase >= lingering {
		return
	}
	l.writeGoAway(l.newest, code)
	l.finish(&Error{Code: code.String(), Reason: reason})
	meaning := message.Protocol
	if code == enhanceYourCalm {
		meaning = message.Exhausted
	}
	l.abortAll(meaning)
}

// finish ends the connection once what is written has left.
func (l *link) finish(cause error) {
	if l.phase >= lingering {
		return
	}
	l.phase, l.cause = lingering, cause
	l.until = l.loop.Now() + lingerTime
	l.arm(l.until)
	l.flushSoon()
}

// lose ends the connection at once: it broke.
func (l *link) lose(cause error) {
	if l.phase == dead {
		return
	}
	if l.phase == lingering {
		l.close() // it was over anyway
		return
	}
	l.phase, l.cause = lingering, cause // so that nothing is written
	l.abortAll(message.Closed)
	if errors.Is(cause, io.EOF) {
		l.close()
		return
	}
	l.sock.Reset()
	l.close()
}

// abortAll tells every stream that the connection is over.
func (l *link) abortAll(code message.Code) {
	l.streams.each(func(s *stream) {
		told := s.over
		s.over = true
		l.remove(s, byPeer)
		if !told {
			s.recv.Aborted(s, code)
		}
	})
}

// close closes the socket and tells the owner.
func (l *link) close() {
	if l.phase == dead {
		return
	}
	l.phase = dead
	l.loop.Cancel(&l.timer)
	l.sock.Close()
	for _, b := range [][]byte{l.out, l.rest, l.block} {
		l.pool.give(b)
	}
	l.out, l.rest, l.block, l.sent = nil, nil, nil, 0
	l.done(l.cause)
}
