package controller

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/discovery/destination"
	"github.com/meshctl/meshctl/proxy/discovery/file"
	"github.com/meshctl/meshctl/proxy/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is objects in a file, and replicas that serve them.
type world struct {
	t       *testing.T
	name    string
	reader  *file.Reader
	picture *Static
	mu      sync.Mutex
	servers []*Server
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, name: filepath.Join(t.TempDir(), "objects.yaml")}
	w.write("")
	w.reader = file.NewReader(file.Config{Paths: []string{w.name}, Cluster: cluster.Config{Everyone: true, Opaque: policy.DefaultOpaque()}})
	w.picture = NewStatic(w.load())
	return w
}

func (w *world) write(objects string) {
	if err := os.WriteFile(w.name, []byte(objects), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) load() *cluster.Snapshot {
	s, report := w.reader.Load()
	if err := report.Err(); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// set makes objects all that there are, for all replicas.
func (w *world) set(objects string) {
	w.write(objects)
	w.picture.Replace(w.load())
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.servers {
		s.Changed(&discovery.Change{All: true})
	}
}

// replica is one server.
type replica struct {
	addr string
	api  *Server
	g    *grpc.Server
	done chan struct{}
	once sync.Once
}

// kill ends a replica at once, with all its connections.
func (r *replica) kill() {
	r.once.Do(func() { r.api.Close(); r.g.Stop(); <-r.done })
}

// serve starts a replica; addr is of one that was killed, or 127.0.0.1:0.
func (w *world) serve(addr string, wrap func(net.Listener) net.Listener) *replica {
	w.t.Helper()
	var l net.Listener
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		var err error
		if l, err = net.Listen("tcp", addr); err == nil {
			break
		}
		if time.Now().After(end) {
			w.t.Fatal(err)
		}
	}
	r := &replica{addr: l.Addr().String(), api: New(Config{Picture: w.picture}), done: make(chan struct{})}
	if wrap != nil {
		l = wrap(l)
	}
	r.g = r.api.NewGRPC()
	go func() { defer close(r.done); _ = r.g.Serve(l) }()
	w.mu.Lock()
	w.servers = append(w.servers, r.api)
	w.mu.Unlock()
	w.t.Cleanup(r.kill)
	return r
}

// client starts a client in a namespace; what cfg does not say is the default.
func client(t *testing.T, cfg destination.Config) (*destination.Client, *discovery.Cache) {
	t.Helper()
	if cfg.Opaque.String() == "" {
		cfg.Opaque = policy.DefaultOpaque()
	}
	c, err := destination.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cache := discovery.NewCache(discovery.CacheConfig{Idle: cfg.Idle}, c)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); c.Run(ctx, cache) }()
	t.Cleanup(func() { stop(); <-ended })
	return c, cache
}

func at(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

// eventually waits until what is true, for as long as a busy machine may take.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not happen: %s", what)
		}
	}
}

func listenOn(text string) []netip.AddrPort { return []netip.AddrPort{at(text)} }
