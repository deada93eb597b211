package h1

import "github.com/meshctl/meshctl/proxy/message"

// input reads what b holds, as far as the state allows, and keeps the rest.
func (c *Client) input(b []byte) {
	for len(b) > 0 {
		n := 0
		switch c.at {
		case atIdle, atWait:
			c.end(errUnsolicited, true)
		case atHead:
			n = c.head(b)
		case atBody:
			n = c.content(b)
		case atEndOfBody:
			n = c.trailers(b)
		case atTunnel:
			n = len(b)
			c.recv.Data(c, b, false)
		}
		if c.at == over {
			n = len(b)
		}
		if n == 0 {
			break
		}
		b = b[n:]
	}
	c.keep(b)
}

// head reads a response's head.
func (c *Client) head(b []byte) int {
	if c.sent == 0 {
		c.abort(errUnsolicited, message.Refused)
		return len(b)
	}
	c.got = true
	h, p := &c.lane.head, c.parser(true)
	n, r := p.head(b, h)
	if r != nil {
		c.abort(r, message.Protocol)
		return len(b)
	}
	if n == 0 {
		return 0
	}
	switch {
	case h.Interim():
		h.Length = 0
		c.recv.Head(c, h, false)
	case h.Status == 101 && !c.asked:
		c.abort(bad("101 to a request that asked for no upgrade"), message.Protocol)
	case h.Status == 101 || c.connect && h.Status >= 200 && h.Status < 300:
		c.tunnel(h)
	default:
		c.final(p, h)
	}
	return n
}

// final decides how the response's body ends (RFC 9112, 6.3).
func (c *Client) final(p *parser, h *message.Head) {
	c.stays = p.keeps()
	end := false
	switch {
	case c.isHead || h.Status == 304:
		end = true
		if p.chunked {
			h.Length = message.Unknown
		}
	case h.Status == 204:
		end, h.Length = true, 0
	case p.chunked:
		c.at, c.body = atBody, body{coding: byChunks}
	case h.Length == 0:
		end = true
	case h.Length > 0:
		c.at, c.body = atBody, body{coding: byLength, left: h.Length}
	default:
		c.at, c.body, c.stays = atBody, body{coding: byClose}, false
	}
	if !end {
		c.recv.Head(c, h, false)
		return
	}
	recv := c.finish()
	recv.Head(c, h, true)
	c.settle()
}

// finish closes the stream at the end of the response, before the middle is told.
func (c *Client) finish() message.Receiver {
	recv := c.recv
	c.recv, c.at = nil, atWait
	return recv
}

// settle makes the connection idle or ends it: one that has not taken the whole
// request, or that has more to say, cannot be used again. Idle it is at the end of
// the round: until then, late calls of the exchange that is over do nothing.
func (c *Client) settle() {
	if c.at != atWait {
		return
	}
	if !c.stays || !c.reqDone || c.Pending() > 0 || c.mute || c.sock.HungUp() {
		c.end(nil, false)
		return
	}
	c.rests = true
	c.soon(c)
}

func (c *Client) content(b []byte) int {
	data, n, end, r := c.body.piece(b)
	if r != nil {
		c.abort(r, message.Protocol)
		return len(b)
	}
	if end {
		recv := c.finish()
		recv.Data(c, data, true)
		c.settle()
		return n
	}
	if c.body.trailing() {
		c.at = atEndOfBody
	}
	if len(data) > 0 {
		c.recv.Data(c, data, false)
	}
	return n
}

func (c *Client) trailers(b []byte) int {
	h := &c.lane.head
	n, r := c.parser(true).trailer(b, h)
	switch {
	case r != nil:
		c.abort(r, message.Protocol)
		return len(b)
	case n == 0:
		return 0
	}
	recv := c.finish()
	if len(h.Fields) == 0 {
		recv.Data(c, nil, true)
	} else {
		recv.Trailers(c, h)
	}
	c.settle()
	return n
}

// tunnel leaves HTTP: what the middle sent early may go now.
func (c *Client) tunnel(h *message.Head) {
	c.at, c.req = atTunnel, outgoing{coding: byClose}
	h.Length = message.Unknown
	c.reqDone = c.connect && c.earlyFIN
	c.recv.Head(c, h, false)
	c.write(c.early)
	c.early = nil
	c.soon(c)
}
