package rules

import (
	"net/netip"
	"slices"
)

// Decision is what becomes of a packet.
type Decision struct {
	Rule       string  // ID of the rule that decides; "" when none matches
	Verdict    Verdict // Return also when no rule matches
	RedirectTo uint16  // the proxy's port, when Verdict is Redirect
	Why        string  // the rule's Why, or why no rule matches
}

// noRule begins the Why of a packet that no rule matches.
const noRule = "no rule matches: untouched"

// Eval returns what the kernel does with the packet when the plan is in place
// and no rules of others interfere.
func (p Plan) Eval(pk Packet) Decision {
	hook, ok := pk.hook()
	if !ok {
		return Decision{Verdict: Return, Why: noRule + p.outside(pk)}
	}
	for _, r := range p.Rules(hook) {
		if r.Match.matches(pk) {
			return Decision{r.ID, r.Verdict, r.RedirectTo, r.Why}
		}
	}
	return Decision{Verdict: Return, Why: noRule + p.outside(pk)}
}

// hook returns the chain that decides on the packet. NAT never sees a packet
// that conntrack calls invalid, and only incoming ones are looked at before it.
func (p Packet) hook() (Hook, bool) {
	switch {
	case p.Direction == Inbound && p.Invalid:
		return HookInvalid, true
	case p.Direction == Inbound:
		return HookInbound, true
	case p.Direction == Outbound && !p.Invalid:
		return HookOutbound, true
	default:
		return 0, false
	}
}

// outside says which of the plan's limits the packet is beyond.
func (p Plan) outside(pk Packet) string {
	switch {
	case pk.Direction == 0:
		return ", the packet has no direction"
	case pk.Proto != TCP:
		return ", only TCP is redirected"
	case p.config.NoIPv6 && pk.family() == IPv6:
		return ", IPv6 is left alone"
	case pk.Invalid && (pk.Direction == Outbound || p.config.KeepInvalid):
		return ", NAT never sees a packet that conntrack calls invalid"
	default:
		return ", the port is not one of those to redirect"
	}
}

// matches reports whether the packet is all that m asks for.
func (m Match) matches(p Packet) bool {
	return (m.Family == 0 || m.Family == p.family()) &&
		(m.Proto == 0 || m.Proto == p.Proto) &&
		(m.CT == 0 || (m.CT == Invalid) == p.Invalid) &&
		(!m.Loopback || p.Loopback) &&
		(!m.Midway || p.Midway) &&
		(m.UID == nil || *m.UID == p.UID) &&
		(m.GID == nil || *m.GID == p.GID) &&
		m.Src.allows(p.Src.Addr()) && m.Dst.allows(p.Dst.Addr()) &&
		m.SrcPorts.allows(p.Src.Port()) && m.DstPorts.allows(p.Dst.Port())
}

func (s PortSet) allows(port uint16) bool { return s.Name == "" || s.Ports.Contains(port) }

func (s SubnetSet) allows(addr netip.Addr) bool {
	return s.Name == "" || slices.ContainsFunc(s.Subnets, func(n netip.Prefix) bool { return n.Contains(addr.Unmap()) })
}
