package l7

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// tally is a Recorder that only counts.
type tally struct{ requests, good int }

func (n *tally) Request(Request) { n.requests++ }
func (n *tally) Response(r Response) {
	if r.Success {
		n.good++
	}
}

// The heads that wrk and nginx write.
const (
	wrkGet   = "GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n"
	nginx200 = "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Mon, 30 Nov 2026 10:00:00 GMT\r\nContent-Type: application/octet-stream\r\nContent-Length: 100\r\nConnection: keep-alive\r\n\r\n"
)

func BenchmarkHTTP1(b *testing.B) {
	browser := "GET /a/path?with=query HTTP/1.1\r\nHost: svc.example\r\nUser-Agent: " + strings.Repeat("u", 110) + "\r\nAccept: text/html,*/*;q=0.8\r\nAccept-Language: en\r\nAccept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\nCookie: " + strings.Repeat("c", 300) + "\r\nUpgrade-Insecure-Requests: 1\r\n\r\n"
	small := nginx200 + strings.Repeat("x", 100)
	chunks := strings.Replace(nginx200, "Content-Length: 100", "Transfer-Encoding: chunked", 1) + strings.Repeat("2000\r\n"+strings.Repeat("x", 0x2000)+"\r\n", 8) + "0\r\n\r\n"
	for _, bb := range []struct{ name, request, response string }{
		{"get 100 bytes", wrkGet, small},
		{"browser get 100 bytes", browser, small},
		{"64 KiB in chunks", wrkGet, chunks},
	} {
		b.Run(bb.name, func(b *testing.B) {
			var n tally
			h := NewH1(&n)
			q, p := []byte(bb.request), []byte(bb.response)
			b.ReportAllocs()
			for i := range b.N {
				h.Feed(FromClient, q, time.Duration(i))
				h.Feed(FromServer, p, time.Duration(i))
			}
			if n.good != b.N {
				b.Fatalf("%d of %d counted, %v", n.good, b.N, h.State())
			}
		})
	}
}

// BenchmarkHTTP2 has h2load's kind of traffic: a batch of requests in one read,
// a batch of responses in another, with new streams all the time.
func BenchmarkHTTP2(b *testing.B) {
	for _, bb := range []struct {
		name                      string
		batch                     int
		request, response, finish []string
	}{
		{"get 100 bytes", 1, getFields, []string{":status", "200", "server", "nginx/1.22.1", "date", "Mon, 30 Nov 2026 10:00:00 GMT", "content-type", "application/octet-stream", "content-length", "100"}, nil},
		{"get 100 bytes, 32 at once", 32, getFields, []string{":status", "200", "server", "nginx/1.22.1", "date", "Mon, 30 Nov 2026 10:00:00 GMT", "content-type", "application/octet-stream", "content-length", "100"}, nil},
		{"gRPC, 32 at once", 32, callFields, grpcHead, []string{"grpc-status", "0", "grpc-message", ""}},
	} {
		b.Run(bb.name, func(b *testing.B) { benchH2(b, bb.batch, bb.request, bb.response, bb.finish) })
	}
}

func benchH2(b *testing.B, batch int, request, response, finish []string) {
	x := newH2Script()
	var n tally
	h := NewH2(&n)
	x.talk.replay(h, uncut)
	frames := func() (client, server []byte) {
		for i := range batch {
			id := uint32(2*i + 1)
			if finish == nil {
				x.client.headers(id, true, request...)
			} else {
				x.client.headers(id, false, request...)
				x.client.data(id, true, strings.Repeat("x", 20))
			}
			x.server.headers(id, false, response...)
			x.server.data(id, finish == nil, strings.Repeat("x", 100))
			if finish != nil {
				x.server.headers(id, true, finish...)
			}
		}
		client, server = bytes.Clone(x.client.out.Bytes()), bytes.Clone(x.server.out.Bytes())
		x.client.out.Reset()
		x.server.out.Reset()
		return client, server
	}
	c, s := frames() // fills the dynamic tables
	h.Feed(FromClient, c, 0)
	h.Feed(FromServer, s, 0)
	c, s = frames()
	b.ReportAllocs()
	b.ResetTimer()
	for i := range (b.N + batch - 1) / batch {
		h.newest = 0 // the same streams again
		h.Feed(FromClient, c, time.Duration(i))
		h.Feed(FromServer, s, time.Duration(i))
	}
	if want := (b.N+batch-1)/batch*batch + batch; n.good != want {
		b.Fatalf("%d of %d counted, %v", n.good, want, h.State())
	}
}

// BenchmarkHTTP2LiteralHeaders has an encoder that indexes nothing, as nginx's.
func BenchmarkHTTP2LiteralHeaders(b *testing.B) {
	block := []byte{0x88}
	literal := func(index byte, value string) {
		block = append(block, 0x0f, index-15, byte(len(value)))
		block = append(block, value...)
	}
	literal(54, "nginx/1.22.1")
	literal(33, "Mon, 30 Nov 2026 10:00:00 GMT")
	literal(31, "application/octet-stream")
	literal(28, "100")
	d := newHPACKDecoder()
	b.ReportAllocs()
	for range b.N {
		if h, ok := d.decode(block); !ok || h.status != 200 {
			b.Fatal(fmt.Sprint(h, ok))
		}
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	var n tally
	h1 := NewH1(&n)
	q, p := []byte(wrkGet), []byte(nginx200+strings.Repeat("x", 100))
	if a := testing.AllocsPerRun(1000, func() { h1.Feed(FromClient, q, 0); h1.Feed(FromServer, p, 0) }); a != 0 {
		t.Errorf("HTTP/1: %v allocations a request", a)
	}
	x := newH2Script()
	h2 := NewH2(&n)
	x.talk.replay(h2, uncut)
	x.client.headers(1, true, getFields...)
	x.server.headers(1, true, ":status", "200")
	q, p = x.client.out.Bytes(), x.server.out.Bytes()
	if a := testing.AllocsPerRun(1000, func() { h2.newest = 0; h2.Feed(FromClient, q, 0); h2.Feed(FromServer, p, 0) }); a != 0 {
		t.Errorf("HTTP/2: %v allocations a request", a)
	}
	if n.requests != 2002 || n.good != 2002 {
		t.Errorf("%+v", n)
	}
}
