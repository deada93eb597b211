package proxy

import (
	"slices"

	"github.com/meshctl/meshctl/proxy/discovery/destination"
	"github.com/meshctl/meshctl/proxy/policy"
)

// inboundPolicy is who may call: what is configured and what the objects say or, with
// a control plane, what that says. It is called once.
func (p *Proxy) inboundPolicy() policy.Inbound {
	c := p.targets.client
	if c == nil || len(p.cfg.InboundListen) == 0 {
		return p.authz.live
	}
	if p.cfg.podName() == "" {
		p.cfg.Log.Warn("the control plane is not asked who may call, as this proxy does not know its pod: the default policy counts, and no Server does; see --pod")
		return p.authz.live
	}
	var known []uint16
	for _, n := range p.cfg.Policy.PortNames {
		if !slices.Contains(known, n.Number) {
			known = append(known, n.Number)
		}
	}
	return c.Ports(destination.PortsConfig{Unasked: p.authz.live, Known: known, Port: p.authz.told})
}

// podName is that of this proxy's pod; empty: it is not known.
func (c *Config) podName() string {
	if c.Policy.Pod != "" {
		return c.Policy.Pod
	}
	return c.Destination.Pod
}

// told makes a Port of what a control plane says of one. What was said to this proxy
// itself wins: its default policy, as over annotations, and that a port is for HTTP
// only.
func (a *authorizer) told(port uint16, d policy.Description) (*policy.Port, error) {
	in := &a.cfg.Policy
	if in.Default != 0 && d.Server.Kind == "default" {
		own := policy.Config{
			Default: in.Default, ClusterNetworks: in.ClusterNetworks, TrustDomain: a.cfg.TrustDomain, DetectTimeout: a.cfg.DetectTimeout, Actions: in.Actions,
		}
		for _, path := range d.Probes {
			own.Pod.Probes = append(own.Pod.Probes, policy.Probe{Port: port, Path: path})
		}
		return policy.Compile(own, policy.Objects{}).Port(port), nil
	}
	d.StrictDetect = d.StrictDetect || in.Actions.Of(port) == policy.Close
	return d.Port()
}
