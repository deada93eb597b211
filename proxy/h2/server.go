package h2

import (
	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/message"
)

// Server serves one client's connection. It belongs to the loop of its socket.
type Server struct{ link link }

// NewServer makes a server on an attached socket, whose handler it becomes.
// open gets the streams. ended is called once, when the socket is closed: nil
// after a drain, io.EOF when the client closed, *Error for broken rules, else
// what broke the connection.
func NewServer(loop *conn.Loop, sock *conn.Socket, cfg Config, open message.Opener, ended func(err error)) *Server {
	s := &Server{}
	l := &s.link
	l.server, l.opener, l.done = true, open, ended
	l.preface = len(preface)
	l.setUp(loop, sock, cfg)
	return s
}

// Start begins with the bytes that were already read, the preface among them,
// and whatever can be read now.
func (s *Server) Start(head []byte) {
	l := &s.link
	l.writeSettings()
	l.since = l.now()
	l.arm(l.since + l.cfg.HeadTimeout)
	if l.cfg.IdleTimeout > 0 {
		l.arm(l.idle + l.cfg.IdleTimeout)
	}
	l.bytesIn = uint64(len(head))
	l.feed(head)
	l.readable = true
	l.read()
}

// Drain lets the client finish what it has begun (RFC 9113, 6.8): it is warned,
// and once it has read that, or a second later, takes nothing new; the
// connection closes after its last stream.
func (s *Server) Drain() {
	l := &s.link
	if l.phase != open {
		return
	}
	l.phase = warned
	l.writeGoAway(maxStreamID, noError)
	l.writePing()
	l.until = l.loop.Now() + lastCall
	l.arm(l.until)
}

// Close ends the connection at once; its streams are Aborted.
func (s *Server) Close() { s.link.shut() }

// Streams is how many streams are open.
func (s *Server) Streams() int { return s.link.streams.n }

// Bytes is how many bytes were read and written so far.
func (s *Server) Bytes() (in, out uint64) { return s.link.bytesIn, s.link.bytesOut }

// shut ends a connection that is no longer wanted.
func (l *link) shut() {
	if l.phase >= lingering {
		return
	}
	l.writeGoAway(l.newest, noError)
	l.finish(nil)
	l.abortAll(message.Cancel)
}
