package policy

import "net/netip"

// Client is who opened a connection, as far as it is proved.
type Client struct {
	Addr netip.Addr // from which it came
	Mesh bool       // mesh TLS was terminated here
	ID   string     // identity of the client's certificate, which was verified; empty: it showed none
}

// authenticated reports whether the client has proved an identity. One without
// mesh TLS has none, whatever ID says.
func (c Client) authenticated() bool { return c.Mesh && c.ID != "" }

// Ref names what a decision comes from, in the words of Linkerd's labels. The
// zero value is nothing.
type Ref struct {
	Group     string // policy.linkerd.io, gateway.networking.k8s.io; empty for defaults
	Kind      string // server, authorizationpolicy, serverauthorization, httproute, grpcroute, default
	Namespace string
	Name      string
}

// String is "authorizationpolicy shop/web", or "default deny".
func (r Ref) String() string {
	switch {
	case r == Ref{}:
		return ""
	case r.Namespace == "":
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Why a client is refused.
const (
	NoAuthorization = "no_authorization"   // nothing lets anybody in
	NoIdentity      = "no_client_identity" // there are authorizations, and the client has proved no identity
	NotAuthorized   = "not_authorized"     // there are authorizations, and none is for this client
	AmbiguousPath   = "ambiguous_path"     // the route would allow it, but the server may read the path as another one
	NoRouteMatches  = "no_route"           // the port has routes, and the request comes under none: 404
)

// Decision is whether a client may, by what, or why not.
type Decision struct {
	Allowed bool
	Audit   bool   // allowed only because the policy is audit: tell it
	Authz   Ref    // what allows it; the zero value if it is denied
	Reason  string // why it is denied: one of the constants above; empty if it is allowed
}

// grant is what an authorization asks of a client. It never changes.
type grant struct {
	ref   Ref
	audit bool
	from  [][]Network  // the client is in one network of each list; none: from anywhere
	tls   bool         // over mesh TLS, with or without a certificate
	who   []identities // its identity is in each of these; none: anybody
}

func (g *grant) allows(c Client) bool {
	if g.tls && !c.Mesh || len(g.who) > 0 && !c.authenticated() {
		return false
	}
	for _, list := range g.from {
		if !anyHolds(list, c.Addr) {
			return false
		}
	}
	for i := range g.who {
		if !g.who[i].has(c.ID) {
			return false
		}
	}
	return true
}

func anyHolds(list []Network, a netip.Addr) bool {
	for i := range list {
		if list[i].holds(a) {
			return true
		}
	}
	return false
}

// localhost is what always allows a client on loopback: it is in the same pod.
var localhost = Ref{Kind: "default", Name: "localhost"}

// decide asks the grants in their order, the specific ones first.
func decide(c Client, lists ...[]*grant) Decision {
	if c.Addr.IsLoopback() {
		return Decision{Allowed: true, Authz: localhost}
	}
	asked, identity := false, false
	for _, list := range lists {
		for _, g := range list {
			if g.allows(c) {
				return Decision{Allowed: true, Audit: g.audit, Authz: g.ref}
			}
			asked, identity = true, identity || len(g.who) > 0
		}
	}
	switch {
	case !asked:
		return Decision{Reason: NoAuthorization}
	case identity && !c.authenticated():
		return Decision{Reason: NoIdentity}
	}
	return Decision{Reason: NotAuthorized}
}
