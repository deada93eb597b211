package mesh

import (
	"crypto/tls"
	"errors"
	"io"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
)

// recordMost is how much of what is written is encrypted at once: a full record
// (RFC 8446, 5.1). A peer that does not read makes a Session hold one of them.
const recordMost = 16 << 10

// Session is TLS on a socket of a loop, from the end of the handshake on. It is
// the socket's conn.Layer.
type Session struct {
	wire   wire
	tls    *tls.Conn
	peeked []byte // by Peek, not yet read
	peer   Peer
	joined *[]byte // the loop's buffer for WriteTwo
	fin    bool    // a FIN follows what is kept
	said   bool    // the end of the stream was said
}

// Peer is what the handshake told of the other side.
type Peer struct {
	// ID is the verified identity; "" when a client showed no certificate.
	ID string
	// ALPN is the protocol that was agreed on; "": none.
	ALPN    string
	Resumed bool // without a full handshake
}

// Peer returns what the handshake told.
func (s *Session) Peer() Peer { return s.peer }

// Read decrypts into b as much as fits and is there.
func (s *Session) Read(b []byte) (n int, e syscall.Errno) {
	if len(s.peeked) > 0 {
		n = copy(b, s.peeked)
		if s.peeked = s.peeked[n:]; len(s.peeked) == 0 {
			s.peeked = nil
		}
	}
	for n < len(b) {
		m, err := s.tls.Read(b[n:])
		n += m
		if err == nil {
			continue
		}
		if n > 0 {
			return n, 0 // the error stays and is the next call's
		}
		return 0, s.cause(err)
	}
	return n, 0
}

// cause is the errno for an error of crypto/tls; 0 for the end of the stream. A
// FIN without a word of TLS before it may be somebody else's (RFC 8446, 6.1), so
// it is no end but a break.
func (s *Session) cause(err error) syscall.Errno {
	switch {
	case errors.Is(err, errAgain):
		return unix.EAGAIN
	case s.wire.errno != 0:
		return s.wire.errno
	case err == io.EOF && !s.wire.ended:
		return 0
	case err == io.EOF:
		return unix.ECONNRESET
	default: // a record that does not decrypt, an alert
		s.wire.flush() // the alert that says so
		return unix.EPROTO
	}
}

// Peek decrypts a little and keeps it for Read.
func (s *Session) Peek(b []byte) (int, syscall.Errno) {
	if len(s.peeked) == 0 {
		buf := make([]byte, len(b))
		n, err := s.tls.Read(buf)
		if n == 0 && err != nil {
			return 0, s.cause(err)
		}
		s.peeked = buf[:n]
	}
	return copy(b, s.peeked), 0
}

// Write encrypts from b, a record at a time, until the kernel takes no more.
func (s *Session) Write(b []byte) (n int, e syscall.Errno) {
	if !s.wire.flush() {
		return 0, unix.EAGAIN
	}
	for n < len(b) && len(s.wire.out) == 0 {
		m, err := s.tls.Write(b[n:min(len(b), n+recordMost)])
		n += m
		if err != nil {
			if s.wire.errno != 0 {
				return n, s.wire.errno
			}
			return n, unix.EPIPE
		}
	}
	return n, 0
}

// WriteTwo makes one record of a and the beginning of b. Like Write it only takes
// less than all when the kernel takes no more: who is told so waits for an event.
func (s *Session) WriteTwo(a, b []byte) (n int, e syscall.Errno) {
	first := a
	if len(a) > 0 && len(a) < recordMost && len(b) > 0 {
		part := b[:min(len(b), recordMost-len(a))]
		b = b[len(part):]
		first = append(append((*s.joined)[:0], a...), part...)
		*s.joined = first
	}
	if len(first) > 0 {
		if n, e = s.Write(first); e != 0 || n < len(first) || len(b) == 0 || len(s.wire.out) > 0 {
			return n, e
		}
	}
	m, e := s.Write(b)
	return n + m, e
}

// Flush writes what is kept, and the FIN that follows it.
func (s *Session) Flush() (done bool) {
	if !s.wire.flush() {
		return false
	}
	if s.fin {
		s.fin = false
		s.wire.sock.RawCloseWrite()
	}
	return true
}

// Pending is how many encrypted bytes are kept.
func (s *Session) Pending() int { return len(s.wire.out) }

// CloseWrite says the end of the stream, then FIN.
func (s *Session) CloseWrite() {
	if s.said {
		return
	}
	s.said, s.fin = true, true
	_ = s.tls.CloseWrite() // an error is the kernel's, which the next read tells
	s.Flush()
}

// Close says the end of the stream if that has not been said.
func (s *Session) Close() (done bool) {
	if !s.said {
		s.said = true
		_ = s.tls.CloseWrite() // nobody is left who would want to know
	}
	return s.wire.flush()
}

// scratch is a loop's buffer in which two writes become one record.
type scratch struct{ b []byte }

func joinBuffer(l *conn.Loop) *[]byte {
	s := conn.Local[scratch](l)
	if s.b == nil {
		s.b = make([]byte, 0, recordMost)
	}
	return &s.b
}
