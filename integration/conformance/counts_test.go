package conformance

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/built"
)

// TestKnownLoadIsCountedExactly sends a load of which every number is known, both
// ways into the proxy.
func TestKnownLoadIsCountedExactly(t *testing.T) {
	const clients, each = 8, 60
	codes := []int{200, 204, 301, 404, 500, 503}
	for _, direction := range []string{"inbound", "outbound"} {
		eachVersion(t, func(t *testing.T, version string) {
			p := built.Start(t, program, shop(t).addr)
			to := p.In
			if direction == "outbound" {
				to = p.Out
			}
			var group sync.WaitGroup
			for range clients {
				group.Go(func() {
					c := client(t, to, version)
					c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
					for i := range each {
						resp, err := c.Get(fmt.Sprintf("http://till.example/status/%d", codes[i%len(codes)]))
						if err != nil {
							t.Errorf("request %d: %v", i, err)
							return
						}
						io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
					c.CloseIdleConnections()
				})
			}
			group.Wait()
			way := fmt.Sprintf("direction=%q", direction)
			counted(t, p, clients*each, way)
			s := p.Settled(t)
			for _, code := range codes {
				class, label := "success", fmt.Sprintf("status_code=\"%d\"", code)
				if code >= 500 {
					class = "failure"
				}
				want := float64(clients * each / len(codes))
				for name, got := range map[string]float64{
					"responses": s.Sum("response_total", way, label, `classification="`+class+`"`),
					"latencies": s.Sum("response_latency_ms_count", way, label),
					"in +Inf":   s.Sum("response_latency_ms_bucket", way, label, `le="+Inf"`),
				} {
					if got != want {
						t.Errorf("%s of %d: %v, want %v", name, code, got, want)
					}
				}
			}
			if n := s.Sum(direction+"_tcp_detect_http_results_total", `result="`+strings.ToLower(version)+`"`); n != clients {
				t.Errorf("%v connections were detected as %s, want %d", n, version, clients)
			}
			if n := s.Sum("tcp_open_total", way, `peer="src"`); n != clients {
				t.Errorf("%v connections are counted, want %d", n, clients)
			}
		})
	}
}

func TestLargeBodiesHideNoRequest(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		p := built.Start(t, program, shop(t).addr)
		c := client(t, p.In, version)
		for range 3 {
			body, err := get(c, "/bytes/9000000")
			if err != nil || len(body) != 9_000_000 {
				t.Fatalf("%d bytes have come (%v)", len(body), err)
			}
			resp, err := c.Post("http://shop.example/take", "", io.LimitReader(zeros{}, 7_000_000))
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(b) != "POST /take 7000000" {
				t.Fatalf("the server has seen %q (%v)", b, err)
			}
		}
		counted(t, p, 6, `status_code="200"`, `classification="success"`)
		if n := p.Sample(t).Sum("tcp_open_total", `peer="dst"`); n != 1 {
			t.Errorf("%v connections were dialed, want 1", n)
		}
	})
}

func TestLatencyIsTheServersTime(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		p := built.Start(t, program, shop(t).addr)
		c := client(t, p.In, version)
		for range 2 {
			if _, err := get(c, "/wait/150"); err != nil {
				t.Fatal(err)
			}
		}
		counted(t, p, 2, `status_code="200"`)
		s := p.Sample(t)
		if n := s.Sum("response_latency_ms_bucket", `le="100"`); n != 0 {
			t.Errorf("%v answers are counted as faster than 100 ms", n)
		}
		if sum := s.Sum("response_latency_ms_sum"); sum < 300 || sum > 3000 {
			t.Errorf("the latencies add up to %v ms, want at least 300", sum)
		}
	})
}

func TestInterimAnswersPassAndCountAsNone(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		p := built.Start(t, program, shop(t).addr)
		hints := 0
		trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if code == http.StatusEarlyHints && h.Get("Link") != "" {
				hints++
			}
			return nil
		}}
		req, err := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), trace), "GET", "http://till.example/early", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client(t, p.In, version).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(b) != "late" || hints != 2 {
			t.Errorf("%q and %d hints have come (%v), want late and 2", b, hints, err)
		}
		counted(t, p, 1, `status_code="200"`)
	})
}

func TestABodyThatWaitsForContinue(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		p := built.Start(t, program, shop(t).addr)
		for path, want := range map[string]int{"/upload": 200, "/status/417": 417} {
			req, err := http.NewRequest("PUT", "http://till.example"+path, strings.NewReader(strings.Repeat("u", 100_000)))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Expect", "100-continue")
			began := time.Now()
			resp, err := client(t, p.In, version).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != want {
				t.Errorf("%s: %s (%v), want %d", path, resp.Status, err, want)
			}
			if path == "/upload" && string(b) != "PUT /upload 100000" {
				t.Errorf("the server has seen %q", b)
			}
			if took := time.Since(began); took > patience/2 {
				t.Errorf("%s took %s: the client has sent its body unasked", path, took)
			}
		}
		counted(t, p, 2)
	})
}

// A client of HTTP/1 that gives up closes its connection; a script has that.
func TestAStreamThatItsClientCancelsIsAFailure(t *testing.T) {
	p := built.Start(t, program, shop(t).addr)
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "GET", "http://till.example/wait/1500", nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := client(t, p.In, "HTTP/2").Do(req)
		done <- err
	}()
	for p.Sample(t).Sum("request_total") == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	if err := <-done; err == nil {
		t.Fatal("the request has not been given up")
	}
	counted(t, p, 1, `classification="failure"`, `error="cancel"`)
}
