// Package conn holds the sockets of the proxy: event loops, accepting,
// original destinations, dialing and timers.
//
// A Loop is one goroutine over one epoll instance that itself is registered
// with the Go runtime's poller, so that an idle loop costs no thread. A Socket
// belongs to one Loop for life and is driven by readiness events; nothing here
// blocks and no connection has a goroutine of its own. What the bytes mean is
// for the rooms above.
package conn

import "errors"

// Events says what a socket is ready for. Bits add up.
type Events uint8

// The readiness of a socket.
const (
	Readable Events = 1 << iota // bytes, an end or an error can be read
	Writable                    // the send buffer has room, or connect has ended
	HungUp                      // the peer has sent its FIN: read on until zero bytes
	Failed                      // the socket has an error pending: the next read tells it
)

// Has reports whether all bits of f are set.
func (e Events) Has(f Events) bool { return e&f == f }

// ErrNotRedirected means that a connection has no original destination other
// than the listener itself: no rule redirected it, or conntrack forgot it
// (getsockopt(2) SO_ORIGINAL_DST: ENOENT, or the listener's own address).
var ErrNotRedirected = errors.New("connection was not redirected")

// Handler is what a loop drives. Both methods run on the loop's goroutine.
type Handler interface {
	// Ready is called when s has become ready (edge-triggered: it is not
	// called again for what was left unread, unless s.Again is called).
	Ready(s *Socket, ev Events)
	// Panicked is called when Ready or a timer of this handler panicked, so
	// that it can end its connection; the loop goes on.
	Panicked(value any, stack []byte)
}
