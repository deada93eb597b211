package proxy

import (
	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/forward"
	"github.com/meshctl/meshctl/proxy/metrics"
	"github.com/meshctl/meshctl/proxy/outbound"
)

// balancers is the state of the endpoints of every destination in use that has
// a Service, for a scrape.
func (p *Proxy) balancers() []metrics.Balancer {
	if p.targets.cache == nil {
		return nil
	}
	var all []metrics.Balancer
	for _, t := range p.targets.cache.Targets() {
		v, states, retries := outbound.Balanced(t)
		if v == nil || v.Object.Kind != "Service" {
			continue
		}
		parent := metrics.Service{Namespace: v.Object.Namespace, Name: v.Object.Name, Port: v.Port}
		for i, s := range states {
			b := metrics.Balancer{Parent: parent, Backend: parent, Ready: s.Ready, Pending: s.Pending, RetryTokens: retries}
			if i > 0 {
				if b.Backend = backend(v, i); b.Backend == parent {
					continue // a rule names its parent: the same endpoints
				}
			}
			all = append(all, b)
		}
	}
	return all
}

// backend is the Service of v's backend i; none if v is not what the state is of
// any more.
func backend(v *discovery.View, i int) metrics.Service {
	if i >= len(v.Backends) {
		return metrics.Service{}
	}
	b := v.Backends[i]
	return metrics.Service{Namespace: b.Namespace, Name: b.Name, Port: b.Port}
}

// pools is what the loops have under way, for a scrape.
func (p *Proxy) pools() []metrics.Pool {
	return []metrics.Pool{p.inbound.Pool(), p.outbound.Pool()}
}

// accessLines counts the lines of the access log.
func (p *Proxy) accessLines() (written, dropped uint64) {
	if p.access == nil {
		return 0, 0
	}
	return p.access.Counts()
}

// closeAccessLog writes what the loops, which have ended, have left.
func (p *Proxy) closeAccessLog() {
	if p.access == nil {
		return
	}
	for _, f := range []*forward.Forwarder{p.inbound, p.outbound} {
		if f != nil { // else it never got that far
			f.FlushAccessLog()
		}
	}
	p.access.Close()
}
