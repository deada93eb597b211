// Package balance chooses the endpoint of a request or a connection: of two
// drawn at random, the one with the lower load (the power of two choices),
// where load is the estimated latency times what is under way.
//
// One Balancer serves all loops: an endpoint's estimate and counters are
// atomics of one cache line, and Pick takes no lock. A Balancer per loop would
// not know what the other loops have under way: simulated with 8 loops at 80 %
// load, its p99 is 5 to 20 % higher. Which endpoint is shut, or gone, is one
// answer for all loops, too.
//
// There is no I/O, no clock and no random source: they are handed in. Weights
// are not this package's: a backend is chosen by weight before its endpoint is.
package balance

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The defaults of a Config. Initial and Decay are Linkerd's.
const (
	DefaultInitial = 30 * time.Millisecond // latency that a new endpoint is taken to have
	DefaultDecay   = 10 * time.Second      // in which the weight of a sample falls to 1/e
	DefaultTie     = 0.25                  // not in Linkerd
)

// Config is how a Balancer estimates and compares. The zero value is the default.
type Config struct {
	Initial time.Duration // 0: DefaultInitial
	Decay   time.Duration // 0: DefaultDecay; at least 1 ms
	// Tie is how much lower a load has to be to win, as a fraction: nearer ones are
	// equal, and the one drawn first wins. 0: DefaultTie; negative: none, as in
	// Linkerd. Without it endpoints that are equal but for noise get shares that
	// differ by more than half for as long as the noise is remembered.
	Tie float64
	// Changed, if set, is called after the set of ready endpoints has changed, by
	// whoever changed it and with no lock held: someone may be waiting for one.
	Changed func()
}

// Balancer holds the endpoints of one backend. E is what the caller knows of an
// endpoint, address and metadata; two equal values are the same endpoint. Safe
// for use from several loops at once.
type Balancer[E comparable] struct {
	initial uint32 // float32 bits, milliseconds
	decay   float64
	tie     float64
	changed func()
	ready   atomic.Pointer[[]*Endpoint[E]]

	mu  sync.Mutex // held by Update and SetReady, never by Pick
	all []*Endpoint[E]
}

// New makes a Balancer without endpoints.
func New[E comparable](cfg Config) *Balancer[E] {
	if cfg.Initial <= 0 {
		cfg.Initial = DefaultInitial
	}
	if cfg.Decay <= 0 {
		cfg.Decay = DefaultDecay
	}
	switch {
	case cfg.Tie == 0:
		cfg.Tie = DefaultTie
	case cfg.Tie < 0:
		cfg.Tie = 0
	}
	b := &Balancer[E]{initial: bits(millis(cfg.Initial)), decay: max(millis(cfg.Decay), 1), changed: cfg.Changed, tie: 1 + cfg.Tie}
	b.ready.Store(&[]*Endpoint[E]{})
	return b
}

// Pick returns the endpoint for what begins now, nil if none is ready. now is a
// monotonic time since a start that all callers share but for a few
// milliseconds; random is 64 uniform random bits. The caller Starts a Flight on
// the endpoint next.
func (b *Balancer[E]) Pick(now time.Duration, random uint64) *Endpoint[E] {
	ready := *b.ready.Load()
	n := uint64(len(ready))
	switch n {
	case 0:
		return nil
	case 1:
		return ready[0]
	}
	i := random >> 32 * n >> 32
	j := random & (1<<32 - 1) * (n - 1) >> 32
	if j >= i {
		j++ // two distinct ones
	}
	first, second := ready[i], ready[j]
	tick := ticks(now)
	if second.load(tick)*b.tie < first.load(tick) {
		return second
	}
	return first
}

// Update makes values the endpoints. Those that were there keep their estimate,
// their counters and whether they are ready; new ones begin with the initial
// estimate, ready; those that are missing are picked no more, and what is under
// way on them goes on (see Endpoint.Removed).
func (b *Balancer[E]) Update(values []E) {
	b.mu.Lock()
	old := make(map[E]*Endpoint[E], len(b.all))
	for _, e := range b.all {
		old[e.Value] = e
	}
	all := make([]*Endpoint[E], 0, len(values))
	seen := make(map[E]bool, len(values))
	for _, v := range values {
		if seen[v] {
			continue
		}
		seen[v] = true
		e := old[v]
		if e == nil {
			e = &Endpoint[E]{Value: v, owner: b}
			e.estimate.Store(pack(b.initial, newborn))
		}
		all = append(all, e)
	}
	for _, e := range b.all {
		if !seen[e.Value] {
			e.removed.Store(true)
		}
	}
	b.all = all
	b.publish()
}

// publish makes the list that Pick reads, and unlocks.
func (b *Balancer[E]) publish() {
	ready := make([]*Endpoint[E], 0, len(b.all))
	for _, e := range b.all {
		if !e.shut.Load() {
			ready = append(ready, e)
		}
	}
	same := slices.Equal(ready, *b.ready.Load())
	b.ready.Store(&ready)
	b.mu.Unlock()
	if !same && b.changed != nil {
		b.changed()
	}
}

// Endpoints returns all endpoints, ready or not, as of the last Update.
func (b *Balancer[E]) Endpoints() []*Endpoint[E] {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.all)
}

// Ready is how many endpoints Pick chooses from.
func (b *Balancer[E]) Ready() int { return len(*b.ready.Load()) }
