// Package h2 speaks HTTP/2 (RFC 9113) on sockets of an event loop, in both
// roles: a Server towards clients, a Client towards servers. What comes in goes
// to message.Receivers as it comes; what is sent is collected per connection
// and leaves in one write at the end of the loop's round.
//
//	socket -> frames (read) -> header blocks (fields) -> stream -> Receiver
//	Stream -> out buffer, or pend while a window is closed -> flush -> socket
//
// Both roles are one link; they differ in who opens streams and in what a head
// is. Everything a peer can make grow has a bound, see floods.go. It chooses no
// endpoint, retries nothing and records nothing.
package h2

import "time"

// Config is what a connection allows its peer. A zero field means its default.
type Config struct {
	// MaxStreams is how many streams a client may have open at once: 250.
	MaxStreams uint32
	// StreamWindow is how many bytes of a body may come while the middle holds
	// its stream: 64 KiB.
	StreamWindow uint32
	// ConnWindow is how many bytes of all bodies may be under way: 1 MiB.
	ConnWindow uint32
	// MaxHead is the size of a header list, counted with 32 bytes a field (RFC
	// 9113, 6.5.2): 96 KiB. A larger request gets 431.
	MaxHead int
	// HeadTimeout is how long the preface, a header block or any frame other
	// than DATA may take to arrive: 10 s.
	HeadTimeout time.Duration
	// IdleTimeout ends a connection without streams: 5 min; negative: never.
	IdleTimeout time.Duration
	// PingAfter is the silence with streams open after which the peer is asked
	// whether it lives: 10 s; negative: never. PingTimeout is how long it has
	// to say anything then: 3 s.
	PingAfter, PingTimeout time.Duration
	// StallTimeout is how long bytes may wait for the peer without any of them
	// being taken before the stream is reset: 1 min; negative: for ever.
	StallTimeout time.Duration
}

// withDefaults fills what is not said.
func (c Config) withDefaults() Config {
	number(&c.MaxStreams, 250)
	number(&c.StreamWindow, 64<<10)
	number(&c.ConnWindow, 1<<20)
	number(&c.MaxHead, 96<<10)
	number(&c.HeadTimeout, 10*time.Second)
	number(&c.IdleTimeout, 5*time.Minute)
	number(&c.PingAfter, 10*time.Second)
	number(&c.PingTimeout, 3*time.Second)
	number(&c.StallTimeout, time.Minute)
	c.ConnWindow = max(c.ConnWindow, defaultWindow) // it cannot be made smaller (RFC 9113, 6.9.2)
	return c
}

func number[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}
