// Package l4 relays bytes between two sockets of one event loop, both ways,
// and keeps the meaning of TCP: a FIN is passed on as a FIN while the other
// direction flows on, a RST as a RST, and a slow reader stops the writer. It
// is driven by readiness, holds nothing while idle, and knows no protocol.
package l4

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
)

// Side is one end of a relay; bytes read from it go to the other.
type Side uint8

// The two ends.
const (
	Client Side = iota
	Server
)

// Other returns the opposite side.
func (s Side) Other() Side { return 1 - s }

const (
	// roundBytes is how much one direction moves before other connections get
	// their turn.
	roundBytes = 1 << 20
	// bulkReads full reads in a row make a stream bulk: it is spliced from then
	// on, so that small exchanges never pay for a pipe.
	bulkReads = 3
	// slowRead is the most read at once for a peer that did not take all of the
	// last write, so that it holds little memory.
	slowRead = 16 << 10
	// A side whose peer broke is reset only when it has acknowledged what it was
	// sent: a RST throws away what is still under way. It is looked at after
	// lingerFirst, then at growing intervals, for lingerMost.
	lingerFirst = 2 * time.Millisecond
	lingerStep  = 256 * time.Millisecond
	lingerMost  = 30 * time.Second
)

// Watcher sees a relay's bytes and ends go by. All calls are made on the loop's
// goroutine, before the bytes are written on.
type Watcher interface {
	// Expired is called when a timer of the relay has expired; it has to be
	// handed on to Relay.Expired. Panicked is called when that has panicked.
	conn.Expirer
	// Passed is told of n bytes read from a side; b holds them unless they were
	// spliced, which only happens when Splice has returned true.
	Passed(from Side, b []byte, n int)
	// Wrote is told of n bytes that a side's socket took.
	Wrote(to Side, n int)
	// Splice reports whether bytes from a side need not be seen.
	Splice(from Side) bool
	// Ended is told of a side's FIN.
	Ended(from Side)
	// Finished is called once, when both sockets are closed. err is 0 after two
	// FINs, else what broke the connection (ECONNRESET, ETIMEDOUT, ...), and
	// from is the side that broke.
	Finished(from Side, err syscall.Errno)
}

// Relay copies between two attached sockets. Set Sock and Watch, then Start.
// The zero value apart from that is ready.
type Relay struct {
	Sock  [2]*conn.Socket
	Watch Watcher
	// Fresh marks a socket that was attached since the loop last looked for events:
	// what it holds makes an event yet, so that Start need not try to read it.
	Fresh [2]bool
	dir   [2]direction // by the side that is read
	done  bool

	// Once a side broke and the other has not acknowledged everything yet:
	lingering bool
	broke     Side
	err       syscall.Errno
	wait      time.Duration
	until     time.Duration // on the loop's clock
	timer     conn.Timer
}

// direction is the state of the bytes from one side to the other.
type direction struct {
	pending []byte        // read, not yet taken by the other side
	pipe    *conn.Pipe    // held while bulk
	full    uint8         // full reads in a row
	ready   bool          // there may be something to read
	slow    bool          // the last write was not taken whole
	eof     bool          // the FIN was read
	shut    bool          // and passed on, or nobody is left to pass it to
	lost    syscall.Errno // why nobody is left
}

// Start begins with bytes that were already read from a side (they go out
// first; what is not taken is copied) and with whatever can be read now.
func (r *Relay) Start(from Side, head []byte) {
	if len(head) > 0 {
		r.dir[from].pending = append([]byte(nil), r.send(from, head)...)
	}
	for s := range r.dir {
		r.dir[s].ready = !r.Fresh[s]
	}
	r.pump(Client)
	r.pump(Server)
}

// Ready handles readiness of one side's socket.
func (r *Relay) Ready(side Side, ev conn.Events) {
	if r.lingering {
		if ev.Has(conn.Failed) {
			r.Abort(r.broke, r.err)
		}
		return
	}
	if ev.Has(conn.Failed) && !r.done && r.dir[side].eof {
		if e := r.Sock[side].Err(); e != 0 { // a RST after the FIN: no read will tell
			r.fail(side, e)
			return
		}
	}
	if ev.Has(conn.Writable) && !r.done {
		r.pump(side.Other())
	}
	if ev.Has(conn.Readable) && !r.done {
		r.dir[side].ready = true
		r.pump(side)
	}
}

// Held is the number of bytes read and not yet taken by the other side.
func (r *Relay) Held() int {
	n := 0
	for s := range r.dir {
		n += len(r.dir[s].pending)
		if p := r.dir[s].pipe; p != nil {
			n += p.N
		}
	}
	return n
}

// HalfClosed reports whether exactly one side has sent its FIN.
func (r *Relay) HalfClosed() bool { return r.dir[Client].eof != r.dir[Server].eof }

// Abort resets both sides at once.
func (r *Relay) Abort(from Side, err syscall.Errno) {
	if r.done {
		return
	}
	r.done, r.lingering = true, false
	r.release()
	r.Sock[Client].Loop().Cancel(&r.timer)
	r.Sock[Client].Reset()
	r.Sock[Server].Reset()
	r.Watch.Finished(from, err)
}

// Close closes both sides with a FIN. A relay that a side has broken ends by
// itself.
func (r *Relay) Close() {
	if r.over() {
		return
	}
	r.done = true
	r.release()
	r.Sock[Client].Close()
	r.Sock[Server].Close()
	r.Watch.Finished(Client, 0)
}

// fail passes on that a side broke: the other gets its RST after everything it
// has been sent.
func (r *Relay) fail(from Side, err syscall.Errno) {
	if r.over() {
		return
	}
	if err == unix.EPIPE { // what the kernel calls a RST after a FIN
		err = unix.ECONNRESET
	}
	r.release()
	loop := r.Sock[from].Loop()
	r.lingering, r.broke, r.err = true, from, err
	r.wait, r.until = lingerFirst, loop.Now()+lingerMost
	r.Expired()
}

// Expired looks again at a side that has not acknowledged everything.
func (r *Relay) Expired() {
	if !r.lingering {
		return
	}
	to := r.Sock[r.broke.Other()]
	loop := to.Loop()
	if to.Unacknowledged() == 0 || loop.Now() >= r.until {
		r.Abort(r.broke, r.err)
		return
	}
	loop.Start(&r.timer, r.wait, r.Watch)
	r.wait = min(2*r.wait, lingerStep)
}

// over reports that nothing more is relayed.
func (r *Relay) over() bool { return r.done || r.lingering }

func (r *Relay) release() {
	for s := range r.dir {
		d := &r.dir[s]
		d.pending = nil
		if d.pipe != nil {
			r.Sock[s].Loop().GivePipe(d.pipe)
			d.pipe = nil
		}
	}
}

// pump moves what can be moved from one side to the other.
func (r *Relay) pump(from Side) {
	d := &r.dir[from]
	for moved := 0; !r.over() && !d.shut; {
		if !r.flush(from) {
			return
		}
		if d.eof {
			r.passFIN(from)
			return
		}
		if !d.ready {
			return
		}
		if moved >= roundBytes {
			r.Sock[from].Again()
			return
		}
		if d.full >= bulkReads && r.spliceable(from) {
			moved += r.fill(from)
		} else {
			moved += r.copy(from)
		}
	}
}

// spliceable reports whether the kernel can move bytes from a side by itself.
func (r *Relay) spliceable(from Side) bool {
	src := r.Sock[from]
	return !src.Urgent() && !src.Wrapped() && !r.Sock[from.Other()].Wrapped() && r.Watch.Splice(from)
}

// copy reads once and writes once through the loop's scratch buffer.
func (r *Relay) copy(from Side) int {
	d, src := &r.dir[from], r.Sock[from]
	buf := src.Loop().Scratch
	if d.slow {
		buf = buf[:slowRead]
	}
	n, e := src.Read(buf)
	if !r.took(from, n, e) {
		return 0
	}
	if n == len(buf) {
		d.full = min(d.full+1, bulkReads)
	} else {
		d.full = 0
		d.ready = !src.Drained()
	}
	r.Watch.Passed(from, buf[:n], n)
	if r.over() {
		return n
	}
	rest := r.send(from, buf[:n])
	d.slow = len(rest) > 0
	if d.slow && !d.shut && !r.over() {
		d.pending = append([]byte(nil), rest...) // owned: the scratch buffer is the next connection's
	}
	return n
}

// took sorts out the result of a read or splice from a side; false means that
// no bytes came.
func (r *Relay) took(from Side, n int, e syscall.Errno) bool {
	d, back := &r.dir[from], &r.dir[from.Other()]
	switch {
	case e == unix.EAGAIN:
		d.ready = false
	case e != 0:
		r.fail(from, e)
	case n == 0 && back.lost != 0 && back.lost != unix.EPIPE:
		// The RST was told to the write that met it: what looks like the end is
		// none. (EPIPE is the RST of a side whose FIN had come.)
		r.fail(from, back.lost)
	case n == 0:
		d.eof, d.ready = true, false
		r.Watch.Ended(from)
	default:
		return true
	}
	return false
}

// send writes b to the other side of from and returns what was not taken.
func (r *Relay) send(from Side, b []byte) []byte {
	to := from.Other()
	n, e := r.Sock[to].Write(b)
	if n > 0 {
		r.Watch.Wrote(to, n)
	}
	if e != 0 && e != unix.EAGAIN {
		r.broken(from, e)
		return nil
	}
	return b[n:]
}

// flush writes what is pending; true means that nothing is left.
func (r *Relay) flush(from Side) bool {
	d := &r.dir[from]
	if len(d.pending) > 0 {
		d.pending = r.send(from, d.pending)
		if len(d.pending) > 0 {
			return false
		}
		d.pending = nil
	}
	if d.pipe != nil && d.pipe.N > 0 {
		r.drain(from)
	}
	if d.pipe != nil && d.pipe.N == 0 && (!d.ready || d.eof) {
		r.Sock[from].Loop().GivePipe(d.pipe)
		d.pipe = nil
	}
	return !r.over() && !d.shut && (d.pipe == nil || d.pipe.N == 0)
}

// fill splices once from a side into a pipe.
func (r *Relay) fill(from Side) int {
	d, src := &r.dir[from], r.Sock[from]
	if d.pipe == nil {
		if d.pipe = src.Loop().TakePipe(); d.pipe == nil {
			d.full = 0 // no pipe to be had: copy on, ask again later
			return 0
		}
	}
	n, e := d.pipe.Fill(src)
	if !r.took(from, n, e) {
		d.full = 0
		return 0
	}
	r.Watch.Passed(from, nil, n)
	return n
}

// drain splices the pipe's bytes to the other side.
func (r *Relay) drain(from Side) {
	p, to := r.dir[from].pipe, from.Other()
	for p.N > 0 {
		n, e := p.Drain(r.Sock[to])
		if e == unix.EAGAIN {
			return
		}
		if e != 0 {
			r.broken(from, e)
			return
		}
		r.Watch.Wrote(to, n)
	}
}

// broken handles a side that takes no more bytes: its RST has come. What it
// sent before may still be unread and whole, so that is passed on first; the
// read that follows it tells the end.
func (r *Relay) broken(from Side, e syscall.Errno) {
	d, back := &r.dir[from], &r.dir[from.Other()]
	d.shut, d.eof, d.pending, d.lost = true, true, nil, e
	if back.shut {
		r.fail(from.Other(), e)
		return
	}
	back.ready = true
	r.pump(from.Other())
}

// passFIN ends one direction; after the second the connection is over.
func (r *Relay) passFIN(from Side) {
	d, back := &r.dir[from], &r.dir[from.Other()]
	d.shut = true
	if back.shut && back.lost == 0 {
		r.Close()
		return
	}
	r.Sock[from.Other()].CloseWrite()
	if back.shut {
		r.fail(from, back.lost)
	}
}
