package policy

import (
	"cmp"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/meshctl/meshctl/proxy/protocol"
	"github.com/meshctl/meshctl/proxy/route"
)

// Config is what a Table is made of beside the objects.
type Config struct {
	// Pod is the pod that this proxy is in: its namespace, labels, named ports and
	// probes. Without a namespace no Server selects it.
	Pod Pod
	// Default is who may call ports that no Server selects; not said:
	// AllUnauthenticated.
	Default Default
	// ClusterNetworks are the cluster's; nil: DefaultClusterNetworks.
	ClusterNetworks []netip.Prefix
	// TrustDomain and ControlNamespace are parts of the identities that a
	// ServiceAccount stands for; empty: cluster.local, linkerd.
	TrustDomain      string
	ControlNamespace string
	DetectTimeout    time.Duration // for every Port; 0: the proxy's own
	Actions          Actions
}

func (c Config) withDefaults() Config {
	c.Default = cmp.Or(c.Default, AllUnauthenticated)
	c.TrustDomain = cmp.Or(c.TrustDomain, "cluster.local")
	c.ControlNamespace = cmp.Or(c.ControlNamespace, "linkerd")
	if c.ClusterNetworks == nil {
		c.ClusterNetworks = DefaultClusterNetworks()
	}
	return c
}

// Table is who may call the ports of one pod. It never changes.
type Table struct {
	cfg   Config
	from  Objects // those of the pod's namespace, and all authentications
	ports map[uint16]*Port
	rest  [Close + 1]*Port // of ports that are in no map, by their Action
	// Unnamed are the Servers that select the pod, and name a port that is not known
	// to be one of its: they do not count.
	Unnamed []Object
}

// Port returns what is declared of a port. It allocates nothing.
func (t *Table) Port(port uint16) *Port {
	if p := t.ports[port]; p != nil {
		return p
	}
	return t.rest[t.cfg.Actions.Of(port)]
}

// Equal reports whether two Tables were made of the same.
func (t *Table) Equal(o *Table) bool {
	return reflect.DeepEqual(t.cfg, o.cfg) && reflect.DeepEqual(t.from, o.from)
}

// Default is the policy of ports that no Server selects.
func (t *Table) Default() Default { return t.cfg.Default }

// compiler fills a Table.
type compiler struct {
	cfg     Config
	all     Objects
	meshTLS map[[2]string]*MeshTLSAuthentication // by namespace and name
	nets    map[[2]string]*NetworkAuthentication
}

// Compile makes the Table of the pod that cfg names. What cannot be resolved lets
// nobody in: an AuthorizationPolicy that requires an object which is not there
// counts as not there itself. See Check for what to tell about it.
func Compile(cfg Config, objects Objects) *Table {
	c := compiler{cfg: cfg.withDefaults(), all: relevant(objects, cfg.Pod.Namespace)}
	c.index()
	t := &Table{cfg: c.cfg, from: c.all, ports: map[uint16]*Port{}}
	for _, a := range []Action{Open, Close} {
		t.rest[a] = c.uncovered(a, nil)
	}
	probes := map[uint16][]string{}
	for _, p := range cfg.Pod.Probes {
		probes[p.Port] = append(probes[p.Port], p.Path)
	}
	for number, s := range c.servers() {
		t.ports[number] = c.covered(number, s, probes[number])
	}
	for _, s := range c.all.Servers {
		if s.selects(&c.cfg.Pod) && len(s.ports(&c.cfg.Pod)) == 0 {
			t.Unnamed = append(t.Unnamed, s.Object)
		}
	}
	for number, paths := range probes {
		if t.ports[number] == nil {
			t.ports[number] = c.uncovered(c.cfg.Actions.Of(number), paths)
		}
	}
	return t
}

// In are the objects that can matter to pods of a namespace, for several Tables.
func (all *Objects) In(namespace string) Objects {
	out := relevant(*all, namespace)
	for _, n := range all.Namespaces {
		if n.Name == namespace {
			out.Namespaces = append(out.Namespaces, n)
		}
	}
	return out
}

// relevant are the objects that can matter to a pod of the namespace.
func relevant(all Objects, namespace string) Objects {
	return Objects{
		Servers: of(all.Servers, namespace), Authorizations: of(all.Authorizations, namespace),
		ServerAuthorizations: of(all.ServerAuthorizations, namespace), Routes: of(all.Routes, namespace),
		MeshTLS: latest(all.MeshTLS), Networks: latest(all.Networks),
	}
}

func of[T object](list []T, namespace string) []T {
	var out []T
	for _, o := range list {
		if o.named().Namespace == namespace {
			out = append(out, o)
		}
	}
	return latest(out)
}

func (c *compiler) index() {
	c.meshTLS = make(map[[2]string]*MeshTLSAuthentication, len(c.all.MeshTLS))
	for _, a := range c.all.MeshTLS {
		c.meshTLS[[2]string{a.Namespace, a.Name}] = a
	}
	c.nets = make(map[[2]string]*NetworkAuthentication, len(c.all.Networks))
	for _, a := range c.all.Networks {
		c.nets[[2]string{a.Namespace, a.Name}] = a
	}
}

// uncovered is a port that no Server selects. A port that nobody may call is
// opaque: there is nothing to find out, unless the kubelet asks there.
func (c *compiler) uncovered(a Action, probes []string) *Port {
	d := c.cfg.Default
	p := &Port{
		Server: Ref{Kind: "default", Name: d.String()}, DetectTimeout: c.cfg.DetectTimeout, StrictDetect: a == Close,
		grants: d.grants(c.cfg.ClusterNetworks),
	}
	switch d {
	case AllUnauthenticated, Audit: // the kubelet may do what all others may
	default:
		p.probes = probes
	}
	if d == Deny && len(p.probes) == 0 {
		p.Protocol = protocol.Opaque
	}
	return p
}

// servers are the Servers that select the pod, by port; of several the oldest,
// then the first by name.
func (c *compiler) servers() map[uint16]*Server {
	out := map[uint16]*Server{}
	if c.cfg.Pod.Namespace == "" {
		return out
	}
	for _, s := range c.all.Servers {
		if !s.selects(&c.cfg.Pod) {
			continue
		}
		for _, port := range s.ports(&c.cfg.Pod) {
			if before := out[port]; before == nil || s.before(before) {
				out[port] = s
			}
		}
	}
	return out
}

func (s *Server) selects(p *Pod) bool {
	return s.Namespace == p.Namespace && s.Pods != nil && s.Pods.Matches(p.Labels)
}

// ports are those of a pod that s is for.
func (s *Server) ports(p *Pod) []uint16 {
	if s.PortName == "" {
		return []uint16{s.Port}
	}
	var out []uint16
	for _, n := range p.Ports {
		if n.Name == s.PortName && !slices.Contains(out, n.Number) {
			out = append(out, n.Number)
		}
	}
	return out
}

func (s *Server) before(o *Server) bool {
	return cmp.Or(s.Created.Compare(o.Created), cmp.Compare(s.Name, o.Name)) < 0
}

func (s *Server) ref() Ref {
	return Ref{Group: Group, Kind: "server", Namespace: s.Namespace, Name: s.Name}
}

// covered is a port that a Server selects. While the Server has no routes the
// kubelet may ask there, as with Linkerd: who writes a Server does not think of
// probes. Who writes routes says which requests there are.
func (c *compiler) covered(number uint16, s *Server, probes []string) *Port {
	p := &Port{
		Server: s.ref(), Object: s.Object, Protocol: s.Protocol, GRPC: s.GRPC, DetectTimeout: c.cfg.DetectTimeout,
		StrictDetect: cmp.Or(s.Detect, c.cfg.Actions.Of(number)) == Close,
	}
	for _, a := range c.all.ServerAuthorizations {
		if a.Server == s.Name && a.Server != "" || a.Selector != nil && a.Selector.Matches(s.Labels) {
			p.grants = append(p.grants, c.older(a))
		}
	}
	for _, a := range c.all.Authorizations {
		t := a.Target
		if t.Group == Group && t.Kind == "Server" && t.Name == s.Name || t.Kind == "Namespace" && t.Name == s.Namespace {
			p.grants = c.appendGrant(p.grants, a)
		}
	}
	p.grants = append(p.grants, s.Access.grants(c.cfg.ClusterNetworks)...)
	if s.mayBeHTTP() {
		p.routes = c.routes(s)
	}
	switch {
	case p.routes != nil, !s.mayBeHTTP(), s.Access == AllUnauthenticated, s.Access == Audit:
	default:
		p.probes = probes
	}
	return p
}

// routes are those attached to a Server; nil if there are none.
func (c *compiler) routes(s *Server) *routes {
	out := &routes{by: map[route.Ref]*ruled{}}
	var cfg route.Config
	for _, r := range c.all.Routes {
		if !slices.Contains(r.Servers, s.Name) {
			continue
		}
		// Two groups have an HTTPRoute: the group makes two of one name two.
		one := r.Route
		one.Namespace = r.Group + "/" + r.Namespace
		one.Annotations = nil // timeouts and retries are the client's business
		cfg.Routes = append(cfg.Routes, one)
		kind := "httproute"
		if one.Kind == route.GRPC {
			kind = "grpcroute"
		}
		rule := &ruled{ref: Ref{Group: r.Group, Kind: kind, Namespace: r.Namespace, Name: r.Name}, object: r.Object}
		for _, a := range c.all.Authorizations {
			if t := a.Target; t.Group == r.Group && t.Kind == r.Kind && t.Name == r.Name {
				rule.grants = c.appendGrant(rule.grants, a)
			}
		}
		out.by[route.Ref{Kind: one.Kind, Namespace: one.Namespace, Name: one.Name}] = rule
	}
	if len(cfg.Routes) == 0 {
		return nil
	}
	// Whoever read the routes has had them judged. If they are wrong all the same no
	// request comes under them.
	out.table, _ = route.New(cfg)
	return out
}

// mayBeHTTP reports whether requests can be seen on the port.
func (s *Server) mayBeHTTP() bool {
	return s.Protocol != protocol.Opaque && s.Protocol != protocol.TLS
}

// Covered is how many ports the Servers select.
func (t *Table) Covered() int {
	n := 0
	for _, p := range t.ports {
		if p.Covered() {
			n++
		}
	}
	return n
}
