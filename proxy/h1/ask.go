package h1

import "github.com/meshctl/meshctl/proxy/message"

var _ message.Stream = (*Client)(nil)

// SendHead implements message.Stream.
func (c *Client) SendHead(h *message.Head, end bool) {
	if c.recv == nil || c.begun {
		return
	}
	c.begun = true
	c.isHead, c.connect, c.asked = string(h.Method) == "HEAD", string(h.Method) == "CONNECT", len(h.Upgrade) > 0
	// A request that came in HTTP/1.0 and named no host cannot be made one of
	// HTTP/1.1 (RFC 9112, 3.2).
	version := message.HTTP11
	if h.Version == message.HTTP10 && len(h.Authority) == 0 {
		version, c.asked = message.HTTP10, false
	}
	c.framing(h, end)
	var w headWriter
	w.begin(c.buffer())
	w.request(h, &c.req, version)
	if ok := w.close(); !ok || c.req.coding == byChunks && version == message.HTTP10 || end && c.req.left > 0 {
		c.fail()
		return
	}
	c.out = w.b
	c.reqDone = end || c.connect
	c.soon(c)
}

// framing decides how the request's body ends. A method that means a body says
// so even if it is empty (RFC 9110, 8.6).
func (c *Client) framing(h *message.Head, end bool) {
	c.req = outgoing{said: message.Unknown}
	switch {
	case c.connect:
	case h.Length == message.Unknown && !end:
		c.req.coding = byChunks
	default:
		n := max(h.Length, 0)
		c.req.coding, c.req.left = byLength, n
		if n > 0 || meansBody(h.Method) {
			c.req.said = n
		}
	}
}

func meansBody(method []byte) bool {
	switch string(method) {
	case "POST", "PUT", "PATCH":
		return true
	}
	return false
}

// SendData implements message.Stream.
func (c *Client) SendData(b []byte, end bool) {
	switch {
	case c.recv == nil:
		return
	case c.connect && c.at != atTunnel: // the answer decides whether it is sent
		c.early = append(c.early, b...)
		c.earlyFIN = c.earlyFIN || end
		c.high = c.high || c.Pending() > message.HighWater
		return
	case c.reqDone && len(b) == 0:
		return
	case c.reqDone || !c.begun || !c.link.content(&c.req, b, end):
		c.fail()
		return
	}
	c.reqDone = end
	c.soon(c)
}

// SendTrailers implements message.Stream.
func (c *Client) SendTrailers(h *message.Head) {
	if c.recv == nil || c.reqDone {
		return
	}
	if !c.begun || !c.link.trailer(&c.req, h) {
		c.fail()
		return
	}
	c.reqDone = true
	c.soon(c)
}

// Pending implements message.Stream.
func (c *Client) Pending() int { return c.link.Pending() + len(c.early) }

// Abort implements message.Stream.
func (c *Client) Abort(message.Code) {
	if c.recv != nil {
		c.end(errGivenUp, true)
	}
}

// fail gives up a request that the middle has not sent as it said.
func (c *Client) fail() {
	recv := c.recv
	c.end(errSender, true)
	c.recv, c.failed = recv, message.Internal
}

// Hold implements message.Stream.
func (c *Client) Hold(hold bool) {
	if c.recv == nil || c.held == hold {
		return
	}
	c.held = hold
	if !hold && c.readable {
		c.sock.Again()
	}
}

// Version implements message.Stream.
func (c *Client) Version() message.Version { return message.HTTP11 }
