// Package proxy composes the rooms below it into a running proxy: listeners,
// event loops, a forwarder for each direction, metrics and the admin server.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meshctl/meshctl/internal/footprint"
	"github.com/meshctl/meshctl/internal/listen"
	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/proxy/accesslog"
	"github.com/meshctl/meshctl/proxy/admin"
	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/detect"
	"github.com/meshctl/meshctl/proxy/forward"
	"github.com/meshctl/meshctl/proxy/identity"
	"github.com/meshctl/meshctl/proxy/inbound"
	"github.com/meshctl/meshctl/proxy/mesh"
	"github.com/meshctl/meshctl/proxy/metrics"
	"github.com/meshctl/meshctl/proxy/outbound"
	"github.com/meshctl/meshctl/proxy/policy"
)

// sweepMetrics is how often series that nothing uses are dropped.
const sweepMetrics = time.Minute

// settledAfter is when the start is over.
const settledAfter = 2 * time.Second

// Proxy is a proxy whose listeners are open. Run serves them.
type Proxy struct {
	cfg       Config
	sockets   listen.Sockets
	metrics   *metrics.Metrics
	loops     []*conn.Loop
	inbound   *forward.Forwarder
	outbound  *forward.Forwarder
	listeners []*conn.Listener // of loops[i], several a loop
	admin     *admin.Admin
	targets   targets
	authz     authorizer      // who may call
	access    *accesslog.Log  // nil: none
	identity  identity.Source // nil: none, and no mesh TLS
	shutdown  chan struct{}   // POST /shutdown
	once      sync.Once
	draining  atomic.Bool
}

// New opens the listeners. On an error nothing stays open.
func New(cfg Config) (*Proxy, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := &Proxy{cfg: cfg, shutdown: make(chan struct{}), sockets: listen.Sockets{}}
	if err := p.build(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *Proxy) build() error {
	if err := p.identify(); err != nil {
		return err
	}
	if err := p.open(); err != nil {
		return err
	}
	cfg := &p.cfg
	p.metrics = metrics.New(metrics.Config{
		Version: cfg.Version, SkipPackets: cfg.SkipPackets, Kubernetes: p.kubernetesNumbers(),
		Balancers: p.balancers, Pools: p.pools, AccessLog: p.accessLines,
		Identity: p.identityNumbers(), ControlPlane: p.destinationNumbers(),
	})
	for range runtime.GOMAXPROCS(0) {
		l, err := conn.NewLoop()
		if err != nil {
			return err
		}
		p.loops = append(p.loops, l)
	}
	if err := p.discover(); err != nil {
		return err
	}
	if err := p.authorize(); err != nil {
		return err
	}
	if err := p.route(); err != nil {
		return err
	}
	var err error
	p.admin, err = admin.New(p.adminConfig())
	return err
}

// close closes what no loop runs on and nothing serves.
func (p *Proxy) close() {
	p.sockets.Close()
	for _, l := range p.loops {
		l.Stop()
		_ = l.Run() // ends at once and closes what it has
	}
	p.closeIdentity()
	p.closeAccessLog()
}

// route sets up what decides about connections.
func (p *Proxy) route() error {
	locals := &conn.Locals{}
	declared := &policy.Policy{Opaque: p.cfg.OpaquePorts, Own: p.cfg.own(), Local: locals.Has}
	memory := &detect.Memory{}
	if p.cfg.AccessLog != 0 {
		p.access = accesslog.New(p.cfg.AccessLog, p.cfg.AccessLogTo)
	}
	fc := forward.Config{
		EarlyDialAfter: p.cfg.EarlyDialAfter,
		IdleTimeout:    p.cfg.IdleTimeout, HalfCloseTimeout: p.cfg.HalfCloseTimeout,
		MaxDetecting: p.cfg.MaxDetecting, FixedTarget: p.cfg.FixedTarget, AccessLog: p.access,
	}
	fc.Exchange.H1.MaxHead = p.cfg.MaxHead
	fc.Exchange.H2.MaxHead = p.cfg.MaxHead + p.cfg.MaxHead/2 // which counts 32 bytes more a field (RFC 9113, 6.5.2)
	own := &policy.Policy{Opaque: p.cfg.OpaquePorts, Own: p.cfg.own(), Local: locals.Has}
	if err := p.ownPorts(own); err != nil {
		return err
	}
	in, out := inbound.New(own), outbound.New(declared)
	out.Targets, out.Mediate = p.targets.resolver(), p.cfg.Intermediate
	if p.identity != nil {
		p.join(&fc)
		out.Mesh, in.Mediate = true, true
	}
	p.outbound = forward.New(p.cfg.with(p.cfg.Outbound, fc), metrics.Outbound, out, p.metrics, p.cfg.Log, memory, p.loops)
	if p.targets.cache != nil {
		p.targets.cache.Subscribe(p.outbound.Resolve) // it lives as long
	}
	who := p.inboundPolicy()
	fc.Policy, in.Ports = who, who
	p.inbound = forward.New(p.cfg.with(p.cfg.Inbound, fc), metrics.Inbound, in, p.metrics, p.cfg.Log, memory, p.loops)
	who.Changed(p.inbound.Reauthorize)
	in.Lanes, out.Lanes = p.inbound.Lanes(), p.outbound.Lanes()
	return nil
}

// join makes the proxy one of the mesh.
func (p *Proxy) join(fc *forward.Config) {
	fc.Mesh, fc.LeaveTLS = mesh.New(p.identity), p.cfg.LeaveTLS
	fc.Exchange.Mesh = fc.Mesh
	for _, a := range p.cfg.InboundListen {
		fc.Direct = fc.Direct.Union(ports.Of(a.Port()))
	}
}

// Run serves until ctx ends or a shutdown is asked for, then drains: listeners
// close, HTTP connections close after the exchange they are in, others may end
// by themselves within the grace period. now ends the drain at once. It returns
// nil after a drain, however it ended.
func (p *Proxy) Run(ctx context.Context, now <-chan struct{}) error {
	defer p.sockets.Close() // what an error left
	if err := p.accept(); err != nil {
		p.close()
		return err
	}
	failed := make(chan error, len(p.loops)+len(p.sockets[listen.Admin]))
	var running, answering sync.WaitGroup
	for _, l := range p.loops {
		running.Go(func() {
			if err := l.Run(); err != nil {
				failed <- err
			}
		})
	}
	stopFollowing := p.follow()
	stopWaiting := p.awaitIdentity()
	err := p.serveAdmin(&answering, failed)
	if err == nil {
		p.cfg.Log.Info("proxy ready", "inbound", p.cfg.InboundListen, "outbound", p.cfg.OutboundListen,
			"admin", p.cfg.AdminListen, "opaque_ports", p.cfg.OpaquePorts.String())
		err = p.serve(ctx, now, failed)
	}
	stopFollowing()
	p.stopAdmin()
	answering.Wait()
	for _, l := range p.loops {
		l.Stop()
	}
	running.Wait()
	p.closeAccessLog()
	stopWaiting()
	p.closeIdentity()
	return err
}

// serve waits for the end, and drains.
func (p *Proxy) serve(ctx context.Context, now <-chan struct{}, failed <-chan error) error {
	sweep := time.NewTicker(sweepMetrics)
	defer sweep.Stop()
	settled := time.NewTimer(settledAfter)
	defer settled.Stop()
	for {
		select {
		case t := <-sweep.C:
			p.metrics.Sweep(t)
			p.trim()
			continue
		case <-settled.C:
			p.trim()
			continue
		case err := <-failed:
			return err
		case <-ctx.Done():
		case <-p.shutdown:
		}
		p.drain(now)
		return nil
	}
}

// trim gives back what the start needed, or a scrape in the last minute.
func (p *Proxy) trim() {
	if err := footprint.Trim(); err != nil {
		p.cfg.Log.Debug("what is not needed stays in memory", "err", err)
	}
}

func (p *Proxy) serveAdmin(answering *sync.WaitGroup, failed chan<- error) error {
	for fd, ok := p.take(listen.Admin); ok; fd, ok = p.take(listen.Admin) {
		file := os.NewFile(uintptr(fd), "admin")
		l, err := net.FileListener(file)
		file.Close()
		if err != nil {
			return fmt.Errorf("opening the admin listener: %w", err)
		}
		answering.Go(func() {
			if err := p.admin.Serve(l); err != nil && !errors.Is(err, net.ErrClosed) {
				failed <- fmt.Errorf("serving admin requests: %w", err)
			}
		})
	}
	return nil
}

func (p *Proxy) stopAdmin() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = p.admin.Shutdown(ctx) // what is left after a second is cut
}

// drain waits until no connection is left, the grace period is over, or now.
func (p *Proxy) drain(now <-chan struct{}) {
	started := time.Now()
	p.draining.Store(true)
	p.metrics.SetDraining(true)
	p.cfg.Log.Info("draining", "connections", p.Open(), "grace_period", p.cfg.ShutdownGracePeriod)
	p.stopAccepting()
	p.inbound.Drain()
	p.outbound.Drain()
	grace := time.NewTimer(p.cfg.ShutdownGracePeriod)
	defer grace.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			if p.Open() == 0 {
				p.cfg.Log.Info("drained", "took", time.Since(started))
				return
			}
		case <-grace.C:
			p.cfg.Log.Warn("graceful shutdown did not complete in time: closing what is left",
				"grace_period", p.cfg.ShutdownGracePeriod, "connections", p.Open())
			return
		case <-now:
			p.cfg.Log.Warn("second signal: closing what is left", "connections", p.Open())
			return
		}
	}
}

// Open is the number of connections being served, or on their way from the loop
// that accepted them to the one that will serve them.
func (p *Proxy) Open() int {
	n := int64(0)
	for _, l := range p.loops {
		n += l.Load()
	}
	return int(n)
}

// Shutdown begins to drain, as the end of Run's context does. Asking again
// changes nothing.
func (p *Proxy) Shutdown() { p.once.Do(func() { close(p.shutdown) }) }
