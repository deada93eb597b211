package policy

import (
	"maps"
	"slices"

	"github.com/meshctl/meshctl/proxy/route"
)

// Description is what a Port says, for those who pass it on. It is not to be
// changed.
type Description struct {
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
	Route  route.Route
	Grants []Grant
}

// Describe says what p says.
func (p *Port) Describe() Description {
	d := Description{Grants: described(p.grants), Routed: p.routes != nil, Probes: p.probes}
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
