package conn

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// RawRead is Read past the Layer, and not counted.
func (s *Socket) RawRead(b []byte) (int, syscall.Errno) {
	for {
		n, _, e := unix.RawSyscall(unix.SYS_READ, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		if e == 0 {
			return int(n), 0
		}
		if e != unix.EINTR {
			return 0, e
		}
	}
}

// RawWrite is Write past the Layer, and not counted.
func (s *Socket) RawWrite(b []byte) (int, syscall.Errno) {
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
			uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
		if e == 0 {
			return int(n), 0
		}
		if e != unix.EINTR {
			return 0, e
		}
	}
}

func (s *Socket) rawWriteTwo(a, b []byte) (int, syscall.Errno) {
	iov := [2]unix.Iovec{{Base: unsafe.SliceData(a)}, {Base: unsafe.SliceData(b)}}
	iov[0].SetLen(len(a))
	iov[1].SetLen(len(b))
	msg := unix.Msghdr{Iov: &iov[0], Iovlen: 2}
	for {
		n, _, e := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&msg)), unix.MSG_NOSIGNAL)
		if e == 0 {
			return int(n), 0
		}
		if e != unix.EINTR {
			return 0, e
		}
	}
}

// Peek reads up to len(b) bytes and leaves them to be read again. Otherwise it is
// Read.
func (s *Socket) Peek(b []byte) (int, syscall.Errno) {
	if s.layer != nil {
		return s.layer.Peek(b)
	}
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
			uintptr(len(b)), unix.MSG_PEEK, 0, 0)
		if e == 0 {
			return int(n), 0
		}
		if e != unix.EINTR {
			return 0, e
		}
	}
}
