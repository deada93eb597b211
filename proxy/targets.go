package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/meshctl/meshctl/internal/annotation"
	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/discovery/destination"
	"github.com/meshctl/meshctl/proxy/discovery/file"
	"github.com/meshctl/meshctl/proxy/discovery/kube"
	"github.com/meshctl/meshctl/proxy/policy"
	"github.com/meshctl/meshctl/proxy/protocol"
)

// sweepTargets is how often targets that nobody asks for are let go.
const sweepTargets = 30 * time.Second

// targets is what the proxy knows of destinations, and of its own pod, from
// files. The zero value knows nothing.
type targets struct {
	api    *kube.Source // nil: the Kubernetes API is not asked
	reader *file.Reader
	cache  *discovery.Cache
	client *destination.Client // nil: no control plane is asked
	own    *policy.Policy      // of the pod: inbound
}

// discover reads the files for the first time. They have to be in order then:
// there is no state to fall back to.
func (p *Proxy) discover() error {
	if len(p.cfg.Destination.Addrs) > 0 {
		return p.askDestination()
	}
	if len(p.cfg.Resources) == 0 {
		if p.cfg.Kubernetes != nil {
			return p.openAPI()
		}
		if p.cfg.Intermediate {
			p.targets.cache = discovery.NewCache(discovery.CacheConfig{}, addresses{p.cfg.OpaquePorts})
		}
		return nil
	}
	locals := &conn.Locals{}
	p.targets.reader = file.NewReader(file.Config{
		Paths: p.cfg.Resources, Log: p.cfg.Log,
		Cluster: cluster.Config{Namespace: p.cfg.Namespace, Opaque: p.cfg.OpaquePorts, TrustDomain: p.cfg.TrustDomain, Local: locals.Has},
		Told:    p.countLoad,
	})
	snapshot, report := p.targets.reader.Load()
	if err := report.Err(); err != nil {
		return fmt.Errorf("reading resources: %w", err)
	}
	p.targets.cache = discovery.NewCache(discovery.CacheConfig{}, snapshot)
	p.authz.objects = snapshot.Policies()
	return nil
}

// addresses knows nothing but the default list: every destination is itself.
type addresses struct{ opaque ports.Set }

// Find implements discovery.Source.
func (a addresses) Find(dst netip.AddrPort) discovery.View {
	v := discovery.View{Kind: discovery.Address, Port: dst.Port(), Endpoints: []discovery.Endpoint{{Addr: dst}}}
	if a.opaque.Contains(dst.Port()) {
		v.Protocol = discovery.Decision{Kind: protocol.Opaque, Reason: discovery.DefaultList}
	}
	return v
}

// resolver is nil where nothing is known.
func (t *targets) resolver() discovery.Resolver {
	if t.cache == nil {
		return nil
	}
	return t.cache
}

// countLoad keeps the numbers of a load.
func (p *Proxy) countLoad(r file.Report) {
	breaking := 0
	for _, problem := range r.Problems {
		if problem.Breaks() {
			breaking++
		}
	}
	p.metrics.ResourcesLoaded(r.Changed, breaking, len(r.Problems)-breaking, r.Objects)
}

// ownPorts makes the pod's annotations count for what comes in. The file has
// been read once by whoever made the Config.
func (p *Proxy) ownPorts(own *policy.Policy) error {
	p.targets.own = own
	if p.cfg.Annotations == "" {
		return nil
	}
	pod, notes, err := file.Annotations(p.cfg.Annotations)
	if err != nil {
		return err
	}
	p.applyAnnotations(pod, notes)
	return nil
}

// applyAnnotations takes the list of opaque ports; the rest of the annotations
// counts at the start only. What the command line says wins.
func (p *Proxy) applyAnnotations(pod annotation.Pod, notes []annotation.Note) {
	if p.cfg.OpaquePortsSaid {
		return
	}
	for _, n := range notes {
		if n.Wrong() && n.Key == annotation.OpaquePorts {
			p.cfg.Log.Error("an annotation is wrong: the opaque ports stay as they were", "file", p.cfg.Annotations, "err", n)
			return
		}
	}
	set := p.cfg.OpaquePorts
	if pod.OpaquePorts != nil {
		set = pod.OpaquePorts.Over(policy.DefaultOpaque(), func(name string) ports.Set {
			for _, known := range p.cfg.Policy.PortNames {
				if known.Name == name {
					return ports.Of(known.Number)
				}
			}
			p.cfg.Log.Warn("annotation: no port of that name is known; see --port-names", "file", p.cfg.Annotations, "name", name)
			return ports.Set{}
		})
	}
	if before := p.targets.own.Live.Swap(&set); before == nil || !before.Equal(set) {
		p.cfg.Log.Info("inbound opaque ports", "opaque_ports", set.String())
	}
}

// follow keeps up with the files until stop is called.
func (p *Proxy) follow() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	if p.targets.api != nil {
		following.Go(func() { p.targets.api.Run(ctx, p.changedAPI) })
	}
	if p.targets.reader != nil {
		following.Go(func() {
			p.targets.reader.Watch(ctx, func(s *cluster.Snapshot) {
				p.targets.cache.Replace(s)
				p.authz.setObjects(s.Policies())
			})
		})
	}
	if p.targets.client != nil {
		following.Go(func() { p.followDestination(ctx) }) // sweeps, too
	} else if p.targets.cache != nil {
		following.Go(func() { p.sweepTargets(ctx) })
	}
	if p.cfg.Annotations != "" {
		following.Go(func() {
			file.WatchAnnotations(ctx, p.cfg.Annotations, p.cfg.Log, func(pod annotation.Pod, notes []annotation.Note) {
				p.applyAnnotations(pod, notes)
				p.authz.annotate(pod)
			})
		})
	}
	if p.cfg.Policy.Labels != "" {
		following.Go(func() { p.authz.follow(ctx) })
	}
	return func() { cancel(); following.Wait() }
}

func (p *Proxy) sweepTargets(ctx context.Context) {
	tick := time.NewTicker(sweepTargets)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.targets.cache.Sweep()
		}
	}
}
