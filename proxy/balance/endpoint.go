package balance

import (
	"sync/atomic"
	"time"
)

// DefaultPenalty is the latency to Penalize an endpoint with that answers fast
// because it fails.
const DefaultPenalty = 5 * time.Second

// Endpoint is one of a Balancer's endpoints, with what is known of its load.
type Endpoint[E comparable] struct {
	Value E // not to be changed

	estimate atomic.Uint64 // see estimate.go
	pending  atomic.Int32  // flights under way
	open     atomic.Int32  // connections that count as load
	shut     atomic.Bool
	removed  atomic.Bool
	owner    *Balancer[E]

	_ [64]byte // no other endpoint's counters in this cache line
}

// load is the decayed estimate in milliseconds times what would be under way.
func (e *Endpoint[E]) load(tick uint32) float64 {
	under := e.pending.Load() + e.open.Load() + 1
	return decayed(e.known(tick), tick, e.owner.decay) * float64(under)
}

// known is the estimate, born now if nobody has looked before.
func (e *Endpoint[E]) known(tick uint32) uint64 {
	est := e.estimate.Load()
	if est>>32 != newborn {
		return est
	}
	born := pack(uint32(est), tick)
	e.estimate.CompareAndSwap(est, born) // else somebody else was first
	return born
}

// Load is the load that Pick compares: milliseconds times what is under way and
// one more.
func (e *Endpoint[E]) Load(now time.Duration) float64 { return e.load(ticks(now)) }

// Latency is the estimate as it stands now, without what is under way.
func (e *Endpoint[E]) Latency(now time.Duration) time.Duration {
	return time.Duration(decayed(e.known(ticks(now)), ticks(now), e.owner.decay) * float64(time.Millisecond))
}

// Pending is how many flights are under way.
func (e *Endpoint[E]) Pending() int { return int(e.pending.Load()) }

// Open is how many connections were Opened and not Closed.
func (e *Endpoint[E]) Open() int { return int(e.open.Load()) }

// Opened counts a connection as load until Closed: an opaque connection, whose
// work cannot be seen, makes its endpoint busier for as long as it lives. (In
// Linkerd only the connecting counts, so that an endpoint that accepts fast gets
// most of them.)
func (e *Endpoint[E]) Opened() { e.open.Add(1) }

// Closed ends what Opened began.
func (e *Endpoint[E]) Closed() { e.open.Add(-1) }

// SetReady says whether the endpoint may be picked; a circuit breaker shuts one
// and lets it in again. A new endpoint is ready.
func (e *Endpoint[E]) SetReady(ready bool) {
	b := e.owner
	b.mu.Lock()
	if e.shut.Load() == !ready {
		b.mu.Unlock()
		return
	}
	e.shut.Store(!ready)
	b.publish()
}

// Ready reports whether the endpoint may be picked.
func (e *Endpoint[E]) Ready() bool { return !e.shut.Load() && !e.removed.Load() }

// Removed reports that an Update left the endpoint out: what is under way may
// finish, its idle connections are of no more use. One that comes back is
// another Endpoint.
func (e *Endpoint[E]) Removed() bool { return e.removed.Load() }

// observe takes in a latency.
func (e *Endpoint[E]) observe(latency, now time.Duration) {
	tick := ticks(now)
	for {
		old := e.estimate.Load()
		if e.estimate.CompareAndSwap(old, observed(old, millis(latency), tick, e.owner.decay)) {
			return
		}
	}
}

// Flight is a request from its dispatch to the first byte of the response's
// body (or its end, if it has none), or a connection being opened. It is a
// value to be kept in what it belongs to; the zero value is one that is over.
type Flight[E comparable] struct {
	endpoint *Endpoint[E]
	began    time.Duration
}

// Start begins a flight.
func (e *Endpoint[E]) Start(now time.Duration) Flight[E] {
	e.pending.Add(1)
	return Flight[E]{endpoint: e, began: now}
}

// Done ends the flight and takes its length as a sample, however it ended: one
// that was given up lasted at least that long. Later calls do nothing.
func (f *Flight[E]) Done(now time.Duration) { f.end(max(now-f.began, 0), now) }

// Penalize ends the flight with a sample of at least that latency instead, for
// an answer that says that the endpoint is not well.
func (f *Flight[E]) Penalize(latency, now time.Duration) { f.end(max(latency, now-f.began), now) }

func (f *Flight[E]) end(latency, now time.Duration) {
	e := f.endpoint
	if e == nil {
		return
	}
	f.endpoint = nil
	e.observe(latency, now)
	e.pending.Add(-1)
}
