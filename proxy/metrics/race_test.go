package metrics

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestNothingIsLostWhileEverythingHappensAtOnce(t *testing.T) {
	m := New(Config{MaxSeries: 20})
	const workers, rounds = 4, 200
	var work, scraping sync.WaitGroup
	stop := make(chan struct{})
	scraping.Go(func() { scrapeUntil(m, stop) })
	for range workers {
		work.Go(func() { live(m, rounds) })
	}
	work.Wait()
	close(stop)
	scraping.Wait()
	const n = workers * rounds
	all := totals(t, m)
	for name, want := range map[string]float64{
		"tcp_open_total": n, "tcp_close_total": n, "tcp_open_connections": 0,
		"tcp_read_bytes_total": 3 * n, "tcp_write_bytes_total": 2 * n,
		"tcp_connection_duration_ms_count": n, "meshctl_detecting_connections": 0,
		"request_total": n, "response_total": n, "response_latency_ms_count": n,
		"meshctl_detect_total": n, "meshctl_refused_total": n, "meshctl_panics_total": n,
	} {
		if got := all[name]; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// live runs connections over more targets than there is room for.
func live(m *Metrics, rounds int) {
	for i := range rounds {
		m.Detecting(1)
		tls := TLSLabels{SNI: address(i % 30).Addr.String()}
		c, h := m.TCP(Outbound, Dst, address(i%30), tls), m.HTTP(Outbound, address(i%30), tls)
		c.Open()
		m.Detected(Outbound, uint16(i), ResultHTTP1, "bytes", time.Millisecond)
		m.Detecting(-1)
		c.Read(3)
		c.Write(2)
		h.Request()
		h.Response(ResponseLabels{Status: 200 + i%90}, time.Millisecond, true)
		m.Refused(Inbound, "own_listener")
		m.Panic()
		h.Release()
		c.Close("EPIPE", time.Second)
	}
}

func scrapeUntil(m *Metrics, stop <-chan struct{}) {
	page := m.Handler(quiet())
	for {
		select {
		case <-stop:
			return
		default:
			page.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil))
		}
	}
}

func TestSweepsBesideConnectionsDropNoneThatIsOpen(t *testing.T) {
	m := New(Config{IdleAfter: time.Nanosecond})
	var work, sweeping sync.WaitGroup
	stop := make(chan struct{})
	sweeping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				m.Sweep(time.Now().Add(time.Hour))
			}
		}
	})
	for range 3 {
		work.Go(func() { reopen(t, m) })
	}
	work.Wait()
	close(stop)
	sweeping.Wait()
	m.Sweep(time.Now().Add(time.Hour))
	if n := len(m.tcp.list()); n != 0 {
		t.Errorf("%d series left though no connection is open", n)
	}
}

func reopen(t *testing.T, m *Metrics) {
	for range 2000 {
		c := m.TCP(Inbound, Src, web, TLSLabels{})
		c.Open()
		again := m.TCP(Inbound, Src, web, TLSLabels{})
		if again != c {
			t.Error("an open connection's series was dropped")
		}
		again.Release()
		c.Close("", 0)
	}
}

func TestTheDataPathAllocatesNothing(t *testing.T) {
	m := New(Config{})
	tls := TLSLabels{TLS: "no_identity", NoTLSReason: "no_tls_from_remote", SNI: "a.example"}
	c, h := m.TCP(Inbound, Src, web, tls), m.HTTP(Inbound, web, tls)
	full := New(Config{MaxSeries: 1})
	full.HTTP(Inbound, address(1), TLSLabels{})
	folded := full.HTTP(Inbound, web, TLSLabels{})
	for name, do := range map[string]func(){
		"Read":            func() { c.Read(100) },
		"Write":           func() { c.Write(100) },
		"Request":         func() { h.Request() },
		"Response":        func() { h.Response(ResponseLabels{Status: 200, Success: true}, time.Millisecond, true) },
		"gRPC Response":   func() { h.Response(ResponseLabels{Status: 200, GRPC: true, GRPCStatus: -1}, 0, true) },
		"failed Response": func() { h.Response(ResponseLabels{Err: "reset"}, 0, false) },
		"folded Response": func() { folded.Response(ResponseLabels{Status: 200}, 0, true) },
		"look-up":         func() { m.TCP(Inbound, Src, web, tls).Release() },
		"HTTP look-up":    func() { m.HTTP(Inbound, web, tls).Release() },
		"Open and Close":  func() { c := m.TCP(Inbound, Src, web, tls); c.Open(); c.Close("EPIPE", time.Second) },
		"Detecting":       func() { m.Detecting(1); m.Detecting(-1) },
		"event":           func() { m.Refused(Inbound, "own_listener") },
	} {
		if n := testing.AllocsPerRun(200, do); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestScrapeDoesNotHoldUpConnections(t *testing.T) {
	m := New(Config{SkipPackets: func() []SkipCount { return nil }})
	entered, leave := make(chan struct{}), make(chan struct{})
	m.cfg.SkipPackets = func() []SkipCount {
		close(entered)
		<-leave
		return nil
	}
	var scraping sync.WaitGroup
	scraping.Go(func() { serve(t, m) })
	<-entered
	done := make(chan struct{})
	go func() { defer close(done); live(m, 10) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("connections wait for a scrape that is under way")
	}
	close(leave)
	scraping.Wait()
	<-done
}

func TestPageIsCompressedOnlyForClientsThatAskForIt(t *testing.T) {
	m := New(Config{})
	for accept, want := range map[string]string{"": "", "gzip": "gzip", "br": "", "gzip;q=0": ""} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		if accept != "" {
			r.Header.Set("Accept-Encoding", accept)
		}
		w := httptest.NewRecorder()
		m.Handler(quiet()).ServeHTTP(w, r)
		if got := w.Header().Get("Content-Encoding"); got != want {
			t.Errorf("Accept-Encoding %q: Content-Encoding %q, want %q", accept, got, want)
		}
		if got := w.Header().Get("Content-Type"); got[:10] != "text/plain" {
			t.Errorf("Content-Type %q", got)
		}
	}
}

// totals returns the sum of each name's series.
func totals(t *testing.T, m *Metrics) map[string]float64 {
	t.Helper()
	sums := map[string]float64{}
	for line := range strings.Lines(serve(t, m)) {
		if name := strings.FieldsFunc(line, func(r rune) bool { return r == '{' || r == ' ' })[0]; name != "#" {
			sums[name] += sum(t, []string{strings.TrimSpace(line)})
		}
	}
	return sums
}
