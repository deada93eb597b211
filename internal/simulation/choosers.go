package simulation

import (
	"math/rand/v2"
	"time"

	"github.com/meshctl/meshctl/proxy/balance"
)

// RoundRobin takes one endpoint after the other.
type RoundRobin struct{ N, next int }

// Choose returns the next one.
func (c *RoundRobin) Choose(time.Duration, *rand.Rand) (int, func(time.Duration)) {
	c.next = (c.next + 1) % c.N
	return c.next, func(time.Duration) {}
}

// Random takes any endpoint.
type Random struct{ N int }

// Choose returns any one.
func (c Random) Choose(_ time.Duration, r *rand.Rand) (int, func(time.Duration)) {
	return r.IntN(c.N), func(time.Duration) {}
}

// Balanced asks one of several Balancers, as loops that share nothing would; one
// is what the product does.
type Balanced []*balance.Balancer[int]

// NewBalanced makes a chooser of n endpoints with that many Balancers.
func NewBalanced(n, balancers int, cfg balance.Config) Balanced {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	b := make(Balanced, balancers)
	for i := range b {
		b[i] = balance.New[int](cfg)
		b[i].Update(list)
	}
	return b
}

// Choose picks, and counts the request as under way.
func (b Balanced) Choose(now time.Duration, r *rand.Rand) (int, func(time.Duration)) {
	e := b[r.IntN(len(b))].Pick(now, r.Uint64())
	flight := e.Start(now)
	return e.Value, func(now time.Duration) { flight.Done(now) }
}
