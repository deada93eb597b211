package conn

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// soOriginalDst is SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST
// (linux/netfilter_ipv4.h, linux/netfilter_ipv6/ip6_tables.h), both 80.
const soOriginalDst = 80

// OriginalDst returns where the client of the accepted socket fd wanted to go
// before a rule redirected it. peer is the client's address; an IPv4 client of
// a dual-stack listener is v4-mapped in the kernel's eyes, yet conntrack has it
// under IPv4. ErrNotRedirected stands for ENOENT: conntrack knows no such
// connection.
func OriginalDst(fd int, peer netip.Addr) (netip.AddrPort, error) {
	var sa unix.RawSockaddrInet6 // room for either family
	size := uint32(unsafe.Sizeof(sa))
	level := uintptr(unix.SOL_IP)
	if peer.Unmap().Is6() {
		level = unix.SOL_IPV6
	}
	_, _, e := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), level, soOriginalDst,
		uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)), 0)
	switch e {
	case 0:
		return addrPort(&sa), nil
	case unix.ENOENT, unix.ENOPROTOOPT: // no such connection; no conntrack in this kernel or namespace
		return netip.AddrPort{}, ErrNotRedirected
	default:
		return netip.AddrPort{}, e
	}
}

// addrPort reads a kernel socket address of either family; v4-mapped addresses
// come out as IPv4.
func addrPort(sa *unix.RawSockaddrInet6) netip.AddrPort {
	port := binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&sa.Port))[:])
	if sa.Family == unix.AF_INET {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), port)
}

// LocalAddr returns the local end of fd.
func LocalAddr(fd int) (netip.AddrPort, error) {
	var sa unix.RawSockaddrInet6
	size := uint32(unsafe.Sizeof(sa))
	_, _, e := unix.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)))
	if e != 0 {
		return netip.AddrPort{}, e
	}
	return addrPort(&sa), nil
}

// accept4 accepts one connection of the listening socket fd, non-blocking.
func accept4(fd int) (int, netip.AddrPort, syscall.Errno) {
	var sa unix.RawSockaddrInet6
	size := uint32(unsafe.Sizeof(sa))
	n, _, e := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(&sa)),
		uintptr(unsafe.Pointer(&size)), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if e != 0 {
		return -1, netip.AddrPort{}, e
	}
	return int(n), addrPort(&sa), 0
}
