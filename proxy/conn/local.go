package conn

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// localAge is how long a reading of the machine's addresses is believed.
const localAge = time.Second

// Locals knows which addresses are this machine's (or namespace's) own. Asking
// reads the interfaces at most once a second. The zero value is ready; it is
// safe for concurrent use.
type Locals struct {
	mu    sync.Mutex
	read  time.Time
	addrs map[netip.Addr]bool
}

// Has reports whether a is a loopback or unspecified address or assigned to an
// interface. When the interfaces cannot be read, only the former are known.
func (l *Locals) Has(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if a.IsLoopback() || a.IsUnspecified() {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.addrs == nil || time.Since(l.read) > localAge {
		l.refresh()
	}
	return l.addrs[a]
}

func (l *Locals) refresh() {
	l.addrs, l.read = map[netip.Addr]bool{}, time.Now()
	found, err := net.InterfaceAddrs()
	if err != nil {
		return
	}
	for _, f := range found {
		if p, err := netip.ParsePrefix(f.String()); err == nil {
			l.addrs[p.Addr().Unmap()] = true
		}
	}
}
