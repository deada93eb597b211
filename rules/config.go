// Package rules is the plan before the kernel: it turns flags into a Config, a
// Config into a Plan, and answers from the Plan alone what the kernel will do
// with a connection. It is pure: no sockets, no netlink, no clock. Its
// subpackages write a Plan in the languages of the kernel.
package rules

import (
	"net/netip"

	"github.com/meshctl/meshctl/internal/ports"
)

// Config is what the user wants redirected. DefaultConfig gives the defaults;
// Validate says what is wrong with one.
type Config struct {
	InboundPort  uint16 // the proxy's inbound listener; default 4143
	OutboundPort uint16 // the proxy's outbound listener; default 4140
	// ControlPorts are always left alone inbound, whatever the skip list says
	// (a probe or a scrape must reach the proxy itself); default 4190,4191.
	ControlPorts ports.Set

	ProxyUID uint32  // traffic of this uid is never redirected; default 2102; 0 is refused
	ProxyGID *uint32 // optional: traffic of this gid is not redirected either

	SkipInboundPorts  ports.Set // default 4567,4568
	SkipOutboundPorts ports.Set // default 4567,4568
	// OnlyInboundPorts and OnlyOutboundPorts, when not empty, are the only ports
	// redirected in that direction (skips still win).
	OnlyInboundPorts  ports.Set
	OnlyOutboundPorts ports.Set

	SkipInboundSubnets  []netip.Prefix // by source address
	SkipOutboundSubnets []netip.Prefix // by destination address

	NoIPv6      bool // leave IPv6 alone (it then bypasses the proxy: a warning)
	KeepInvalid bool // do not drop packets that conntrack calls invalid
}

// DefaultConfig returns the configuration of a user who says nothing. Ports,
// uid and skip lists are those of Linkerd.
func DefaultConfig() Config {
	return Config{
		InboundPort:       4143,
		OutboundPort:      4140,
		ControlPorts:      ports.Of(4190, 4191),
		ProxyUID:          2102,
		SkipInboundPorts:  ports.Of(4567, 4568),
		SkipOutboundPorts: ports.Of(4567, 4568),
	}
}

// normal returns c with what the kernel cannot tell apart made equal, so that
// two configurations that mean the same give the same plan.
func (c Config) normal() Config {
	c.SkipInboundSubnets = covering(c.SkipInboundSubnets)
	c.SkipOutboundSubnets = covering(c.SkipOutboundSubnets)
	if c.ProxyGID != nil {
		gid := *c.ProxyGID
		c.ProxyGID = &gid
	}
	return c
}
