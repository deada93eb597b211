package forward

import (
	"log/slog"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/exchange"
	"github.com/meshctl/meshctl/proxy/l4"
	"github.com/meshctl/meshctl/proxy/message"
	"github.com/meshctl/meshctl/proxy/metrics"
	"github.com/meshctl/meshctl/proxy/policy"
)

// This file asks the policy: who may call a port, and with which request.

// port is what the policy says of the connection's port now; nil: nothing is
// asked.
func (fl *flow) port() *policy.Port {
	if p := fl.lane.forwarder.cfg.Policy; p != nil && fl.lane.forwarder.direction == metrics.Inbound {
		return p.Port(fl.route.Target.Port())
	}
	return nil
}

// caller is the client as a policy knows it.
func (fl *flow) caller() policy.Client {
	c := policy.Client{Addr: fl.client.Addr()}
	if fl.peer != nil {
		c.Mesh, c.ID = true, fl.peer.ID
	}
	return c
}

// strict reports whether anything but HTTP is turned away.
func (fl *flow) strict() bool {
	p := fl.port()
	return p != nil && p.StrictDetect
}

// mayConnect reports whether the client may have a connection of which nothing is
// known, without telling anybody.
func (fl *flow) mayConnect() bool {
	p := fl.port()
	return p == nil || !p.StrictDetect && p.AuthorizeConnection(fl.caller()).Allowed
}

// asks reports whether the requests of the connection have to be taken one by one
// for the policy: they may differ, or the answer is a refusal that HTTP has a word
// for.
func (fl *flow) asks() bool {
	p := fl.port()
	return p != nil && (p.HTTP() || !p.AuthorizeConnection(fl.caller()).Allowed)
}

// authorize asks for a connection that is relayed; false when it was closed.
func (fl *flow) authorize() bool {
	p := fl.port()
	if p == nil {
		return true
	}
	d := p.AuthorizeConnection(fl.caller())
	count := fl.decision(p, d, policy.Ref{})
	if d.Allowed {
		count.AllowConnection()
		if d.Audit {
			fl.lane.log(slog.LevelInfo, "connection allowed by audit", fl.aboutPolicy(p, d)...)
		}
		return true
	}
	count.DenyConnection()
	fl.lane.log(slog.LevelInfo, "connection denied", fl.aboutPolicy(p, d)...)
	fl.denied()
	return false
}

// denied ends a connection before anything was dialed for it, or shown to what was.
func (fl *flow) denied() { fl.end(l4.Client, unix.EACCES) }

// decision returns the counters of a decision. The next one is the same as a rule.
func (fl *flow) decision(p *policy.Port, d policy.Decision, by policy.Ref) *metrics.Authorized {
	ln := fl.lane
	a := metrics.Authorization{Server: metrics.Ref(p.Server), Port: fl.route.Target.Port(), Authz: metrics.Ref(d.Authz),
		Route: metrics.Ref(by), TLS: fl.clientTLS().TLS}
	if ln.decided == nil || ln.decision != a {
		ln.decision, ln.decided = a, ln.forwarder.metrics.Authorized(a)
	}
	return ln.decided
}

func (fl *flow) aboutPolicy(p *policy.Port, d policy.Decision) []slog.Attr {
	return fl.about(slog.String("server", p.Server.String()), slog.String("authz", d.Authz.String()),
		slog.String("reason", d.Reason), slog.String("client_id", fl.caller().ID))
}

// reauthorize ends a connection that the policy does not allow any more, and goes on
// with one that has waited for it. Requests are asked about one by one.
func (fl *flow) reauthorize() {
	fl.resolve()
	p := fl.port()
	if p == nil || fl.phase != relaying || p.Pending {
		return
	}
	if d := p.AuthorizeConnection(fl.caller()); !d.Allowed {
		fl.decision(p, d, policy.Ref{}).TerminateConnection()
		fl.lane.log(slog.LevelInfo, "connection ended: not allowed any more", fl.aboutPolicy(p, d)...)
		fl.end(l4.Client, unix.EACCES)
	}
}

// Reauthorize looks at all connections again, after a change of the policy.
func (f *Forwarder) Reauthorize() {
	for l, ln := range f.lanes {
		l.Post(func() { ln.each((*flow).reauthorize) })
	}
}

// Admit implements exchange.Gate: it says whether the client may make a request,
// and tells the application who the client is.
func (fl *flow) Admit(h *message.Head) exchange.Failure {
	if fl.lane.forwarder.direction == metrics.Outbound {
		return 0
	}
	if p := fl.port(); p != nil {
		r := p.AuthorizeRequest(fl.caller(), h)
		count := fl.decision(p, r.Decision, r.Route)
		switch {
		case r.NoRoute:
			count.RouteNotFound()
			return exchange.NoRoute
		case !r.Allowed:
			count.DenyRequest()
			fl.lane.log(slog.LevelInfo, "request denied", append(fl.aboutPolicy(p, r.Decision), slog.String("route", r.Route.String()))...)
			return exchange.Unauthorized
		case r.Audit:
			fl.lane.log(slog.LevelInfo, "request allowed by audit", fl.aboutPolicy(p, r.Decision)...)
		}
		count.AllowRequest()
	}
	h.Del(message.ClientID) // what a client wrote there
	if fl.peer != nil && fl.peer.ID != "" {
		h.Add(message.ClientID, fl.peer.ID)
	}
	return 0
}
