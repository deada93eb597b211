package h1

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/message"
)

// state is what the next bytes that are read mean. Of a Server:
//
//	atHead -> atBody -> atEndOfBody -> atWait -> atHead  (the response has ended)
//	   ^  \_____________________________^  |
//	   |                                   +--> atTunnel (101, or 2xx to CONNECT)
//	any --> atRest: the last response is written, what comes is dropped
//	any --> over
//
// A Client has atIdle in place of atWait and never is at rest.
type state uint8

const (
	atHead state = iota
	atBody
	atEndOfBody // trailers
	atWait      // the request is whole; what comes behind it has to wait
	atTunnel
	atRest
	atIdle
	over
)

var errShort = errors.New("the client ended within its request")

// lingerTime is how long a client may go on sending after the last response,
// so that the RST of an early close does not destroy it (RFC 9112, 9.6).
const lingerTime = 2 * time.Second

// Server is a client's connection: it takes one request after the other and is
// the message.Stream of each.
type Server struct {
	link
	open  message.Opener
	ended func(error)

	recv    message.Receiver // nil: no stream is open
	failed  message.Receiver // to be told in Flush that the stream is over
	body    body
	resp    outgoing
	err     error
	version message.Version // of the request
	at      state

	isHead  bool // the request's method is HEAD
	connect bool // CONNECT
	asked   bool // for an upgrade
	stays   bool // the connection may go on after this exchange
	reqDone bool // the request has ended; in a tunnel, the client's bytes have
	begun   bool // the response's final head was sent
	done    bool // the response has ended; in a tunnel, the middle's bytes have
	shut    bool // the FIN was sent
	parked  bool // what is kept waits for the state to change, not for more bytes
	drain   bool

	timer    conn.Timer
	deadline time.Duration // loop time; 0: none
	armed    time.Duration // what timer was started for
	last     uint64        // round in which the last exchange ended
	seen     int64         // of sent, when the deadline was last moved for it
	timing   bool          // the head's time runs
}

// NewServer takes over an attached socket; call Start next. ended is called once,
// when the connection is over: with nil, a *Refusal, or what broke it.
func NewServer(loop *conn.Loop, sock *conn.Socket, cfg Config, open message.Opener, ended func(error)) *Server {
	return &Server{link: newLink(loop, sock, cfg), open: open, ended: ended, reqDone: true, last: loop.Round() - 1}
}

// Start serves the connection, of which head was read already.
func (c *Server) Start(head []byte) {
	c.sock.Handle(c)
	c.timing = true
	c.due(c.cfg.HeadTimeout)
	if len(head) > 0 {
		c.input(head)
	}
	c.pump()
	c.look(0)
}

// Drain ends the connection after the exchange that is open, or at once.
func (c *Server) Drain() {
	c.drain = true
	if c.Idle() {
		c.rest(nil)
	}
}

// Idle reports whether no request is open or begun.
func (c *Server) Idle() bool { return c.at == atHead && c.recv == nil && len(c.in) == 0 }

// Ready implements conn.Handler.
func (c *Server) Ready(_ *conn.Socket, ev conn.Events) {
	if c.at == over {
		return
	}
	if ev.Has(conn.Writable) && c.blocked {
		c.blocked = false
		c.Flush()
	}
	if ev.Has(conn.Readable) {
		c.readable = true
	}
	c.pump()
	c.look(ev)
}

// look finds out whether the client is gone while nothing is read.
func (c *Server) look(ev conn.Events) {
	waits := c.at == atWait
	stuck := c.recv != nil && c.held && (c.at == atBody || c.at == atEndOfBody)
	switch {
	case (waits || stuck || c.at == atTunnel && c.reqDone && !c.shut) && ev.Has(conn.Failed):
		c.gone(unix.ECONNRESET)
	case waits && c.sock.HungUp() && !c.cfg.HalfClose:
		c.gone(nil)
	}
}

// pump reads as long as something is there and wanted.
func (c *Server) pump() {
	for read := 0; c.at != over && (c.readable || c.parked); {
		if c.at == atWait || c.at == atTunnel && c.reqDone || c.held && c.at != atRest {
			return
		}
		if c.at == atHead && c.Pending() > message.HighWater {
			return // Flush goes on
		}
		if c.at == atHead && c.last == c.loop.Round() {
			c.sock.Again() // late calls of the exchange that is over must not hit the next
			return
		}
		if read >= roundBytes {
			c.sock.Again()
			return
		}
		if c.parked {
			c.parked = false
			c.input(c.in)
			continue
		}
		b, ok, e := c.read()
		if !ok {
			c.nothing(e)
			return
		}
		read += len(b)
		if all, more := c.joined(b); more {
			c.input(all)
		}
	}
}

// nothing handles the end of what can be read.
func (c *Server) nothing(e syscall.Errno) {
	switch {
	case e == unix.EAGAIN:
	case e != 0:
		c.gone(e)
	case c.at == atTunnel:
		c.reqDone = true
		c.recv.Data(c, nil, true)
		if c.done && c.at == atTunnel {
			c.rest(nil)
		}
	case c.at == atRest:
		c.end(c.err, false)
	case c.recv != nil:
		c.gone(errShort)
	default:
		c.rest(nil)
	}
}

// gone ends the connection because the client has.
func (c *Server) gone(err error) {
	recv := c.recv
	c.end(err, false)
	if recv != nil {
		recv.Aborted(c, message.Closed)
	}
}

// rest writes what is left, then ends the connection.
func (c *Server) rest(err error) {
	if c.at == over || c.at == atRest {
		return
	}
	c.recv, c.at, c.err, c.parked = nil, atRest, err, false
	c.due(c.cfg.IdleTimeout)
	c.soon(c)
}

// end ends the connection now; what it held is released in Flush, for a buffer
// of it may be in use.
func (c *Server) end(err error, reset bool) {
	if c.at == over {
		return
	}
	c.recv, c.at, c.mute = nil, over, true
	if c.err == nil {
		c.err = err
	}
	c.loop.Cancel(&c.timer)
	if reset {
		c.sock.Reset()
	} else {
		c.sock.Close()
	}
	c.soon(c)
}

// Panic is the error of a connection whose handling panicked.
type Panic struct {
	Value any
	Stack []byte
}

// Error implements error.
func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Panicked implements conn.Handler: it ends this connection only.
func (c *Server) Panicked(v any, stack []byte) {
	recv := c.recv
	c.end(&Panic{Value: v, Stack: stack}, true)
	if recv != nil {
		defer func() { _ = recover() }() // it may be what panicked
		recv.Aborted(c, message.Internal)
	}
}
