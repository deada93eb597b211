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
	backoffLeast  = 100 * time.Millisecond
	backoffMost   = 10 * time.Second
	backoffJitter = 0.1
)

// health is what is known of an endpoint that has failed lately. It goes
//
//	chosen -> shut -> trial -> trying -> chosen, or shut for longer
//
// and only one request is sent to an endpoint that was shut until it is known
// what becomes of that.
type health struct {
	unreachable int // attempts to connect in a row
	failures    int // responses in a row that the breaker counts
	penalties   int // times in a row that the breaker has opened
	shut        bool
	trial       bool // not shut any more; nobody has tried it yet
	trying      bool
}

// revival makes an endpoint ready again after a time.
type revival struct {
	timer    conn.Timer
	backend  *backend
	endpoint *balance.Endpoint[Endpoint]
}

// Expired lets the endpoint in again; the next request is the trial.
func (r *revival) Expired(*conn.Timer) {
	r.backend.mu.Lock()
	if h := r.backend.health[r.endpoint]; h != nil {
		h.shut, h.trial = false, true
	}
	r.backend.mu.Unlock()
	r.endpoint.SetReady(true)
}

// Panicked passes a panic on: nothing of a connection runs here.
func (r *revival) Panicked(v any, _ []byte) { panic(v) }

// shutFor takes e out of the choice for d and a random part more.
func (b *backend) shutFor(ln *Lane, e *balance.Endpoint[Endpoint], d time.Duration, jitter float64) {
	e.SetReady(false)
	d += time.Duration(jitter * float64(d) * float64(ln.random()>>11) / (1 << 53))
	r := &revival{backend: b, endpoint: e}
	ln.loop.Start(&r.timer, d, r)
}

// of returns what is known of e; b.mu is held.
func (b *backend) of(e *balance.Endpoint[Endpoint]) *health {
	h := b.health[e]
	if h == nil {
		for old := range b.health { // of endpoints that have left
			if old.Removed() {
				delete(b.health, old)
			}
		}
		h = &health{}
		b.health[e] = h
		b.sick.Store(int32(len(b.health)))
	}
	return h
}

// recovered forgets that e was ill; b.mu is held. reopen: it has to be let in.
func (b *backend) recovered(e *balance.Endpoint[Endpoint], h *health) (reopen bool) {
	delete(b.health, e)
	b.sick.Store(int32(len(b.health)))
	return h.trying
}

// try reports whether the request that has picked e is its trial. No other is
// sent there until reached, unreachable, answered or untried is called.
func (b *backend) try(e *balance.Endpoint[Endpoint]) bool {
	if b.sick.Load() == 0 {
		return false
	}
	b.mu.Lock()
	h := b.health[e]
	if h == nil || !h.trial {
		b.mu.Unlock()
		return false
	}
	h.trial, h.trying = false, true
	b.mu.Unlock()
	e.SetReady(false)
	return true
}

// untried ends a trial of which nothing is known.
func (b *backend) untried(e *balance.Endpoint[Endpoint]) {
	b.mu.Lock()
	h := b.health[e]
	again := h != nil && h.trying
	if again {
		h.trial, h.trying = true, false
	}
	b.mu.Unlock()
	if again {
		e.SetReady(true)
	}
}

// unreachable notes that connecting to e failed. Those that began to connect
// before it was shut say nothing new.
func (b *backend) unreachable(ln *Lane, e *balance.Endpoint[Endpoint]) {
	b.mu.Lock()
	h := b.of(e)
	if h.shut {
		b.mu.Unlock()
		return
	}
	n := min(h.unreachable, 10)
	h.unreachable++
	h.shut, h.trial, h.trying = true, false, false
	b.mu.Unlock()
	b.shutFor(ln, e, min(backoffLeast<<n, backoffMost), backoffJitter)
}

// reached notes that e was connected to. It ends the trial of an endpoint that
// was shut for nothing else.
func (b *backend) reached(e *balance.Endpoint[Endpoint]) {
	if b.starved.Load() != 0 {
		b.starved.Store(0)
	}
	if b.sick.Load() == 0 {
		return
	}
	reopen := false
	b.mu.Lock()
	if h := b.health[e]; h != nil && !h.shut {
		h.unreachable = 0
		if h.failures == 0 {
			reopen = b.recovered(e, h)
		}
	}
	b.mu.Unlock()
	if reopen {
		e.SetReady(true)
	}
}

// answered notes an answer for the breaker.
func (b *backend) answered(ln *Lane, e *balance.Endpoint[Endpoint], well bool) {
	switch {
	case !well:
		b.answeredBadly(ln, e)
		return
	case b.sick.Load() == 0:
		return
	}
	reopen := false
	b.mu.Lock()
	if h := b.health[e]; h != nil && !h.shut {
		reopen = b.recovered(e, h)
	}
	b.mu.Unlock()
	if reopen {
		e.SetReady(true)
	}
}

func (b *backend) answeredBadly(ln *Lane, e *balance.Endpoint[Endpoint]) {
	br := b.breaker
	if br.MaxFailures == 0 {
		return
	}
	b.mu.Lock()
	h := b.of(e)
	if h.shut { // it was asked before
		b.mu.Unlock()
		return
	}
	h.failures++
	opens := h.failures >= int(br.MaxFailures) // as it stays while one is tried
	n := min(h.penalties, 20)
	if opens {
		h.penalties++
		h.shut, h.trial, h.trying = true, false, false
	}
	b.mu.Unlock()
	if opens {
		b.shutFor(ln, e, min(br.MinPenalty<<n, max(br.MaxPenalty, br.MinPenalty)), br.Jitter)
	}
}
