package h1

import (
	"testing"

	"github.com/meshctl/meshctl/proxy/message"
)

func BenchmarkHead(b *testing.B) {
	raw := []byte("GET /cart?id=7 HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/143.0\r\n" +
		"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br\r\n" +
		"Connection: keep-alive\r\nCookie: session=0123456789abcdef0123456789abcdef\r\n\r\n")
	var h message.Head
	p := parser{maxHead: 64 << 10, maxFields: 128}
	b.Run("read", func(b *testing.B) {
		b.SetBytes(int64(len(raw)))
		for b.Loop() {
			if n, r := p.head(raw, &h); n != len(raw) || r != nil {
				b.Fatal(n, r)
			}
		}
	})
	b.Run("write", func(b *testing.B) {
		b.SetBytes(int64(len(raw)))
		out := outgoing{said: message.Unknown}
		buf := make([]byte, 0, 4096)
		for b.Loop() {
			var w headWriter
			w.begin(buf[:0])
			w.request(&h, &out, message.HTTP11)
			if !w.close() {
				b.Fatal("refused")
			}
		}
	})
}
