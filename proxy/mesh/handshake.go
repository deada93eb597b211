package mesh

import (
	"context"
	"crypto/tls"
	"iter"
	"runtime/debug"
	"time"

	"github.com/meshctl/meshctl/proxy/conn"
)

// stepsFor is how long a loop computes handshakes before others get their turn.
// One step takes a fraction of a millisecond; without this a crowd of new
// connections would hold up all that are there.
const stepsFor = time.Millisecond

// HandshakeTimeout is how long whoever connects to an endpoint waits for the end of
// the handshake.
const HandshakeTimeout = 5 * time.Second

// Handshake is a TLS handshake on a socket of a loop. crypto/tls wants to wait for
// its peer in the middle of a call; here that call is a coroutine of the loop's
// goroutine, which goes on when the socket is readable. It is the socket's
// handler until it has ended.
type Handshake struct {
	queue  *queue
	sess   *Session
	next   func() (struct{}, bool)
	stop   func()
	owner  Owner
	done   func(*Session, error)
	err    error
	queued bool
	over   bool
}

// Owner has a connection whose handshake is under way.
type Owner interface {
	// Panicked is called when the handshake or done has panicked.
	Panicked(value any, stack []byte)
}

// verifier says who the peer of a finished handshake is.
type verifier func(tls.ConnectionState) (Peer, error)

// begin starts a handshake. head are the bytes that were read already; done is
// called once, on the loop, and not before begin has returned. The socket's owner
// closes it when done says an error, or after GiveUp. setUp makes the TLS
// connection, and peer what the finished handshake told; an error of setUp is
// that of the handshake.
func begin(sock *conn.Socket, head []byte, setUp func(*wire) (*tls.Conn, verifier, error), owner Owner, done func(*Session, error)) *Handshake {
	loop := sock.Loop()
	s := &Session{joined: joinBuffer(loop)}
	s.wire.sock, s.wire.head = sock, append([]byte(nil), head...)
	h := &Handshake{queue: conn.Local[queue](loop), sess: s, owner: owner, done: done}
	h.queue.loop = loop
	h.next, h.stop = iter.Pull(func(yield func(struct{}) bool) {
		var peer verifier
		if s.tls, peer, h.err = setUp(&s.wire); h.err != nil {
			return
		}
		s.wire.wait = func() bool { return yield(struct{}{}) }
		if h.err = s.tls.HandshakeContext(context.Background()); h.err == nil {
			s.peer, h.err = peer(s.tls.ConnectionState())
		}
		s.wire.wait = nil
	})
	sock.Handle(h)
	h.queue.add(h)
	return h
}

// Ready goes on with the handshake, soon.
func (h *Handshake) Ready(_ *conn.Socket, ev conn.Events) {
	if ev.Has(conn.Writable) {
		h.sess.wire.flush()
	}
	if ev.Has(conn.Readable) {
		h.queue.add(h)
	}
}

// Panicked ends the handshake and tells its owner.
func (h *Handshake) Panicked(v any, stack []byte) {
	h.over = true
	h.owner.Panicked(v, stack)
}

// GiveUp ends the handshake without a call of done.
func (h *Handshake) GiveUp() {
	if h == nil || h.over {
		return
	}
	h.over = true
	h.stop()
}

// step computes until the peer has to be waited for.
func (h *Handshake) step() {
	if h.over {
		return
	}
	if _, more := h.next(); more {
		return
	}
	h.end(h.err)
}

func (h *Handshake) end(err error) {
	h.over = true
	if err != nil {
		h.sess.wire.flush() // the alert
		h.done(nil, err)
		return
	}
	h.sess.wire.sock.Wrap(h.sess)
	h.done(h.sess, nil)
}

// queue is a loop's handshakes that can go on.
type queue struct {
	loop    *conn.Loop
	first   []*Handshake
	timer   conn.Timer
	waiting bool
}

func (q *queue) add(h *Handshake) {
	if h.queued {
		return
	}
	h.queued = true
	q.first = append(q.first, h)
	q.soon()
}

func (q *queue) soon() {
	if !q.waiting {
		q.waiting = true
		q.loop.FlushSoon(q)
	}
}

// Flush computes for a while.
func (q *queue) Flush() {
	q.waiting = false
	began := time.Now()
	for len(q.first) > 0 {
		h := q.first[0]
		q.first[0] = nil
		q.first = q.first[1:]
		h.queued = false
		h.contained()
		if time.Since(began) >= stepsFor {
			break
		}
	}
	if len(q.first) == 0 {
		q.first = nil
		return
	}
	q.loop.Start(&q.timer, 0, q) // in the next round
}

// Expired goes on in the next round.
func (q *queue) Expired(*conn.Timer) { q.soon() }

// Panicked is not of a handshake: those are contained one by one.
func (q *queue) Panicked(v any, _ []byte) { panic(v) }

// contained keeps a panic in the handshake that it comes from.
func (h *Handshake) contained() {
	defer func() {
		if v := recover(); v != nil {
			h.Panicked(v, debug.Stack())
		}
	}()
	h.step()
}
