package h1

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/message"
)

// errUnsolicited: a server that sends without being asked may have answered a
// request of someone else; such a connection is of no use (RFC 9112, 9.2).
var errUnsolicited = errors.New("response without a request")

// Client is a connection to an endpoint that carries one exchange at a time and
// is the message.Stream of each.
type Client struct {
	link
	idle  func(*Client)
	ended func(*Client, error)

	recv  message.Receiver // nil: no stream is open
	body  body             // of the response
	req   outgoing
	early []byte // sent by the middle before the answer to CONNECT
	err   error
	at    state
	used  int // exchanges begun

	isHead   bool // the request's method is HEAD
	connect  bool // CONNECT
	asked    bool // for an upgrade
	begun    bool // the request's head was sent
	reqDone  bool // the request has ended; in a tunnel, the middle's bytes have
	done     bool // in a tunnel, the server's bytes have ended
	got      bool // a byte of the response has come
	stays    bool // the server keeps the connection
	earlyFIN bool
	shut     bool // the FIN was sent
	rests    bool // becomes idle in Flush
	failed   message.Code
}

// NewClient takes over an attached socket whose connection is up. idle is called
// at the end of the round in which an exchange is over, if the connection can
// carry another; ended once, when it cannot and is closed: at once if it was idle,
// so that a pool never holds one that is not, else at the end of the round.
func NewClient(loop *conn.Loop, sock *conn.Socket, cfg Config, idle func(*Client), ended func(*Client, error)) *Client {
	c := &Client{link: newLink(loop, sock, cfg), idle: idle, ended: ended, at: atIdle}
	sock.Handle(c)
	return c
}

// Open begins an exchange, of which r receives the response. It returns nil if
// the connection is not idle.
func (c *Client) Open(r message.Receiver) message.Stream {
	if c.at != atIdle {
		return nil
	}
	c.used++
	c.recv, c.at, c.sent = r, atHead, 0
	c.begun, c.reqDone, c.done, c.got, c.stays, c.held = false, false, false, false, false, false
	c.earlyFIN, c.early = false, c.early[:0]
	return c
}

// Close ends an idle connection, calling ended before it returns.
func (c *Client) Close() { c.end(nil, false) }

// Fresh reports whether the connection carries its first exchange.
func (c *Client) Fresh() bool { return c.used <= 1 }

// Stale reports whether an exchange that was Aborted met a connection that the
// server had most likely closed while it was idle: it had served before, and
// not one byte of an answer came. The request may be sent again if repeating it
// does no harm (RFC 9110, 9.2.2); that a server has seen it is not excluded.
func (c *Client) Stale() bool { return !c.Fresh() && !c.got }

// Ready implements conn.Handler.
func (c *Client) Ready(_ *conn.Socket, ev conn.Events) {
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
}

// pump reads as long as something is there and wanted.
func (c *Client) pump() {
	for read := 0; c.at != over && c.readable; {
		if c.held || c.at == atTunnel && c.done {
			return
		}
		if read >= roundBytes {
			c.sock.Again()
			return
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
func (c *Client) nothing(e syscall.Errno) {
	recv := c.recv
	switch {
	case e == unix.EAGAIN:
	case e != 0:
		c.gone(e)
	case c.at == atTunnel:
		c.done = true
		recv.Data(c, nil, true)
		c.soon(c)
	case c.at == atBody && c.body.coding == byClose:
		c.end(nil, false)
		recv.Data(c, nil, true)
	case recv != nil:
		c.gone(errServerShort)
	default:
		c.end(nil, false)
	}
}

var errServerShort = errors.New("the server ended within its response")

// gone ends the connection because the server has. Refused: not one byte of the
// request can have reached it.
func (c *Client) gone(err error) {
	code := message.Closed
	if c.sent == 0 {
		code = message.Refused
	}
	c.abort(err, code)
}

func (c *Client) abort(err error, code message.Code) {
	recv := c.recv
	c.end(err, true)
	if recv != nil {
		recv.Aborted(c, code)
	}
}

// end ends the connection now; what it held is released in Flush, for a buffer
// of it may be in use.
func (c *Client) end(err error, reset bool) {
	if c.at == over {
		return
	}
	idle := c.at == atIdle
	c.recv, c.at, c.mute, c.err = nil, over, true, err
	if reset {
		c.sock.Reset()
	} else {
		c.sock.Close()
	}
	if idle {
		c.bury()
		return
	}
	c.soon(c)
}

// Flush implements conn.Flusher: it writes what the round has collected. A
// server that takes no more bytes may have answered before it left, so that is
// read first.
func (c *Client) Flush() {
	c.queued = false
	if c.at == over {
		c.bury()
		return
	}
	if e := c.push(); e != 0 {
		c.mute, c.blocked, c.readable = true, false, true
		c.dropOut()
		c.sock.Again()
		return
	}
	if c.drained() && c.recv != nil {
		c.recv.Drained(c)
	}
	if c.rests {
		c.rests, c.at, c.held = false, atIdle, false
		c.idle(c)
		return
	}
	if c.Pending() > 0 || c.at != atTunnel || !c.reqDone {
		return
	}
	if c.done {
		c.end(nil, false)
	} else if !c.shut {
		c.shut = true
		c.sock.CloseWrite()
	}
}

// bury is the last thing that happens.
func (c *Client) bury() {
	if c.ended == nil {
		return
	}
	ended, recv := c.ended, c.recv
	c.ended, c.recv = nil, nil
	if c.failed != 0 && recv != nil {
		recv.Aborted(c, c.failed)
	}
	c.release()
	ended(c, c.err)
}

// Panicked implements conn.Handler: it ends this connection only.
func (c *Client) Panicked(v any, stack []byte) {
	recv := c.recv
	c.end(&Panic{Value: v, Stack: stack}, true)
	if recv != nil {
		defer func() { _ = recover() }() // it may be what panicked
		recv.Aborted(c, message.Internal)
	}
}
