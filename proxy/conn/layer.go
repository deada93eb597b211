package conn

import (
	"syscall"
	"time"
)

// Layer is what a socket's bytes are wrapped in: TLS. It uses the Raw methods of
// the socket, and is called on the loop's goroutine only. Its methods are those
// of a Socket, with the same results.
type Layer interface {
	Read(b []byte) (int, syscall.Errno)
	Peek(b []byte) (int, syscall.Errno)
	// Write takes what it can and may keep some of it: see Pending. It returns
	// EAGAIN while it keeps any.
	Write(b []byte) (int, syscall.Errno)
	WriteTwo(a, b []byte) (int, syscall.Errno)
	// Flush is called when the socket has become writable. It reports whether
	// nothing is kept any more.
	Flush() (done bool)
	// Pending is how many bytes are kept that the kernel has not taken.
	Pending() int
	// CloseWrite sends the end of the stream and a FIN, after what is kept.
	CloseWrite()
	// Close says the end of the stream if that has not been said. It reports
	// whether the descriptor can be closed: false while something is kept.
	Close() (done bool)
}

// Wrap puts a Layer under Read, Write and their kind, from now on.
func (s *Socket) Wrap(l Layer) { s.layer = l }

// Wrapped reports whether the socket has a Layer: its descriptor is then of no
// use for splice(2).
func (s *Socket) Wrapped() bool { return s.layer != nil }

// lingerMost is how long a closed socket may take to write what its Layer keeps.
const lingerMost = 30 * time.Second

// lingering is the socket of a connection whose owner has closed it before the
// kernel took everything.
type lingering struct {
	Socket
	timer Timer
}

// linger lets another socket have the descriptor until the Layer keeps nothing.
func (s *Socket) linger() {
	l := &lingering{Socket: *s}
	s.open = false
	l.handler = l
	l.loop.slots[l.fd] = &l.Socket
	l.loop.Start(&l.timer, lingerMost, l)
}

// Ready closes the socket when everything is written, or nobody is left.
func (l *lingering) Ready(_ *Socket, ev Events) {
	if ev.Has(Failed) || l.layer.Pending() == 0 {
		l.loop.Cancel(&l.timer)
		l.drop()
	}
}

// Expired gives up.
func (l *lingering) Expired(*Timer) { l.Reset() }

// Panicked gives up.
func (l *lingering) Panicked(any, []byte) {
	l.loop.Cancel(&l.timer)
	l.Reset()
}
