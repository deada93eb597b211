package conformance

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/built"
)

// shop is an HTTP server of HTTP/1 and of HTTP/2 with prior knowledge.
func shop(t testing.TB) *origin {
	t.Helper()
	o := listen(t)
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%s %s %d", r.Method, r.URL.Path, n)
	})
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.PathValue("code"))
		w.WriteHeader(code)
	})
	mux.HandleFunc("/wait/{ms}", func(w http.ResponseWriter, r *http.Request) {
		ms, _ := strconv.Atoi(r.PathValue("ms"))
		time.Sleep(time.Duration(ms) * time.Millisecond)
		io.WriteString(w, "waited")
	})
	mux.HandleFunc("/bytes/{n}", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.ParseInt(r.PathValue("n"), 10, 64)
		w.Header().Set("Content-Length", r.PathValue("n"))
		io.CopyN(w, zeros{}, n)
	})
	mux.HandleFunc("/trailers", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "Echo")
		w.Write(b)
		w.Header().Set("Echo", r.Trailer.Get("Check"))
	})
	mux.HandleFunc("/early", func(w http.ResponseWriter, r *http.Request) {
		for i := range 2 {
			w.Header().Set("Link", "</style"+strconv.Itoa(i)+".css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
		}
		w.Header().Del("Link")
		io.WriteString(w, "late")
	})
	// What it says of odd clients is compared on the wire, not in its log.
	server := &http.Server{Handler: mux, Protocols: both(), ErrorLog: log.New(io.Discard, "", 0)}
	done := make(chan error, 1)
	go func() { done <- server.Serve(o) }()
	t.Cleanup(func() {
		server.Close()
		<-done
	})
	return o
}

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func both() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// client makes an HTTP client whose every connection goes to an address, whatever
// its URLs say. version is "HTTP/1" or "HTTP/2".
func client(t testing.TB, to netip.AddrPort, version string) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(version == "HTTP/1")
	protocols.SetUnencryptedHTTP2(version == "HTTP/2")
	tr := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, to.String())
		},
		Protocols:             protocols,
		DisableCompression:    true,
		MaxIdleConnsPerHost:   100,
		ExpectContinueTimeout: patience,
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 3 * patience}
}

// get asks for a path and returns the body of a 200.
func get(c *http.Client, path string) (string, error) {
	resp, err := c.Get("http://shop.example" + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return string(b), err
}

func eachVersion(t *testing.T, test func(t *testing.T, version string)) {
	for _, version := range []string{"HTTP/1", "HTTP/2"} {
		t.Run(version, func(t *testing.T) { test(t, version) })
	}
}

func TestTrailersPassBothWays(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		p := built.Start(t, program, shop(t).addr)
		in, out := io.Pipe()
		req, err := http.NewRequest("POST", "http://shop.example/trailers", in)
		if err != nil {
			t.Fatal(err)
		}
		req.Trailer = http.Header{"Check": nil}
		go func() {
			for range 50 {
				out.Write(make([]byte, 3000))
			}
			req.Trailer.Set("Check", "forty-two")
			out.Close()
		}()
		resp, err := client(t, p.In, version).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || len(b) != 150_000 || resp.Trailer.Get("Echo") != "forty-two" {
			t.Errorf("%d bytes and the trailer %q have come (%v), want 150000 and forty-two", len(b), resp.Trailer.Get("Echo"), err)
		}
		counted(t, p, 1, `status_code="200"`, `classification="success"`)
	})
}

// counted fails the test unless the proxy has counted n exchanges with these
// labels and no others.
func counted(t *testing.T, p *built.Proxy, n float64, labels ...string) {
	t.Helper()
	var s built.Sample
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if s = p.Sample(t); s.Sum("response_total") >= n {
			break
		}
	}
	if got := s.Sum("request_total"); got != n {
		t.Errorf("%v requests are counted, want %v", got, n)
	}
	if got := s.Sum("response_total"); got != n {
		t.Errorf("%v responses are counted, want %v", got, n)
	}
	if got := s.Sum("response_total", labels...); got != n {
		t.Errorf("%v responses have %v, want %v", got, labels, n)
	}
	if lost := s.Sum("meshctl_observer_lost_total"); lost != 0 {
		t.Errorf("the observer has lost its way %v times", lost)
	}
}
