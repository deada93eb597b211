package policy

import (
	"bytes"
	"time"

	"github.com/meshctl/meshctl/proxy/message"
	"github.com/meshctl/meshctl/proxy/protocol"
	"github.com/meshctl/meshctl/proxy/route"
)

// Port is what is declared of one port of the local application, and who may call
// it. It never changes, and may be used from several loops at once.
type Port struct {
	// Server is the Server that selects the port, or "default" and the name of the
	// default policy.
	Server Ref
	// Object is that Server, with its place; the zero value for a default.
	Object Object
	// Protocol is what the Server declares: HTTP1, HTTP2, Opaque, TLS; or Unknown.
	// See Kind.
	Protocol protocol.Kind
	GRPC     bool // HTTP2 that is gRPC
	// DetectTimeout is how long the protocol may stay unknown; 0: the proxy's own
	// setting.
	DetectTimeout time.Duration
	// StrictDetect: only HTTP is let through. Where the protocol has to be found
	// out, a connection whose time is up, that is TLS other than the mesh's, or that
	// is anything else is closed, and nothing is dialed before it is known.
	StrictDetect bool
	// Pending: whoever says it has been asked and has not answered yet. Nobody may
	// call meanwhile; what waits asks again after Inbound.Changed.
	Pending bool

	grants []*grant // the specific ones, then what the default or accessPolicy lets in
	routes *routes  // nil: every request is under the default route
	probes []string // paths that the kubelet may ask for
}

// routes are those of a Server.
type routes struct {
	table *route.Table // nil: they cannot be used, and no request comes under them
	by    map[route.Ref]*ruled
}

// ruled is a route and who may call it, beside those who may call the Server.
type ruled struct {
	ref    Ref
	object Object
	grants []*grant
}

// defaultRoute is where requests come under that no route is for; probeRoute
// where the kubelet's do.
var (
	defaultRoute = Ref{Kind: "default", Name: "default"}
	probeRoute   = Ref{Kind: "default", Name: "probe"}
)

// Covered reports whether a Server selects the port: what it declares counts
// instead of the pod's opaque-ports.
func (p *Port) Covered() bool { return p.Server.Kind == "server" }

// Kind is what the port speaks. declared is what the pod's own list says: Opaque
// or Unknown. A Server wins over the list, also when it leaves the protocol to be
// found out.
func (p *Port) Kind(declared protocol.Kind) protocol.Kind {
	if p.Covered() || p.Protocol != protocol.Unknown {
		return p.Protocol
	}
	return declared
}

// HTTP reports whether two requests of one client may be decided differently, so
// that they have to be taken one by one. Where it is false AuthorizeConnection
// decides for all requests of a connection.
func (p *Port) HTTP() bool { return p.routes != nil || len(p.probes) > 0 }

// AuthorizeConnection decides about a connection that is relayed as TCP: it is
// opaque or TLS, or it did not say in time what it is. Only authorizations of the
// Server and its namespace count, never those of routes. It allocates nothing.
func (p *Port) AuthorizeConnection(c Client) Decision {
	c.Addr = c.Addr.Unmap()
	return decide(c, p.grants)
}

// Request is the decision about one request.
type Request struct {
	Decision
	// Route is what the request comes under: a route, or "default" and default or
	// probe.
	Route Ref
	// NoRoute: the port has routes, and the request comes under none of them. The
	// answer is 404 (gRPC: 5), and not 403 (7) as for others that are denied.
	NoRoute bool
	// Hit is the rule of the route, whose filters change the request; its Action is
	// nil for the default route.
	Hit route.Hit
}

// AuthorizeRequest decides about one request, as it came in. It allocates nothing
// but for what route.Table.Match does.
func (p *Port) AuthorizeRequest(c Client, h *message.Head) Request {
	c.Addr = c.Addr.Unmap()
	if p.routes == nil {
		if p.isProbe(h) {
			return Request{Decision: Decision{Allowed: true, Authz: probeRoute}, Route: probeRoute}
		}
		return Request{Decision: decide(c, p.grants), Route: defaultRoute}
	}
	var hit route.Hit
	if p.routes.table != nil {
		hit = p.routes.table.Match(h)
	}
	if hit.Action == nil {
		return Request{Decision: Decision{Reason: NoRouteMatches}, NoRoute: true}
	}
	r := p.routes.by[hit.Route]
	if len(r.grants) > 0 && ambiguous(h.Path) {
		d := decide(c, p.grants)
		if !d.Allowed {
			d.Reason = AmbiguousPath
		}
		return Request{Decision: d, Route: r.ref, Hit: hit}
	}
	return Request{Decision: decide(c, r.grants, p.grants), Route: r.ref, Hit: hit}
}

// isProbe reports whether a request is what the kubelet sends: a GET of exactly
// one of the paths.
func (p *Port) isProbe(h *message.Head) bool {
	if len(p.probes) == 0 || string(h.Method) != "GET" {
		return false
	}
	path, _, _ := bytes.Cut(h.Path, []byte{'?'})
	for _, probe := range p.probes {
		if string(path) == probe {
			return true
		}
	}
	return false
}
