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
