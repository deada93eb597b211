package cluster

import (
	"net/netip"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/proxy/discovery"
)

// DefaultTrustDomain ends the names of identities where none is said.
const DefaultTrustDomain = "cluster.local"

// DefaultInboundPort is where a proxy takes connections with a transport header,
// unless its pod says otherwise.
const DefaultInboundPort = 4143

// Proxy is the proxy in front of a pod, by the pod's labels and annotations. The
// zero value: it has none.
type Proxy struct {
	ControlPlane string // the namespace of the control plane that gave it; empty: it has none
	Account      string // the pod's ServiceAccount
	Port         uint16 // inbound; 0: DefaultInboundPort
	// Skip are ports that do not lead to the proxy: those that its rules skip, and
	// its own.
	Skip ports.Set
}

// Workload is an ExternalWorkload: a machine outside the cluster with a proxy in
// front of it. Its addresses are its own.
type Workload struct {
	discovery.Object
	IPs        []netip.Addr
	Ports      []ContainerPort
	Opaque     discovery.List
	ID         string // a DNS name or a SPIFFE ID; empty: it has no proxy
	ServerName string // empty: the ID
	Port       uint16 // inbound; 0: DefaultInboundPort
	Skip       ports.Set
}

// account is what the identities of pods are made of.
type account struct{ name, namespace, controlPlane string }

func accountOf(p *Pod) account { return account{p.Proxy.Account, p.Namespace, p.Proxy.ControlPlane} }

// Identity is the name in the certificate of a pod's proxy, as Linkerd builds it.
func Identity(serviceAccount, namespace, controlPlane, trustDomain string) string {
	if serviceAccount == "" {
		serviceAccount = "default" // as the API server fills it in
	}
	return serviceAccount + "." + namespace + ".serviceaccount.identity." + controlPlane + "." + trustDomain
}

// identify makes the name of a pod's identity, unless another pod has it already:
// there are far fewer of them than pods. One that no pod has any more may stay.
func (s *Snapshot) identify(p *Pod) {
	a := accountOf(p)
	if _, done := s.identities[a]; !done && a.controlPlane != "" {
		s.identities[a] = Identity(a.name, a.namespace, a.controlPlane, s.cfg.TrustDomain)
	}
}

// mesh is that of a pod's port; p nil: of an address without a pod.
func (s *Snapshot) mesh(p *Pod, at netip.AddrPort) discovery.Mesh {
	switch {
	case p == nil || p.Proxy.ControlPlane == "":
		return s.unmeshed(at)
	default:
		id := s.identities[accountOf(p)]
		return s.meshed(discovery.Mesh{ID: id, ServerName: id, Port: p.Proxy.Port}, p.Proxy.Skip, at)
	}
}

// meshOfWorkload is that of a workload's port.
func (s *Snapshot) meshOfWorkload(w *Workload, at netip.AddrPort) discovery.Mesh {
	if w.ID == "" {
		return s.unmeshed(at)
	}
	m := discovery.Mesh{ID: w.ID, ServerName: w.ServerName, Port: w.Port}
	if m.ServerName == "" {
		m.ServerName = w.ID
	}
	return s.meshed(m, w.Skip, at)
}

// meshed is m, unless something speaks against it.
func (s *Snapshot) meshed(m discovery.Mesh, skip ports.Set, at netip.AddrPort) discovery.Mesh {
	if m.Port == 0 {
		m.Port = DefaultInboundPort
	}
	switch {
	case s.local(at.Addr()):
		return discovery.Mesh{NoTLS: discovery.Loopback}
	case skip.Contains(at.Port()) || at.Port() == m.Port:
		return discovery.Mesh{NoTLS: discovery.PortSkipped}
	}
	return m
}

func (s *Snapshot) unmeshed(at netip.AddrPort) discovery.Mesh {
	if s.local(at.Addr()) {
		return discovery.Mesh{NoTLS: discovery.Loopback}
	}
	return discovery.Mesh{NoTLS: discovery.NotProvided}
}

func (s *Snapshot) local(a netip.Addr) bool { return s.cfg.Local != nil && s.cfg.Local(a) }
