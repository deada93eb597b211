package discovery

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Target is one original destination. It may be kept for as long as anything
// goes there: its View stays up to date.
type Target struct {
	dst  netip.AddrPort
	view atomic.Pointer[View]
	used atomic.Int64 // nanoseconds of the cache's clock
	// Made is what a room above has made of the Target, once; it lives as long.
	Made atomic.Value

	mu      sync.Mutex // held to replace view
	version uint64     // of the source that view came from
}

// Fixed returns a Target whose View never changes: for tests, and for
// destinations that no source has to be asked about.
func Fixed(dst netip.AddrPort, v View) *Target {
	t := &Target{dst: dst}
	v.Version = 1
	t.view.Store(&v)
	return t
}

// Dst is the original destination.
func (t *Target) Dst() netip.AddrPort { return t.dst }

// View is what is known now. It costs one atomic load; a View that is the same
// pointer as before has not changed. It is never nil.
func (t *Target) View() *View { return t.view.Load() }

// refresh asks s again, unless the View came from it or from a newer one.
func (t *Target) refresh(s *source) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.version >= s.version {
		return
	}
	t.version = s.version
	v := s.Find(t.dst)
	old := t.view.Load()
	if old != nil {
		if v.same(old) {
			return
		}
		v.Version = old.Version
	}
	v.Version++
	t.view.Store(&v)
	if f, ok := t.Made.Load().(Follower); ok {
		f.ViewChanged()
	}
}

// Follower is a Target's Made that is told when the View has changed, on the
// goroutine that replaces the source: what waits for the change would not ask.
type Follower interface{ ViewChanged() }

// touch notes that t is in use. Most calls only read, so that loops do not fight
// for the line.
func (t *Target) touch(now time.Duration) {
	if n := int64(now); n-t.used.Load() > int64(time.Second) {
		t.used.Store(n)
	}
}
