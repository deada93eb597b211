package metrics

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func BenchmarkReadOfAChunk(b *testing.B) {
	c := New(Config{}).TCP(Inbound, Src, web, TLSLabels{})
	for b.Loop() {
		c.Read(16384)
	}
}

func BenchmarkRequestAndResponse(b *testing.B) {
	h := New(Config{}).HTTP(Inbound, web, TLSLabels{})
	for b.Loop() {
		h.Request()
		h.Response(ResponseLabels{Status: 200, Success: true}, 700*time.Microsecond, true)
	}
}

func BenchmarkConnection(b *testing.B) {
	m := New(Config{})
	tls := TLSLabels{TLS: "no_identity", NoTLSReason: "no_tls_from_remote"}
	b.ReportAllocs()
	for b.Loop() {
		c := m.TCP(Inbound, Src, web, tls)
		c.Open()
		c.Close("", time.Second)
	}
}

// discard is a ResponseWriter that counts bytes.
type discard struct {
	header http.Header
	n      int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(p []byte) (int, error) { d.n += len(p); return len(p), nil }

func benchmarkScrape(b *testing.B, targets int, encoding string) {
	m := New(Config{})
	for i := range targets {
		c := m.TCP(Outbound, Dst, address(i), TLSLabels{TLS: "no_identity"})
		c.Open()
		c.Close("", time.Second)
		h := m.HTTP(Outbound, address(i), TLSLabels{TLS: "no_identity"})
		h.Response(ResponseLabels{Status: 200, Success: true}, time.Millisecond, true)
	}
	page := m.Handler(slog.New(slog.NewTextHandler(io.Discard, nil)))
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept-Encoding", encoding)
	w := &discard{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		w.n = 0
		page.ServeHTTP(w, r)
	}
	b.ReportMetric(float64(w.n), "page-bytes")
}

func BenchmarkScrapeOf10Targets(b *testing.B)       { benchmarkScrape(b, 10, "") }
func BenchmarkScrapeOf10TargetsGzip(b *testing.B)   { benchmarkScrape(b, 10, "gzip") }
func BenchmarkScrapeOf2000Targets(b *testing.B)     { benchmarkScrape(b, 2000, "") }
func BenchmarkScrapeOf2000TargetsGzip(b *testing.B) { benchmarkScrape(b, 2000, "gzip") }
