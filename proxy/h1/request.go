package h1

import "github.com/meshctl/meshctl/proxy/message"

// input reads what b holds, as far as the state allows, and keeps the rest.
func (c *Server) input(b []byte) {
	for len(b) > 0 {
		n := 0
		switch c.at {
		case atHead:
			n = c.head(b)
		case atBody:
			n = c.content(b)
		case atEndOfBody:
			n = c.trailers(b)
		case atTunnel:
			n = len(b)
			c.recv.Data(c, b, false)
		case atRest, over:
			n = len(b)
		}
		if n == 0 {
			break
		}
		b = b[n:]
	}
	c.keep(b)
	c.parked = len(b) > 0 && (c.at == atWait || c.at == atHead && c.busy())
}

// busy reports whether the next request has to wait because late calls of the
// exchange that is just over could hit it.
func (c *Server) busy() bool { return c.last == c.loop.Round() }

// head begins an exchange. Empty lines in front of a request are skipped (RFC
// 9112, 2.2).
func (c *Server) head(b []byte) int {
	if b[0] == '\r' && len(b) > 1 && b[1] == '\n' {
		return 2
	}
	if c.busy() {
		return 0
	}
	h, p := &c.lane.head, c.parser(false)
	n, r := p.head(b, h)
	if r != nil {
		c.refuse(r)
		return len(b)
	}
	if n == 0 {
		if !c.timing {
			c.timing = true
			c.due(c.cfg.HeadTimeout)
		}
		return 0
	}
	c.begin(p, h)
	end := c.reqDone
	c.recv = c.open.Open(c)
	c.recv.Head(c, h, end)
	return n
}

// begin sets the state of a new exchange.
func (c *Server) begin(p *parser, h *message.Head) {
	c.timing, c.deadline = false, 0
	c.version, c.stays = p.version, p.keeps()
	c.isHead, c.connect, c.asked = string(h.Method) == "HEAD", string(h.Method) == "CONNECT", len(h.Upgrade) > 0
	c.begun, c.done, c.held, c.sent, c.seen = false, false, false, 0, 0
	c.resp = outgoing{said: message.Unknown}
	c.reqDone, c.at = true, atWait
	switch {
	case c.connect:
		c.reqDone = false
	case h.Length == message.Unknown:
		c.reqDone, c.at, c.body = false, atBody, body{coding: byChunks}
	case h.Length > 0:
		c.reqDone, c.at, c.body = false, atBody, body{coding: byLength, left: h.Length}
	}
	if c.at == atBody {
		c.due(c.cfg.StallTimeout)
	}
}

func (c *Server) content(b []byte) int {
	data, n, end, r := c.body.piece(b)
	if r != nil {
		c.refuse(r)
		return len(b)
	}
	switch {
	case end:
		c.whole()
	case c.body.trailing():
		c.at = atEndOfBody
	default:
		c.due(c.cfg.StallTimeout)
	}
	if len(data) > 0 || end {
		c.recv.Data(c, data, end)
	}
	return n
}

func (c *Server) trailers(b []byte) int {
	h := &c.lane.head
	n, r := c.parser(false).trailer(b, h)
	switch {
	case r != nil:
		c.refuse(r)
		return len(b)
	case n == 0:
		return 0
	}
	c.whole()
	if len(h.Fields) == 0 {
		c.recv.Data(c, nil, true)
	} else {
		c.recv.Trailers(c, h)
	}
	return n
}

// whole ends the request.
func (c *Server) whole() {
	c.reqDone, c.at = true, atWait
	if c.Pending() == 0 {
		c.deadline = 0
	}
}

// refuse answers a faulty request and ends the connection: what follows it
// cannot be told from its body. A response that has begun is cut.
func (c *Server) refuse(r *Refusal) {
	recv, begun := c.recv, c.recv != nil && c.begun
	if begun {
		c.end(r, true)
	} else {
		h := message.Head{Status: r.Status}
		h.Add(message.ProxyError, r.Reason)
		var w headWriter
		w.begin(c.buffer())
		w.status(&h)
		w.fields(h.Fields)
		w.field("Content-Length", []byte("0"))
		w.field("Connection", []byte("close"))
		w.close()
		c.out, c.reqDone = w.b, false
		c.rest(r)
	}
	if recv != nil {
		recv.Aborted(c, message.Protocol)
	}
}
