// Package h1 is HTTP/1.1 and HTTP/1.0 on the sockets of an event loop, as an
// intermediary speaks it: Server takes requests from a client's connection,
// Client sends them on one to an endpoint, and both show each exchange to the
// middle as a message.Stream (RFC 9110, RFC 9112).
//
// What it reads it reads in one way only: where two readers could differ about
// where a message ends, it refuses. What it writes is made anew from the parsed
// head, so that nothing hidden in the received bytes can pass. It knows no
// routes, no targets and no retries.
package h1

import (
	"fmt"
	"time"

	"github.com/meshctl/meshctl/proxy/message"
)

// Config limits a connection. The zero value has the defaults.
type Config struct {
	MaxHead     int           // bytes of a head or of trailers; default 64 KiB
	MaxFields   int           // fields of a head or of trailers; default 128
	HeadTimeout time.Duration // for a request's head, from its first byte; default 10 s
	IdleTimeout time.Duration // between requests; default 60 s
	// StallTimeout is how long a client may neither send what is missing of its body
	// nor take what waits for it; default 5 min. Tunnels have none.
	StallTimeout time.Duration
	// HalfClose lets a client that has ended its side wait for its response. By
	// default its FIN means that it is gone, and the request is given up: a FIN
	// is all that a client that was killed sends.
	HalfClose bool
}

func (c Config) withDefaults() Config {
	if c.MaxHead == 0 {
		c.MaxHead = 64 << 10
	}
	if c.MaxFields == 0 {
		c.MaxFields = 128
	}
	if c.HeadTimeout == 0 {
		c.HeadTimeout = 10 * time.Second
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = 60 * time.Second
	}
	if c.StallTimeout == 0 {
		c.StallTimeout = 5 * time.Minute
	}
	return c
}

// Refusal says why a peer's message was not accepted. Status is what a client
// is answered (RFC 9110, 15); of a server's message it means nothing.
type Refusal struct {
	Status int
	Reason string
}

// Error implements error.
func (r *Refusal) Error() string { return fmt.Sprintf("http/1 message refused: %s", r.Reason) }

func bad(reason string) *Refusal { return &Refusal{Status: 400, Reason: reason} }

func refuse(status int, reason string) *Refusal { return &Refusal{Status: status, Reason: reason} }

// lane is what the connections of one loop share. A head is read and passed on
// within one event, so one is enough.
type lane struct {
	head   message.Head
	parser parser
	free   [][]byte
}

const (
	bufferSize  = 8 << 10
	bufferLarge = 128 << 10 // larger ones are not kept
	buffersKept = 128
)

// take lends an empty buffer.
func (l *lane) take() []byte {
	if n := len(l.free); n > 0 {
		b := l.free[n-1]
		l.free = l.free[:n-1]
		return b
	}
	return make([]byte, 0, bufferSize)
}

// give takes a buffer back.
func (l *lane) give(b []byte) {
	if cap(b) > 0 && cap(b) <= bufferLarge && len(l.free) < buffersKept {
		l.free = append(l.free, b[:0])
	}
}
