package policy

import (
	"sync"
	"sync/atomic"
)

// Inbound says who may call the ports of the local application, as it is now.
type Inbound interface {
	// Port returns what is declared of a port; one atomic load.
	Port(port uint16) *Port
	// Changed has f called after each change, on the goroutine that brought it: who
	// has open connections asks again about them.
	Changed(f func())
}

// Live is the Table that counts now. It is an Inbound.
type Live struct {
	current atomic.Pointer[Table]
	mu      sync.Mutex // of what follows
	heard   []func()
}

// NewLive makes a Live with its first Table.
func NewLive(t *Table) *Live {
	l := &Live{}
	l.current.Store(t)
	return l
}

// Port implements Inbound.
func (l *Live) Port(port uint16) *Port { return l.current.Load().Port(port) }

// Table returns the one that counts now.
func (l *Live) Table() *Table { return l.current.Load() }

// Changed implements Inbound.
func (l *Live) Changed(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = append(l.heard, f)
}

// Replace puts t in the place of the Table that counts, unless it says the same,
// and reports whether it did.
func (l *Live) Replace(t *Table) bool {
	l.mu.Lock()
	if l.current.Load().Equal(t) {
		l.mu.Unlock()
		return false
	}
	l.current.Store(t)
	heard := l.heard
	l.mu.Unlock()
	for _, f := range heard {
		f()
	}
	return true
}
