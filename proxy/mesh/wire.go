package mesh

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
)

// wire is the net.Conn that crypto/tls reads from and writes to: a socket of a
// loop, which never blocks. While wait is set a read that finds nothing waits by
// it; later it returns errAgain, which crypto/tls does not hold against the
// connection.
type wire struct {
	sock  *conn.Socket
	wait  func() bool // false: the handshake was given up
	head  []byte      // read from the socket before TLS began
	out   []byte      // encrypted, not yet taken by the kernel
	errno syscall.Errno
	ended bool // the FIN was read
}

// errAgain is a temporary net.Error: nothing is there.
var errAgain net.Error = again{}

type again struct{}

func (again) Error() string   { return "nothing to read" }
func (again) Timeout() bool   { return true }
func (again) Temporary() bool { return true }

// Read reads from the socket once.
func (w *wire) Read(b []byte) (int, error) {
	if len(w.head) > 0 {
		n := copy(b, w.head)
		if w.head = w.head[n:]; len(w.head) == 0 {
			w.head = nil
		}
		return n, nil
	}
	for {
		n, e := w.sock.RawRead(b)
		switch {
		case e == unix.EAGAIN && w.wait == nil:
			return 0, errAgain
		case e == unix.EAGAIN:
			if !w.wait() {
				return 0, os.ErrClosed
			}
			continue
		case e != 0:
			w.errno = e
			return 0, e
		case n == 0:
			w.ended = true
			return 0, io.EOF
		}
		return n, nil
	}
}

// Write takes all of b: what the kernel does not is kept.
func (w *wire) Write(b []byte) (int, error) {
	n := 0
	if len(w.out) == 0 {
		var e syscall.Errno
		if n, e = w.sock.RawWrite(b); e != 0 && e != unix.EAGAIN {
			w.errno = e
			return 0, e
		}
	}
	w.out = append(w.out, b[n:]...)
	return len(b), nil
}

// flush writes what is kept and reports whether nothing is left. What cannot be
// written any more is dropped.
func (w *wire) flush() bool {
	for len(w.out) > 0 {
		n, e := w.sock.RawWrite(w.out)
		switch {
		case e == unix.EAGAIN:
			return false
		case e != 0:
			w.errno, w.out = e, nil
			return true
		}
		w.out = w.out[n:]
	}
	w.out = nil
	return true
}

// Close, the addresses and the deadlines are not the wire's.
func (w *wire) Close() error                     { return nil }
func (w *wire) LocalAddr() net.Addr              { return nil }
func (w *wire) RemoteAddr() net.Addr             { return nil }
func (w *wire) SetDeadline(time.Time) error      { return nil }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }
