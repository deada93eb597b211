package forward

import (
	"net/netip"
	"time"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/proxy/accesslog"
	"github.com/meshctl/meshctl/proxy/exchange"
	"github.com/meshctl/meshctl/proxy/mesh"
	"github.com/meshctl/meshctl/proxy/policy"
)

// Config holds the times and limits of a Forwarder.
type Config struct {
	// DetectTimeout is how long the protocol may stay unknown, from accept; the
	// connection is opaque then.
	DetectTimeout time.Duration
	// EarlyDialAfter is how long a client may be silent before its target is
	// dialed all the same; 0: never.
	EarlyDialAfter time.Duration
	// ConnectTimeout ends an attempt to connect to a target.
	ConnectTimeout time.Duration
	// IdleTimeout ends an opaque connection on which nothing has passed; 0: never.
	IdleTimeout time.Duration
	// HalfCloseTimeout ends a connection of which one side has sent its FIN and
	// on which nothing has passed since; 0: never.
	HalfCloseTimeout time.Duration
	// MaxDetecting is how many connections may wait for their first bytes at
	// once; more than that are opaque without waiting. 0: no limit.
	MaxDetecting int
	// FixedTarget, when valid, is taken for the original destination of every
	// connection: for tests and benchmarks without redirect rules.
	FixedTarget netip.AddrPort
	// Exchange is of HTTP connections whose requests are taken one by one.
	Exchange exchange.Config
	// Mesh, if set, makes and takes mTLS connections.
	Mesh *mesh.Mesh
	// Direct are the ports on which other proxies connect to this one itself.
	Direct ports.Set
	// Policy, if set, says who may call; of inbound connections only.
	Policy policy.Inbound
	// LeaveTLS: an application's own TLS goes to meshed endpoints as it is, not once
	// more inside of ours.
	LeaveTLS bool
	// AccessLog gets a line for each exchange and each connection; nil: none.
	AccessLog *accesslog.Log
}
