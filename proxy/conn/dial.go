package conn

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Dial begins a TCP connection to dst and attaches it as s. done tells that it
// is up already: connect(2) itself always says EINPROGRESS, but on loopback or a
// veth pair the handshake is over when it returns. Otherwise h is called
// Writable when it has ended and s.Connected tells how. The error is the
// kernel's (ECONNREFUSED, EMFILE, ENETUNREACH ...); s is closed then.
func (l *Loop) Dial(s *Socket, dst netip.AddrPort, h Handler) (done bool, errno syscall.Errno) {
	family := uintptr(unix.AF_INET6)
	if dst.Addr().Is4() {
		family = unix.AF_INET
	}
	r, _, e := unix.RawSyscall(unix.SYS_SOCKET, family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if e != 0 {
		return false, e
	}
	fd := int(r)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	e = connect(fd, dst)
	if e == 0 || e == unix.EINPROGRESS {
		e = l.attach(s, fd, h, socketEvents)
		if e == 0 {
			switch e = s.Connected(); e {
			case 0:
				return true, 0
			case unix.EINPROGRESS:
				return false, 0
			}
			s.Close()
			return false, e
		}
	}
	unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
	return false, e
}

// Connected reports whether a connection begun by Dial is up: EINPROGRESS as
// long as it is not decided, else 0 or the error.
func (s *Socket) Connected() syscall.Errno {
	var sa unix.RawSockaddrInet6
	size := uint32(unsafe.Sizeof(sa))
	_, _, e := unix.RawSyscall(unix.SYS_GETPEERNAME, uintptr(s.fd), uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)))
	if e == 0 {
		return 0
	}
	if e = s.Err(); e != 0 {
		return e
	}
	return unix.EINPROGRESS
}

func connect(fd int, dst netip.AddrPort) syscall.Errno {
	var sa unix.RawSockaddrInet6
	size := uintptr(unix.SizeofSockaddrInet6)
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&sa.Port))[:], dst.Port())
	if dst.Addr().Is4() {
		sa.Family = unix.AF_INET
		(*unix.RawSockaddrInet4)(unsafe.Pointer(&sa)).Addr = dst.Addr().As4()
		size = unix.SizeofSockaddrInet4
	} else {
		sa.Family = unix.AF_INET6
		sa.Addr = dst.Addr().As16()
	}
	for {
		_, _, e := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&sa)), size)
		if e != unix.EINTR {
			return e
		}
	}
}
