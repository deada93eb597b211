package proxy

import (
	"time"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/discovery/kube"
	"github.com/meshctl/meshctl/proxy/metrics"
	"github.com/meshctl/meshctl/proxy/policy"
)

// openAPI makes the Kubernetes API the source of targets. It does not connect: the
// proxy starts without the API, too.
func (p *Proxy) openAPI() error {
	cfg, locals := *p.cfg.Kubernetes, &conn.Locals{}
	cfg.Log = p.cfg.Log
	cfg.Cluster = cluster.Config{Namespace: p.cfg.Namespace, Opaque: p.cfg.OpaquePorts, TrustDomain: p.cfg.TrustDomain, Local: locals.Has}
	s, err := kube.Open(cfg)
	if err != nil {
		return err
	}
	p.targets.api = s
	p.targets.cache = discovery.NewCache(discovery.CacheConfig{}, s)
	p.cfg.Log.Info("destinations come from the Kubernetes API", "api", s.Server())
	return nil
}

// changedAPI takes a change of the picture over.
func (p *Proxy) changedAPI(change *discovery.Change) {
	p.targets.cache.Update(change)
	if !change.Policies {
		return
	}
	var objects policy.Objects
	p.targets.api.Read(func(s *cluster.Snapshot) { objects = s.Policies() })
	p.authz.setObjects(objects)
}

// kubernetesNumbers reads how much is known of the cluster, for a scrape; nil
// without the API.
func (p *Proxy) kubernetesNumbers() func() metrics.Kubernetes {
	if p.cfg.Kubernetes == nil {
		return nil
	}
	return func() metrics.Kubernetes {
		if p.targets.api == nil {
			return metrics.Kubernetes{}
		}
		s := p.targets.api.State()
		return metrics.Kubernetes{Synced: s.Synced, Age: s.Age.Truncate(time.Second), Objects: s.Objects, Changes: s.Changes}
	}
}
