package destination

import (
	"math/rand/v2"
	"time"
)

// pause is the wait before the next attempt: 100 ms, twice as long each time, 10 s
// at most, and anything between half of that and all of it, so that clients of a
// replica that has ended do not come together.
type pause struct{ base time.Duration }

const (
	leastPause = 100 * time.Millisecond
	mostPause  = 10 * time.Second
)

func newPause() *pause { return &pause{leastPause} }

func (p *pause) reset() { p.base = leastPause }

func (p *pause) next() time.Duration {
	d := p.base
	p.base = min(2*p.base, mostPause)
	return d/2 + rand.N(d/2+1)
}
