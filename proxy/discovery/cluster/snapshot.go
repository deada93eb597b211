package cluster

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/policy"
)

// Config is what a Snapshot has to know besides the objects.
type Config struct {
	// Namespace is that of the clients: whose EgressNetworks count.
	Namespace string
	// Everyone: the picture is for clients of every namespace. See In.
	Everyone bool
	// Opaque is the default list of opaque ports.
	Opaque ports.Set
	// Networks are the cluster's own, which an EgressNetwork without networks
	// leaves out; nil: DefaultNetworks.
	Networks []netip.Prefix
	// TrustDomain ends the names of identities; empty: DefaultTrustDomain.
	TrustDomain string
	// Local reports whether an address is the clients' own pod's; nil: none is.
	Local func(netip.Addr) bool
}

// GlobalEgress is the namespace whose EgressNetworks count for all others too.
const GlobalEgress = "linkerd-egress"

// DefaultNetworks are Linkerd's cluster networks: the private ones.
func DefaultNetworks() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("172.16.0.0/12"),
		netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("fd00::/8"),
	}
}

// name is how objects name each other.
type name struct{ namespace, name string }

// Snapshot is an immutable index of objects. It is a discovery.Source.
type Snapshot struct {
	cfg         Config
	services    map[name]*Service
	slices      map[name][]*Slice // by their Service
	pods        map[name]*Pod
	workloads   map[name]*Workload
	namespaces  map[string]*Namespace
	egresses    []*Egress // sorted: older first, then by name
	serviceIPs  map[netip.Addr]*Service
	podIPs      map[netip.Addr]*Pod
	workloadIPs map[netip.Addr]*Workload
	identities  map[account]string
	headless    map[netip.Addr][]member
	conflicts   []Warning
	routes      map[parent][]*Route
	tables      map[tableKey]*compiled
	policies    policy.Objects
	own         map[name]*policy.Pod // of all clients, if the picture is for everyone
}

// member is an endpoint of a headless Service.
type member struct {
	service  *Service
	slice    *Slice
	endpoint *SliceEndpoint
}

// Build makes a Snapshot. It keeps the objects, which must not change any more.
// before is the one that it replaces, nil if there is none.
func Build(cfg Config, all Objects, before *Snapshot) *Snapshot {
	if cfg.Networks == nil {
		cfg.Networks = DefaultNetworks()
	}
	if cfg.TrustDomain == "" {
		cfg.TrustDomain = DefaultTrustDomain
	}
	s := &Snapshot{
		cfg: cfg, services: make(map[name]*Service, len(all.Services)), slices: make(map[name][]*Slice, len(all.Services)),
		pods: make(map[name]*Pod, len(all.Pods)), namespaces: make(map[string]*Namespace, len(all.Namespaces)),
		serviceIPs: make(map[netip.Addr]*Service, len(all.Services)), podIPs: make(map[netip.Addr]*Pod, len(all.Pods)),
		workloads: map[name]*Workload{}, workloadIPs: map[netip.Addr]*Workload{}, identities: map[account]string{},
		headless: map[netip.Addr][]member{}, routes: map[parent][]*Route{}, tables: map[tableKey]*compiled{},
	}
	for _, n := range all.Namespaces {
		put(s, s.namespaces, n.Name, n, n.Object, func(o *Namespace) discovery.Object { return o.Object })
	}
	for _, svc := range all.Services {
		put(s, s.services, named(svc.Object), svc, svc.Object, func(o *Service) discovery.Object { return o.Object })
	}
	for _, p := range all.Pods {
		put(s, s.pods, named(p.Object), p, p.Object, func(o *Pod) discovery.Object { return o.Object })
		s.identify(p)
	}
	for _, w := range all.Workloads {
		put(s, s.workloads, named(w.Object), w, w.Object, func(o *Workload) discovery.Object { return o.Object })
	}
	s.addresses(all)
	s.endpoints(all.Slices)
	s.addEgresses(all.Egresses)
	s.addRoutes(all.Routes)
	s.policies = all.Policies
	if cfg.Everyone {
		s.own = make(map[name]*policy.Pod, len(all.Policies.Pods))
		for _, p := range all.Policies.Pods {
			s.own[name{p.Namespace, p.Name}] = p
		}
	}
	s.compile(before)
	return s
}

// In is the same picture for clients of a namespace, if it was made for everyone.
func (s *Snapshot) In(namespace string) *Snapshot {
	out := *s
	out.cfg.Namespace = namespace
	return &out
}

func named(o discovery.Object) name { return name{o.Namespace, o.Name} }

// put adds an object under its key; the later of two counts.
func put[K comparable, T any](s *Snapshot, to map[K]*T, key K, o *T, at discovery.Object, object func(*T) discovery.Object) {
	if before, twice := to[key]; twice {
		s.conflicts = append(s.conflicts, Warning{Twice, at, "", "it is there twice: the one at " + object(before).Place() + " does not count"})
	}
	to[key] = o
}

// addresses indexes Services, pods and workloads by address. Pods that have ended give their
// address back, so they have none here; see the reader.
func (s *Snapshot) addresses(all Objects) {
	for _, svc := range all.Services {
		if s.services[named(svc.Object)] != svc {
			continue
		}
		for _, a := range svc.IPs {
			if before := s.serviceIPs[a]; before != nil {
				s.conflicts = append(s.conflicts, Warning{Twice, svc.Object, "", "it has the address " + a.String() + " of " + before.String() + ", which does not count"})
			}
			s.serviceIPs[a] = svc
		}
	}
	for _, p := range all.Pods {
		if s.pods[named(p.Object)] != p {
			continue
		}
		for _, a := range p.IPs {
			if before := s.podIPs[a]; before != nil {
				s.conflicts = append(s.conflicts, Warning{Twice, p.Object, "", "it has the address " + a.String() + " of " + before.String() + ", which does not count"})
			}
			s.podIPs[a] = p
		}
	}
	for _, w := range all.Workloads {
		if s.workloads[named(w.Object)] != w {
			continue
		}
		for _, a := range w.IPs {
			if before := s.workloadIPs[a]; before != nil {
				s.conflicts = append(s.conflicts, Warning{Twice, w.Object, "", "it has the address " + a.String() + " of " + before.String() + ", which does not count"})
			}
			s.workloadIPs[a] = w
		}
	}
}

// endpoints indexes the slices; of two of the same name the later counts.
func (s *Snapshot) endpoints(list []*Slice) {
	last := make(map[name]*Slice, len(list))
	for _, sl := range list {
		put(s, last, named(sl.Object), sl, sl.Object, func(o *Slice) discovery.Object { return o.Object })
	}
	for _, sl := range list {
		if last[named(sl.Object)] != sl {
			continue
		}
		of := name{sl.Namespace, sl.Service}
		s.slices[of] = append(s.slices[of], sl)
		svc := s.services[of]
		if svc == nil || !svc.Headless {
			continue
		}
		for i := range sl.Endpoints {
			e := &sl.Endpoints[i]
			s.headless[e.Addr] = append(s.headless[e.Addr], member{svc, sl, e})
		}
	}
}

func (s *Snapshot) addEgresses(list []*Egress) {
	last := make(map[name]*Egress, len(list))
	for _, e := range list {
		put(s, last, named(e.Object), e, e.Object, func(o *Egress) discovery.Object { return o.Object })
	}
	for _, e := range list {
		if last[named(e.Object)] == e && (s.cfg.Everyone || e.Namespace == s.cfg.Namespace || e.Namespace == GlobalEgress) {
			s.egresses = append(s.egresses, e)
		}
	}
	slices.SortFunc(s.egresses, func(a, b *Egress) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
}
