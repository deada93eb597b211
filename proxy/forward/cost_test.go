package forward

import (
	"log/slog"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/protocol"
)

// wire moves fixed bytes between raw ends through the loop, and allocates
// nothing itself.
type wire struct {
	r   *rig
	buf []byte
}

func (w *wire) pass(from, to int, b []byte) {
	if n, err := unix.Write(from, b); n != len(b) || err != nil {
		w.r.t.Fatalf("wrote %d of %d: %v", n, len(b), err)
	}
	for got := 0; got < len(b); {
		w.r.loop.Step()
		n, err := unix.Read(to, w.buf)
		if err != nil && err != unix.EAGAIN || n == 0 {
			w.r.t.Fatalf("read %d: %v", n, err)
		}
		got += max(n, 0)
	}
}

// quietRig logs nothing, as in production at its default level.
func quietRig(t testing.TB) *rig {
	r := newRig(t, nil)
	r.f.log = slog.New(slog.DiscardHandler)
	return r
}

func TestAKeepAliveExchangeAllocatesNothing(t *testing.T) {
	r := quietRig(t)
	w := &wire{r: r, buf: make([]byte, 4096)}
	c, s := r.exchange()
	q, a := []byte(request), []byte(response)
	exchange := func() {
		w.pass(c, s, q)
		w.pass(s, c, a)
	}
	for range 10 {
		exchange()
	}
	if n := testing.AllocsPerRun(200, exchange); n != 0 {
		t.Errorf("%v allocations an exchange", n)
	}
}

func TestOpaqueBytesAllocateNothing(t *testing.T) {
	r := quietRig(t)
	opaquePort(r)
	w := &wire{r: r, buf: make([]byte, 4096)}
	c := r.dial()
	s := r.server()
	b := make([]byte, 1000)
	both := func() {
		w.pass(c, s, b)
		w.pass(s, c, b)
	}
	for range 10 {
		both()
	}
	if n := testing.AllocsPerRun(200, both); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// setUpAllocations is the most that a connection may cost in allocations: the
// flow itself, and for HTTP its observer with a queue.
const setUpAllocations = 10

func TestAConnectionCostsFewAllocations(t *testing.T) {
	for name, connection := range map[string]func(r *rig, w *wire){"opaque": opaqueConnection, "HTTP/1": http1Connection} {
		t.Run(name, func(t *testing.T) {
			r := quietRig(t)
			w := &wire{r: r, buf: make([]byte, 4096)}
			for range 20 {
				connection(r, w)
			}
			n := testing.AllocsPerRun(200, func() { connection(r, w) })
			t.Logf("%v allocations a connection", n)
			if n > setUpAllocations {
				t.Errorf("%v allocations a connection, more than %d", n, setUpAllocations)
			}
		})
	}
}

// dial makes a socket without the bookkeeping of a rig.
func (w *wire) dial() int {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		w.r.t.Fatal(err)
	}
	if err := unix.Connect(fd, sockaddr(w.r.at)); err != nil && err != unix.EINPROGRESS {
		w.r.t.Fatal(err)
	}
	return fd
}

func (w *wire) server() int {
	for {
		w.r.loop.Step()
		if fd, _, err := unix.Accept4(w.r.targetFD, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC); err == nil {
			return fd
		}
	}
}

func (w *wire) hangUp(fds ...int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
	for w.r.f.Open() > 0 {
		w.r.loop.Step()
	}
}

func opaqueConnection(r *rig, w *wire) {
	r.route.Kind = protocol.Opaque
	c := w.dial()
	s := w.server()
	w.pass(s, c, w.buf[:100])
	w.hangUp(c, s)
}

func http1Connection(r *rig, w *wire) {
	r.route.Kind = protocol.Unknown
	c := w.dial()
	for r.f.Open() == 0 {
		r.loop.Step()
	}
	n := copy(w.buf, request)
	if _, err := unix.Write(c, w.buf[:n]); err != nil {
		r.t.Fatal(err)
	}
	s := w.server()
	w.read(s, n)
	n = copy(w.buf, response)
	w.pass(s, c, w.buf[:n])
	w.hangUp(c, s)
}

func (w *wire) read(fd, want int) {
	for want > 0 {
		w.r.loop.Step()
		n, _ := unix.Read(fd, w.buf)
		want -= max(n, 0)
	}
}

func BenchmarkHTTP1Exchange(b *testing.B) {
	r := quietRig(b)
	w := &wire{r: r, buf: make([]byte, 4096)}
	c, s := r.exchange()
	q, a := []byte(request), []byte(response)
	b.ReportAllocs()
	for b.Loop() {
		w.pass(c, s, q)
		w.pass(s, c, a)
	}
}

func BenchmarkOpaqueConnection(b *testing.B) {
	r := quietRig(b)
	w := &wire{r: r, buf: make([]byte, 4096)}
	b.ReportAllocs()
	for b.Loop() {
		opaqueConnection(r, w)
	}
}

func BenchmarkHTTP1Connection(b *testing.B) {
	r := quietRig(b)
	w := &wire{r: r, buf: make([]byte, 4096)}
	b.ReportAllocs()
	for b.Loop() {
		http1Connection(r, w)
	}
}
