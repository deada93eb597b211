package targets

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/meshctl/meshctl/integration/lab"
)

// backend is a pod of a Service that counts what it gets.
type backend struct {
	name string
	got  atomic.Int64
	busy atomic.Int64
	stop func() // ends its listener and all of its connections

	traces sync.Map // trace ids of the requests that have come
}

// trace is a traceparent of the i-th request, and the id in it.
func trace(i int) (parent, id string) {
	id = fmt.Sprintf("%032x", i)
	return "00-" + id + "-00f067aa0ba902b7-01", id
}

// hear notes that a request has come.
func (b *backend) hear(traceParent string) {
	b.got.Add(1)
	if len(traceParent) == 55 {
		b.traces.Store(traceParent[3:35], true)
	}
}

// heard reports whether that request has come.
func (b *backend) heard(id string) bool {
	_, ok := b.traces.Load(id)
	return ok
}

// heard is what a backend tells of a request.
type heard struct {
	Backend, Method, Host, Path string
	Header                      http.Header
}

// httpBackend serves HTTP/1 and HTTP/2 with prior knowledge at a pod's address.
// It tells what it heard, after delay. answer, if set, may answer instead.
func httpBackend(t testing.TB, n *lab.Net, name, pod string, delay time.Duration, answer func(http.ResponseWriter, *http.Request) bool) *backend {
	t.Helper()
	b := &backend{name: name}
	var versions http.Protocols
	versions.SetHTTP1(true)
	versions.SetUnencryptedHTTP2(true)
	s := &http.Server{Protocols: &versions, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.hear(r.Header.Get("Traceparent"))
		b.busy.Add(1)
		defer b.busy.Add(-1)
		time.Sleep(delay)
		if answer != nil && answer(w, r) {
			return
		}
		w.Header().Set("backend", name)
		_ = json.NewEncoder(w).Encode(heard{name, r.Method, r.Host, r.URL.RequestURI(), r.Header}) // the client may have gone
	})}
	l := n.Peer.Listen(t, netip.MustParseAddrPort(pod))
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	b.stop = func() { s.Close() }
	t.Cleanup(func() {
		s.Close()
		if err := <-done; err != http.ErrServerClosed {
			t.Errorf("backend %s: %v", name, err)
		}
	})
	return b
}

// grpcBackend is the interoperability test server, counted.
func grpcBackend(t testing.TB, n *lab.Net, name, pod string, delay time.Duration) *backend {
	t.Helper()
	b := &backend{name: name}
	s := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, call grpc.UnaryHandler) (any, error) {
		b.hear(strings.Join(metadata.ValueFromIncomingContext(ctx, "traceparent"), ""))
		b.busy.Add(1)
		defer b.busy.Add(-1)
		time.Sleep(delay)
		return call(ctx, req)
	}))
	testgrpc.RegisterTestServiceServer(s, interop.NewTestServer())
	l := n.Peer.Listen(t, netip.MustParseAddrPort(pod))
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	b.stop = s.Stop
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Errorf("backend %s: %v", name, err)
		}
	})
	return b
}
