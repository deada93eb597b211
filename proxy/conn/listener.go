package conn

import (
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	acceptBatch   = 64                     // connections taken before others get their turn
	backlogMax    = 4096                   // connections taken at Close: what may wait (net.core.somaxconn)
	acceptBackoff = 50 * time.Millisecond  // first wait when descriptors ran out
	acceptPatient = 500 * time.Millisecond // and the longest
)

// Accepted is a connection just taken from a listener: an open, non-blocking
// descriptor and the client's address.
type Accepted struct {
	FD     int
	Client netip.AddrPort
}

// Acceptor serves what a listener accepts.
type Acceptor interface {
	// Accept owns c.FD from here on. It runs on the goroutine of l, which may be
	// another loop than the one that accepted.
	Accept(l *Loop, c Accepted)
	// AcceptFailed is told of errors: EMFILE, ENFILE, ENOBUFS, ENOMEM; EINVAL if
	// the socket does not listen any more. The listener goes on by itself. It is
	// called at most once per wait.
	AcceptFailed(err error)
}

// Listener accepts on one listening socket for one loop. Several loops may
// share a listening socket, each with a Listener (and a descriptor) of its own.
type Listener struct {
	sock  Socket
	loops []*Loop
	to    Acceptor
	retry Timer
	wait  time.Duration
}

// Listen has l accept from the listening, non-blocking descriptor fd, which it
// owns. Connections go to the least loaded of loops, so that long-lived ones
// spread evenly. Options that accepted sockets inherit are set here, once.
func (l *Loop) Listen(fd int, loops []*Loop, to Acceptor) (*Listener, error) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	Keepalive(fd)
	ln := &Listener{loops: loops, to: to}
	// EPOLLEXCLUSIVE: one new connection wakes one loop.
	if e := l.attach(&ln.sock, fd, ln, unix.EPOLLIN|unix.EPOLLET|unix.EPOLLEXCLUSIVE); e != 0 {
		unix.Close(fd)
		return nil, fmt.Errorf("watching a listener: %w", e)
	}
	return ln, nil
}

// Close takes what already waits in the backlog, then stops accepting. It runs
// on the loop's goroutine. The descriptor is taken out of epoll by hand: a
// duplicate elsewhere would keep it there, swallowing wake-ups.
func (ln *Listener) Close() {
	if !ln.sock.open {
		return
	}
	for range backlogMax / acceptBatch {
		if ln.accept() {
			break
		}
	}
	_ = unix.EpollCtl(ln.sock.loop.epfd, unix.EPOLL_CTL_DEL, int(ln.sock.fd), nil)
	ln.sock.Loop().Cancel(&ln.retry)
	ln.sock.Close()
}

// Ready accepts what is there.
func (ln *Listener) Ready(s *Socket, _ Events) {
	if !ln.accept() {
		s.Again()
	}
}

// accept takes a batch of connections and reports whether there are no more to
// be had now.
func (ln *Listener) accept() bool {
	for range acceptBatch {
		fd, client, e := accept4(int(ln.sock.fd))
		switch e {
		case 0:
			ln.wait = 0
			ln.hand(Accepted{FD: fd, Client: client})
		case unix.EAGAIN:
			return true
		case unix.EINTR, unix.EPERM, unix.ECONNABORTED, unix.EPROTO, unix.ENETDOWN, unix.ENOPROTOOPT, unix.EHOSTDOWN,
			unix.ENONET, unix.EHOSTUNREACH, unix.EOPNOTSUPP, unix.ENETUNREACH:
			// of the one connection, which is gone: accept(2), "Error handling"
		default: // descriptors or memory ran out, or somebody has shut the listener down (EINVAL)
			ln.backOff(e)
			return true
		}
	}
	return false
}

// backOff waits for descriptors to come back: clients stay in the backlog
// meanwhile. No event comes for those, so a timer asks again.
func (ln *Listener) backOff(e syscall.Errno) {
	ln.wait = min(max(2*ln.wait, acceptBackoff), acceptPatient)
	ln.sock.loop.Start(&ln.retry, ln.wait, ln)
	ln.to.AcceptFailed(e)
}

// Expired accepts again after a wait.
func (ln *Listener) Expired(*Timer) { ln.Ready(&ln.sock, Readable) }

// Panicked passes a panic on: Accept contains those of a connection itself.
func (ln *Listener) Panicked(v any, stack []byte) { panic(fmt.Sprintf("accepting: %v\n%s", v, stack)) }

// hand gives c to the least loaded loop, to its own unless another has clearly
// less: handing over costs a wake-up, imbalance costs for as long as it lasts.
func (ln *Listener) hand(c Accepted) {
	own := ln.sock.loop
	best, least := own, own.Load()-2
	for _, l := range ln.loops {
		if n := l.Load(); n < least {
			best, least = l, n
		}
	}
	best.AddLoad(1)
	if best == own {
		ln.to.Accept(own, c)
		return
	}
	if !best.Post(func() { ln.to.Accept(best, c) }) {
		best.AddLoad(-1)
		unix.Close(c.FD)
	}
}
