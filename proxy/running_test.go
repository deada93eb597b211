package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/meshctl/meshctl/internal/ports"
)

func TestMain(m *testing.M) {
	if os.Getenv("PROXY_TEST_CHILD") != "" {
		if err := startHungry(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("fine")
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// running is a proxy that runs, on loopback ports of the kernel's choice.
type running struct {
	t       *testing.T
	p       *Proxy
	log     *lockedBuffer
	cancel  context.CancelFunc
	now     chan struct{}
	done    chan error
	stopped sync.Once
	err     error
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func loopback() []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")} }

// testConfig listens on ports of the kernel's choice and sends everything to
// target.
func testConfig(target netip.AddrPort) (Config, *lockedBuffer) {
	cfg, log := DefaultConfig(), &lockedBuffer{}
	cfg.InboundListen, cfg.OutboundListen, cfg.AdminListen = loopback(), loopback(), loopback()
	cfg.FixedTarget, cfg.OpaquePorts = target, ports.Set{}
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	return cfg, log
}

func run(t *testing.T, target netip.AddrPort, set func(*Config)) *running {
	t.Helper()
	cfg, log := testConfig(target)
	if set != nil {
		set(&cfg)
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{t: t, p: p, log: log, cancel: cancel, now: make(chan struct{}), done: make(chan error, 1)}
	go runProxy(ctx, r)
	t.Cleanup(func() { r.kill() })
	return r
}

func runProxy(ctx context.Context, r *running) { r.done <- r.p.Run(ctx, r.now) }

// kill ends the proxy without grace and returns what Run returned.
func (r *running) kill() error {
	r.stopped.Do(func() {
		r.cancel()
		close(r.now)
		r.err = r.wait()
	})
	return r.err
}

// wait waits for the end of Run.
func (r *running) wait() error {
	r.t.Helper()
	select {
	case err := <-r.done:
		r.done <- err
		return err
	case <-time.After(10 * time.Second):
		r.t.Fatal("Run does not return")
		return nil
	}
}

func (r *running) inbound() string  { return r.p.cfg.InboundListen[0].String() }
func (r *running) outbound() string { return r.p.cfg.OutboundListen[0].String() }
func (r *running) admin() string    { return r.p.cfg.AdminListen[0].String() }

// get reads a path of the admin server.
func (r *running) get(path string) (status int, body string) {
	r.t.Helper()
	return r.do(http.MethodGet, path)
}

func (r *running) do(method, path string) (status int, body string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, "http://"+r.admin()+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := (&http.Client{Transport: transport, Timeout: 5 * time.Second}).Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// metric waits until a line of /metrics holds all words and ends with value.
func (r *running) metric(value string, words ...string) {
	r.t.Helper()
	var page string
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		_, page = r.get("/metrics")
		for line := range strings.Lines(page) {
			if strings.HasSuffix(line, " "+value+"\n") && holdsAll(line, words) {
				return
			}
		}
	}
	r.t.Errorf("no metric with %q is %s in\n%s", words, value, page)
}

func holdsAll(line string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(line, w) {
			return false
		}
	}
	return true
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// expect reads a line.
func expect(t *testing.T, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v; want %q", got, err, want)
	}
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// serve runs handle for every connection to a listener, until the end of the
// test.
func serve(t *testing.T, handle func(net.Conn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			serving.Go(func() { defer c.Close(); handle(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		serving.Wait()
	})
	return netip.MustParseAddrPort(l.Addr().String())
}

func echo(c net.Conn) { _, _ = io.Copy(c, c) }

// mail greets and answers each line.
func mail(c net.Conn) {
	if _, err := io.WriteString(c, "220 mail ESMTP\r\n"); err != nil {
		return
	}
	for lines := bufio.NewScanner(c); lines.Scan(); {
		if _, err := io.WriteString(c, "250 "+lines.Text()+"\r\n"); err != nil {
			return
		}
	}
}

// web serves HTTP/1 and HTTP/2 without TLS. Requests for /slow wait for release.
func web(t *testing.T, release <-chan struct{}) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-release
		}
		_, _ = io.WriteString(w, r.Proto)
	}), Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		_ = s.Close()
		serving.Wait()
	})
	return netip.MustParseAddrPort(l.Addr().String())
}

// client makes an HTTP client that speaks HTTP/1, or HTTP/2 at once, to addr
// whatever the URL says.
func client(t *testing.T, addr string, h2 bool) *http.Client {
	t.Helper()
	tr := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}}
	tr.Protocols.SetHTTP1(!h2)
	tr.Protocols.SetUnencryptedHTTP2(h2)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 10 * time.Second}
}

func fetch(t *testing.T, c *http.Client, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://app.example"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// openFDs counts the descriptors of this process.
func openFDs(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
