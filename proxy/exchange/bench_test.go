package exchange

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/h1"
	"github.com/meshctl/meshctl/proxy/h2"
	"github.com/meshctl/meshctl/proxy/message"
)

// chain is a client, the middle and an endpoint on one loop, with loopback
// connections between them, so that stepping the loop is all that happens.
type chain struct {
	tb   testing.TB
	loop *conn.Loop
	h2   bool
	c1   *h1.Client
	c2   *h2.Client
	ask  message.Head
	body []byte
	done int
}

// front accepts the client's connection, back the middle's.
type (
	front struct {
		c    *chain
		open message.Opener
	}
	back struct{ c *chain }
)

func newChain(tb testing.TB, isH2 bool, body []byte) *chain {
	loop, err := conn.NewLoop()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		loop.Stop()
		_ = loop.Run()
	})
	c := &chain{tb: tb, loop: loop, h2: isH2, body: body}
	lane := NewLanes(Config{}, []*conn.Loop{loop})[0]
	up := NewUpstream(Parent{Backends: []Members{{Name: "a", Endpoints: []Endpoint{{Addr: c.listen(back{c})}}}}}, []*Lane{lane})
	at := c.listen(&front{c, lane.Serve(Client{Upstream: up, Port: 80, Recorder: silent{}})})
	sock := new(conn.Socket)
	if _, e := loop.Dial(sock, at, nobody{}); e != 0 {
		tb.Fatal(e)
	}
	for sock.Connected() != 0 {
		loop.Step()
	}
	c.ask = message.Head{Method: []byte("GET"), Authority: []byte("cart.shop"), Path: []byte("/cart?id=7"), Version: message.HTTP11}
	for _, f := range [][2]string{{"user-agent", "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101"}, {"accept", "text/html,application/xhtml+xml"},
		{"accept-language", "en-US,en;q=0.5"}, {"cookie", "session=0123456789abcdef0123456789abcdef"}} {
		c.ask.Add(f[0], f[1])
	}
	if len(body) > 0 {
		c.ask.Method, c.ask.Length = []byte("POST"), int64(len(body))
	}
	if isH2 {
		c.ask.Version, c.ask.Scheme = message.HTTP2, []byte("http")
		c.c2 = h2.NewClient(loop, sock, h2.Config{}, nil, func(*h2.Client, error) {})
		c.c2.Start()
	} else {
		c.c1 = h1.NewClient(loop, sock, h1.Config{}, func(*h1.Client) {}, func(*h1.Client, error) {})
	}
	return c
}

func (c *chain) listen(to conn.Acceptor) netip.AddrPort {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		err = unix.Listen(fd, 64)
	}
	if err != nil {
		c.tb.Fatal(err)
	}
	at, _ := conn.LocalAddr(fd)
	if _, err := c.loop.Listen(fd, []*conn.Loop{c.loop}, to); err != nil {
		c.tb.Fatal(err)
	}
	return at
}

func (c *chain) serve(l *conn.Loop, fd int, open message.Opener) {
	sock := new(conn.Socket)
	if err := l.Attach(sock, fd, nobody{}); err != nil {
		c.tb.Fatal(err)
	}
	if c.h2 {
		h2.NewServer(l, sock, h2.Config{}, open, func(error) {}).Start(nil)
	} else {
		h1.NewServer(l, sock, h1.Config{}, open, func(error) {}).Start(nil)
	}
}

func (f *front) Accept(l *conn.Loop, a conn.Accepted) { f.c.serve(l, a.FD, f.open) }
func (f *front) AcceptFailed(err error)               { f.c.tb.Error(err) }
func (b back) Accept(l *conn.Loop, a conn.Accepted)   { b.c.serve(l, a.FD, b) }
func (b back) AcceptFailed(err error)                 { b.c.tb.Error(err) }

// The endpoint answers whole requests.
func (b back) Open(message.Stream) message.Receiver { return b }
func (b back) Head(s message.Stream, _ *message.Head, end bool) {
	if end {
		reply(s)
	}
}
func (b back) Data(s message.Stream, _ []byte, end bool) {
	if end {
		reply(s)
	}
}
func (b back) Trailers(s message.Stream, _ *message.Head) { reply(s) }
func (b back) Aborted(message.Stream, message.Code)       {}
func (b back) Drained(message.Stream)                     {}

var okHead = func() *message.Head {
	h := &message.Head{Status: 200, Length: 11}
	h.Add("content-type", "application/json")
	h.Add("server", "app")
	return h
}()

var okBody = []byte(`{"ok":true}`)

func reply(s message.Stream) {
	s.SendHead(okHead, false)
	s.SendData(okBody, true)
}

// The client counts responses.
func (c *chain) Head(_ message.Stream, h *message.Head, end bool) {
	if h.Status != 200 || end {
		c.tb.Errorf("status %d, end %v", h.Status, end)
	}
}
func (c *chain) Data(_ message.Stream, _ []byte, end bool) {
	if end {
		c.done++
	}
}
func (c *chain) Trailers(message.Stream, *message.Head) { c.done++ }
func (c *chain) Aborted(_ message.Stream, code message.Code) {
	c.tb.Errorf("aborted: %d", code)
	c.done++
}
func (c *chain) Drained(message.Stream) {}

// once carries one request through.
func (c *chain) once() {
	want := c.done + 1
	var s message.Stream
	if c.h2 {
		s = c.c2.Open(c)
	} else {
		s = c.c1.Open(c)
	}
	s.SendHead(&c.ask, len(c.body) == 0)
	if len(c.body) > 0 {
		s.SendData(c.body, true)
	}
	// What a call from outside the loop collects is written at the end of a round.
	for n := 0; c.done < want; n++ {
		c.loop.Step()
		if n > 1_000_000 {
			c.tb.Fatal("no response")
		}
	}
	c.loop.Step()
}

type silent struct{}

func (silent) Requested([]byte) {}
func (silent) Responded(Result) {}

type nobody struct{}

func (nobody) Ready(*conn.Socket, conn.Events) {}
func (nobody) Panicked(v any, _ []byte)        { panic(v) }

var chains = []struct {
	name string
	h2   bool
	body []byte
}{
	{"h1 get", false, nil}, {"h1 post 1 KiB", false, make([]byte, 1<<10)}, {"h1 post 32 KiB", false, make([]byte, 32<<10)},
	{"h2 get", true, nil}, {"h2 post 1 KiB", true, make([]byte, 1<<10)}, {"h2 post 32 KiB", true, make([]byte, 32<<10)},
}

func TestARequestAllocatesNothingInTheSteadyState(t *testing.T) {
	for _, v := range chains {
		t.Run(v.name, func(t *testing.T) {
			c := newChain(t, v.h2, v.body)
			for range 200 {
				c.once()
			}
			if n := testing.AllocsPerRun(300, c.once); n != 0 {
				t.Errorf("%v allocations a request", n)
			}
		})
	}
}

func BenchmarkRequestThroughTheMiddle(b *testing.B) {
	for _, v := range chains {
		b.Run(v.name, func(b *testing.B) {
			c := newChain(b, v.h2, v.body)
			c.once()
			b.ReportAllocs()
			for b.Loop() {
				c.once()
			}
		})
	}
}
