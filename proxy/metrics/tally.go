package metrics

import (
	"sync"
	"time"
)

// values are the label values of one series of a tally, in the order of its
// family's labels; what is beyond them is empty.
type values [4]string

// tally is a counter family that moves about once a connection: a lock and a
// map, and no clock. Its labels are words of the program, but it does not rely
// on that: when max label sets are there, new ones give up their last label, and
// when slack more are there, all but the first.
type tally struct {
	family *family
	max    int

	mu   sync.Mutex
	live map[values]*count
	lost uint64
}

type count struct {
	n     uint64
	swept uint64 // n at the sweep that set since
	since time.Time
}

// slack is the room for folded label sets on top of max.
const slack = 64

func newTally(f *family, limit int, first ...values) *tally {
	t := &tally{family: f, max: limit, live: make(map[values]*count)}
	for _, v := range first {
		t.live[v] = &count{}
	}
	return t
}

// add counts one.
func (t *tally) add(v values) {
	for i := range v {
		v[i] = clean(v[i])
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.live[v]
	if c == nil {
		c = t.make(v)
	}
	c.n++
}

// make returns the counter of v, which is not there yet, or of what v is folded
// to. The lock is held.
func (t *tally) make(v values) *count {
	if len(t.live) >= t.max {
		t.lost++
		v = t.fold(v)
		if c := t.live[v]; c != nil {
			return c
		}
	}
	c := &count{}
	t.live[v] = c
	return c
}

func (t *tally) fold(v values) values {
	last := len(t.family.labels) - 1
	v[last] = other
	if t.live[v] != nil || len(t.live) < t.max+slack {
		return v
	}
	for i := 1; i < last; i++ {
		v[i] = other
	}
	return v
}

// sweep drops the label sets that have not moved since before.
func (t *tally) sweep(now, before time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for v, c := range t.live {
		switch {
		case c.since.IsZero() || c.n != c.swept:
			c.since, c.swept = now, c.n
		case !c.since.After(before):
			delete(t.live, v)
		}
	}
}

func (t *tally) collect(send sender) {
	t.mu.Lock()
	all := make(map[values]uint64, len(t.live))
	for v, c := range t.live {
		all[v] = c.n
	}
	t.mu.Unlock()
	for v, n := range all {
		var l labels
		for i, name := range t.family.labels {
			l = l.known(name, v[i])
		}
		send.counter(t.family, n, l.sorted())
	}
}

func (t *tally) foldings() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost
}
