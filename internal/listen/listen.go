// Package listen opens the proxy's listening sockets as raw descriptors, so
// that one process can open them and another can take them over, and reads
// and writes the environment variable that names descriptors handed over.
package listen

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Env is the environment variable in which one process tells the next which
// descriptors are which listeners: "inbound=3,outbound=4,outbound=5,admin=6".
const Env = "MESHCTL_LISTEN_FDS"

// The names of the proxy's listeners.
const (
	Inbound  = "inbound"
	Outbound = "outbound"
	Admin    = "admin"
)

// backlog is how many connections may wait to be accepted; the kernel lowers
// it to net.core.somaxconn (4096 by default).
const backlog = 4096

// Sockets are open, non-blocking listening descriptors by listener name.
type Sockets map[string][]int

// Parse reads a list of addresses as --inbound-listen takes them:
// "127.0.0.1:4140,[::1]:4140". An empty list is an error.
func Parse(list string) ([]netip.AddrPort, error) {
	var addrs []netip.AddrPort
	for item := range strings.SplitSeq(list, ",") {
		a, err := netip.ParseAddrPort(strings.TrimSpace(item))
		if err != nil {
			return nil, fmt.Errorf("listen address %q: want an IP address and a port, as 127.0.0.1:4140 or [::]:4143", item)
		}
		if a.Port() == 0 {
			return nil, fmt.Errorf("listen address %q: port 0 cannot be redirected to", item)
		}
		addrs = append(addrs, a)
	}
	return addrs, nil
}

// Open listens on every address under one name. An IPv6 address that this
// machine or namespace cannot have, because IPv6 is off there, is left out and
// returned as skipped; [::] becomes 0.0.0.0 then. Anything else that fails, a
// port in use above all, fails the whole: no socket stays open.
func (s Sockets) Open(name string, addrs []netip.AddrPort) (skipped []netip.AddrPort, err error) {
	var fds []int
	for _, a := range addrs {
		fd, err := open(a)
		if noIPv6(err) && a.Addr().Is6() {
			if a.Addr() != netip.IPv6Unspecified() {
				skipped = append(skipped, a)
				continue
			}
			fd, err = open(netip.AddrPortFrom(netip.IPv4Unspecified(), a.Port()))
		}
		if err != nil {
			closeAll(fds)
			return nil, fmt.Errorf("listening on %s (%s): %w", a, name, err)
		}
		fds = append(fds, fd)
	}
	if len(fds) == 0 {
		return nil, fmt.Errorf("listening (%s): no address of %v can be had here", name, addrs)
	}
	s[name] = append(s[name], fds...)
	return skipped, nil
}

// noIPv6 tells a kernel or namespace without IPv6, or without ::1, from a
// port that is taken.
func noIPv6(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL)
}

func open(a netip.AddrPort) (int, error) {
	family := unix.AF_INET6
	if a.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := listenOn(fd, a); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func listenOn(fd int, a netip.AddrPort) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return err
	}
	if a.Addr().Is6() {
		only := 1
		if a.Addr().IsUnspecified() {
			only = 0 // [::] takes IPv4 too
		}
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, only); err != nil {
			return err
		}
	}
	if err := unix.Bind(fd, sockaddr(a)); err != nil {
		return err
	}
	return unix.Listen(fd, backlog)
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// Close closes every socket.
func (s Sockets) Close() {
	for name, fds := range s {
		closeAll(fds)
		delete(s, name)
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// Handover renders the sockets for Env.
func (s Sockets) Handover() string {
	var items []string
	for _, name := range []string{Inbound, Outbound, Admin} {
		for _, fd := range s[name] {
			items = append(items, name+"="+strconv.Itoa(fd))
		}
	}
	return strings.Join(items, ",")
}

// Inherited takes over what an Env value names; the variable should be unset
// afterwards. Descriptors that are no listening sockets are an error.
func Inherited(value string) (Sockets, error) {
	s := Sockets{}
	if value == "" {
		return s, nil
	}
	for item := range strings.SplitSeq(value, ",") {
		name, number, _ := strings.Cut(item, "=")
		fd, err := strconv.Atoi(number)
		if err != nil || !slices.Contains([]string{Inbound, Outbound, Admin}, name) {
			return nil, fmt.Errorf("%s: %q is not NAME=DESCRIPTOR", Env, item)
		}
		if on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || on == 0 {
			return nil, fmt.Errorf("%s: descriptor %d is no listening socket", Env, fd)
		}
		unix.CloseOnExec(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, os.NewSyscallError("fcntl", err)
		}
		s[name] = append(s[name], fd)
	}
	return s, nil
}
