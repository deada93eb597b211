package metrics

import (
	"sync"
	"time"
)

// series is what a table knows of each of its handles; the table's lock guards
// it. A series with refs > 0 is in use and never dropped.
type series struct {
	refs  int
	since time.Time // when refs became 0
}

func (s *series) held() *series { return s }

// counted is a handle: a pointer to something that embeds series.
type counted interface{ held() *series }

// key names a series. fold is the key its numbers go to when the table is full.
type key[K any] interface {
	comparable
	fold() K
	folded() bool
}

// table holds the handles of one family group by key. At most max keys that are
// not folded live at once; a look-up of one that is there allocates nothing.
type table[K key[K], V counted] struct {
	max   int
	build func(K) V

	mu    sync.Mutex
	live  map[K]V
	folds int    // live keys that are folded: they are on top of max
	lost  uint64 // how many look-ups were folded
}

func newTable[K key[K], V counted](limit int, build func(K) V) *table[K, V] {
	return &table[K, V]{max: limit, build: build, live: make(map[K]V)}
}

// acquire returns the handle of k, or of k folded if k is new and the table is
// full, with one more reference.
func (t *table[K, V]) acquire(k K) V {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok := t.live[k]
	if !ok && len(t.live)-t.folds >= t.max {
		t.lost++
		k = k.fold()
		v, ok = t.live[k]
	}
	if !ok {
		v = t.add(k)
	}
	v.held().refs++
	return v
}

// add makes the handle of k. The lock is held.
func (t *table[K, V]) add(k K) V {
	v := t.build(k)
	t.live[k] = v
	if k.folded() {
		t.folds++
	}
	return v
}

// release gives one reference of v back.
func (t *table[K, V]) release(v V, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := v.held()
	s.refs--
	s.since = now
}

// sweep drops the handles without references since before. dropped, if not nil,
// is called for each, under the lock.
func (t *table[K, V]) sweep(before time.Time, dropped func(V)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, v := range t.live {
		s := v.held()
		if s.refs > 0 || s.since.After(before) {
			continue
		}
		delete(t.live, k)
		if k.folded() {
			t.folds--
		}
		if dropped != nil {
			dropped(v)
		}
	}
}

// list returns the live handles: the lock is held while pointers are copied and
// not while anyone reads them.
func (t *table[K, V]) list() []V {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]V, 0, len(t.live))
	for _, v := range t.live {
		all = append(all, v)
	}
	return all
}

// foldings returns how many look-ups were folded.
func (t *table[K, V]) foldings() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost
}

// names admits a bounded number of different strings.
type names struct {
	max  int
	mu   sync.Mutex
	seen map[string]struct{}
}

func newNames(limit int) *names {
	return &names{max: limit, seen: make(map[string]struct{})}
}

// admit returns s, or "other" if s is new and there is no room.
func (n *names) admit(s string) string {
	if s == "" {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.seen[s]; ok {
		return s
	}
	if len(n.seen) >= n.max {
		return other
	}
	n.seen[s] = struct{}{}
	return s
}

// keep forgets every name that is not in use.
func (n *names) keep(inUse map[string]struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for s := range n.seen {
		if _, ok := inUse[s]; !ok {
			delete(n.seen, s)
		}
	}
}
