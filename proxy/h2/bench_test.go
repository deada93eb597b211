package h2_test

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/h2"
	"github.com/meshctl/meshctl/proxy/message"
)

// fixedOrigin answers every request at once with 200 and so many bytes; it
// allocates nothing per request.
type fixedOrigin struct {
	body []byte
	head message.Head
}

func (o *fixedOrigin) Open(message.Stream) message.Receiver { return o }
func (o *fixedOrigin) Head(s message.Stream, _ *message.Head, end bool) {
	if end {
		s.SendHead(&o.head, false)
		s.SendData(o.body, true)
	}
}
func (o *fixedOrigin) Data(s message.Stream, _ []byte, end bool) {
	if end {
		s.SendHead(&o.head, false)
		s.SendData(o.body, true)
	}
}
func (*fixedOrigin) Trailers(message.Stream, *message.Head) {}
func (*fixedOrigin) Aborted(message.Stream, message.Code)   {}
func (*fixedOrigin) Drained(message.Stream)                 {}

// fixedServer accepts for a fixedOrigin.
type fixedServer struct {
	origin *fixedOrigin
	socks  []*conn.Socket
}

func (f *fixedServer) Accept(l *conn.Loop, c conn.Accepted) {
	sock := &conn.Socket{}
	_ = l.Attach(sock, c.FD, &downstream{})
	f.socks = append(f.socks, sock)
	h2.NewServer(l, sock, h2.Config{}, f.origin, func(error) {}).Start(nil)
}
func (*fixedServer) AcceptFailed(err error) { panic(err) }

// serveFixed serves a fixedOrigin on loopback.
func serveFixed(t testing.TB, size int) netip.AddrPort {
	t.Helper()
	loop := runLoop(t)
	fd, at, err := listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &fixedOrigin{body: make([]byte, size), head: message.Head{Status: 200, Length: int64(size)}}
	o.head.Add("content-type", "text/plain")
	o.head.Add("server", "fixed")
	on(t, loop, func() { _, err = loop.Listen(fd, nil, &fixedServer{origin: o}) })
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// load sends batches of requests on one connection and reads the answers,
// allocating nothing per batch.
type load struct {
	net.Conn
	batch []byte // HEADERS of streams as they are numbered first
	heads []int  // where their frames begin
	next  uint32
	in    []byte
}

func newLoad(t testing.TB, at netip.AddrPort, streams int) *load {
	t.Helper()
	p := dialPeer(t, at, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
	_ = p.WriteWindowUpdate(0, 1<<30)
	l := &load{Conn: p.Conn, next: 1, in: make([]byte, 64<<10)}
	block := p.fields(":method", "GET", ":scheme", "http", ":path", "/k?with=query", ":authority", "svc.ns.svc.cluster.local:8080",
		"user-agent", "load/1.0", "accept", "*/*", "x-request-id", "3f9c1d2e-0b7a-4a55-9d57-7a6f6f1c9f10")
	// Only the first may add to the table; the rest use it.
	again := p.fields(":method", "GET", ":scheme", "http", ":path", "/k?with=query", ":authority", "svc.ns.svc.cluster.local:8080",
		"user-agent", "load/1.0", "accept", "*/*", "x-request-id", "3f9c1d2e-0b7a-4a55-9d57-7a6f6f1c9f10")
	l.run(t, [][]byte{block})
	blocks := make([][]byte, streams)
	for i := range blocks {
		blocks[i] = again
	}
	l.compose(blocks)
	return l
}

func (l *load) compose(blocks [][]byte) {
	l.batch, l.heads = nil, nil
	for _, b := range blocks {
		l.heads = append(l.heads, len(l.batch))
		l.batch = append(l.batch, 0, byte(len(b)>>8), byte(len(b)), 1, 5, 0, 0, 0, 0)
		l.batch = append(l.batch, b...)
	}
}

func (l *load) run(t testing.TB, blocks [][]byte) {
	l.compose(blocks)
	l.exchange(t)
}

// exchange sends the batch and waits for as many ends.
func (l *load) exchange(t testing.TB) {
	for _, at := range l.heads {
		id := l.next
		l.next += 2
		l.batch[at+5], l.batch[at+6], l.batch[at+7], l.batch[at+8] = byte(id>>24), byte(id>>16), byte(id>>8), byte(id)
	}
	if _, err := l.Write(l.batch); err != nil {
		t.Fatal(err)
	}
	for left, have := len(l.heads), 0; left > 0; {
		n, err := l.Read(l.in[have:])
		if err != nil {
			t.Fatal(err)
		}
		have += n
		b := l.in[:have]
		for len(b) >= 9 {
			size := int(b[1])<<8 | int(b[2])
			if len(b) < 9+size {
				break
			}
			if k := b[3]; k == 0 && b[4]&1 != 0 {
				left--
			} else if k == 3 || k == 7 {
				t.Fatalf("frame %d", k)
			}
			b = b[9+size:]
		}
		have = copy(l.in, b)
	}
}

func TestAnExchangeAllocatesNothing(t *testing.T) {
	_, _, at := serveMiddle(t, serveFixed(t, 1024), h2.Config{})
	l := newLoad(t, at, 50)
	for range 50 {
		l.exchange(t)
	}
	if per := testing.AllocsPerRun(200, func() { l.exchange(t) }) / 50; per > 0.02 {
		t.Errorf("%.3f allocations an exchange", per)
	}
}

func BenchmarkExchange(b *testing.B) {
	_, _, at := serveMiddle(b, serveFixed(b, 1024), h2.Config{})
	const streams = 32
	l := newLoad(b, at, streams)
	_ = l.SetDeadline(noDeadline)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		l.exchange(b)
		n++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*streams), "ns/exchange")
}

func BenchmarkBody(b *testing.B) {
	_, _, at := serveMiddle(b, serveFixed(b, 8<<20), h2.Config{})
	p := dialPeer(b, at, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
	_ = p.SetDeadline(noDeadline)
	_ = p.WriteWindowUpdate(0, 1<<30)
	b.SetBytes(8 << 20)
	id := uint32(1)
	for b.Loop() {
		p.request(id, true, "/")
		want := int64(8 << 20)
		head := make([]byte, 9)
		for want > 0 {
			if _, err := io.ReadFull(p.Conn, head); err != nil {
				b.Fatal(err)
			}
			size := int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2])
			if head[3] == 0 {
				want -= size
			}
			_, _ = io.CopyN(io.Discard, p.Conn, size)
		}
		_ = p.WriteWindowUpdate(0, 8<<20)
		id += 2
	}
}

var noDeadline time.Time
