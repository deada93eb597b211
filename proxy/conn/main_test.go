package conn

import (
	"net/netip"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if run := os.Getenv("CONN_TEST_CHILD"); run != "" {
		os.Exit(child(run))
	}
	goleak.VerifyTestMain(m)
}

// The sockets of tests are raw and non-blocking: a test that drives a loop by
// hand, with a fake clock, must not block anywhere.

func rawListen(t testing.TB, addr string, backlog int) (fd int, at netip.AddrPort) {
	t.Helper()
	a := netip.MustParseAddr(addr)
	family, sa := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	if a.Is6() {
		family, sa = unix.AF_INET6, &unix.SockaddrInet6{Addr: a.As16()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(fd, sa)
	}
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err == nil {
		at, err = LocalAddr(fd)
	}
	if err != nil {
		t.Fatalf("listening on %s: %v", addr, err)
	}
	return fd, at
}

func rawDial(t testing.TB, at netip.AddrPort) int {
	t.Helper()
	family := unix.AF_INET6
	if at.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if e := connect(fd, at); e != 0 && e != unix.EINPROGRESS {
		t.Fatalf("connecting to %s: %v", at, e)
	}
	return fd
}

// pair returns both ends of a connection over loopback.
func pair(t testing.TB) (a, b int) {
	t.Helper()
	l, at := rawListen(t, "127.0.0.1", 16)
	defer unix.Close(l)
	a = rawDial(t, at)
	eventually(t, "a connection to accept", func() bool {
		fd, _, e := accept4(l)
		b = fd
		return e == 0
	})
	return a, b
}

// eventually waits in real time, even under a fake clock.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := realNow() + 10*time.Second; !ok(); nap() {
		if realNow() > deadline {
			t.Fatalf("waited 10 s in vain for %s", what)
		}
	}
}

func nap() {
	ts := unix.NsecToTimespec(int64(200 * time.Microsecond))
	_ = unix.Nanosleep(&ts, nil)
}

func realNow() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

func newLoop(t testing.TB) *Loop {
	t.Helper()
	l, err := NewLoop()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Stop()
		if err := l.Run(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// openFDs counts the descriptors of this process.
func openFDs(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// call is one call of a probe.
type call struct {
	sock *Socket
	ev   Events
}

// probe is a handler that writes down its calls.
type probe struct {
	calls    []call
	on       func(*Socket, Events)
	panicked []any
}

func (p *probe) Ready(s *Socket, ev Events) {
	p.calls = append(p.calls, call{s, ev})
	if p.on != nil {
		p.on(s, ev)
	}
}

func (p *probe) Panicked(v any, _ []byte) { p.panicked = append(p.panicked, v) }

// saw reports whether s was called with all of ev at once.
func (p *probe) saw(s *Socket, ev Events) bool {
	for _, c := range p.calls {
		if c.sock == s && c.ev.Has(ev) {
			return true
		}
	}
	return false
}
