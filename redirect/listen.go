package redirect

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Role is what a listener is for. The zero value means "not said".
type Role uint8

// The roles.
const (
	InboundRole  Role = iota + 1 // redirected connections to the application
	OutboundRole                 // redirected connections of the application
	AdminRole                    // metrics and health
)

// String is the role as the proxy's flags and the hand-over write it.
func (r Role) String() string {
	switch r {
	case InboundRole:
		return "inbound"
	case OutboundRole:
		return "outbound"
	case AdminRole:
		return "admin"
	}
	return "not said"
}

// ListenAddr is one address that the proxy will listen on.
type ListenAddr struct {
	Role Role
	Addr netip.AddrPort
}

// Listener is an open, listening socket of the proxy-to-be. The zero value is
// none.
type Listener struct {
	ListenAddr
	fd int
}

// Listeners are the proxy's sockets; close them all or hand them to Exec.
type Listeners []Listener

// backlog is how many connections may wait to be accepted; the kernel cuts it
// to net.core.somaxconn.
const backlog = 4096

// Listen opens listeners inside ns, all of them or none. An IPv6 address that
// the namespace cannot serve because IPv6 is off there is left out ([::] becomes
// 0.0.0.0). A port that is taken is an error: two proxies never share one.
//
// Until Open is called the listeners take only connections of Verify: others'
// first packets are dropped and come again a second later, when the proxy runs.
func Listen(ns *Namespace, addrs []ListenAddr) (Listeners, error) {
	var all Listeners
	err := ns.Do(func() error {
		for _, addr := range addrs {
			fd, err := listenOne(&addr)
			if errors.Is(err, errNoIPv6) {
				continue
			}
			if err != nil {
				return &Error{Step: fmt.Sprintf("listening on %s (%s)", addr.Addr, addr.Role), Err: err}
			}
			all = append(all, Listener{ListenAddr: addr, fd: fd})
		}
		return nil
	})
	if err != nil {
		all.Close()
		return nil, err
	}
	return all, nil
}

var errNoIPv6 = errors.New("IPv6 is off")

func listenOne(addr *ListenAddr) (fd int, err error) {
	fd, err = bind(addr.Addr)
	if addr.Addr.Addr().Is6() && isAny(err, unix.EAFNOSUPPORT, unix.EADDRNOTAVAIL) {
		if !addr.Addr.Addr().IsUnspecified() {
			return -1, errNoIPv6
		}
		addr.Addr = netip.AddrPortFrom(netip.IPv4Unspecified(), addr.Addr.Port())
		fd, err = bind(addr.Addr)
	}
	if err != nil {
		return -1, err
	}
	if err := errors.Join(attachGate(fd), unix.Listen(fd, backlog)); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// bind makes a socket; [::] serves both families. SO_REUSEADDR lets a new proxy
// start while connections of the old one linger, and still refuses a second
// listener (socket(7)).
func bind(addr netip.AddrPort) (fd int, err error) {
	family, to := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: int(addr.Port()), Addr: as4(addr)})
	if addr.Addr().Is6() {
		family, to = unix.AF_INET6, &unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()}
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
	if err != nil {
		return -1, err
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil && family == unix.AF_INET6 {
		only := 1
		if addr.Addr().IsUnspecified() {
			only = 0
		}
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, only)
	}
	if err == nil {
		err = unix.Bind(fd, to)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func as4(addr netip.AddrPort) (b [4]byte) {
	if addr.Addr().Is4() {
		b = addr.Addr().As4()
	}
	return b
}

// Open lets everybody's connections in.
func (all Listeners) Open() error {
	for _, l := range all {
		if err := unix.SetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0); err != nil && err != unix.ENOENT {
			return &Error{Step: fmt.Sprintf("opening %s (%s)", l.Addr, l.Role), Err: err}
		}
	}
	return nil
}

// Close gives the sockets up.
func (all Listeners) Close() {
	for _, l := range all {
		unix.Close(l.fd)
	}
}

// of is the listener of a role for a family, or false.
func (all Listeners) of(role Role, v6 bool) (Listener, bool) {
	for _, l := range all {
		if l.Role != role {
			continue
		}
		dual := l.Addr.Addr() == netip.IPv6Unspecified()
		if dual || l.Addr.Addr().Is6() == v6 {
			return l, true
		}
	}
	return Listener{}, false
}
