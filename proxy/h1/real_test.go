package h1_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/meshctl/meshctl/proxy/h1"
)

// through starts a net/http server with the handler, a middle in front of it,
// and returns the middle's address and a client that keeps connections.
func through(t testing.TB, h http.Handler) (addr string, client *http.Client, m *middle) {
	t.Helper()
	server := httptest.NewServer(h)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m, err = newMiddle(netip.MustParseAddrPort(server.Listener.Addr().String()), h1.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.listen(ln.(*net.TCPListener)); err != nil {
		t.Fatal(err)
	}
	stop := m.run()
	tr := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 100, ExpectContinueTimeout: 5 * time.Second}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		stop()
		ln.Close()
		server.CloseClientConnections()
		server.Close()
		if t, ok := t.(*testing.T); ok {
			goleak.VerifyNone(t, goleak.IgnoreCurrent())
		}
	})
	return ln.Addr().String(), &http.Client{Transport: tr, Timeout: 30 * time.Second}, m
}

func TestBodiesPassWholeThroughRealClientsAndServers(t *testing.T) {
	addr, client, m := through(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if r.URL.Query().Has("length") {
			w.Header().Set("Content-Length", fmt.Sprint(len(b)))
		}
		w.Header().Set("X-Got", fmt.Sprintf("%s %d %x", r.Method, r.ContentLength, sha256.Sum256(b)))
		for len(b) > 0 {
			n := min(len(b), 50_000)
			_, _ = w.Write(b[:n])
			if !r.URL.Query().Has("length") {
				w.(http.Flusher).Flush()
			}
			b = b[n:]
		}
	}))
	for _, size := range []int{0, 1, 100, 16 << 10, 64<<10 - 1, 64 << 10, 1 << 20, 10 << 20} {
		for _, v := range []string{"length", "chunks"} {
			t.Run(fmt.Sprintf("%d bytes in %s", size, v), func(t *testing.T) {
				body := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
				var rd io.Reader = bytes.NewReader(body)
				length := int64(size)
				if v == "chunks" {
					rd, length = io.MultiReader(rd), -1
				}
				resp, err := client.Post("http://"+addr+"/?"+v, "x/y", rd)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				got, err := io.ReadAll(resp.Body)
				if err != nil || !bytes.Equal(got, body) {
					t.Errorf("got %d bytes back, %v", len(got), err)
				}
				if want := fmt.Sprintf("POST %d %x", length, sha256.Sum256(body)); resp.Header.Get("X-Got") != want {
					t.Errorf("the server got %s, want %s", resp.Header.Get("X-Got"), want)
				}
			})
		}
	}
	if n := m.dialed.Load(); n > 2 {
		t.Errorf("%d connections were dialed for requests in a row", n)
	}
}

func TestMessagesKeepTheirMeaningThroughRealClientsAndServers(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/trailers", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Trailer", "X-Sum")
		fmt.Fprint(w, "body")
		w.Header().Set("X-Sum", r.Trailer.Get("X-Up")+"-down")
	})
	mux.HandleFunc("/hints", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</a.css>")
		w.WriteHeader(103)
		w.WriteHeader(200)
	})
	mux.HandleFunc("/expect", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body) // sends 100 Continue
		fmt.Fprint(w, len(b))
	})
	mux.HandleFunc("/refuse", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusExpectationFailed) })
	mux.HandleFunc("/204", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) })
	mux.HandleFunc("/304", func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Etag", `"a"`); w.WriteHeader(304) })
	mux.HandleFunc("/length", func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Content-Length", "1234") })
	mux.HandleFunc("/close", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		fmt.Fprint(w, "bye")
	})
	addr, client, _ := through(t, mux)
	do := func(method, path string, body io.Reader, edit func(*http.Request)) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, body)
		if err != nil {
			t.Fatal(err)
		}
		if edit != nil {
			edit(req)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(path, err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(path, err)
		}
		return resp, string(b)
	}
	resp, body := do("POST", "/trailers", io.MultiReader(strings.NewReader("x")), func(r *http.Request) { r.Trailer = http.Header{"X-Up": {"up"}} })
	if body != "body" || resp.Trailer.Get("X-Sum") != "up-down" {
		t.Errorf("trailers: %q %v", body, resp.Trailer)
	}
	var hints []string
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		hints = append(hints, fmt.Sprint(code, h.Get("Link")))
		return nil
	}}
	do("GET", "/hints", nil, func(r *http.Request) { *r = *r.WithContext(httptrace.WithClientTrace(r.Context(), trace)) })
	if len(hints) != 1 || hints[0] != "103</a.css>" {
		t.Errorf("interim: %v", hints)
	}
	expect := func(r *http.Request) { r.Header.Set("Expect", "100-continue") }
	if _, body = do("PUT", "/expect", strings.NewReader("12345"), expect); body != "5" {
		t.Errorf("expect: %q", body)
	}
	if resp, _ = do("PUT", "/refuse", strings.NewReader("12345"), expect); resp.StatusCode != 417 {
		t.Errorf("refused expectation: %d", resp.StatusCode)
	}
	if resp, _ = do("GET", "/204", nil, nil); resp.StatusCode != 204 {
		t.Errorf("204: %d", resp.StatusCode)
	}
	if resp, _ = do("GET", "/304", nil, nil); resp.StatusCode != 304 || resp.Header.Get("Etag") != `"a"` {
		t.Errorf("304: %d %v", resp.StatusCode, resp.Header)
	}
	if resp, _ = do("HEAD", "/length", nil, nil); resp.ContentLength != 1234 {
		t.Errorf("HEAD: %d", resp.ContentLength)
	}
	if resp, body = do("GET", "/close", nil, nil); body != "bye" || resp.Close {
		t.Errorf("the server's Connection: close became the client's: %q %v", body, resp.Close)
	}
}

func TestABrokenResponseNeverLooksWhole(t *testing.T) {
	for _, v := range []struct{ name, raw string }{
		{"length, FIN", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"},
		{"chunks, FIN", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"},
		{"length, RST", "RHTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"},
		{"to the end, RST", "RHTTP/1.1 200 OK\r\n\r\nhalf"},
	} {
		t.Run(v.name, func(t *testing.T) {
			raw, reset := strings.CutPrefix(v.raw, "R")
			addr, client, _ := through(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				_, _ = io.WriteString(c, raw)
				if reset {
					time.Sleep(50 * time.Millisecond)
					_ = c.(*net.TCPConn).SetLinger(0)
				}
			}))
			resp, err := client.Get("http://" + addr + "/")
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			if err == nil {
				t.Error("the client took half a response for a whole one")
			}
		})
	}
}

func TestTheServerLearnsWithinAMomentThatTheClientIsGone(t *testing.T) {
	gone, begun := make(chan struct{}), make(chan struct{})
	addr, client, _ := through(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		close(gone)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+addr+"/", nil)
	go func() { <-begun; cancel() }()
	if _, err := client.Do(req); err == nil {
		t.Error("the request was not cancelled")
	}
	select {
	case <-gone:
	case <-time.After(2 * time.Second):
		t.Error("the server did not hear of it in 2 s")
	}
}

func TestWebSocketsPassThroughRealClientsAndServers(t *testing.T) {
	addr, _, _ := through(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		c.SetReadLimit(4 << 20)
		for {
			kind, b, err := c.Read(r.Context())
			if err != nil {
				return
			}
			if err := c.Write(r.Context(), kind, b); err != nil {
				t.Error(err)
			}
		}
	}))
	c, _, err := websocket.Dial(t.Context(), "ws://"+addr+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	c.SetReadLimit(4 << 20)
	for _, size := range []int{0, 1, 126, 70_000, 3 << 20} {
		want := bytes.Repeat([]byte{7}, size)
		if err := c.Write(t.Context(), websocket.MessageBinary, want); err != nil {
			t.Fatal(err)
		}
		if _, got, err := c.Read(t.Context()); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes came back as %d, %v", size, len(got), err)
		}
	}
	if err := c.Close(websocket.StatusNormalClosure, "done"); err != nil {
		t.Error(err)
	}
}

func TestManyClientsAtOnce(t *testing.T) {
	addr, client, m := through(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(b)
	}))
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for j := range 50 {
				want := strings.Repeat(fmt.Sprint(i), j*j*10)
				resp, err := client.Post("http://"+addr+"/", "", strings.NewReader(want))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || string(got) != want {
					t.Errorf("%d bytes came back as %d, %v", len(want), len(got), err)
				}
			}
		})
	}
	wg.Wait()
	if n := m.dialed.Load(); n > 200 {
		t.Errorf("1600 requests of 32 clients took %d connections", n)
	}
}

func TestASlowReaderHoldsItsServerBack(t *testing.T) {
	sent := make(chan int, 1)
	addr, _, _ := through(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := 0
		for n < 256<<20 {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
			m, err := w.Write(make([]byte, 64<<10))
			if n += m; err != nil {
				break
			}
		}
		sent <- n
	}))
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if n := <-sent; n >= 64<<20 { // what the kernel's buffers on the way take is a few MiB
		t.Errorf("the server could send %d bytes to a client that reads none", n)
	}
}

func TestARefusalOutlivesTheBytesThatFollowTheFault(t *testing.T) {
	addr, _, _ := through(t, http.NotFoundHandler())
	for range 5 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nX: "+strings.Repeat("a", 4<<20)); err != nil {
			t.Error("writing on after the fault:", err) // a RST, which other kernels let overtake the response
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != 431 {
			t.Errorf("got %v, %v", resp, err)
		}
		c.Close()
	}
}
