package redirect

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/internal/listen"
)

// Addrs are the addresses that the proxy will listen on.
type Addrs struct {
	Inbound  []netip.AddrPort // redirected connections to the application
	Outbound []netip.AddrPort // redirected connections of the application
	Admin    []netip.AddrPort // metrics and health
}

// Listeners are the proxy's sockets, open inside its namespace; close them all
// or hand them to Exec.
type Listeners struct{ sockets listen.Sockets }

// Listen opens listeners inside ns, all of them or none. An IPv6 address that
// the namespace cannot serve because IPv6 is off there is left out ([::] becomes
// 0.0.0.0). A port that is taken is an error: two proxies never share one.
//
// Until Open is called, those that are redirected to take only connections of
// Verify: others' first packets are dropped and come again a second later, when
// the proxy runs.
func Listen(ns *Namespace, addrs Addrs) (*Listeners, error) {
	all := &Listeners{listen.Sockets{}}
	err := ns.Do(func() error {
		for _, open := range []struct {
			name  string
			addrs []netip.AddrPort
			gated bool
		}{{listen.Inbound, addrs.Inbound, true}, {listen.Outbound, addrs.Outbound, true}, {listen.Admin, addrs.Admin, false}} {
			if len(open.addrs) == 0 {
				continue
			}
			if _, err := all.sockets.Open(open.name, open.addrs); err != nil {
				return err
			}
			if !open.gated {
				continue
			}
			for _, fd := range all.sockets[open.name] {
				if err := attachGate(fd); err != nil {
					return fmt.Errorf("closing the gate of %s: %w", open.name, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		all.Close()
		return nil, &Error{Step: "preparing the proxy", Err: err}
	}
	return all, nil
}

// Open lets everybody's connections in.
func (l *Listeners) Open() error {
	for name, fds := range l.sockets {
		for _, fd := range fds {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0); err != nil && err != unix.ENOENT {
				return &Error{Step: "opening the gate of " + name, Err: err}
			}
		}
	}
	return nil
}

// Close gives the sockets up.
func (l *Listeners) Close() { l.sockets.Close() }

// of is the descriptor that serves a family under a name, or false.
func (l *Listeners) of(name string, v6 bool) (fd int, ok bool) {
	for _, fd := range l.sockets[name] {
		local, err := unix.Getsockname(fd)
		if err != nil {
			continue
		}
		switch at := local.(type) {
		case *unix.SockaddrInet4:
			if !v6 {
				return fd, true
			}
		case *unix.SockaddrInet6:
			if v6 || netip.AddrFrom16(at.Addr).IsUnspecified() {
				return fd, true
			}
		}
	}
	return -1, false
}
