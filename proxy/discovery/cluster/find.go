package cluster

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/meshctl/meshctl/proxy/discovery"
)

// Find says what dst is: a Service's address before a pod's, a pod's before an
// ExternalWorkload's, that before an EgressNetwork's. It makes a new View each time.
func (s *Snapshot) Find(dst netip.AddrPort) discovery.View {
	dst = netip.AddrPortFrom(dst.Addr().Unmap(), dst.Port())
	if svc := s.serviceIPs[dst.Addr()]; svc != nil {
		return s.ofService(svc, dst)
	}
	if members := s.headless[dst.Addr()]; len(members) > 0 {
		if v, ok := s.ofHeadless(members, dst); ok {
			return v
		}
	}
	if p := s.podIPs[dst.Addr()]; p != nil {
		v := s.ofPod(p, dst)
		v.Kind, v.Object = discovery.Pod, p.Object
		return v
	}
	if w := s.workloadIPs[dst.Addr()]; w != nil {
		return s.ofWorkload(w, dst)
	}
	if e := s.egress(dst.Addr()); e != nil {
		return s.ofEgress(e, dst)
	}
	return s.ofAddress(dst)
}

func (s *Snapshot) ofAddress(dst netip.AddrPort) discovery.View {
	return discovery.View{
		Kind: discovery.Address, Port: dst.Port(), Endpoints: []discovery.Endpoint{{Addr: dst, Mesh: s.unmeshed(dst)}},
		Protocol: discovery.Decide(discovery.Facts{Kind: discovery.Address, Port: dst.Port(), Default: s.cfg.Opaque}),
	}
}

// port returns the Service's port of that number.
func (svc *Service) port(number uint16) *Port {
	for i := range svc.Ports {
		if svc.Ports[i].Number == number {
			return &svc.Ports[i]
		}
	}
	return nil
}

func (s *Snapshot) ofService(svc *Service, dst netip.AddrPort) discovery.View {
	v := discovery.View{Kind: discovery.ServicePort, Object: svc.Object, Port: dst.Port()}
	p := svc.port(dst.Port())
	if p == nil {
		v.Refused = discovery.NoSuchPort
		return v
	}
	v.PortName = p.Name
	receivers := s.ready(svc, p, dst.Addr().Is4(), &v)
	v.Protocol = s.decide(svc, p, receivers)
	s.route(&v, dst.Addr())
	return v
}

func (s *Snapshot) decide(svc *Service, p *Port, receivers []discovery.Receiver) discovery.Decision {
	return discovery.Decide(discovery.Facts{
		Kind: discovery.ServicePort, Port: p.Number, PortName: p.Name, AppProtocol: p.AppProtocol, AppAt: p.At, Service: svc.Opaque,
		Namespace: s.spaceList(svc.Namespace), Receivers: receivers, Default: s.cfg.Opaque,
	})
}

// ready fills in the endpoints of one family that are ready; if none is, those
// that still serve while they terminate, as kube-proxy does.
func (s *Snapshot) ready(svc *Service, p *Port, v4 bool, v *discovery.View) []discovery.Receiver {
	var receivers []discovery.Receiver
	seen := map[netip.AddrPort]bool{}
	for _, serving := range []bool{false, true} {
		for _, sl := range s.slices[named(svc.Object)] {
			for _, sp := range sl.Ports {
				if sp.Name != p.Name {
					continue
				}
				for i := range sl.Endpoints {
					e := &sl.Endpoints[i]
					addr := netip.AddrPortFrom(e.Addr, sp.Number)
					if e.Addr.Is4() != v4 || seen[addr] || !e.Ready && !(serving && e.Serving) {
						continue
					}
					seen[addr] = true
					endpoint, r := s.endpoint(svc.Namespace, e, sp.Number)
					v.Endpoints = append(v.Endpoints, endpoint)
					if r.Pod.Said() || r.Space.Said() {
						receivers = append(receivers, r)
					}
				}
			}
		}
		if len(v.Endpoints) > 0 {
			break
		}
	}
	slices.SortFunc(v.Endpoints, func(a, b discovery.Endpoint) int { return a.Addr.Compare(b.Addr) })
	slices.SortFunc(receivers, func(a, b discovery.Receiver) int { return strings.Compare(a.Pod.By.Name, b.Pod.By.Name) })
	return receivers
}

// endpoint describes one address of a slice, with what its pod or workload says.
func (s *Snapshot) endpoint(namespace string, e *SliceEndpoint, port uint16) (discovery.Endpoint, discovery.Receiver) {
	out := discovery.Endpoint{Addr: netip.AddrPortFrom(e.Addr, port), Node: e.Node, Zone: e.Zone}
	r := discovery.Receiver{Port: port}
	if e.Pod != "" {
		out.Pod = namespace + "/" + e.Pod
		r.Space = s.spaceList(namespace)
	}
	p := s.pods[name{namespace, e.Pod}]
	if p != nil {
		r = s.receiver(p, port)
	}
	out.Mesh = s.mesh(p, out.Addr)
	if w := s.workloads[name{namespace, e.Workload}]; w != nil {
		r = s.receiverOfWorkload(w, port)
		out.Mesh = s.meshOfWorkload(w, out.Addr)
	}
	out.Opaque = r.Opaque(s.cfg.Opaque)
	return out, r
}

func (s *Snapshot) receiver(p *Pod, port uint16) discovery.Receiver {
	return discovery.Receiver{Pod: p.Opaque, Space: s.spaceList(p.Namespace), Port: port, Names: namesOf(p.Ports, port)}
}

func (s *Snapshot) receiverOfWorkload(w *Workload, port uint16) discovery.Receiver {
	return discovery.Receiver{Pod: w.Opaque, Space: s.spaceList(w.Namespace), Port: port, Names: namesOf(w.Ports, port)}
}

func (s *Snapshot) spaceList(namespace string) discovery.List {
	if n := s.namespaces[namespace]; n != nil {
		return n.Opaque
	}
	return discovery.List{}
}

// ofHeadless finds the member that listens on dst's port. A port that no
// headless Service has is one of the pod's own.
func (s *Snapshot) ofHeadless(members []member, dst netip.AddrPort) (discovery.View, bool) {
	for _, m := range members {
		for _, sp := range m.slice.Ports {
			if sp.Number != dst.Port() {
				continue
			}
			endpoint, r := s.endpoint(m.service.Namespace, m.endpoint, sp.Number)
			v := discovery.View{Kind: discovery.HeadlessPod, Object: m.service.Object, Port: sp.Number, PortName: sp.Name, Endpoints: []discovery.Endpoint{endpoint}}
			v.Protocol = discovery.Decide(discovery.Facts{Kind: v.Kind, Port: sp.Number, Receivers: []discovery.Receiver{r}, Default: s.cfg.Opaque})
			return v, true
		}
	}
	return discovery.View{}, false
}

func (s *Snapshot) ofPod(p *Pod, dst netip.AddrPort) discovery.View {
	r := s.receiver(p, dst.Port())
	return discovery.View{
		Port:      dst.Port(),
		Endpoints: []discovery.Endpoint{{Addr: dst, Pod: p.Namespace + "/" + p.Name, Node: p.Node, Opaque: r.Opaque(s.cfg.Opaque), Mesh: s.mesh(p, dst)}},
		Protocol:  discovery.Decide(discovery.Facts{Kind: discovery.Pod, Port: dst.Port(), Receivers: []discovery.Receiver{r}, Default: s.cfg.Opaque}),
	}
}

func (s *Snapshot) ofWorkload(w *Workload, dst netip.AddrPort) discovery.View {
	r := s.receiverOfWorkload(w, dst.Port())
	return discovery.View{
		Kind: discovery.Workload, Object: w.Object, Port: dst.Port(),
		Endpoints: []discovery.Endpoint{{Addr: dst, Opaque: r.Opaque(s.cfg.Opaque), Mesh: s.meshOfWorkload(w, dst)}},
		Protocol:  discovery.Decide(discovery.Facts{Kind: discovery.Workload, Port: dst.Port(), Receivers: []discovery.Receiver{r}, Default: s.cfg.Opaque}),
	}
}

func (s *Snapshot) ofEgress(e *Egress, dst netip.AddrPort) discovery.View {
	v := discovery.View{Kind: discovery.Egress, Object: e.Object, Port: dst.Port(), Endpoints: []discovery.Endpoint{{Addr: dst, Mesh: s.unmeshed(dst)}}}
	if e.Deny {
		v.Refused = discovery.EgressDenied
	}
	v.Protocol = discovery.Decide(discovery.Facts{Kind: v.Kind, Port: dst.Port(), Egress: e.Opaque, Default: s.cfg.Opaque})
	s.route(&v, dst.Addr())
	return v
}

// egress returns the EgressNetwork of a: one of the clients' namespace before a
// global one, then the one with the most specific subnet, then the oldest, then
// the first by name.
func (s *Snapshot) egress(a netip.Addr) *Egress {
	var best *Egress
	bits := -1
	for _, e := range s.egresses { // in the order of age and name
		if e.Namespace != s.cfg.Namespace && e.Namespace != GlobalEgress {
			continue
		}
		n := e.bits(a, s.cfg.Networks)
		local := e.Namespace == s.cfg.Namespace
		switch {
		case n < 0:
		case best == nil,
			local && best.Namespace != s.cfg.Namespace,
			local == (best.Namespace == s.cfg.Namespace) && n > bits:
			best, bits = e, n
		}
	}
	return best
}

// bits is the length of the most specific subnet of e that holds a, -1 if none does.
func (e *Egress) bits(a netip.Addr, own []netip.Prefix) int {
	best := -1
	networks := e.Networks
	if len(networks) == 0 {
		networks = []Network{{netip.MustParsePrefix("0.0.0.0/0"), own}, {netip.MustParsePrefix("::/0"), own}}
	}
	for _, n := range networks {
		if n.holds(a) {
			best = max(best, n.CIDR.Bits())
		}
	}
	return best
}
