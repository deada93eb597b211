package forward

import (
	"net/netip"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/exchange"
	"github.com/meshctl/meshctl/proxy/protocol"
)

// Route is where a connection goes and what is known of it before any byte.
type Route struct {
	Target netip.AddrPort // what is dialed: the original destination, or an endpoint of it
	Kind   protocol.Kind  // Opaque when declared; Unknown: find out
	// Early allows the target to be dialed before the client speaks: there is
	// one possible endpoint, so that the choice cannot depend on the protocol.
	Early bool
	// Pending: whoever was asked has not answered yet. The Router is asked again when
	// it has; see Forwarder.Resolve.
	Pending bool
	// View is what was known of the original destination when the Route was chosen;
	// nil where nobody was asked.
	View *discovery.View
	// Up is where requests and connections to the original destination go; nil:
	// to Target. Mediate: HTTP requests are taken one by one, because there is a
	// choice of endpoints, a route or a policy.
	Up      *exchange.Upstream
	Mediate bool
}

// Router chooses the Route of a connection from client to its original
// destination dst. An error refuses it; a Refusal says why in one word.
type Router interface {
	Route(client, dst netip.AddrPort) (Route, error)
}

// Mediator is a Router that knows where requests go whose Route has no Up: it is
// asked only where requests are taken one by one.
type Mediator interface {
	Upstream(dst netip.AddrPort) *exchange.Upstream
}

// Refusal is the error of a Router that will not have a connection.
type Refusal struct {
	Reason string // a word of a closed set, a metric's label: own_listener ...
}

// Error says the reason.
func (r *Refusal) Error() string { return "connection refused: " + r.Reason }

// reasonNotRedirected is the Refusal of a connection that no rule redirected.
const reasonNotRedirected = "no_original_destination"
