package admin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meshctl/meshctl/integration/lab"
)

// serve runs a on l until the test ends.
func serve(t *testing.T, a *Admin, l net.Listener) {
	t.Helper()
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := a.Serve(l); err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	t.Cleanup(func() {
		if err := a.Shutdown(context.Background()); err != nil {
			t.Errorf("shutting down: %v", err)
		}
		serving.Wait()
	})
}

// get sends one request on c and returns the status and the body.
func get(t *testing.T, c net.Conn, path, host string) (int, string) {
	t.Helper()
	defer c.Close()
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, host)
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return r.StatusCode, string(body)
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDualStackListenerTakesBothLoopbacksAsLoopback(t *testing.T) {
	l, err := net.Listen("tcp", "[::]:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, build(t, configured()), l)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, ip := range []string{"127.0.0.1", "::1"} {
		addr := net.JoinHostPort(ip, port)
		if code, body := get(t, dial(t, addr), "/config", addr); code != 200 {
			t.Errorf("from %s: %d %s", ip, code, body)
		}
	}
}

// dualStack listens on the admin port for IPv4 too, as the proxy does.
func dualStack(t *testing.T, ns *lab.Namespace) (l net.Listener) {
	t.Helper()
	err := ns.Do(func() (err error) {
		l, err = net.Listen("tcp", "[::]:4191")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestOtherMachinesSeeOnlyMetricsAndProbes(t *testing.T) {
	pair := lab.Pair(t)
	serve(t, build(t, configured()), dualStack(t, pair.Pod))
	for _, to := range []netip.Addr{lab.PodV4, lab.PodV6} {
		for path, want := range map[string]int{"/metrics": 200, "/live": 200, "/ready": 200, "/config": 403, "/connections": 403, "/shutdown": 403, "/nothing": 403} {
			addr := netip.AddrPortFrom(to, 4191)
			c, err := pair.Peer.Dial(lab.Owner{}, netip.AddrPort{}, addr, 5*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if code, body := get(t, c, path, addr.String()); code != want {
				t.Errorf("%s at %s: %d %s, want %d", path, addr, code, body, want)
			}
		}
	}
}

func TestShutdownLetsAnswersEndAndThenCutsThem(t *testing.T) {
	for _, patient := range []bool{true, false} {
		t.Run(fmt.Sprintf("patient=%v", patient), func(t *testing.T) {
			entered, leave := make(chan struct{}), make(chan struct{})
			cfg := configured()
			cfg.Metrics = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(entered)
				select {
				case <-leave:
				case <-r.Context().Done():
				}
				io.WriteString(w, "late\n")
			})
			a := build(t, cfg)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan error, 1)
			go func() { served <- a.Serve(l) }()
			c := dial(t, l.Addr().String())
			defer c.Close()
			fmt.Fprintf(c, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
			<-entered
			ctx, cancel := context.WithCancel(context.Background())
			if patient {
				go func() { time.Sleep(20 * time.Millisecond); close(leave) }()
			} else {
				cancel()
			}
			err = a.Shutdown(ctx)
			cancel()
			if patient != (err == nil) || (!patient && !errors.Is(err, context.Canceled)) {
				t.Errorf("Shutdown: %v", err)
			}
			if err := <-served; err != nil {
				t.Errorf("Serve: %v", err)
			}
			body, _ := io.ReadAll(c)
			if got := strings.HasSuffix(string(body), "late\n"); got != patient {
				t.Errorf("the answer under way: %q", body)
			}
			if _, err := net.DialTimeout("tcp", l.Addr().String(), time.Second); err == nil {
				t.Error("the listener is still open")
			}
		})
	}
}

func TestServeSaysWhyItEnds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := build(t, configured()).Serve(l); !errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("Serve on a closed listener: %v", err)
	}
}

func TestHeadersOverTheBoundAreRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, build(t, configured()), l)
	code, _ := get(t, dial(t, l.Addr().String()), "/live", "a\r\nX: "+strings.Repeat("x", maxHeaderBytes+4096))
	if code != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%d, want 431", code)
	}
}

// pipes is a listener of in-memory connections, which synctest can time.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// local is a pipe whose peer looks like loopback.
type local struct{ net.Conn }

func (local) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(loopback))
}

// piped serves on a pipe and returns the client's end.
func piped(t *testing.T, cfg Config) net.Conn {
	l := &pipes{accepted: make(chan net.Conn, 1), closed: make(chan struct{})}
	serve(t, build(t, cfg), l)
	client, server := net.Pipe()
	t.Cleanup(func() { client.Close() })
	l.accepted <- local{server}
	return client
}

func TestClientThatDoesNotFinishItsHeadIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := piped(t, configured())
		start := time.Now()
		fmt.Fprintf(c, "GET /live HTTP/1.1\r\nHost: a\r\n")
		if _, err := io.ReadAll(c); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != readHeaderTimeout {
			t.Errorf("cut after %v, want %v", took, readHeaderTimeout)
		}
	})
}

func TestIdleClientIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := piped(t, configured())
		fmt.Fprintf(c, "GET /live HTTP/1.1\r\nHost: a\r\n\r\n")
		start := time.Now()
		if body, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(body), "live\n") {
			t.Errorf("%q, %v", body, err)
		}
		if took := time.Since(start); took != idleTimeout {
			t.Errorf("cut after %v, want %v", took, idleTimeout)
		}
	})
}

func TestClientThatDoesNotReadIsCutAndTheWalkStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configured()
		stopped := make(chan time.Time, 1)
		cfg.Connections = func(yield func(Connection) bool) {
			for yield(Connection{Direction: "inbound"}) {
			}
			stopped <- time.Now()
		}
		c := piped(t, cfg)
		start := time.Now()
		fmt.Fprintf(c, "GET /connections HTTP/1.1\r\nHost: %s\r\n\r\n", here)
		if took := (<-stopped).Sub(start); took != writeTimeout {
			t.Errorf("cut after %v, want %v", took, writeTimeout)
		}
	})
}

func TestSlowReaderOfAProfileIsNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := configured()
		cfg.Profiles = true
		c := piped(t, cfg)
		fmt.Fprintf(c, "GET /debug/pprof/ HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", here)
		time.Sleep(2 * writeTimeout)
		if body, err := io.ReadAll(c); err != nil || !strings.Contains(string(body), "goroutine") {
			t.Errorf("%d bytes, %v", len(body), err)
		}
	})
}

func TestProbeFindsASeatAmongIdleConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, build(t, configured()), l)
	var idle []net.Conn
	for range maxConnections + 50 {
		c := dial(t, l.Addr().String())
		defer c.Close()
		fmt.Fprintf(c, "GET /live HTTP/1.1\r\nHost: a\r\n\r\n")
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("connection %d: %v", len(idle), err)
		}
		r.Body.Close()
		idle = append(idle, c)
	}
	if code, _ := get(t, dial(t, l.Addr().String()), "/ready", "a"); code != 200 {
		t.Errorf("the probe got %d", code)
	}
	closed := 0
	for _, c := range idle {
		c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := io.Copy(io.Discard, c); err == nil {
			closed++
		}
	}
	if closed < 50 || closed > 52 {
		t.Errorf("%d idle connections were closed, want about 51", closed)
	}
}
