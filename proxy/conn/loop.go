package conn

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ScratchSize is the size of a loop's read buffer: 64 KiB, what one read(2)
// takes at most. There is one a loop, none a connection.
const ScratchSize = 64 << 10

// Loop drives sockets and timers on one goroutine: the one that calls Run, or
// Step. Only Post and Load may be called from elsewhere.
type Loop struct {
	// Scratch is the loop's read buffer, free for use within one call of a
	// handler and lost after it.
	Scratch []byte

	epfd     int
	file     *os.File // epfd, registered with the runtime's poller
	raw      syscall.RawConn
	wakeFD   int
	wake     Socket
	start    time.Time
	now      time.Duration
	round    uint64
	gen      uint32
	slots    []*Socket // by descriptor
	events   []unix.EpollEvent
	again    []*Socket
	spare    []*Socket // the other half of again's double buffer
	timers   []*Timer
	armed    time.Duration // deadline set on file; 0: none
	pipes    pipePool
	flushers []Flusher
	locals   []any // see Local
	yield    yielding

	load    atomic.Int64
	mu      sync.Mutex
	posted  []func()
	stopped atomic.Bool // set with mu held
}

// NewLoop makes a loop. It fails when the process is out of descriptors.
func NewLoop() (*Loop, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("creating an epoll instance: %w", err)
	}
	if err := unix.SetNonblock(epfd, true); err != nil {
		unix.Close(epfd)
		return nil, fmt.Errorf("making an epoll instance non-blocking: %w", err)
	}
	l := &Loop{epfd: epfd, start: time.Now(), Scratch: make([]byte, ScratchSize), events: make([]unix.EpollEvent, 256)}
	l.file = os.NewFile(uintptr(epfd), "epoll")
	if l.raw, err = l.file.SyscallConn(); err == nil {
		l.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err != nil {
		l.file.Close()
		return nil, fmt.Errorf("creating an event descriptor: %w", err)
	}
	if e := l.attach(&l.wake, l.wakeFD, waker{l}, unix.EPOLLIN|unix.EPOLLET); e != 0 {
		l.file.Close()
		unix.Close(l.wakeFD)
		return nil, fmt.Errorf("watching an event descriptor: %w", e)
	}
	return l, nil
}

// Now is the loop's time: monotonic, since the loop was made, read once a round.
func (l *Loop) Now() time.Duration { return l.now }

// Round counts the loop's rounds: the events it was woken for, and those that
// came meanwhile. What is put off to the end of a round has been done when the
// number has changed.
func (l *Loop) Round() uint64 { return l.round }

// Load is the number of connections the loop holds, as their owner counts them.
func (l *Loop) Load() int64 { return l.load.Load() }

// AddLoad changes Load by n.
func (l *Loop) AddLoad(n int64) { l.load.Add(n) }

// Post has f called on the loop's goroutine, soon. It reports false when the
// loop has ended; f is not called then.
func (l *Loop) Post(f func()) bool {
	l.mu.Lock()
	if l.stopped.Load() {
		l.mu.Unlock()
		return false
	}
	l.posted = append(l.posted, f)
	l.wakeUp()
	l.mu.Unlock()
	return true
}

// wakeUp is called with mu held, so that the descriptor cannot be closed under it.
func (l *Loop) wakeUp() {
	one := [8]byte{1}
	unix.RawSyscall(unix.SYS_WRITE, uintptr(l.wakeFD), uintptr(unsafe.Pointer(&one)), 8)
}

// Stop ends Run after the round it is in.
func (l *Loop) Stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stopped.Load() {
		l.stopped.Store(true)
		l.wakeUp()
	}
}

// Run drives the loop until Stop, then resets every connection that is left.
func (l *Loop) Run() error {
	defer l.close()
	for {
		err := l.raw.Read(func(uintptr) bool { return !l.Step() })
		switch {
		case err == nil:
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			l.armed = 0
			if err := l.file.SetReadDeadline(time.Time{}); err != nil {
				return fmt.Errorf("clearing the loop's deadline: %w", err)
			}
		default:
			return fmt.Errorf("waiting for events: %w", err)
		}
	}
}

// roundLooks is how many times a round looks for events at most. What comes while
// it handles others joins it, so that under load more of what is collected leaves
// in one write; with nothing more to come it ends at once.
const roundLooks = 8

// Step does all that can be done without waiting, and reports false when the
// loop has been stopped. Tests with a clock of their own call it directly.
func (l *Loop) Step() bool {
	worked, yielded := false, false
	for looks := 1; ; looks++ {
		l.now = time.Since(l.start)
		n := l.poll()
		for i := range n {
			l.dispatch(&l.events[i])
		}
		l.runAgain()
		l.expire()
		if n == 0 || looks >= roundLooks {
			l.flushAll()
			l.round++
			looks = 0
		}
		if l.stopped.Load() { // looked at every round: a busy loop never has nothing to do
			return false
		}
		worked = worked || n > 0
		l.yield.count(n, l.now)
		if n == 0 && len(l.again) == 0 {
			if yielded || !worked || !l.giveWay() {
				break
			}
			yielded = true
		}
	}
	l.arm()
	return true
}

func (l *Loop) poll() int {
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.epfd),
			uintptr(unsafe.Pointer(unsafe.SliceData(l.events))), uintptr(len(l.events)), 0, 0, 0)
		if e == 0 {
			return int(n)
		}
		if e != unix.EINTR {
			return 0
		}
	}
}

func (l *Loop) dispatch(ev *unix.EpollEvent) {
	s := l.slots[ev.Fd]
	if s == nil || s.gen != uint32(ev.Pad) {
		return // closed by an earlier event of this round
	}
	var e Events
	if ev.Events&(unix.EPOLLIN|unix.EPOLLPRI|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		e |= Readable
	}
	if ev.Events&unix.EPOLLPRI != 0 {
		s.gotUrgent()
	}
	if ev.Events&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		e |= Writable
	}
	if ev.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP) != 0 {
		e |= HungUp
		s.hungUp = true
	}
	if ev.Events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		e |= Failed
		s.hungUp = true
	}
	l.ready(s, e)
}

// ready contains a panic in the connection that caused it.
func (l *Loop) ready(s *Socket, e Events) {
	h := s.handler
	defer func() {
		if v := recover(); v != nil {
			h.Panicked(v, debug.Stack())
		}
	}()
	if s.layer != nil && e.Has(Writable) && !s.layer.Flush() && !e.Has(Failed) {
		e &^= Writable // there is room for what the layer keeps, and no more
	}
	h.Ready(s, e)
}

func (l *Loop) runAgain() {
	l.again, l.spare = l.spare[:0], l.again
	for i, s := range l.spare {
		l.spare[i] = nil
		s.queued = false
		if s.open {
			l.ready(s, Readable)
		}
	}
}

func (l *Loop) expire() {
	for len(l.timers) > 0 && l.timers[0].when <= l.now {
		t := l.timers[0]
		owner := t.owner
		l.Cancel(t)
		l.fire(t, owner)
	}
}

func (l *Loop) fire(t *Timer, owner Expirer) {
	defer func() {
		if v := recover(); v != nil {
			owner.Panicked(v, debug.Stack())
		}
	}()
	owner.Expired(t)
}

// arm makes Run's wait end when the first timer is due. A deadline that is too
// early only costs one empty round, so it is moved forward, never back.
func (l *Loop) arm() {
	if len(l.timers) == 0 {
		return
	}
	first := l.timers[0].when
	if l.armed != 0 && l.armed <= first {
		return
	}
	l.armed = max(first, 1)
	_ = l.file.SetReadDeadline(l.start.Add(first))
}

func (l *Loop) close() {
	l.mu.Lock()
	l.stopped.Store(true)
	posted := l.posted
	l.posted = nil
	l.mu.Unlock()
	for _, f := range posted {
		f() // a caller may wait for it
	}
	for _, s := range l.slots {
		if s != nil && s != &l.wake {
			s.Reset()
		}
	}
	l.pipes.close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wake.Close()
	l.file.Close()
}

// waker runs what was posted.
type waker struct{ l *Loop }

// Ready empties the event descriptor and the list.
func (w waker) Ready(s *Socket, _ Events) {
	var b [8]byte
	_, _ = s.Read(b[:])
	w.l.mu.Lock()
	posted := w.l.posted
	w.l.posted = nil
	w.l.mu.Unlock()
	for _, f := range posted {
		f()
	}
}

// Panicked lets a panic in a posted function end the process: such a function
// belongs to the program, not to a connection.
func (w waker) Panicked(v any, stack []byte) { panic(fmt.Sprintf("%v\n%s", v, stack)) }
