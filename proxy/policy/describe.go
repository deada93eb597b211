package policy

import (
	"maps"
	"slices"
	"time"

	"github.com/meshctl/meshctl/proxy/protocol"
	"github.com/meshctl/meshctl/proxy/route"
)

// Description is what a Port says, for those who pass it on: Describe makes it of a
// Port, and Port makes a Port of it. It is not to be changed.
type Description struct {
	Server        Ref // see Port
	Protocol      protocol.Kind
	GRPC          bool
	DetectTimeout time.Duration
	StrictDetect  bool

	Grants []Grant  // of the Server
	Routed bool     // requests have to come under one of Routes
	Routes []Ruled  // with whom they let in beside the Server's
	Probes []string // paths that anybody may GET
}

// Grant is whom an authorization lets in.
type Grant struct {
	Ref   Ref
	Audit bool
	From  [][]Network  // the client is in one network of each list; none: from anywhere
	TLS   bool         // over mesh TLS, with or without a certificate
	Who   []Identities // its identity is in each of these; none: anybody
}

// Identities are names of clients.
type Identities struct {
	Any      bool
	Exact    []string
	Suffixes []string // with the dot that they begin with
	Accounts []string // beginnings of SPIFFE IDs
}

// Ruled is a route of a Server.
type Ruled struct {
	Ref    Ref
	Route  route.Route // its Namespace begins with the group: two groups have an HTTPRoute
	Grants []Grant
}

// Describe says what p says.
func (p *Port) Describe() Description {
	d := Description{
		Server: p.Server, Protocol: p.Protocol, GRPC: p.GRPC, DetectTimeout: p.DetectTimeout, StrictDetect: p.StrictDetect,
		Grants: described(p.grants), Routed: p.routes != nil, Probes: p.probes,
	}
	if p.routes == nil || p.routes.table == nil {
		return d
	}
	for _, r := range p.routes.table.Config.Routes {
		if by := p.routes.by[route.Ref{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}]; by != nil {
			d.Routes = append(d.Routes, Ruled{by.ref, r, described(by.grants)})
		}
	}
	return d
}

func described(list []*grant) []Grant {
	var out []Grant
	for _, g := range list {
		one := Grant{Ref: g.ref, Audit: g.audit, From: g.from, TLS: g.tls}
		for _, w := range g.who {
			one.Who = append(one.Who, Identities{w.any, slices.Sorted(maps.Keys(w.exact)), w.suffixes, w.accounts})
		}
		out = append(out, one)
	}
	return out
}

// Port is a Port that says d. Routes that are wrong are an error: no request comes
// under any then.
func (d Description) Port() (*Port, error) {
	p := &Port{
		Server: d.Server, Protocol: d.Protocol, GRPC: d.GRPC, DetectTimeout: d.DetectTimeout, StrictDetect: d.StrictDetect,
		grants: granted(d.Grants), probes: d.Probes,
	}
	if p.Covered() {
		p.Object = Object{Kind: "Server", Namespace: d.Server.Namespace, Name: d.Server.Name}
	}
	if !d.Routed {
		return p, nil
	}
	var cfg route.Config
	p.routes = &routes{by: map[route.Ref]*ruled{}}
	for _, r := range d.Routes {
		cfg.Routes = append(cfg.Routes, r.Route)
		p.routes.by[route.Ref{Kind: r.Route.Kind, Namespace: r.Route.Namespace, Name: r.Route.Name}] = &ruled{ref: r.Ref, grants: granted(r.Grants)}
	}
	var err error
	p.routes.table, err = route.New(cfg)
	if err != nil {
		p.routes.table = nil
	}
	return p, err
}

func granted(list []Grant) []*grant {
	var out []*grant
	for _, g := range list {
		one := &grant{ref: g.Ref, audit: g.Audit, from: g.From, tls: g.TLS}
		for _, w := range g.Who {
			to := identities{any: w.Any, suffixes: w.Suffixes, accounts: w.Accounts}
			for _, name := range w.Exact {
				if to.exact == nil {
					to.exact = map[string]struct{}{}
				}
				to.exact[name] = struct{}{}
			}
			one.who = append(one.who, to)
		}
		out = append(out, one)
	}
	return out
}
