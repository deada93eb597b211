package wire

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"

	dst "github.com/linkerd/linkerd2-proxy-api/go/destination"
	outbound "github.com/linkerd/linkerd2-proxy-api/go/outbound"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/protocol"
	"github.com/meshctl/meshctl/proxy/route"
)

// Plan is what the API says of a destination, but for the members of Services:
// they come by Get, and change more often.
type Plan struct {
	view   discovery.View // without the endpoints that come by a path
	path   string         // of the destination's own members; empty: view has them
	others []string       // of the Table's backends but for the first; empty: not there
}

// Reader reads what the API says.
type Reader struct {
	Config
	// Opaque is the default list of opaque ports: Linkerd's controller does not apply
	// it to addresses outside.
	Opaque ports.Set
	// Local reports whether an address is the client's own; nil: none is.
	Local func(netip.Addr) bool
}

// Plan reads a profile and a policy; either may be nil if the server has none. The
// error is about routes that do not count, and comes with a Plan.
func (r Reader) Plan(to netip.AddrPort, profile *dst.DestinationProfile, policy *outbound.OutboundPolicy) (*Plan, error) {
	p := &Plan{}
	p.view.Port = to.Port()
	o := parseOwn(ownBytes(policy))
	var err error
	if o != nil {
		err = r.own(p, o)
	} else {
		err = r.foreign(p, to, profile, policy)
	}
	if err != nil { // half of a table is none
		p.view.Table, p.view.Backends, p.others = nil, nil, nil
	}
	p.view.Refused = refusal(p.view.Kind, policy)
	r.members(p, to, profile)
	return p, err
}

func ownBytes(policy *outbound.OutboundPolicy) []byte {
	if policy == nil {
		return nil
	}
	return bytesOf(policy, ownView)
}

// own takes what a controller of ours says.
func (r Reader) own(p *Plan, o *own) (err error) {
	v := &p.view
	v.Kind, v.Object, v.PortName, v.Protocol, p.path = kindOf(o.Kind), o.Object.object(), o.PortName, o.Decision.decision(), o.Path
	if o.Routes == nil {
		return nil
	}
	if v.Table, err = route.New(*o.Routes); err != nil {
		return err
	}
	if len(v.Table.Backends) != len(o.Backends)+1 {
		return fmt.Errorf("%d backends are described, the routes have %d", len(o.Backends), len(v.Table.Backends)-1)
	}
	v.Backends = []discovery.Backend{{}} // see members
	for _, from := range o.Backends {
		b := discovery.Backend{Namespace: from.Namespace, Name: from.Name, Port: from.Port}
		if from.Path != "" {
			b.Object = discovery.Object{Kind: "Service", Namespace: from.Namespace, Name: from.Name}
			b.Protocol = from.Decision.decision()
		}
		if len(from.Policy) > 0 {
			if b.Own, err = route.New(route.Config{Annotations: from.Policy}); err != nil {
				return err
			}
		}
		v.Backends, p.others = append(v.Backends, b), append(p.others, from.Path)
	}
	return nil
}

// foreign takes what Linkerd's controller says.
func (r Reader) foreign(p *Plan, to netip.AddrPort, profile *dst.DestinationProfile, policy *outbound.OutboundPolicy) error {
	v := &p.view
	named, port := object(policy.GetMetadata())
	endpoint := profile.GetEndpoint()
	switch {
	case endpoint != nil && named.Kind == "Service":
		v.Kind, v.Object = discovery.HeadlessPod, named
	case endpoint != nil:
		v.Kind = discovery.Pod
		v.Object, _ = object(endpoint.GetResourceRef())
		if v.Object.Kind == "ExternalWorkload" {
			v.Kind = discovery.Workload
		}
	case named.Kind == "Service":
		v.Kind, v.Object = discovery.ServicePort, named
	case named.Kind == "EgressNetwork":
		v.Kind, v.Object = discovery.Egress, named
	case profile.GetFullyQualifiedName() != "":
		v.Kind = discovery.ServicePort
		if namespace, name, ok := r.ParseServiceName(profile.GetFullyQualifiedName()); ok {
			v.Object = discovery.Object{Kind: "Service", Namespace: namespace, Name: name}
		}
	default:
		v.Kind = discovery.Address
	}
	if port != 0 {
		v.Port = port
	}
	if v.Kind == discovery.ServicePort {
		name := profile.GetFullyQualifiedName()
		if name == "" {
			name = r.ServiceName(v.Object.Namespace, v.Object.Name)
		}
		p.path = net.JoinHostPort(name, strconv.Itoa(int(to.Port())))
	}
	v.Protocol = r.decide(v, profile, policy.GetProtocol())
	if v.Protocol.Kind == protocol.Opaque || policy == nil {
		return nil
	}
	return r.routes(p, policy.GetProtocol())
}

func (r Reader) decide(v *discovery.View, profile *dst.DestinationProfile, said *outbound.ProxyProtocol) discovery.Decision {
	d := discovery.Decision{Reason: discovery.ControlPlane}
	switch said.GetKind().(type) {
	case *outbound.ProxyProtocol_Opaque_, *outbound.ProxyProtocol_Tls_:
		d.Kind = protocol.Opaque
	case *outbound.ProxyProtocol_Http1_:
		d.Kind = protocol.HTTP1
	case *outbound.ProxyProtocol_Http2_, *outbound.ProxyProtocol_Grpc_:
		d.Kind = protocol.HTTP2
	}
	if profile.GetOpaqueProtocol() {
		d.Kind = protocol.Opaque
	}
	if d.Kind == protocol.Unknown && v.Kind == discovery.Address {
		return discovery.Decide(discovery.Facts{Kind: v.Kind, Port: v.Port, Default: r.Opaque})
	}
	return d
}

// refusal is why nothing goes there: the route for bytes is forbidden.
func refusal(kind discovery.Kind, policy *outbound.OutboundPolicy) discovery.Refusal {
	relay := policy.GetProtocol().GetOpaque()
	if relay == nil {
		relay = policy.GetProtocol().GetDetect().GetOpaque()
	}
	for _, rt := range relay.GetRoutes() {
		for _, rule := range rt.GetRules() {
			for _, f := range rule.GetFilters() {
				switch {
				case f.GetForbidden() == nil:
				case kind == discovery.Egress:
					return discovery.EgressDenied
				default:
					return discovery.NoSuchPort
				}
			}
		}
	}
	return 0
}

// members fills in the endpoints that are known without Get, and the destination
// as the first of the backends.
func (r Reader) members(p *Plan, to netip.AddrPort, profile *dst.DestinationProfile) {
	v := &p.view
	switch v.Kind {
	case discovery.ServicePort:
		if v.Refused != 0 {
			p.path, p.others, v.Table, v.Backends, v.Protocol = "", nil, nil, nil, discovery.Decision{}
		}
	default:
		p.path = ""
		e, ok := ParseEndpoint(profile.GetEndpoint())
		if !ok {
			e = discovery.Endpoint{Addr: to, Mesh: discovery.Mesh{NoTLS: discovery.NotProvided}}
		}
		v.Endpoints = []discovery.Endpoint{r.local(e)}
	}
	if v.Table != nil {
		v.Backends[0] = discovery.Backend{Namespace: v.Object.Namespace, Name: v.Object.Name, Port: v.Port, Object: v.Object, Protocol: v.Protocol, Endpoints: v.Endpoints, Own: v.Table}
	}
}

func (r Reader) local(e discovery.Endpoint) discovery.Endpoint {
	if r.Local != nil && r.Local(e.Addr.Addr()) {
		e.Mesh = discovery.Mesh{NoTLS: discovery.Loopback}
	}
	return e
}

// Paths are what Get has to be asked for.
func (p *Plan) Paths() []string {
	var out []string
	if p.path != "" {
		out = append(out, p.path)
	}
	for _, path := range p.others {
		if path != "" {
			out = append(out, path)
		}
	}
	return out
}

// View puts the members in. get is asked for each of the Paths; if it does not know
// one yet View is not whole, and ok is false.
func (r Reader) View(p *Plan, get func(path string) (Endpoints, bool)) (v discovery.View, ok bool) {
	v = p.view
	if len(p.view.Backends) > 0 {
		v.Backends = append([]discovery.Backend(nil), p.view.Backends...)
	}
	if p.path != "" {
		if v.Endpoints, ok = r.list(get, p.path); !ok {
			return v, false
		}
		if len(v.Backends) > 0 {
			v.Backends[0].Endpoints = v.Endpoints
		}
	}
	for i, path := range p.others {
		if path == "" {
			continue
		}
		if v.Backends[i+1].Endpoints, ok = r.list(get, path); !ok {
			return v, false
		}
	}
	return v, true
}

func (r Reader) list(get func(string) (Endpoints, bool), path string) ([]discovery.Endpoint, bool) {
	e, ok := get(path)
	if !ok || r.Local == nil {
		return e.List, ok
	}
	for i := range e.List {
		if r.Local(e.List[i].Addr.Addr()) {
			out := append([]discovery.Endpoint(nil), e.List...)
			for i := range out {
				out[i] = r.local(out[i])
			}
			return out, true
		}
	}
	return e.List, true
}
