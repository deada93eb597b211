package exchange

import (
	"time"

	"github.com/meshctl/meshctl/proxy/balance"
	"github.com/meshctl/meshctl/proxy/conn"
)

// How long an endpoint that cannot be connected to is left alone: twice as long
// after each attempt that fails, and up to a tenth more, so that proxies do not
// come back together.
const (
	backoffLeast = 100 * time.Millisecond
	backoffMost  = 10 * time.Second
)

// health is what is known of an endpoint that has failed lately.
type health struct {
	unreachable int // attempts to connect in a row
	failures    int // responses in a row that the breaker counts
	penalties   int // times in a row that the breaker has opened
}

// revival makes an endpoint ready again after a time.
type revival struct {
	timer    conn.Timer
	endpoint *balance.Endpoint[Endpoint]
}

// Expired lets the endpoint in again; the next request is the probe.
func (r *revival) Expired(*conn.Timer) { r.endpoint.SetReady(true) }

// Panicked passes a panic on: nothing of a connection runs here.
func (r *revival) Panicked(v any, _ []byte) { panic(v) }

// shut takes e out of the choice for d and a random part more.
func shut(ln *Lane, e *balance.Endpoint[Endpoint], d time.Duration, jitter float64) {
	e.SetReady(false)
	d += time.Duration(jitter * float64(d) * float64(ln.random()>>11) / (1 << 53))
	r := &revival{endpoint: e}
	ln.loop.Start(&r.timer, d, r)
}

func (b *backend) of(e *balance.Endpoint[Endpoint]) *health {
	h := b.health[e]
	if h == nil {
		h = &health{}
		b.health[e] = h
		b.sick.Store(int32(len(b.health)))
		b.forget()
	}
	return h
}

// forget drops what is known of endpoints that have left.
func (b *backend) forget() {
	for e := range b.health {
		if e.Removed() {
			delete(b.health, e)
		}
	}
	b.sick.Store(int32(len(b.health)))
}

// unreachable notes that connecting to e failed.
func (b *backend) unreachable(ln *Lane, e *balance.Endpoint[Endpoint]) {
	b.mu.Lock()
	h := b.of(e)
	h.unreachable++
	n := min(h.unreachable-1, 10)
	b.mu.Unlock()
	shut(ln, e, min(backoffLeast<<n, backoffMost), 0.1)
}

// worked notes that e was reached, or has answered well.
func (b *backend) worked(e *balance.Endpoint[Endpoint]) {
	if b.sick.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.health[e] != nil {
		delete(b.health, e)
		b.sick.Store(int32(len(b.health)))
	}
}

// answeredBadly notes a failure that the breaker counts.
func (b *backend) answeredBadly(ln *Lane, e *balance.Endpoint[Endpoint]) {
	br := b.breaker
	if br.MaxFailures == 0 {
		return
	}
	b.mu.Lock()
	h := b.of(e)
	h.failures++
	open := h.failures >= int(br.MaxFailures)
	n := min(h.penalties, 20)
	if open {
		h.penalties++
		h.failures = int(br.MaxFailures) - 1 // the probe decides
	}
	b.mu.Unlock()
	if open {
		shut(ln, e, min(br.MinPenalty<<n, max(br.MaxPenalty, br.MinPenalty)), br.Jitter)
	}
}
