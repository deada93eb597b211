package bench

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/integration/lab"
)

// Both ends of the connect load are blocking system calls on threads of their own:
// what they spare of the two cores is what the contenders are measured with.

// once opens a connection to a server that answers one byte and closes.
func once(to netip.AddrPort) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	if err := limit(fd); err != nil {
		return err
	}
	err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	if err == unix.EINTR { // it goes on by itself: writable is connected (connect(2))
		_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 5000)
	}
	if err != nil {
		return os.NewSyscallError("connect", err)
	}
	var b [2]byte
	if _, err := uninterrupted(unix.Write, fd, b[:1]); err != nil {
		return os.NewSyscallError("write", err)
	}
	for _, want := range []int{1, 0} { // the byte, and the end
		switch n, err := uninterrupted(unix.Read, fd, b[:]); {
		case err != nil:
			return os.NewSyscallError("read", err)
		case n != want:
			return fmt.Errorf("read: %d bytes instead of %d", n, want)
		}
	}
	return nil
}

// uninterrupted calls read or write again when a signal ended it: with a timeout on
// the socket SA_RESTART does not (signal(7)), and the Go scheduler sends signals.
func uninterrupted(call func(int, []byte) (int, error), fd int, b []byte) (int, error) {
	for {
		n, err := call(fd, b)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// limit keeps a call from waiting for more than 5 s (socket(7), SO_RCVTIMEO).
func limit(fd int) error {
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &unix.Timeval{Sec: 5}); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	return nil
}

// serveOnce is the server of once, on several threads.
func (b *bench) serveOnce(t *testing.T, port uint16) {
	t.Helper()
	l := b.net.Pod.Listen(t, netip.AddrPortFrom(lab.PodV4, port))
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	fd := int(file.Fd()) // blocking from here on
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() { answerOnce(fd) })
	}
	t.Cleanup(func() {
		_ = unix.Shutdown(fd, unix.SHUT_RDWR) // ends the accepts (EINVAL)
		group.Wait()
		file.Close()
	})
}

func answerOnce(listener int) {
	var b [1]byte
	for {
		fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
		switch err {
		case nil:
		case unix.ECONNABORTED, unix.EINTR:
			continue
		default:
			return
		}
		if limit(fd) == nil {
			if n, err := uninterrupted(unix.Read, fd, b[:]); n == 1 && err == nil {
				_, _ = uninterrupted(unix.Write, fd, b[:]) // the client counts
			}
		}
		unix.Close(fd)
	}
}
