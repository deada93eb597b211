package h1_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/h1"
	"github.com/meshctl/meshctl/proxy/message"
)

// pipe is the straightest middle: one Client for one Server.
type pipe struct {
	client   *h1.Client
	down, up message.Stream
}

func (p *pipe) Open(s message.Stream) message.Receiver { p.down = s; return p }
func (p *pipe) Head(_ message.Stream, h *message.Head, end bool) {
	p.up = p.client.Open((*back)(p))
	p.up.SendHead(h, end)
}
func (p *pipe) Data(_ message.Stream, b []byte, end bool)  { p.up.SendData(b, end) }
func (p *pipe) Trailers(_ message.Stream, h *message.Head) { p.up.SendTrailers(h) }
func (p *pipe) Aborted(_ message.Stream, c message.Code)   { p.up.Abort(c) }
func (p *pipe) Drained(message.Stream)                     {}

type back pipe

func (b *back) Head(_ message.Stream, h *message.Head, end bool) { b.down.SendHead(h, end) }
func (b *back) Data(_ message.Stream, d []byte, end bool)        { b.down.SendData(d, end) }
func (b *back) Trailers(_ message.Stream, h *message.Head)       { b.down.SendTrailers(h) }
func (b *back) Aborted(_ message.Stream, c message.Code)         { b.down.Abort(c) }
func (b *back) Drained(message.Stream)                           {}

const (
	browserGet = "GET /cart?id=7 HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/143.0\r\n" +
		"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br\r\n" +
		"Connection: keep-alive\r\nCookie: session=0123456789abcdef0123456789abcdef\r\n\r\n"
	postChunks = "POST /cart HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n9\r\n{\"id\": 7}\r\n0\r\n\r\n"
	smallReply = "HTTP/1.1 200 OK\r\nServer: app\r\nDate: Mon, 30 Nov 2026 10:00:00 GMT\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{\"ok\":true}"
	chunkReply = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/plain\r\n\r\nb\r\nhello world\r\n0\r\n\r\n"
)

// keepAlive returns a function that carries one exchange over a kept connection
// on each side.
func keepAlive(t testing.TB, request, reply string) func() {
	b := newBench(t)
	p := &pipe{}
	sock, client := b.pair(nil)
	h1.NewServer(b.loop, sock, h1.Config{}, p, func(error) {}).Start(nil)
	sock2, server := b.pair(nil)
	p.client = h1.NewClient(b.loop, sock2, h1.Config{}, func(*h1.Client) {}, func(*h1.Client, error) {})
	ask, say, buf := []byte(request), []byte(reply), make([]byte, 64<<10)
	write := func(fd int, b []byte) {
		if _, err := unix.Write(fd, b); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		write(client.fd, ask)
		b.loop.Step()
		if n, err := unix.Read(server.fd, buf); err != nil || n < 50 {
			t.Fatalf("the server got %d bytes, %v", n, err)
		}
		write(server.fd, say)
		b.loop.Step()
		if n, err := unix.Read(client.fd, buf); err != nil || n < 50 {
			t.Fatalf("the client got %d bytes, %v", n, err)
		}
	}
}

func TestAKeptConnectionAllocatesNothingPerExchange(t *testing.T) {
	for _, v := range []struct{ name, request, reply string }{
		{"GET and a length", browserGet, smallReply},
		{"chunks both ways", postChunks, chunkReply},
	} {
		t.Run(v.name, func(t *testing.T) {
			once := keepAlive(t, v.request, v.reply)
			if n := testing.AllocsPerRun(500, once); n != 0 {
				t.Errorf("%v allocations an exchange", n)
			}
		})
	}
}

func BenchmarkExchangeOverKeptConnections(b *testing.B) {
	for _, v := range []struct{ name, request, reply string }{
		{"get", browserGet, smallReply},
		{"chunks", postChunks, chunkReply},
	} {
		b.Run(v.name, func(b *testing.B) {
			once := keepAlive(b, v.request, v.reply)
			b.ReportAllocs()
			for b.Loop() {
				once()
			}
		})
	}
}
