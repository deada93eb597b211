package metrics

import (
	"maps"
	"sync"
	"sync/atomic"
)

// cells is a small map that grows seldom and is read on the data path: readers
// take no lock, a writer replaces the whole map.
type cells[K comparable, V any] struct {
	build func() *V
	limit *limit

	current atomic.Pointer[map[K]*V]
	mu      sync.Mutex // of writers
}

// all returns the cells of now; the map must not be changed.
func (c *cells[K, V]) all() map[K]*V {
	if m := c.current.Load(); m != nil {
		return *m
	}
	return nil
}

// get returns the cell of k. If there is none it is made, or, when the limit has no
// room for it, the cell of fold is returned, which is outside the limit.
func (c *cells[K, V]) get(k, fold K) *V {
	if v := c.all()[k]; v != nil {
		return v
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.all()
	if v := now[k]; v != nil {
		return v
	}
	if k != fold && !c.limit.admit(len(now)) {
		if v := now[fold]; v != nil {
			return v
		}
		k = fold
	}
	next := make(map[K]*V, len(now)+1)
	maps.Copy(next, now)
	v := c.build()
	next[k] = v
	c.current.Store(&next)
	return v
}

// limit bounds the label sets that one family adds to its targets: at most max
// in all and perTarget for one target, so that one server that invents
// statuses cannot use up the room of the others.
type limit struct {
	max  int64
	live atomic.Int64
	lost atomic.Uint64 // how many events were counted under "other"
}

const perTarget = 64

// admit says whether a target that has n label sets may have one more.
func (l *limit) admit(n int) bool {
	if n < perTarget {
		if l.live.Add(1) <= l.max {
			return true
		}
		l.live.Add(-1)
	}
	l.lost.Add(1)
	return false
}

// room is the limits of the families that have a label from the response.
type room struct{ responses, latencies limit }

func (r *room) set(limit int) {
	r.responses.max, r.latencies.max = int64(limit), int64(limit)
}
