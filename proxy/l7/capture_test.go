package l7

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// tap dials connections and keeps what passes over each, in order.
type tap struct {
	mu    sync.Mutex
	conns []*tapped
}

// tapped is one client's connection. What the client writes is kept before it is
// written, what it reads after it was read: so it is what a proxy would see.
type tapped struct {
	net.Conn
	mu   sync.Mutex
	talk talk
}

func (p *tap) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &tapped{Conn: nc}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, c)
	return c, nil
}

func (c *tapped) keep(e said) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.talk = append(c.talk, e)
}

func (c *tapped) Write(b []byte) (int, error) {
	c.keep(said{'C', string(b)})
	return c.Conn.Write(b)
}

func (c *tapped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.keep(said{'S', string(b[:n])})
	}
	if err == io.EOF {
		c.keep(serverFIN)
	}
	return n, err
}

// observe replays every connection and adds up what was counted.
func (p *tap) observe(t *testing.T, make func(Recorder) Observer) map[string]int {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := map[string]int{}
	for _, c := range p.conns {
		c.mu.Lock()
		out := c.talk.observeLong(t, make)
		c.mu.Unlock()
		if out.State.Phase == Lost {
			t.Errorf("lost: %v", out.State)
		}
		if len(out.Record.Requests) != len(out.Record.Responses) {
			t.Errorf("%d requests, %d responses", len(out.Record.Requests), len(out.Record.Responses))
		}
		for _, r := range out.Record.Responses {
			sum[brief(r)]++
		}
	}
	return sum
}

// serveHTTP answers in every way that net/http has.
func serveHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/short":
		io.WriteString(w, strings.Repeat("a", 100))
	case "/flushed":
		for range 3 {
			io.WriteString(w, "part")
			w.(http.Flusher).Flush()
		}
	case "/trailers":
		w.Header().Set("Trailer", "X-Sum")
		io.WriteString(w, "body")
		w.(http.Flusher).Flush()
		w.Header().Set("X-Sum", "1")
	case "/hints":
		w.Header().Set("Link", "</a>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusAccepted)
	case "/echo":
		io.Copy(w, r.Body)
	case "/early":
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	case "/close":
		w.Header().Set("Connection", "close")
		io.WriteString(w, "bye")
	case "/none":
		w.WriteHeader(http.StatusNoContent)
	case "/fail":
		http.Error(w, "no", http.StatusServiceUnavailable)
	case "/large":
		io.WriteString(w, strings.Repeat("0123456789", 30000))
	}
}

// ask sends requests until each path was asked for with each method, and
// returns what the client saw.
func ask(t *testing.T, client *http.Client, url string) map[string]int {
	t.Helper()
	want := map[string]int{}
	for _, path := range []string{"/short", "/flushed", "/trailers", "/hints", "/echo", "/early", "/close", "/none", "/fail", "/large"} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "OPTIONS"} {
			var body io.Reader
			if method == "POST" {
				body = strings.NewReader(strings.Repeat("post", 300))
			}
			if method == "PUT" {
				body = io.MultiReader(strings.NewReader("chunk"), strings.NewReader("chunk")) // of no known length
			}
			q, err := http.NewRequestWithContext(t.Context(), method, url+path, body)
			if err != nil {
				t.Fatal(err)
			}
			if method == "POST" {
				q.Header.Set("Expect", "100-continue")
			}
			p, err := client.Do(q)
			if err != nil {
				t.Fatal(method, path, err)
			}
			io.Copy(io.Discard, p.Body)
			p.Body.Close()
			want[brief(Response{Method: parseMethod([]byte(method)), Status: p.StatusCode, Success: p.StatusCode < 500})]++
		}
	}
	return want
}

func TestTrafficOfNetHTTPIsCounted(t *testing.T) {
	for name, make := range map[string]func(Recorder) Observer{"HTTP/1": newH1, "HTTP/2": newH2} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			var protocols http.Protocols
			protocols.SetHTTP1(name == "HTTP/1")
			protocols.SetUnencryptedHTTP2(name == "HTTP/2")
			server := httptest.NewUnstartedServer(http.HandlerFunc(serveHTTP))
			server.Config.Protocols = &protocols
			server.Start()
			var p tap
			transport := &http.Transport{DialContext: p.dial, Protocols: &protocols}
			want := ask(t, &http.Client{Transport: transport}, server.URL)
			transport.CloseIdleConnections()
			server.Close()
			if d := cmp.Diff(want, p.observe(t, make)); d != "" {
				t.Errorf("-client +observer:\n%s", d)
			}
		})
	}
}

func TestConcurrentStreamsOfNetHTTPAreCounted(t *testing.T) {
	defer goleak.VerifyNone(t)
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server := httptest.NewUnstartedServer(http.HandlerFunc(serveHTTP))
	server.Config.Protocols = &protocols
	server.Start()
	var p tap
	transport := &http.Transport{DialContext: p.dial, Protocols: &protocols}
	client := &http.Client{Transport: transport}
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			p, err := client.Get(server.URL + []string{"/short", "/flushed", "/trailers", "/fail", "/hints"}[i%5])
			if err != nil {
				t.Error(err)
				return
			}
			io.Copy(io.Discard, p.Body)
			p.Body.Close()
		})
	}
	all.Wait()
	transport.CloseIdleConnections()
	server.Close()
	want := map[string]int{"GET 200 success": 30, "GET 503 failure": 10, "GET 202 success": 10}
	if d := cmp.Diff(want, p.observe(t, newH2)); d != "" {
		t.Errorf("-client +observer:\n%s", d)
	}
}

// calls counts the calls of a gRPC client by how they ended.
type calls struct {
	mu    sync.Mutex
	ended map[codes.Code]int
}

func (c *calls) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (c *calls) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c *calls) HandleConn(context.Context, stats.ConnStats)                       {}
func (c *calls) HandleRPC(_ context.Context, s stats.RPCStats) {
	if end, ok := s.(*stats.End); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		code := status.Code(end.Error)
		if end.Error == io.EOF {
			code = codes.OK
		}
		c.ended[code]++
	}
}

func TestGRPCCallsAreCounted(t *testing.T) {
	defer goleak.VerifyNone(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	testgrpc.RegisterTestServiceServer(server, interop.NewTestServer())
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()

	var p tap
	seen := calls{ended: map[codes.Code]int{}}
	cc, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStatsHandler(&seen),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return p.dial(ctx, "tcp", addr) }))
	if err != nil {
		t.Fatal(err)
	}
	client := testgrpc.NewTestServiceClient(cc)
	for _, do := range []func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption){
		interop.DoEmptyUnaryCall, interop.DoLargeUnaryCall, interop.DoClientStreaming, interop.DoServerStreaming, interop.DoPingPong,
		interop.DoEmptyStream, interop.DoStatusCodeAndMessage, interop.DoSpecialStatusMessage, interop.DoCustomMetadata,
		interop.DoCancelAfterBegin, interop.DoCancelAfterFirstResponse, interop.DoTimeoutOnSleepingServer,
	} {
		do(t.Context(), client)
	}
	interop.DoUnimplementedMethod(t.Context(), cc)
	cc.Close()
	server.Stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	compareCalls(t, seen.ended, p.observe(t, newH2))
}

// compareCalls compares what the client says of its calls with what passed. A
// call that is given up, by the client or by a server that reads its deadline,
// has no status on the wire or one that came too late.
// Of those some never get as far as the wire.
func compareCalls(t *testing.T, client map[codes.Code]int, passed map[string]int) {
	t.Helper()
	left := maps.Clone(client)
	given := client[codes.Canceled] + client[codes.DeadlineExceeded]
	delete(left, codes.Canceled)
	delete(left, codes.DeadlineExceeded)
	for line, n := range passed {
		if strings.HasSuffix(line, ErrCancel) || strings.HasSuffix(line, ErrReset) || strings.Contains(line, "grpc 1 ") || strings.Contains(line, "grpc 4 ") {
			given -= n
			continue
		}
		var code codes.Code
		var word string
		if _, err := fmt.Sscanf(line, "POST 200 grpc %d %s", &code, &word); err != nil || left[code] != n || (word == "success") != Success(200, true, int(code)) {
			t.Errorf("%d times %q passed; the client saw %v", n, line, client)
		}
		delete(left, code)
	}
	if len(left) > 0 || given < 0 || client[codes.OK] == 0 || client[codes.Unknown] == 0 || client[codes.Unimplemented] == 0 {
		t.Errorf("the client saw %v, what passed was %v", client, slices.Sorted(maps.Keys(passed)))
	}
}
