package l4

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
)

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
