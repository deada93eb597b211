// Package controller serves Linkerd's destination and policy APIs from a picture of
// a cluster: meshctl's proxies ask it, and Linkerd's can. What many streams ask for
// is computed once, when something of it has changed, and a stream that is slow to
// read gets the latest state and no backlog. There is no leader: every replica
// serves what it sees. It reads no objects: see proxy/discovery.
package controller

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/discovery/destination/wire"
	"github.com/meshctl/meshctl/proxy/policy"
)

// Picture is what is served. It is made with cluster.Config.Everyone.
type Picture interface {
	// Read lets f look at the picture, which does not change meanwhile.
	Read(f func(*cluster.Snapshot))
}

// Config says what is served, and how.
type Config struct {
	Picture Picture
	// Synced is closed once the picture is whole: who asks before waits. Nil: it is.
	Synced <-chan struct{}
	// Policy says who may call where nothing else does; its Pod is left empty.
	Policy policy.Config
	// Wire says how Services are named.
	Wire wire.Config
	Log  *slog.Logger // nil: none
}

// Server serves the APIs. See Register and Changed.
type Server struct {
	cfg    Config
	hub    *hub
	tables tables
	done   chan struct{}
	once   sync.Once

	streams [kinds]atomic.Int64
	sent    atomic.Uint64
	updates atomic.Uint64 // calls of Changed
	took    atomic.Int64  // nanoseconds in all of them
	worked  atomic.Uint64 // answers computed
}

// New makes a Server.
func New(cfg Config) *Server {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, done: make(chan struct{})}
	s.hub = newHub(s)
	return s
}

// NewGRPC makes a grpc.Server with the APIs. opts come in addition.
func (s *Server) NewGRPC(opts ...grpc.ServerOption) *grpc.Server {
	g := grpc.NewServer(append([]grpc.ServerOption{
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.MaxConcurrentStreams(100_000), grpc.MaxRecvMsgSize(64 << 10),
		grpc.ConnectionTimeout(10 * time.Second),
	}, opts...)...)
	destination.RegisterDestinationServer(g, destinationAPI{s: s})
	outbound.RegisterOutboundPoliciesServer(g, outboundAPI{s: s})
	inbound.RegisterInboundServerPoliciesServer(g, inboundAPI{s: s})
	return g
}

// Changed has every answer that the change touches computed again, and sent where
// it is another. The picture has changed before.
func (s *Server) Changed(change *discovery.Change) {
	if change.IsZero() {
		return
	}
	started := time.Now()
	s.hub.changed(change)
	s.updates.Add(1)
	s.took.Add(int64(time.Since(started)))
}

// Close ends all streams: clients go to another replica.
func (s *Server) Close() { s.once.Do(func() { close(s.done) }) }

// await waits until there is something to say.
func (s *Server) await(ctx context.Context) error {
	if s.cfg.Synced == nil {
		return nil
	}
	select {
	case <-s.cfg.Synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.done:
		return errEnding
	}
}

// hub holds what is being watched.
type hub struct {
	server *Server
	mu     sync.Mutex
	topics map[key]*topic
}

func newHub(s *Server) *hub { return &hub{server: s, topics: map[key]*topic{}} }

// watch returns the topic of k, computed, and holds it until release.
func (h *hub) watch(k key) *topic {
	h.mu.Lock()
	t := h.topics[k]
	if t == nil {
		t = &topic{key: k, hub: h, next: make(chan struct{})}
		h.topics[k] = t
	}
	t.watchers++
	h.mu.Unlock()
	t.first.Do(func() { h.server.cfg.Picture.Read(t.compute) })
	return t
}

func (h *hub) release(t *topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.watchers--; t.watchers == 0 {
		delete(h.topics, t.key)
	}
}

// batch is how many answers are computed while the picture is held.
const batch = 128

func (h *hub) changed(change *discovery.Change) {
	h.mu.Lock()
	all := make([]*topic, 0, len(h.topics))
	for _, t := range h.topics {
		all = append(all, t)
	}
	h.mu.Unlock()
	touched := all[:0]
	for _, t := range all {
		if t.touched(change) {
			touched = append(touched, t)
		}
	}
	for len(touched) > 0 {
		n := min(batch, len(touched))
		h.server.cfg.Picture.Read(func(s *cluster.Snapshot) {
			for _, t := range touched[:n] {
				t.compute(s)
			}
		})
		touched = touched[n:]
	}
}

// size is how many topics are watched.
func (h *hub) size() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.topics)
}

// Workload is who asks, as far as it says so.
type Workload struct{ Namespace, Pod, Node string }

// parseWorkload reads Linkerd's context tokens and workload names: JSON, or
// "namespace:pod". What cannot be read is nobody: then only what counts for all
// namespaces counts.
func parseWorkload(text string) Workload {
	if strings.HasPrefix(text, "{") {
		return parseToken(text)
	}
	namespace, pod, _ := strings.Cut(text, ":")
	return Workload{Namespace: strings.TrimPrefix(namespace, "ns:"), Pod: pod}
}
