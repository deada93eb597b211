package conn

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Socket is one non-blocking TCP socket of a loop. The zero value is a closed
// socket. It must not be copied once attached, and is used on its loop's
// goroutine only.
type Socket struct {
	loop    *Loop
	handler Handler
	fd      int32
	gen     uint32
	open    bool
	queued  bool
	hungUp  bool
	in, out uint64 // bytes
	urgent  bool
	layer   Layer // nil: the bytes are what they are
}

// Attach makes the open descriptor fd, which must be non-blocking, a socket of
// l. The handler is called at once for whatever fd is ready for.
func (l *Loop) Attach(s *Socket, fd int, h Handler) error {
	if e := l.attach(s, fd, h, socketEvents); e != 0 {
		return e
	}
	return nil
}

// socketEvents is what every connection's socket is watched for.
const socketEvents = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLPRI | unix.EPOLLET

func (l *Loop) attach(s *Socket, fd int, h Handler, events uint32) syscall.Errno {
	l.gen++
	*s = Socket{loop: l, handler: h, fd: int32(fd), gen: l.gen, open: true}
	for fd >= len(l.slots) {
		l.slots = append(l.slots, make([]*Socket, max(64, fd+1-len(l.slots)))...)
	}
	l.slots[fd] = s
	ev := unix.EpollEvent{Events: events, Fd: int32(fd), Pad: int32(l.gen)}
	_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(l.epfd), unix.EPOLL_CTL_ADD,
		uintptr(fd), uintptr(unsafe.Pointer(&ev)), 0, 0)
	if errno != 0 {
		l.slots[fd] = nil
		s.open = false
	}
	return errno
}

// Bytes is how many bytes were read from and written to the socket by Read,
// Write and WriteTwo; under a Layer, how many of the bytes that it carries.
func (s *Socket) Bytes() (in, out uint64) { return s.in, s.out }

// Loop returns the loop the socket belongs to.
func (s *Socket) Loop() *Loop { return s.loop }

// Handle makes h the handler of the socket from its next event on.
func (s *Socket) Handle(h Handler) { s.handler = h }

// FD returns the descriptor, -1 when closed.
func (s *Socket) FD() int {
	if !s.open {
		return -1
	}
	return int(s.fd)
}

// Open reports whether the socket is attached and not closed.
func (s *Socket) Open() bool { return s.open }

// HungUp reports whether the peer's FIN is known to have arrived: a short read
// then does not mean that nothing is left to read.
func (s *Socket) HungUp() bool { return s.hungUp }

// Urgent reports whether an urgent byte (RFC 9293, 3.8.5) has come at any time. A
// read ends in front of it, a splice does not get past it (tcp(7), splice(2)).
func (s *Socket) Urgent() bool { return s.urgent }

// gotUrgent keeps the urgent byte in the stream, where RFC 6093 wants it.
func (s *Socket) gotUrgent() {
	if !s.urgent {
		s.urgent = true
		_ = unix.SetsockoptInt(int(s.fd), unix.SOL_SOCKET, unix.SO_OOBINLINE, 1)
	}
}

// Again asks the loop to call Ready(s, Readable) once more in its next round,
// for a handler that stopped before the socket was read empty so that others
// get their turn.
func (s *Socket) Again() {
	if s.open && !s.queued {
		s.queued = true
		s.loop.again = append(s.loop.again, s)
	}
}

// Read reads into b once. It returns EAGAIN when nothing is there, and 0, 0 at
// the peer's FIN. Raw calls: a non-blocking socket never needs the scheduler.
func (s *Socket) Read(b []byte) (n int, e syscall.Errno) {
	if s.layer != nil {
		n, e = s.layer.Read(b)
	} else {
		n, e = s.RawRead(b)
	}
	s.in += uint64(n)
	return n, e
}

// Write writes from b once and returns how much was taken; EAGAIN when the send
// buffer is full, EPIPE or ECONNRESET when the peer is gone.
func (s *Socket) Write(b []byte) (n int, e syscall.Errno) {
	if s.layer != nil {
		n, e = s.layer.Write(b)
	} else {
		n, e = s.RawWrite(b)
	}
	s.out += uint64(n)
	return n, e
}

// WriteTwo writes a and then b in one call (sendmsg(2)); otherwise it is Write.
func (s *Socket) WriteTwo(a, b []byte) (n int, e syscall.Errno) {
	if s.layer != nil {
		n, e = s.layer.WriteTwo(a, b)
	} else {
		n, e = s.rawWriteTwo(a, b)
	}
	s.out += uint64(n)
	return n, e
}

// Drained reports whether a read of less than was asked for has emptied the
// socket, so that the next byte makes an event. It has not where a FIN is known
// to have come, whose event is past; where an urgent byte ended the read amid the
// queue; and under a Layer, which reads in pieces of its own.
func (s *Socket) Drained() bool { return !s.hungUp && !s.urgent && s.layer == nil }

// CloseWrite sends a FIN; reading goes on.
func (s *Socket) CloseWrite() {
	switch {
	case !s.open:
	case s.layer != nil:
		s.layer.CloseWrite()
	default:
		s.RawCloseWrite()
	}
}

// RawCloseWrite sends a FIN past the Layer.
func (s *Socket) RawCloseWrite() {
	if s.open {
		unix.RawSyscall(unix.SYS_SHUTDOWN, uintptr(s.fd), unix.SHUT_WR, 0)
	}
}

// Close closes the socket. The kernel sends a FIN, or a RST if unread bytes
// are left (RFC 2525, 2.17).
func (s *Socket) Close() {
	if !s.open {
		return
	}
	if s.layer != nil && !s.layer.Close() {
		s.linger()
		return
	}
	s.drop()
}

// drop closes the descriptor.
func (s *Socket) drop() {
	s.open = false
	s.loop.slots[s.fd] = nil
	unix.RawSyscall(unix.SYS_CLOSE, uintptr(s.fd), 0, 0)
}

// Reset closes the socket with a RST, so that the peer cannot take a broken
// stream for a whole one.
func (s *Socket) Reset() {
	if s.open {
		_ = unix.SetsockoptLinger(int(s.fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		s.drop()
	}
}

// Err returns and clears the pending error of the socket (SO_ERROR), 0 if none.
func (s *Socket) Err() syscall.Errno {
	v, err := unix.GetsockoptInt(int(s.fd), unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return unix.EBADF
	}
	return syscall.Errno(v)
}

// Unacknowledged is the number of bytes written that the peer's kernel has not
// confirmed (tcp(7), SIOCOUTQ), and of those that a Layer still holds; a FIN
// counts as one.
func (s *Socket) Unacknowledged() int {
	n, err := unix.IoctlGetInt(int(s.fd), unix.SIOCOUTQ)
	if err != nil {
		return 0
	}
	if s.layer != nil {
		n += s.layer.Pending()
	}
	return n
}

// Keepalive makes the kernel find out within about 40 s that a silent peer has
// vanished: 10 s of silence, then three probes. Inherited from a listener by
// what it accepts, so only dialed sockets need it. While something is under way
// to the peer the kernel does not probe: see Vanished.
func Keepalive(fd int) {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 10)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 10)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3)
}

// unanswered is how often a peer has to be asked in vain to have vanished.
const unanswered = 3

// Vanished reports whether the peer has been silent for d although it was asked
// for an answer several times, by retransmissions or by probes of its closed
// window. A peer that is alive but does not read answers those. (TCP_USER_TIMEOUT
// cannot tell them apart: it ends a connection whose window stays closed, see
// tcp_probe_timer in net/ipv4/tcp_timer.c.)
func (s *Socket) Vanished(d time.Duration) bool {
	if s.Unacknowledged() == 0 {
		return false
	}
	info, err := unix.GetsockoptTCPInfo(int(s.fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	return err == nil && max(info.Retransmits, info.Probes) >= unanswered &&
		time.Duration(info.Last_ack_recv)*time.Millisecond >= d
}
