package h1_test

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/h1"
	"github.com/meshctl/meshctl/proxy/message"
)

// bench is a loop that the test steps by hand, so that everything happens in
// the test's order and time.
type bench struct {
	t    testing.TB
	loop *conn.Loop
}

func newBench(t testing.TB) *bench {
	t.Helper()
	loop, err := conn.NewLoop()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, loop: loop}
	t.Cleanup(func() {
		loop.Stop()
		if err := loop.Run(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// pair returns an attached socket and the test's end of its connection.
func (b *bench) pair(h conn.Handler) (*conn.Socket, *wire) {
	b.t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	s := new(conn.Socket)
	if err := b.loop.Attach(s, fds[0], h); err != nil {
		b.t.Fatal(err)
	}
	return s, &wire{b: b, fd: fds[1]}
}

// wire is the far end of a connection.
type wire struct {
	b   *bench
	fd  int
	got strings.Builder
	eof bool
	err error
}

// send writes s and lets the loop do what follows from it.
func (w *wire) send(s string) {
	for len(s) > 0 {
		n, err := unix.Write(w.fd, []byte(s))
		if err == nil {
			s = s[n:]
		} else if err != unix.EAGAIN {
			return // the loop's end has closed: what it said is in read
		}
		w.b.loop.Step()
	}
}

// read takes what has come so far.
func (w *wire) read() string {
	buf := make([]byte, 64<<10)
	for {
		w.b.loop.Step()
		n, err := unix.Read(w.fd, buf)
		switch {
		case err == unix.EAGAIN:
			return w.got.String()
		case err != nil:
			w.err = err
			return w.got.String()
		case n == 0:
			w.eof = true
			return w.got.String()
		}
		w.got.Write(buf[:n])
	}
}

// take is read, and forgets it.
func (w *wire) take() string {
	s := w.read()
	w.got.Reset()
	return s
}

func (w *wire) close() { unix.Close(w.fd); w.b.loop.Step() }

func (w *wire) closeWrite() { _ = unix.Shutdown(w.fd, unix.SHUT_WR); w.b.loop.Step() }

// tape writes down what a Receiver hears. A body is joined, however it is cut.
type tape struct {
	log    strings.Builder
	stream message.Stream
	inBody bool
	last   strings.Builder
	onHead func(s message.Stream, h *message.Head, end bool)
	onEnd  func(s message.Stream)
}

func (r *tape) Open(s message.Stream) message.Receiver { r.stream = s; return r }

func (r *tape) note(format string, a ...any) {
	if r.inBody {
		fmt.Fprintf(&r.log, "%q\n", r.last.String())
		r.inBody = false
		r.last.Reset()
	}
	fmt.Fprintf(&r.log, format, a...)
}

func (r *tape) Head(s message.Stream, h *message.Head, end bool) {
	if h.Status != 0 {
		r.note("%d %s", h.Status, h.Phrase)
	} else {
		r.note("%s %s|%s|%s", h.Method, h.Scheme, h.Authority, h.Path)
	}
	if h.Version == message.HTTP10 {
		r.note(" 1.0")
	}
	if h.Absolute {
		r.note(" absolute")
	}
	if len(h.Upgrade) > 0 {
		r.note(" upgrade=%s", h.Upgrade)
	}
	if h.Expect {
		r.note(" expect")
	}
	r.fields(h)
	r.note(" len=%d end=%v\n", h.Length, end)
	if r.onHead != nil {
		r.onHead(s, h, end)
	}
	if end && r.onEnd != nil {
		r.onEnd(s)
	}
}

func (r *tape) fields(h *message.Head) {
	for _, f := range h.Fields {
		r.note(" [%s=%s]", f.Name, f.Value)
	}
}

func (r *tape) Data(s message.Stream, b []byte, end bool) {
	r.inBody = true
	r.last.Write(b)
	if end {
		r.note("end\n")
		if r.onEnd != nil {
			r.onEnd(s)
		}
	}
}

func (r *tape) Trailers(s message.Stream, h *message.Head) {
	r.note("trailers")
	r.fields(h)
	r.note("\n")
	if r.onEnd != nil {
		r.onEnd(s)
	}
}

func (r *tape) Aborted(_ message.Stream, c message.Code) { r.note("aborted %d\n", c) }
func (r *tape) Drained(message.Stream)                   { r.note("drained\n") }

func (r *tape) text() string { r.note(""); return r.log.String() }

// answer ends an exchange with an empty response.
func answer(s message.Stream) { s.SendHead(&message.Head{Status: 200}, true) }

// serve starts a Server whose requests go to r.
func (b *bench) serve(cfg h1.Config, r *tape) (*wire, *h1.Server, *[]error) {
	var ends []error
	sock, w := b.pair(nil)
	s := h1.NewServer(b.loop, sock, cfg, r, func(err error) { ends = append(ends, err) })
	s.Start(nil)
	b.loop.Step()
	return w, s, &ends
}

// sendQuietly writes s, which has to fit into the socket, and does not step the loop.
func (w *wire) sendQuietly(s string) {
	if n, err := unix.Write(w.fd, []byte(s)); err != nil || n != len(s) {
		w.b.t.Fatalf("writing %d bytes: %d, %v", len(s), n, err)
	}
}

// quit closes the far end; the loop does not know yet.
func (w *wire) quit() { unix.Close(w.fd) }
