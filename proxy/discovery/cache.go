package discovery

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

// CacheConfig holds the limits of a Cache.
type CacheConfig struct {
	// Idle is how long a Target that is not asked for is kept; 0: a minute.
	Idle time.Duration
	// Max is how many Targets are kept; 0: 10,000. More cost memory only while
	// something holds them.
	Max int
}

// Cache is a Resolver that asks its source once for each destination, and again
// when the source is replaced. A Target that something holds stays the one Target
// of its destination, however long nobody asks for it: the cache then only forgets
// to hold it too. It has no goroutine; somebody has to call Sweep.
type Cache struct {
	cfg   CacheConfig
	start time.Time
	from  atomic.Pointer[source]

	mu      sync.RWMutex
	targets map[netip.AddrPort]*entry
	held    atomic.Int64 // entries that hold their Target

	replacing   sync.Mutex // one Replace at a time
	subscribers map[int]func()
	lastID      int
}

// source is a Source with its place in the order of sources.
type source struct {
	Source
	version uint64
}

// entry holds a Target strongly while it is asked for, else weakly.
type entry struct {
	strong atomic.Pointer[Target]
	weak   weak.Pointer[Target]
}

// NewCache returns a Cache that asks s.
func NewCache(cfg CacheConfig, s Source) *Cache {
	if cfg.Idle <= 0 {
		cfg.Idle = time.Minute
	}
	if cfg.Max <= 0 {
		cfg.Max = 10_000
	}
	c := &Cache{cfg: cfg, start: time.Now(), targets: map[netip.AddrPort]*entry{}, subscribers: map[int]func(){}}
	c.from.Store(&source{s, 1})
	return c
}

// Resolve returns the Target of dst. An IPv4 address in IPv6 clothes is IPv4.
func (c *Cache) Resolve(dst netip.AddrPort) *Target {
	dst = netip.AddrPortFrom(dst.Addr().Unmap(), dst.Port())
	now := time.Since(c.start)
	c.mu.RLock()
	e := c.targets[dst]
	c.mu.RUnlock()
	if e != nil {
		if t := c.get(e); t != nil {
			t.touch(now)
			return t
		}
	}
	return c.add(dst, now)
}

// get returns the Target, held again, or nil if nothing has held it any more.
func (c *Cache) get(e *entry) *Target {
	if t := e.strong.Load(); t != nil {
		return t
	}
	t := e.weak.Value()
	if t != nil && e.strong.CompareAndSwap(nil, t) {
		c.held.Add(1)
	}
	return t
}

// letGo makes e hold its Target weakly, and reports whether it did not before.
func (c *Cache) letGo(e *entry) bool {
	if e.strong.Swap(nil) == nil {
		return false
	}
	c.held.Add(-1)
	return true
}

func (c *Cache) add(dst netip.AddrPort, now time.Duration) *Target {
	made := &Target{dst: dst}
	made.used.Store(int64(now))
	s := c.from.Load()
	made.refresh(s)
	c.mu.Lock()
	if e := c.targets[dst]; e != nil {
		if t := c.get(e); t != nil { // another loop was faster
			c.mu.Unlock()
			return t
		}
	}
	if c.held.Load() >= int64(c.cfg.Max) {
		c.makeRoom()
	}
	e := &entry{weak: weak.Make(made)}
	e.strong.Store(made)
	c.held.Add(1)
	c.targets[dst] = e
	c.mu.Unlock()
	if newer := c.from.Load(); newer != s {
		made.refresh(newer) // Replace may have missed it
	}
	return made
}

// makeRoom lets go of a few Targets, at least one, chosen by the map's random
// order.
func (c *Cache) makeRoom() {
	n, freed := 0, false
	for dst, e := range c.targets {
		freed = c.letGo(e) || freed
		if e.weak.Value() == nil {
			delete(c.targets, dst)
		}
		if n++; n >= 8 && freed {
			return
		}
	}
}

// Sweep lets go of the Targets that nobody has asked for within the idle time.
func (c *Cache) Sweep() {
	old := int64(time.Since(c.start) - c.cfg.Idle)
	c.mu.Lock()
	defer c.mu.Unlock()
	for dst, e := range c.targets {
		if t := e.strong.Load(); t != nil && t.used.Load() < old {
			c.letGo(e)
		}
		if e.strong.Load() == nil && e.weak.Value() == nil {
			delete(c.targets, dst)
		}
	}
}

// Len is how many Targets are held or known to be held elsewhere.
func (c *Cache) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.targets)
}

// Replace makes s the source. When it returns every Target has the View that s
// gives, and the subscribers have been told.
func (c *Cache) Replace(s Source) {
	c.replacing.Lock()
	defer c.replacing.Unlock()
	c.replace(s, &Change{All: true})
}

// Update says that the source has changed in place. When it returns every Target
// that the change touches has its new View, and the subscribers have been told.
// The others are not looked at again.
func (c *Cache) Update(change *Change) {
	if change.IsZero() {
		return
	}
	c.replacing.Lock()
	defer c.replacing.Unlock()
	c.replace(c.from.Load().Source, change)
}

func (c *Cache) replace(s Source, change *Change) {
	next := &source{s, c.from.Load().version + 1}
	c.from.Store(next)
	for _, t := range c.alive() {
		if change.Touches(t.dst, t.View()) {
			t.refresh(next)
		}
	}
	for _, tell := range c.subscribers {
		tell()
	}
}

// Targets are all that are held by the cache or by anybody else.
func (c *Cache) Targets() []*Target { return c.alive() }

func (c *Cache) alive() []*Target {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := make([]*Target, 0, len(c.targets))
	for _, e := range c.targets {
		if t := e.weak.Value(); t != nil {
			out = append(out, t)
		}
	}
	return out
}

// Subscribe has f called after each Replace and Update, on the goroutine that replaces; a
// loop is told by posting to it. f must not call Replace, Update or Subscribe. cancel
// ends it.
func (c *Cache) Subscribe(f func()) (cancel func()) {
	c.replacing.Lock()
	defer c.replacing.Unlock()
	c.lastID++
	id := c.lastID
	c.subscribers[id] = f
	return func() {
		c.replacing.Lock()
		defer c.replacing.Unlock()
		delete(c.subscribers, id)
	}
}
