//lint:file-ignore SA1019 the oracle is x/net's own server and client, whose frames can be set as net/http's cannot

package h2_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/meshctl/meshctl/proxy/h2"
)

// origin is an x/net HTTP/2 server without TLS.
func origin(t testing.TB, conf *http2.Server, handler http.Handler) netip.AddrPort {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			all.Go(func() { conf.ServeConn(c, &http2.ServeConnOpts{Handler: handler}) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return ln.Addr().(*net.TCPAddr).AddrPort()
}

// transport is an x/net HTTP/2 client without TLS.
func transport(t testing.TB, tune func(*http2.Transport)) *http.Client {
	tr := &http2.Transport{AllowHTTP: true, DisableCompression: true,
		DialTLSContext: func(ctx context.Context, network, addr string, _ *tlsConfig) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		}}
	if tune != nil {
		tune(tr)
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// handler is what the origin does.
func handler(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/hash": // of the body, with trailers for trailers
		h := sha256.New()
		n, err := io.Copy(h, r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Trailer", "X-Sum")
		fmt.Fprintf(w, "%d", n)
		w.Header().Set("X-Sum", strings.TrimSpace(fmt.Sprintf("%x %s", h.Sum(nil), r.Trailer.Get("X-Said"))))
	case "/bytes":
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		if r.URL.Query().Has("cl") {
			w.Header().Set("Content-Length", strconv.Itoa(n))
		}
		_, _ = io.CopyN(w, pattern{}, int64(n))
	case "/echo":
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(flushing{w}, r.Body)
	case "/hints":
		w.Header().Set("Link", "</a>")
		w.WriteHeader(103)
		w.WriteHeader(103)
		w.WriteHeader(204)
	case "/die":
		_, _ = io.WriteString(w, "some")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case "/early":
		w.WriteHeader(413)
	case "/wait":
		<-r.Context().Done()
	case "/head":
		w.Header().Set("Content-Length", "1234")
	case "/fields":
		for name, values := range r.Header {
			for _, v := range values {
				w.Header().Add("Got-"+name, v)
			}
		}
		w.Header().Set("Got-Method", r.Method)
		w.Header().Set("Got-Host", r.Host)
		w.Header().Set("Got-URI", r.RequestURI)
	}
}

// pattern reads as bytes that differ by their place.
type pattern struct{}

func (pattern) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(i)
	}
	return len(b), nil
}

type flushing struct{ http.ResponseWriter }

func (f flushing) Write(b []byte) (int, error) {
	n, err := f.ResponseWriter.Write(b)
	_ = http.NewResponseController(f.ResponseWriter).Flush()
	return n, err
}

func do(t testing.TB, c *http.Client, method, url string, body io.Reader) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return resp, string(b)
}

// settings are ways in which the peers of the middle may be set.
var windows = map[string]struct {
	client func(*http2.Transport)
	server http2.Server
	cfg    h2.Config
}{
	"usual": {},
	"tiny windows": {
		client: func(tr *http2.Transport) { tr.MaxReadFrameSize = 16 << 10 },
		server: http2.Server{MaxUploadBufferPerStream: 1000, MaxUploadBufferPerConnection: 65536},
		cfg:    h2.Config{StreamWindow: 1000, ConnWindow: 1},
	},
	"large frames": {
		client: func(tr *http2.Transport) { tr.MaxReadFrameSize = 1 << 20 },
		server: http2.Server{MaxReadFrameSize: 1 << 20, MaxUploadBufferPerStream: 4 << 20, MaxUploadBufferPerConnection: 8 << 20},
		cfg:    h2.Config{StreamWindow: 1 << 20, ConnWindow: 8 << 20},
	},
}

func TestBodiesPassWholeBothWays(t *testing.T) {
	for name, w := range windows {
		t.Run(name, func(t *testing.T) {
			to := origin(t, &w.server, http.HandlerFunc(handler))
			_, _, at := serveMiddle(t, to, w.cfg)
			c := transport(t, w.client)
			url := "http://" + at.String()
			sizes := []int{0, 1, 100, 16384, 16385, 65535, 65536, 300_000}
			if name != "tiny windows" {
				sizes = append(sizes, 10<<20)
			}
			for _, n := range sizes {
				for _, sized := range []bool{false, true} {
					body := make([]byte, n)
					_, _ = pattern{}.Read(body)
					var r io.Reader = bytes.NewReader(body)
					path := "/bytes?cl&n="
					if !sized {
						r, path = struct{ io.Reader }{r}, "/bytes?n="
					}
					resp, got := do(t, c, "PUT", url+"/hash", r)
					if got != strconv.Itoa(n) || resp.Trailer.Get("X-Sum") != fmt.Sprintf("%x", sha256.Sum256(body)) {
						t.Errorf("%d bytes up (%v): %q, %v", n, sized, got, resp.Trailer)
					}
					if resp, got = do(t, c, "GET", url+path+strconv.Itoa(n), nil); len(got) != n {
						t.Errorf("%d bytes down (%v): %d", n, sized, len(got))
					}
					if want := int64(n); sized && resp.ContentLength != want {
						t.Errorf("content-length %d, want %d", resp.ContentLength, want)
					}
				}
			}
		})
	}
}

func TestAHundredStreamsAtOnce(t *testing.T) {
	to := origin(t, &http2.Server{MaxConcurrentStreams: 1000}, http.HandlerFunc(handler))
	_, _, at := serveMiddle(t, to, h2.Config{})
	c := transport(t, nil)
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for range 5 {
				n := r.IntN(200_000)
				body := bytes.Repeat([]byte{byte(i)}, n)
				if _, got := do(t, c, "POST", "http://"+at.String()+"/echo", struct{ io.Reader }{bytes.NewReader(body)}); got != string(body) {
					t.Errorf("stream %d: %d bytes came back of %d", i, len(got), n)
				}
			}
		})
	}
	all.Wait()
}

func TestHeadsPass(t *testing.T) {
	to := origin(t, &http2.Server{}, http.HandlerFunc(handler))
	_, _, at := serveMiddle(t, to, h2.Config{})
	c := transport(t, nil)
	url := "http://" + at.String()

	req, _ := http.NewRequest("PATCH", url+"/fields?a=b%20c&d", nil)
	req.Host = "some.example:81"
	req.Header = http.Header{"X-One": {"1", "2"}, "User-Agent": {"test"}, "X-Empty": {""}, "X-Long": {strings.Repeat("v", 50_000)}, "Cookie": {"a=b; c=d"}}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	for name, want := range map[string][]string{"Method": {"PATCH"}, "Host": {"some.example:81"}, "URI": {"/fields?a=b%20c&d"}, "X-One": {"1", "2"},
		"User-Agent": {"test"}, "X-Empty": {""}, "Cookie": {"a=b; c=d"}, "X-Long": {strings.Repeat("v", 50_000)}} {
		if got := resp.Header.Values("Got-" + name); !slices.Equal(got, want) {
			t.Errorf("%s: %.100q, want %.100q", name, got, want)
		}
	}
	if resp, _ := do(t, c, "HEAD", url+"/head", nil); resp.ContentLength != 1234 {
		t.Errorf("HEAD: content-length %d", resp.ContentLength)
	}
	if resp, got := do(t, c, "POST", url+"/early", strings.NewReader(strings.Repeat("x", 1<<20))); resp.StatusCode != 413 {
		t.Errorf("early answer: %d %q", resp.StatusCode, got)
	}
}

func TestInterimHeadsAndTrailersPass(t *testing.T) {
	to := origin(t, &http2.Server{}, http.HandlerFunc(handler))
	_, _, at := serveMiddle(t, to, h2.Config{})
	c := transport(t, nil)
	hints := 0
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		if code == 103 && h.Get("Link") == "</a>" {
			hints++
		}
		return nil
	}}
	req, _ := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), "GET", "http://"+at.String()+"/hints", nil)
	resp, err := c.Do(req)
	if err != nil || resp.StatusCode != 204 || hints != 2 {
		t.Errorf("%v, %v, %d hints", resp, err, hints)
	}
	req, _ = http.NewRequest("PUT", "http://"+at.String()+"/hash", struct{ io.Reader }{strings.NewReader("abc")})
	req.Trailer = http.Header{"X-Said": {"at the end"}}
	if resp, err = c.Do(req); err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(resp.Body)
	if got := resp.Trailer.Get("X-Sum"); !strings.HasSuffix(got, " at the end") {
		t.Errorf("trailers %v", resp.Trailer)
	}
}

func TestEndsPass(t *testing.T) {
	gone := make(chan struct{}, 1)
	to := origin(t, &http2.Server{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler(w, r)
		if r.URL.Path == "/wait" {
			gone <- struct{}{}
		}
	}))
	_, _, at := serveMiddle(t, to, h2.Config{})
	c := transport(t, nil)
	resp, err := c.Get("http://" + at.String() + "/die")
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	var se http2.StreamError
	if string(b) != "some" || !errors.As(err, &se) || se.Code != http2.ErrCodeInternal {
		t.Errorf("a body cut by its server: %q, %v", b, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+at.String()+"/wait", nil)
	if _, err := c.Do(req); !errors.Is(err, context.Canceled) {
		t.Errorf("a request given up: %v", err)
	}
	select {
	case <-gone:
	case <-time.After(2 * time.Second):
		t.Error("the server was not told that the client gave up")
	}
}

func TestASlowReaderStopsTheServer(t *testing.T) {
	sent := make(chan int, 1000)
	to := origin(t, &http2.Server{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		total := 0
		for piece := make([]byte, 64<<10); total < 64<<20; total += len(piece) {
			if _, err := w.Write(piece); err != nil {
				return
			}
			sent <- total
		}
	}))
	_, _, at := serveMiddle(t, to, h2.Config{})
	p := dialPeer(t, at) // windows of 64 KiB that are not opened
	p.request(1, true, "/")
	time.Sleep(200 * time.Millisecond)
	last := 0
	for len(sent) > 0 {
		last = <-sent
	}
	if last > 1<<20 {
		t.Errorf("%d bytes were taken from the server for a client that reads nothing", last)
	}
}

type tlsConfig = tls.Config
