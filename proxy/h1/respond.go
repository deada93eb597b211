package h1

import (
	"errors"

	"github.com/meshctl/meshctl/proxy/message"
)

var _ message.Stream = (*Server)(nil)

var (
	errSender  = errors.New("message is not what its head said")
	errCut     = errors.New("the response was given up")
	errGivenUp = errors.New("the request was given up")
)

// SendHead implements message.Stream. A field "connection: close" among h's ends
// the connection after the response.
func (c *Server) SendHead(h *message.Head, end bool) {
	if c.recv == nil || c.begun {
		return
	}
	if h.Interim() && c.version == message.HTTP10 {
		return // RFC 9110, 15.2
	}
	var w headWriter
	w.begin(c.buffer())
	w.status(h)
	_, closes := w.fields(h.Fields)
	tunnel, ok := false, true
	if !h.Interim() {
		tunnel = h.Status == 101 && c.asked || c.connect && h.Status >= 200 && h.Status < 300
		ok = h.Status != 101 || tunnel
		c.final(h, end, tunnel)
		w.framing(&c.resp)
		c.persistence(&w, h, tunnel, closes)
	}
	if ok = w.close() && ok && !(end && c.resp.left > 0); !ok {
		c.fail()
		return
	}
	c.out = w.b
	c.soon(c)
	switch {
	case h.Interim():
	case tunnel:
		c.tunnel()
	case end:
		c.responded()
	}
}

// final decides how the response's body ends (RFC 9112, 6.3).
func (c *Server) final(h *message.Head, end, tunnel bool) {
	c.begun = true
	switch {
	case tunnel:
		c.resp.coding = byClose
	case h.Status == 204:
	case c.isHead || h.Status == 304:
		if h.Length > 0 { // of the body that a GET would get
			c.resp.said = h.Length
		}
	case h.Length >= 0 || end:
		n := max(h.Length, 0)
		c.resp = outgoing{coding: byLength, said: n, left: n}
	case c.version == message.HTTP11:
		c.resp.coding = byChunks
	default:
		c.resp.coding, c.stays = byClose, false
	}
}

// persistence writes the Connection field. A response that comes before the end
// of its request is the last: the client may or may not send the rest.
func (c *Server) persistence(w *headWriter, h *message.Head, tunnel, closes bool) {
	c.stays = c.stays && !closes && !c.drain && !tunnel && c.reqDone
	switch {
	case tunnel && h.Status == 101:
		w.field("Connection", []byte("Upgrade"))
		if len(h.Upgrade) > 0 {
			w.field("Upgrade", h.Upgrade)
		}
	case tunnel:
	case !c.stays:
		w.field("Connection", []byte("close"))
	case c.version == message.HTTP10:
		w.field("Connection", []byte("keep-alive"))
	}
}

// tunnel lets the bytes through that had to wait for the response.
func (c *Server) tunnel() {
	c.at, c.reqDone, c.held = atTunnel, false, false
	c.deadline = 0
	c.readable = true
	c.sock.Again()
}

// SendData implements message.Stream.
func (c *Server) SendData(b []byte, end bool) {
	if c.recv == nil || c.done {
		return
	}
	if !c.begun || !c.link.content(&c.resp, b, end) {
		c.fail()
		return
	}
	c.soon(c)
	if end {
		c.responded()
	}
}

// SendTrailers implements message.Stream.
func (c *Server) SendTrailers(h *message.Head) {
	if c.recv == nil || c.done {
		return
	}
	if !c.begun || !c.link.trailer(&c.resp, h) {
		c.fail()
		return
	}
	c.soon(c)
	c.responded()
}

// responded ends the exchange, or one direction of a tunnel.
func (c *Server) responded() {
	c.done = true
	switch {
	case c.at == atTunnel && !c.reqDone:
	case !c.stays:
		c.rest(nil)
	default:
		c.recv, c.at, c.held = nil, atHead, false
		c.last = c.loop.Round()
		if c.drain && len(c.in) == 0 { // asked for after the head was sent
			c.rest(nil)
			return
		}
		c.due(c.cfg.IdleTimeout)
		if c.parked || c.readable {
			c.sock.Again()
		}
	}
}

// Abort implements message.Stream. What was sent of a message with a told end
// still goes out: the client sees that the end is missing. Anything else would
// look whole after a FIN.
func (c *Server) Abort(message.Code) {
	if c.recv == nil {
		return
	}
	if c.begun && (c.resp.coding == byLength || c.resp.coding == byChunks) && c.at != atTunnel {
		c.reqDone = false
		c.rest(errCut)
		return
	}
	c.end(errCut, true)
}

// fail cuts a message that the middle has not sent as it said.
func (c *Server) fail() {
	recv := c.recv
	c.end(errSender, true)
	c.failed = recv
}

// Hold implements message.Stream.
func (c *Server) Hold(hold bool) {
	if c.recv == nil || c.held == hold {
		return
	}
	c.held = hold
	if c.at == atBody {
		c.due(c.cfg.StallTimeout) // while held, Expired only moves it on
	}
	if !hold && (c.readable || c.parked) {
		c.sock.Again()
	}
}

// Version implements message.Stream.
func (c *Server) Version() message.Version { return c.version }
