package h2

import (
	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/message"
)

// Client is one connection to a server, for many streams. It belongs to the
// loop of its socket.
type Client struct {
	link   link
	next   uint32    // number of the next stream
	unsent int       // streams that were opened and have sent no head
	still  []*stream // streams that cannot begin any more, to be told so
}

// NewClient makes a client on a connected socket, whose handler it becomes.
// room is called, never from within another call, when a stream has ended or
// the server's limits have changed: CanOpen and Ending may have. ended is
// called once, when the socket is closed; see NewServer for err.
func NewClient(loop *conn.Loop, sock *conn.Socket, cfg Config, room func(*Client), ended func(c *Client, err error)) *Client {
	c := &Client{next: 1}
	l := &c.link
	l.setUp(loop, sock, cfg)
	l.done = func(err error) { ended(c, err) }
	l.client = c
	if room != nil {
		l.room = func() { room(c) }
	}
	return c
}

// Start says the preface, which leaves with the first request if that is sent
// in the same round.
func (c *Client) Start() {
	l := &c.link
	l.roomFor(len(preface))
	l.out = append(l.out, preface...)
	l.writeSettings()
	if l.cfg.IdleTimeout > 0 {
		l.arm(l.idle + l.cfg.IdleTimeout)
	}
	l.readable = true
	l.sock.Again()
}

// CanOpen reports whether a stream can be opened now: the server's limit is not
// reached (100 until it has said one) and it has not said GOAWAY.
func (c *Client) CanOpen() bool {
	l := &c.link
	return l.phase == open && !l.leaving && l.broken == 0 && l.streams.n+c.unsent < int(min(l.peer.maxStreams, maxStreamID)) && c.next <= maxStreamID
}

// Ending reports that the connection will never open another stream.
func (c *Client) Ending() bool { return c.link.phase != open || c.link.leaving || c.next > maxStreamID }

// Open returns a stream for one exchange, which begins when its head is sent. A
// stream whose head comes when the connection has ended is Aborted as Refused.
func (c *Client) Open(r message.Receiver) message.Stream {
	s := c.link.pool.stream()
	s.link, s.recv, s.want = &c.link, r, message.Unknown
	c.unsent++
	return s
}

// begin gives a client's stream its number: they have to rise in the order in
// which heads are sent (RFC 9113, 5.1.1).
func (c *Client) begin(s *stream, h *message.Head) bool {
	l := &c.link
	c.unsent--
	if l.phase != open || l.leaving || c.next > maxStreamID {
		s.closing = true
		c.still = append(c.still, s)
		l.loop.FlushSoon(stillborn{c})
		return false
	}
	s.id = c.next
	l.newest = c.next
	c.next += 2
	s.tunnel = string(h.Method) == "CONNECT"
	s.bodiless = string(h.Method) == "HEAD"
	l.enter(s)
	return true
}

// giveUp lets go of a stream that has sent nothing.
func (c *Client) giveUp(s *stream) {
	if !s.closing { // else it is among those to be told
		c.unsent--
		c.link.forget(s)
	}
}

// stillborn tells streams that they cannot begin, at the end of the round.
type stillborn struct{ *Client }

// Flush tells them.
func (b stillborn) Flush() { b.tellStill() }

// Panicked ends the connection.
func (b stillborn) Panicked(v any, stack []byte) { b.link.Panicked(v, stack) }

func (c *Client) tellStill() {
	for len(c.still) > 0 {
		s := c.still[0]
		c.still = c.still[1:]
		if !s.over {
			s.over = true
			s.recv.Aborted(s, message.Refused)
		}
		c.link.pool.bury(s)
	}
}

// Drain lets the streams that are open end, then closes the connection; at once
// if there are none.
func (c *Client) Drain() {
	l := &c.link
	if l.phase >= draining {
		return
	}
	l.phase = draining
	if l.streams.n == 0 {
		l.writeGoAway(0, noError)
		l.finish(nil)
	}
}

// Close ends the connection at once; its streams are Aborted.
func (c *Client) Close() { c.link.shut() }

// Streams is how many streams are open.
func (c *Client) Streams() int { return c.link.streams.n }

// Bytes is how many bytes were read and written so far.
func (c *Client) Bytes() (in, out uint64) { return c.link.bytesIn, c.link.bytesOut }
