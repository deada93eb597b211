package conn

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/meshctl/meshctl/integration/lab"
	"golang.org/x/sys/unix"
)

func TestDialIsDoneAtOnceOnLoopback(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1"} {
		t.Run(addr, func(t *testing.T) {
			lfd, at := rawListen(t, addr, 8)
			defer unix.Close(lfd)
			l := newLoop(t)
			var s Socket
			h := &probe{}
			done, e := l.Dial(&s, at, h)
			if e != 0 {
				t.Fatal(e)
			}
			if !done {
				t.Error("the handshake is over, but Dial does not say so")
			}
			if e := s.Connected(); e != 0 {
				t.Errorf("Connected: %v", e)
			}
			if l.Step(); !h.saw(&s, Writable) {
				t.Error("not called Writable")
			}
			if nodelay, err := unix.GetsockoptInt(s.FD(), unix.IPPROTO_TCP, unix.TCP_NODELAY); err != nil || nodelay == 0 {
				t.Errorf("TCP_NODELAY is %d, %v", nodelay, err)
			}
		})
	}
}

func TestDialTellsTheKernelsError(t *testing.T) {
	refused := map[string]netip.AddrPort{}
	for _, addr := range []string{"127.0.0.1", "::1"} {
		lfd, at := rawListen(t, addr, 1)
		unix.Close(lfd)
		refused[addr] = at
	}
	for name, at := range refused {
		t.Run("refused on "+name, func(t *testing.T) {
			before := openFDs(t)
			l := newLoop(t)
			own := openFDs(t) - before
			var s Socket
			if done, e := l.Dial(&s, at, &probe{}); done || e != unix.ECONNREFUSED {
				t.Errorf("Dial: %v, %v", done, e)
			}
			if s.Open() || s.FD() != -1 {
				t.Error("the socket is open after a failure")
			}
			if n := openFDs(t) - before; n != own {
				t.Errorf("%d descriptors left open", n-own)
			}
		})
	}
	t.Run("unreachable", func(t *testing.T) {
		lab.Alone(t, func() {
			l, err := NewLoop()
			if err != nil {
				t.Error(err)
				return
			}
			var s Socket
			for _, to := range []string{"127.0.0.1:80", "192.0.2.9:80", "[2001:db8::9]:80"} {
				if done, e := l.Dial(&s, netip.MustParseAddrPort(to), &probe{}); done || e == 0 || s.Open() {
					t.Errorf("Dial %s without a network: %v, %v", to, done, e)
				}
			}
			l.Stop()
			if err := l.Run(); err != nil {
				t.Error(err)
			}
		})
	})
}

func TestAConnectionInProgressIsNotDoneUntilItIsUp(t *testing.T) {
	// A listener whose backlog is full leaves a SYN without answer.
	lfd, at := rawListen(t, "127.0.0.1", 0)
	defer unix.Close(lfd)
	filler := rawDial(t, at)
	defer unix.Close(filler)
	l := newLoop(t)
	var s Socket
	h := &probe{}
	done, e := l.Dial(&s, at, h)
	if e != 0 || done {
		t.Fatalf("Dial to a full backlog: done %v, %v", done, e)
	}
	if l.Step(); len(h.calls) != 0 {
		t.Errorf("called while the connection is in progress: %v", h.calls)
	}
	if e := s.Connected(); e != unix.EINPROGRESS {
		t.Errorf("Connected: %v", e)
	}
	fd, _, e := accept4(lfd) // room: the SYN sent again after a second gets in
	if e != 0 {
		t.Fatal(e)
	}
	defer unix.Close(fd)
	eventually(t, "the connection to come up", func() bool { l.Step(); return h.saw(&s, Writable) })
	if e := s.Connected(); e != 0 {
		t.Errorf("Connected: %v", e)
	}
}

func TestReadsAndWritesSayWhatTheKernelSays(t *testing.T) {
	a, b := pair(t)
	l := newLoop(t)
	var s Socket
	if err := l.Attach(&s, a, &probe{}); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 8)
	if n, e := s.Read(buf); n != 0 || e != unix.EAGAIN {
		t.Errorf("reading nothing: %d, %v", n, e)
	}
	if n, e := s.Write([]byte("abc")); n != 3 || e != 0 {
		t.Errorf("writing: %d, %v", n, e)
	}
	if n, err := unix.Read(b, buf); err != nil || string(buf[:n]) != "abc" {
		t.Errorf("the peer read %q, %v", buf[:max(n, 0)], err)
	}
	for {
		n, e := s.Write(make([]byte, 1<<20))
		if e == unix.EAGAIN {
			break
		}
		if e != 0 || n == 0 {
			t.Fatalf("filling the send buffer: %d, %v", n, e)
		}
	}
	unix.Close(b) // with unread bytes: a RST
	eventually(t, "the reset", func() bool { _, e := s.Read(buf); return e == unix.ECONNRESET })
	if _, e := s.Write([]byte("x")); e != unix.EPIPE {
		t.Errorf("writing to nobody: %v, and no SIGPIPE", e)
	}
}

func TestAnEndAndAnErrorAreToldWithTheirEvents(t *testing.T) {
	t.Run("FIN", func(t *testing.T) {
		a, b := pair(t)
		l := newLoop(t)
		var s Socket
		h := &probe{}
		if err := l.Attach(&s, a, h); err != nil {
			t.Fatal(err)
		}
		if l.Step(); s.HungUp() {
			t.Error("hung up before the FIN")
		}
		unix.Close(b)
		eventually(t, "the FIN", func() bool { l.Step(); return h.saw(&s, Readable|HungUp) })
		if h.saw(&s, Failed) || !s.HungUp() {
			t.Errorf("after a FIN: calls %v, hung up %v", h.calls, s.HungUp())
		}
		if n, e := s.Read(make([]byte, 1)); n != 0 || e != 0 {
			t.Errorf("reading the end: %d, %v", n, e)
		}
	})
	t.Run("RST", func(t *testing.T) {
		a, b := pair(t)
		l := newLoop(t)
		var s, peer Socket
		h := &probe{}
		if l.Attach(&s, a, h) != nil || l.Attach(&peer, b, &probe{}) != nil {
			t.Fatal("attaching")
		}
		peer.Reset()
		peer.Reset() // twice is once
		eventually(t, "the RST", func() bool { l.Step(); return h.saw(&s, Readable|Writable|Failed) })
		if e := s.Err(); e != unix.ECONNRESET {
			t.Errorf("pending error %v", e)
		}
		if e := s.Err(); e != 0 {
			t.Errorf("the error is still pending: %v", e)
		}
	})
}

func TestCloseWriteSendsAFINAndReadingGoesOn(t *testing.T) {
	a, b := pair(t)
	defer unix.Close(b)
	l := newLoop(t)
	var s Socket
	if err := l.Attach(&s, a, &probe{}); err != nil {
		t.Fatal(err)
	}
	s.CloseWrite()
	eventually(t, "the FIN", func() bool { n, err := unix.Read(b, make([]byte, 1)); return n == 0 && err == nil })
	if _, err := unix.Write(b, []byte("late")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 8)
	n := 0
	eventually(t, "the answer", func() bool { n, _ = s.Read(buf); return n > 0 })
	if !bytes.Equal(buf[:n], []byte("late")) {
		t.Errorf("read %q", buf[:n])
	}
}

func TestAttachRefusesWhatCannotBeWatched(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/plain") // epoll(7) takes no plain files: EPERM
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l := newLoop(t)
	var s Socket
	if err := l.Attach(&s, int(f.Fd()), &probe{}); !errors.Is(err, unix.EPERM) {
		t.Errorf("attaching a plain file: %v", err)
	}
	if s.Open() {
		t.Error("open after a failure")
	}
	s.Close() // of a closed socket: nothing
	s.CloseWrite()
	closed, _ := rawListen(t, "127.0.0.1", 1)
	unix.Close(closed)
	if _, err := l.Listen(closed, nil, nil); !errors.Is(err, unix.EBADF) {
		t.Errorf("listening on no descriptor: %v", err)
	}
	if e := (&Socket{fd: -1}).Err(); e != unix.EBADF {
		t.Errorf("the pending error of no socket: %v", e)
	}
}

// deafen has fd's kernel drop whatever comes for it, as if its machine were gone:
// a socket filter (socket(7), SO_ATTACH_FILTER) that lets nothing pass.
func deafen(t *testing.T, fd int) {
	t.Helper()
	nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing[0]}); err != nil {
		t.Fatal(err)
	}
}

func TestAPeerThatDoesNotAnswerHasVanishedAndOneThatDoesNotReadHasNot(t *testing.T) {
	const d = 500 * time.Millisecond
	l := newLoop(t)
	sockets := map[string]*Socket{}
	for name, setUp := range map[string]func(s *Socket, peer int){
		"idle":                       func(*Socket, int) {},
		"reading nothing":            func(s *Socket, _ int) { fillUp(t, s) },
		"gone":                       func(s *Socket, peer int) { deafen(t, peer); mustWrite(t, s) },
		"gone after reading nothing": func(s *Socket, peer int) { fillUp(t, s); deafen(t, peer) },
	} {
		a, b := pair(t)
		defer unix.Close(b)
		s := &Socket{}
		if err := l.Attach(s, a, &probe{}); err != nil {
			t.Fatal(err)
		}
		sockets[name] = s
		if setUp(s, b); s.Vanished(0) {
			t.Errorf("%s: vanished at once", name)
		}
	}
	eventually(t, "those that are gone to have vanished", func() bool {
		return sockets["gone"].Vanished(d) && sockets["gone after reading nothing"].Vanished(d)
	})
	for _, name := range []string{"idle", "reading nothing"} {
		if sockets[name].Vanished(d) {
			t.Errorf("%s: vanished", name)
		}
	}
	var closed Socket
	if closed.fd = -1; closed.Vanished(0) {
		t.Error("no socket has vanished")
	}
}

// fillUp writes until the peer's window is closed.
func fillUp(t *testing.T, s *Socket) {
	t.Helper()
	eventually(t, "a closed window", func() bool {
		_, _ = s.Write(make([]byte, 64<<10))
		info, err := unix.GetsockoptTCPInfo(s.FD(), unix.IPPROTO_TCP, unix.TCP_INFO)
		return err == nil && info.Unacked == 0 && info.Notsent_bytes > 0
	})
}

func mustWrite(t *testing.T, s *Socket) {
	t.Helper()
	if _, e := s.Write([]byte("anybody there?")); e != 0 {
		t.Fatal(e)
	}
}

func TestKeepaliveFindsAVanishedPeerWithinFortySeconds(t *testing.T) {
	a, b := pair(t)
	defer unix.Close(a)
	defer unix.Close(b)
	Keepalive(a)
	got := map[string]int{}
	for name, opt := range map[string][2]int{
		"on": {unix.SOL_SOCKET, unix.SO_KEEPALIVE}, "idle": {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE},
		"interval": {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL}, "count": {unix.IPPROTO_TCP, unix.TCP_KEEPCNT},
		"user timeout": {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT},
	} {
		v, err := unix.GetsockoptInt(a, opt[0], opt[1])
		if err != nil {
			t.Fatal(err)
		}
		got[name] = v
	}
	// No user timeout: it would end the connection of whoever does not read for that long.
	want := map[string]int{"on": 1, "idle": 10, "interval": 10, "count": 3, "user timeout": 0}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestAConnectionThatNoRuleRedirectedHasNoOriginalDestination(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1"} {
		lfd, at := rawListen(t, addr, 8)
		client := rawDial(t, at)
		fd, peer, e := accept4(lfd)
		if e != 0 {
			t.Fatal(e)
		}
		// Conntrack, where it is loaded, may know the connection and give the
		// address it was really sent to: the router refuses that as its own.
		if dst, err := OriginalDst(fd, peer.Addr()); !errors.Is(err, ErrNotRedirected) && dst != at {
			t.Errorf("%s: %v, %v", addr, dst, err)
		}
		if local, err := LocalAddr(client); err != nil || local != peer {
			t.Errorf("the client is %v (%v), accepted as %v", local, err, peer)
		}
		for _, fd := range []int{fd, client, lfd} {
			unix.Close(fd)
		}
	}
	if _, err := OriginalDst(-1, netip.MustParseAddr("127.0.0.1")); !errors.Is(err, unix.EBADF) {
		t.Errorf("the original destination of no descriptor: %v", err)
	}
	if _, err := LocalAddr(-1); !errors.Is(err, unix.EBADF) {
		t.Errorf("the address of no descriptor: %v", err)
	}
}

func TestAnIPv4ClientOfADualStackListenerIsIPv4(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet6{}), unix.Listen(fd, 8)); err != nil {
		t.Fatal(err)
	}
	at, err := LocalAddr(fd)
	if err != nil {
		t.Fatal(err)
	}
	c := rawDial(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), at.Port()))
	defer unix.Close(c)
	a, peer, e := accept4(fd)
	if e != 0 {
		t.Fatal(e)
	}
	defer unix.Close(a)
	if !peer.Addr().Is4() || !peer.Addr().IsLoopback() {
		t.Errorf("client %v", peer)
	}
}

func TestLocalsKnowsThisMachinesAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Locals
		for addr, want := range map[string]bool{
			"127.0.0.1": true, "127.9.9.9": true, "::1": true, "::ffff:127.0.0.1": true, "0.0.0.0": true, "::": true,
			"198.51.100.77": false, "2001:db8::77": false, "fe80::77%lo": false,
		} {
			if got := l.Has(netip.MustParseAddr(addr)); got != want {
				t.Errorf("Has(%s) = %v", addr, got)
			}
		}
		mine := netip.MustParseAddr("203.0.113.5")
		l.addrs[mine] = true // as if it had been there at the last reading
		time.Sleep(localAge)
		if !l.Has(mine) || !l.Has(netip.MustParseAddr("::ffff:203.0.113.5")) {
			t.Error("read again within a second")
		}
		time.Sleep(time.Nanosecond)
		if l.Has(mine) {
			t.Error("not read again after a second")
		}
	})
}

func TestLocalsKnowsTheAddressesOfInterfaces(t *testing.T) {
	var l Locals
	l.refresh()
	if len(l.addrs) == 0 {
		t.Error("no address at all, not even loopback")
	}
	for a := range l.addrs {
		if !l.Has(a) {
			t.Errorf("Has(%s) is false", a)
		}
	}
}
