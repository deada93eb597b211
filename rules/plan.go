package rules

import (
	"net/netip"
	"slices"

	"github.com/meshctl/meshctl/internal/ports"
)

// TCP is the IP protocol number of the only protocol that is ever redirected.
const TCP = 6

// Direction is the side of the proxy a connection comes from, as seen from the
// application. The zero value means "not said".
type Direction uint8

// The directions.
const (
	Inbound  Direction = iota + 1 // from the network to the local application
	Outbound                      // from the local application to the network
)

// Packet is the first packet of a connection (NAT sees no other), as the kernel
// sees it at the hook of its direction.
type Packet struct {
	Direction Direction
	Proto     uint8 // IP protocol number; 6 is TCP
	Src, Dst  netip.AddrPort
	UID, GID  uint32 // owner of the sending socket, outbound only
	Loopback  bool   // leaves through lo; inbound: came in through lo
	Invalid   bool   // conntrack calls the packet invalid
	Midway    bool   // it opens no connection, so that it is of one from before the rules
}

// family returns the family of the packet's addresses.
func (p Packet) family() Family { return familyOf(p.Dst.Addr().Unmap()) }

// Verdict is what a rule does with a packet. The zero value means "not said".
type Verdict uint8

// The verdicts.
const (
	Return   Verdict = iota + 1 // leave the packet as it is; later rules do not see it
	Redirect                    // to a port of the proxy in this namespace
	Drop
)

// Hook is the place in the packet's way where a chain stands. The zero value
// means "not said".
type Hook uint8

// The hooks, in the order a packet meets them.
const (
	HookInvalid  Hook = iota + 1 // every packet that comes in, before NAT
	HookInbound                  // NAT of connections that come in
	HookOutbound                 // NAT of connections that local processes open
)

// Priorities of chains at their netfilter hook; lower runs earlier. The NAT
// chains stand one before those of everybody else (-100): of two chains at -100
// the one registered later wins, and a service address that another chain
// translates first would never be redirected.
const (
	manglePriority = -150
	natPriority    = -101
)

// Netfilter returns the name of the netfilter hook: "prerouting" or "output".
func (h Hook) Netfilter() string {
	if h == HookOutbound {
		return "output"
	}
	return "prerouting"
}

// NAT reports whether the chain at h translates addresses. Such a chain sees
// the first packet of each connection, the other sees all packets.
func (h Hook) NAT() bool { return h == HookInbound || h == HookOutbound }

// Priority returns the place among the chains at the same netfilter hook; lower
// runs earlier.
func (h Hook) Priority() int {
	if h.NAT() {
		return natPriority
	}
	return manglePriority
}

// PortSet is a set of ports that the kernel knows by name. The zero value, with
// no name, restricts nothing.
type PortSet struct {
	Name  string
	Ports ports.Set
}

// SubnetSet is a set of subnets of one family that the kernel knows by name.
// The zero value, with no name, restricts nothing.
type SubnetSet struct {
	Name    string
	Family  Family
	Subnets []netip.Prefix // sorted and disjoint, host bits zero
}

// Validity is what conntrack says of a packet. The zero value means that the
// rule does not ask.
type Validity uint8

// What conntrack may say.
const (
	Invalid    Validity = iota + 1 // the packet belongs to no connection and opens none
	NotInvalid                     // it belongs to one, or opens one, or is not tracked
)

// Match is what a packet must be for a rule to decide on it: all of it. The
// zero value of each field restricts nothing.
type Match struct {
	Family             Family
	Proto              uint8
	CT                 Validity
	Loopback           bool // through lo: out of it at output, in by it elsewhere
	Midway             bool // of the flags SYN, ACK, FIN and RST it has not SYN alone
	UID, GID           *uint32
	Src, Dst           SubnetSet
	SrcPorts, DstPorts PortSet
}

// Rule is one line of a chain.
type Rule struct {
	ID         string // a word that names the rule in its Plan, such as "proxy-uid"
	Match      Match
	Verdict    Verdict
	RedirectTo uint16 // the port, when Verdict is Redirect
	Why        string // one English clause, for people; at most 80 bytes
}

// Chain is the rules at one hook, in the order they are asked. A packet that no
// rule decides on stays untouched.
type Chain struct {
	Hook  Hook
	Rules []Rule
}

// Plan is the rules that belong to one Config. Build makes it; it is a value
// and never changes.
type Plan struct {
	config Config
	chains []Chain
}

// Config returns the configuration the plan was built from, in normal form.
func (p Plan) Config() Config { return p.config.normal() }

// Chains returns the chains in the order packets meet them. The caller must not
// change the rules.
func (p Plan) Chains() []Chain { return slices.Clone(p.chains) }

// Rules returns the rules at hook in order; nil if the plan has no chain there.
// The caller must not change them.
func (p Plan) Rules(hook Hook) []Rule {
	for _, c := range p.chains {
		if c.Hook == hook {
			return c.Rules
		}
	}
	return nil
}

// Families returns the families the plan redirects.
func (p Plan) Families() []Family {
	if p.config.NoIPv6 {
		return []Family{IPv4}
	}
	return []Family{IPv4, IPv6}
}

// PortSets returns the named port sets that rules of the plan ask for, each
// once, in the order of use.
func (p Plan) PortSets() []PortSet {
	var out []PortSet
	for _, m := range p.matches() {
		for _, s := range []PortSet{m.SrcPorts, m.DstPorts} {
			known := slices.ContainsFunc(out, func(o PortSet) bool { return o.Name == s.Name })
			if s.Name != "" && !known {
				out = append(out, s)
			}
		}
	}
	return out
}

// SubnetSets returns the named subnet sets that rules of the plan ask for, each
// once, in the order of use.
func (p Plan) SubnetSets() []SubnetSet {
	var out []SubnetSet
	for _, m := range p.matches() {
		for _, s := range []SubnetSet{m.Src, m.Dst} {
			known := slices.ContainsFunc(out, func(o SubnetSet) bool { return o.Name == s.Name })
			if s.Name != "" && !known {
				out = append(out, s)
			}
		}
	}
	return out
}

func (p Plan) matches() []Match {
	var out []Match
	for _, c := range p.chains {
		for _, r := range c.Rules {
			out = append(out, r.Match)
		}
	}
	return out
}
