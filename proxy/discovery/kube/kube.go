// Package kube watches a Kubernetes API server and keeps a picture of what its
// objects say of destinations: a discovery.Source that changes in place. Objects
// are read by package file's code, so that files and the API say the same, and
// forgotten except for what package cluster wants to know.
//
// While the API cannot be reached the last picture stays. Before the first picture
// is whole, every address is only itself, as without discovery.
package kube

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/discovery/file"
)

// Config says which API server is watched, and for whom.
type Config struct {
	// Kubeconfig is a file as kubectl has it; empty: the pod's own service account,
	// whose token is read again when it has been rotated.
	Kubeconfig string
	Context    string // of the file; empty: its current one
	// REST is used instead of both, for tests.
	REST *rest.Config

	Cluster cluster.Config
	Log     *slog.Logger // nil: none

	// Told, if set, hears of every problem of every object that is read, on any
	// goroutine.
	Told func(file.Problem)

	// Settle is how long changes are collected; 0: 50 ms.
	Settle time.Duration
	// Patience is for how long from Open an answer waits for the first picture: it is
	// Pending. After that addresses are only themselves until there is one; 0: 3 s,
	// negative: none.
	Patience time.Duration
	// Retry is the longest pause between tries to reach the API server; 0: 10 s.
	Retry time.Duration
	// Look is how often it is looked whether a kind that the API server does not
	// have is there now; 0: 15 s.
	Look time.Duration
}

// State is how much is known.
type State struct {
	Synced  bool          // the first picture is whole
	Age     time.Duration // for how long what is known may be out of date; 0: it is not
	Objects int
	Changes uint64 // of objects, that changed what is said
	Err     error  // the last failure, of the kind that has been failing longest; nil: none
}

// Source is the picture. Open makes one, Run keeps it up to date.
type Source struct {
	cfg    Config
	client *client
	live   *cluster.Live
	queue  *queue
	synced chan struct{}

	answers atomic.Bool // there is a picture, or it has been waited for long enough
	objects atomic.Int64
	changes atomic.Uint64

	mu    sync.Mutex
	kinds map[string]*kindState
	told  map[string]bool // problems of objects that are in the log
	since time.Time       // Open
}

// Open reads the configuration. It does not connect.
func Open(cfg Config) (*Source, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Settle <= 0 {
		cfg.Settle = 50 * time.Millisecond
	}
	if cfg.Patience == 0 {
		cfg.Patience = 3 * time.Second
	}
	if cfg.Retry <= 0 {
		cfg.Retry = 10 * time.Second
	}
	if cfg.Look <= 0 {
		cfg.Look = 15 * time.Second
	}
	c, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	s := &Source{
		cfg: cfg, client: c, live: cluster.NewLive(cfg.Cluster), queue: newQueue(), synced: make(chan struct{}),
		kinds: map[string]*kindState{}, told: map[string]bool{}, since: time.Now(),
	}
	s.answers.Store(cfg.Patience < 0)
	for _, k := range kinds() {
		s.kinds[k.name] = &kindState{lost: s.since}
	}
	return s, nil
}

// Find implements discovery.Source.
func (s *Source) Find(dst netip.AddrPort) discovery.View { return s.pending(s.live.Find(dst)) }

// In is the same for clients of a namespace, if Config.Cluster says Everyone.
func (s *Source) In(namespace string) discovery.Source { return in{s, s.live.In(namespace)} }

type in struct {
	source *Source
	live   discovery.Source
}

// Find implements discovery.Source.
func (i in) Find(dst netip.AddrPort) discovery.View { return i.source.pending(i.live.Find(dst)) }

// pending leaves an answer open while the first picture may still come soon.
func (s *Source) pending(v discovery.View) discovery.View {
	if s.answers.Load() {
		return v
	}
	v.Pending, v.Endpoints = true, nil
	return v
}

// Read lets f look at the picture, which does not change meanwhile. f must not keep
// it, nor take long.
func (s *Source) Read(f func(*cluster.Snapshot)) { s.live.Read(f) }

// Synced is closed when the first picture is whole.
func (s *Source) Synced() <-chan struct{} { return s.synced }

// Server is the address of the API server, for logs.
func (s *Source) Server() string { return s.client.host }

// Run watches until ctx ends, and calls changed, on one goroutine, after each
// change of the picture, with what it touches.
func (s *Source) Run(ctx context.Context, changed func(*discovery.Change)) {
	defer s.client.close()
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, k := range kinds() {
		watching.Go(func() { s.follow(ctx, k) })
	}
	s.apply(ctx, changed)
}

// apply takes what has been read into the picture. While the first lists come in,
// it waits until they are whole: a Service whose endpoints are not known yet would
// be one without endpoints.
func (s *Source) apply(ctx context.Context, changed func(*discovery.Change)) {
	pause, patience := time.NewTimer(0), time.NewTimer(max(s.cfg.Patience, 0))
	defer pause.Stop()
	defer patience.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-patience.C:
			s.giveUp(changed)
			continue
		case <-s.queue.some:
		}
		pause.Reset(s.cfg.Settle)
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		if !s.whole() {
			continue
		}
		began := time.Now()
		items := s.queue.take(s.live.Keys)
		change := s.live.Apply(items)
		s.objects.Store(int64(s.live.Len()))
		first := s.note()
		if first {
			s.answers.Store(true)
			change = &discovery.Change{All: true, Policies: true}
		}
		if !change.IsZero() {
			s.changes.Add(uint64(len(items)))
			changed(change)
		}
		if first {
			s.cfg.Log.Info("the picture of the cluster is whole", "api", s.client.host, "objects", s.live.Len(), "took", time.Since(s.since).Round(time.Millisecond))
			close(s.synced)
			debug.FreeOSMemory() // what the lists were read with, several times the picture
		}
		if change.All {
			s.rest(ctx, time.Since(began))
		}
	}
}

// giveUp ends the wait for the first picture: addresses are themselves now.
func (s *Source) giveUp(changed func(*discovery.Change)) {
	if s.answers.Swap(true) {
		return
	}
	s.cfg.Log.Warn("no picture of the cluster yet: until there is one, every address is only itself", "api", s.client.host, "err", s.State().Err)
	changed(&discovery.Change{All: true})
}

// rest bounds what new pictures cost: it waits ten times as long as one took, at
// most two seconds.
func (s *Source) rest(ctx context.Context, took time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(min(10*took, 2*time.Second)):
	}
}

// State says how much is known now.
func (s *Source) State() State {
	out := State{Objects: int(s.objects.Load()), Changes: s.changes.Load()}
	select {
	case <-s.synced:
		out.Synced = true
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, k := range s.kinds {
		if age := now.Sub(k.lost); !k.lost.IsZero() && age > out.Age {
			out.Age, out.Err = age, k.err
		}
	}
	return out
}

// Wait waits for the first picture, for as long as ctx lasts. The error says what
// has failed meanwhile.
func (s *Source) Wait(ctx context.Context) error {
	select {
	case <-s.synced:
		return nil
	case <-ctx.Done():
	}
	err := s.State().Err
	if err == nil {
		err = ctx.Err()
	}
	return fmt.Errorf("no picture of the cluster at %s: %w", s.client.host, err)
}
