package l4

import (
	"net/netip"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a relay with real sockets at both ends, driven by hand:
//
//	client fd <-- loopback --> relay.Sock[Client] | relay.Sock[Server] <-- loopback --> server fd
type rig struct {
	t      testing.TB
	loop   *conn.Loop
	relay  Relay
	outer  [2]int // the raw ends, by side
	sock   [2]conn.Socket
	watch  watch
	splice bool
}

// watch writes down what a Watcher is told.
type watch struct {
	rig      *rig
	seen     [2][]byte // by the side that sent it
	passed   [2]int
	unseen   [2]int
	wrote    [2]int
	ended    [2]int
	finished int
	from     Side
	err      syscall.Errno
}

func (w *watch) Passed(from Side, b []byte, n int) {
	w.passed[from] += n
	if b == nil {
		w.unseen[from] += n
		return
	}
	if len(b) != n {
		w.rig.t.Errorf("told of %d bytes with %d bytes", n, len(b))
	}
	w.seen[from] = append(w.seen[from], b...)
}

func (w *watch) Expired(*conn.Timer)      { w.rig.relay.Expired() }
func (w *watch) Panicked(v any, _ []byte) { panic(v) }
func (w *watch) Wrote(to Side, n int)     { w.wrote[to] += n }
func (w *watch) Splice(Side) bool         { return w.rig.splice }
func (w *watch) Ended(from Side)          { w.ended[from]++ }
func (w *watch) Finished(from Side, err syscall.Errno) {
	w.finished++
	w.from, w.err = from, err
}

// side is the handler of one socket.
type side struct {
	rig *rig
	s   Side
}

func (h side) Ready(_ *conn.Socket, ev conn.Events) { h.rig.relay.Ready(h.s, ev) }
func (h side) Panicked(v any, _ []byte)             { panic(v) }

// newRig connects everything and attaches, but does not Start. buf is the size of
// all socket buffers; 0 leaves the kernel's.
func newRig(t testing.TB, splice bool, buf int) *rig {
	return newUnevenRig(t, splice, [2]int{buf, buf})
}

// newUnevenRig has buffers of another size on each side.
func newUnevenRig(t testing.TB, splice bool, buf [2]int) *rig {
	t.Helper()
	l, err := conn.NewLoop()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, loop: l, splice: splice}
	r.watch.rig = r
	r.relay.Watch = &r.watch
	var inner [2]int
	for s := range r.outer {
		r.outer[s], inner[s] = pair(t, buf[s])
	}
	for s := range r.sock {
		r.relay.Sock[s] = &r.sock[s]
		if err := l.Attach(&r.sock[s], inner[s], side{r, Side(s)}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(r.end)
	return r
}

func (r *rig) end() {
	r.loop.Stop()
	if err := r.loop.Run(); err != nil {
		r.t.Error(err)
	}
	for _, fd := range r.outer {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

func pair(t testing.TB, buf int) (a, b int) {
	t.Helper()
	l := socket(t, buf)
	defer unix.Close(l)
	if err := unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(l, 1); err != nil {
		t.Fatal(err)
	}
	at, err := conn.LocalAddr(l)
	if err != nil {
		t.Fatal(err)
	}
	a = socket(t, buf)
	if err := unix.Connect(a, sockaddr(at)); err != nil && err != unix.EINPROGRESS {
		t.Fatal(err)
	}
	eventually(t, "a connection", func() bool {
		b, _, err = unix.Accept4(l, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		return err == nil
	})
	return a, b
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

func socket(t testing.TB, buf int) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if buf > 0 {
		for _, opt := range []int{unix.SO_SNDBUF, unix.SO_RCVBUF} {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt, buf); err != nil {
				t.Fatal(err)
			}
		}
	}
	return fd
}

// eventually waits in real time, even under a fake clock.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for n := 0; !ok(); n++ {
		if n > 50_000 {
			t.Fatalf("waited 10 s in vain for %s", what)
		}
		ts := unix.NsecToTimespec(int64(200 * time.Microsecond))
		_ = unix.Nanosleep(&ts, nil)
	}
}

// until steps the loop until ok.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	eventually(r.t, what, func() bool { r.loop.Step(); return ok() })
}

// write sends all of b from an end, stepping meanwhile.
func (r *rig) write(s Side, b string) {
	r.t.Helper()
	for len(b) > 0 {
		n, err := unix.Write(r.outer[s], []byte(b))
		if err != nil && err != unix.EAGAIN {
			r.t.Fatalf("side %d writes: %v", s, err)
		}
		b = b[max(n, 0):]
		r.loop.Step()
	}
}

// fill writes from an end until the kernel and the relay take no more, and
// returns how much that was.
func (r *rig) fill(s Side) int {
	r.t.Helper()
	chunk := make([]byte, 64<<10)
	total := 0
	for quiet := 0; quiet < 20; {
		n, err := unix.Write(r.outer[s], chunk)
		if err != nil && err != unix.EAGAIN {
			r.t.Fatalf("side %d writes: %v", s, err)
		}
		if n > 0 { // as much as fits before the relay has its turn: that is bulk
			total, quiet = total+n, 0
			continue
		}
		quiet++
		ts := unix.NsecToTimespec(int64(time.Millisecond))
		_ = unix.Nanosleep(&ts, nil)
		r.loop.Step()
	}
	return total
}

// stuck returns a rig on which a lot of bytes from the client is on its way into
// a server that does not read and takes little: the relay has spliced them as far
// as its pipe.
func stuck(t testing.TB) (r *rig, sent int) {
	t.Helper()
	r = newUnevenRig(t, true, [2]int{Client: 0, Server: 16 << 10})
	chunk := make([]byte, 64<<10)
	for quiet := 0; quiet < 5; { // before the relay runs
		n, _ := unix.Write(r.outer[Client], chunk)
		if n > 0 {
			sent, quiet = sent+n, 0
			continue
		}
		quiet++
		ts := unix.NsecToTimespec(int64(time.Millisecond))
		_ = unix.Nanosleep(&ts, nil)
	}
	r.relay.dir[Client].full = bulkReads // as after a while
	r.relay.Start(Client, nil)
	r.until("bytes in a pipe", func() bool { p := r.relay.dir[Client].pipe; return p != nil && p.N > 0 })
	return r, sent
}

// read reads everything an end gets until its end, and says how that came.
func (r *rig) read(s Side) (all []byte, end error) {
	r.t.Helper()
	buf := make([]byte, 32<<10)
	r.until("the end of what a side reads", func() bool {
		for {
			n, err := unix.Read(r.outer[s], buf)
			switch {
			case err == unix.EAGAIN:
				return false
			case err != nil:
				end = err
				return true
			case n == 0:
				return true
			}
			all = append(all, buf[:n]...)
		}
	})
	return all, end
}

// gets waits until exactly want has come to an end.
func (r *rig) gets(s Side, want string) {
	r.t.Helper()
	var got []byte
	buf := make([]byte, 32<<10)
	r.until("bytes "+want[:min(len(want), 20)], func() bool {
		n, _ := unix.Read(r.outer[s], buf)
		got = append(got, buf[:max(n, 0)]...)
		return len(got) >= len(want)
	})
	if string(got) != want {
		r.t.Errorf("side %d got %q, want %q", s, got, want)
	}
}

func (r *rig) shutdown(s Side) {
	r.t.Helper()
	if err := unix.Shutdown(r.outer[s], unix.SHUT_WR); err != nil {
		r.t.Fatal(err)
	}
}

// reset closes an end with a RST.
func (r *rig) reset(s Side) {
	r.t.Helper()
	if err := unix.SetsockoptLinger(r.outer[s], unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		r.t.Fatal(err)
	}
	r.close(s)
}

func (r *rig) close(s Side) {
	unix.Close(r.outer[s])
	r.outer[s] = -1
}
