package detect

import (
	"container/list"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of a Memory whose fields are zero.
const (
	DefaultMemoryLimit = 1024
	DefaultMemoryTTL   = 10 * time.Minute
)

// Memory remembers the targets whose server spoke first, so that the next
// connection to one need not wait for the client. It is bounded, forgets by
// itself, and is safe for use by several goroutines. The zero value is ready;
// its exported fields may be set before first use only. A Memory must not be
// copied.
type Memory struct {
	Limit int           // how many targets at most; 0 = DefaultMemoryLimit
	TTL   time.Duration // how long after the last Add; 0 = DefaultMemoryTTL

	held  atomic.Int64 // len(byAddr), so that an empty Memory costs one load
	mu    sync.RWMutex
	byAge list.List // of seen, the latest in front
	index map[netip.AddrPort]*list.Element
}

type seen struct {
	target netip.AddrPort
	at     time.Time
}

// Add notes that the server at t spoke first at now. When the memory is full
// the target not seen for longest is forgotten.
func (m *Memory) Add(t netip.AddrPort, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.index == nil {
		m.index = make(map[netip.AddrPort]*list.Element)
	}
	if e := m.index[t]; e != nil {
		e.Value = seen{t, now}
		m.byAge.MoveToFront(e)
	} else {
		m.index[t] = m.byAge.PushFront(seen{t, now})
	}
	m.shrink(now)
}

// Has reports whether the server at t is remembered at now to speak first.
func (m *Memory) Has(t netip.AddrPort, now time.Time) bool {
	if m.held.Load() == 0 {
		return false
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	e := m.index[t]
	return e != nil && m.fresh(e, now)
}

// Forget drops t: one HTTP request seen there proves the memory wrong.
func (m *Memory) Forget(t netip.AddrPort) {
	if m.held.Load() == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.index[t]; e != nil {
		m.drop(e)
	}
}

// Len is the number of targets held, expired ones that nobody asked for
// included.
func (m *Memory) Len() int { return int(m.held.Load()) }

// Targets returns what is remembered at now, the latest first.
func (m *Memory) Targets(now time.Time) []netip.AddrPort {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var ts []netip.AddrPort
	for e := m.byAge.Front(); e != nil && m.fresh(e, now); e = e.Next() {
		ts = append(ts, e.Value.(seen).target)
	}
	return ts
}

// shrink drops what is over the limit or expired, oldest first.
func (m *Memory) shrink(now time.Time) {
	limit := m.Limit
	if limit <= 0 {
		limit = DefaultMemoryLimit
	}
	for e := m.byAge.Back(); e != nil && (m.byAge.Len() > limit || !m.fresh(e, now)); e = m.byAge.Back() {
		m.drop(e)
	}
	m.held.Store(int64(m.byAge.Len()))
}

func (m *Memory) drop(e *list.Element) {
	delete(m.index, m.byAge.Remove(e).(seen).target)
	m.held.Store(int64(m.byAge.Len()))
}

func (m *Memory) fresh(e *list.Element, now time.Time) bool {
	ttl := m.TTL
	if ttl <= 0 {
		ttl = DefaultMemoryTTL
	}
	return now.Sub(e.Value.(seen).at) < ttl
}
