package h1

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/message"
)

// This file is what a Server sends: answers, and the end.

// Flush implements conn.Flusher: it writes what the round has collected.
func (c *Server) Flush() {
	c.queued = false
	if c.at == over {
		c.bury()
		return
	}
	if e := c.push(); e != 0 {
		c.gone(e)
		return
	}
	if c.drained() && c.recv != nil {
		c.recv.Drained(c)
	}
	if c.Pending() > 0 {
		c.stall()
		return
	}
	switch {
	case c.at == atWait:
		c.deadline = 0 // it is for the server to speak
	case c.at == atRest:
		c.part()
	case c.at == atTunnel && c.done && !c.shut:
		c.shut = true
		c.sock.CloseWrite()
	case c.at == atHead && c.parked:
		c.sock.Again()
	}
}

// stall gives a client that takes its response slowly more time whenever it has
// taken some.
func (c *Server) stall() {
	if c.recv != nil && c.at != atTunnel && c.sent != c.seen {
		c.seen = c.sent
		c.due(c.cfg.StallTimeout)
	}
}

// part closes after the last byte was written: at once if nothing unread can
// turn the close into a RST, else after the client has read it.
func (c *Server) part() {
	if c.reqDone && len(c.in) == 0 && !c.readable {
		c.end(c.err, false)
		return
	}
	if !c.shut {
		c.shut = true
		c.sock.CloseWrite()
		c.due(lingerTime)
		c.readable = true
		c.sock.Again()
	}
}

// bury is the last thing that happens.
func (c *Server) bury() {
	if c.ended == nil {
		return
	}
	ended := c.ended
	c.ended = nil
	if failed := c.failed; failed != nil {
		c.failed = nil
		failed.Aborted(c, message.Internal)
	}
	c.release()
	ended(c.err)
}

// due sets the deadline of the state. The timer is started only if it would come
// too late: most deadlines are moved before they pass.
func (c *Server) due(d time.Duration) {
	c.deadline = c.loop.Now() + d
	if !c.timer.Active() || c.armed > c.deadline {
		c.armed = c.deadline
		c.loop.StartAt(&c.timer, c.deadline, c)
	}
}

// Expired implements conn.Expirer.
func (c *Server) Expired(*conn.Timer) {
	switch {
	case c.deadline == 0 || c.at == over:
	case c.loop.Now() < c.deadline:
		c.armed = c.deadline
		c.loop.StartAt(&c.timer, c.deadline, c)
	case c.at == atRest:
		c.end(c.err, true)
	case c.at == atHead && len(c.in) > 0:
		c.refuse(refuse(408, "request head took too long"))
	case c.at == atHead:
		c.rest(nil)
	case c.Pending() > 0:
		c.gone(unix.ETIMEDOUT)
	case c.held:
		c.due(c.cfg.StallTimeout)
	case c.at == atBody || c.at == atEndOfBody:
		c.refuse(refuse(408, "request body took too long"))
	}
}
