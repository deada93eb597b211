package rules

import "net/netip"

// Names of the kernel's sets.
const (
	setSkipInbound         = "skip_inbound_ports"
	setSkipOutbound        = "skip_outbound_ports"
	setOnlyInbound         = "only_inbound_ports"
	setOnlyOutbound        = "only_outbound_ports"
	setSkipInboundSubnets  = "skip_inbound_subnets"  // and the family's number
	setSkipOutboundSubnets = "skip_outbound_subnets" // and the family's number
)

// Build returns the rules that do what c asks for. The error is that of
// Config.Validate.
func Build(c Config) (Plan, error) {
	if err := c.Validate(); err != nil {
		return Plan{}, err
	}
	c = c.normal()
	p := Plan{config: c}
	if !c.KeepInvalid {
		p.chains = append(p.chains, Chain{HookInvalid, c.invalidRules()})
	}
	p.chains = append(p.chains, Chain{HookInbound, c.inboundRules()}, Chain{HookOutbound, c.outboundRules()})
	return p, nil
}

// inboundRules are asked for the first packet of each connection that comes in.
func (c Config) inboundRules() []Rule {
	var l list
	l.midway("midway-inbound")
	l.add("skip-inbound-ports", "connections to a skipped port go straight to the application",
		Match{DstPorts: c.skipInboundSet()}, Return)
	for _, s := range c.subnetSets(setSkipInboundSubnets, c.SkipInboundSubnets) {
		l.add("skip-inbound-subnets"+number(s.Family), "connections from a skipped subnet go straight to the application",
			Match{Src: s}, Return)
	}
	m, why := Match{Family: c.onlyFamily()}, "every other TCP connection goes to the proxy"
	if !c.OnlyInboundPorts.Empty() {
		m.DstPorts, why = c.onlyInboundSet(), "connections to one of these ports go to the proxy, all others do not"
	}
	l.redirect("redirect-inbound", why, m, c.InboundPort)
	return l.rules
}

// outboundRules are asked for the first packet of each connection that a local
// process opens. The proxy's own rule stands first: whatever else is wrong, the
// proxy must not be redirected to itself.
func (c Config) outboundRules() []Rule {
	var l list
	l.add("proxy-uid", "connections of the proxy are not redirected to itself", Match{UID: &c.ProxyUID}, Return)
	if c.ProxyGID != nil {
		l.add("proxy-gid", "connections of the proxy group are not redirected", Match{GID: c.ProxyGID}, Return)
	}
	l.add("loopback", "connections inside this namespace stay inside it", Match{Loopback: true}, Return)
	l.midway("midway-outbound")
	l.add("skip-outbound-ports", "connections to a skipped port go straight to the server",
		Match{DstPorts: c.skipOutboundSet()}, Return)
	for _, s := range c.subnetSets(setSkipOutboundSubnets, c.SkipOutboundSubnets) {
		l.add("skip-outbound-subnets"+number(s.Family), "connections to a skipped subnet go straight to the server",
			Match{Dst: s}, Return)
	}
	m, why := Match{Family: c.onlyFamily()}, "every other TCP connection goes to the proxy"
	if !c.OnlyOutboundPorts.Empty() {
		m.DstPorts, why = c.onlyOutboundSet(), "connections to one of these ports go to the proxy, all others do not"
	}
	l.redirect("redirect-outbound", why, m, c.OutboundPort)
	return l.rules
}

// invalidRules are asked for every packet that comes in, so the first rule lets
// all but the rare one go. NAT does not translate a packet that conntrack calls
// invalid; it would reach a port nobody listens on, the answer to it would be a
// reset, and that reset would end the redirected connection. Traffic that is
// not redirected is not ours to judge: its packets come to a skipped port, or
// from one, or from a skipped subnet.
func (c Config) invalidRules() []Rule {
	var l list
	l.add("tracked", "packets that conntrack can place are not looked at further", Match{CT: NotInvalid}, Return)
	l.add("invalid-loopback", "traffic inside this namespace is not redirected", Match{Loopback: true}, Return)
	l.add("invalid-skip-inbound-ports", "traffic to a skipped port is not redirected", Match{DstPorts: c.skipInboundSet()}, Return)
	l.add("invalid-skip-outbound-ports", "answers from a skipped port are not redirected", Match{SrcPorts: c.skipOutboundSet()}, Return)
	for _, s := range c.subnetSets(setSkipInboundSubnets, c.SkipInboundSubnets) {
		l.add("invalid-skip-inbound-subnets"+number(s.Family), "traffic from a skipped subnet is not redirected", Match{Src: s}, Return)
	}
	for _, s := range c.subnetSets(setSkipOutboundSubnets, c.SkipOutboundSubnets) {
		l.add("invalid-skip-outbound-subnets"+number(s.Family), "answers from a skipped subnet are not redirected", Match{Src: s}, Return)
	}
	const why = "an invalid packet would end a redirected connection"
	m := Match{Family: c.onlyFamily(), CT: Invalid}
	if c.OnlyInboundPorts.Empty() || c.OnlyOutboundPorts.Empty() {
		// With one list at most, a packet's ports do not tell whether it belongs
		// to a connection of the direction that has none.
		l.add("drop-invalid", why, m, Drop)
		return l.rules
	}
	in, out := m, m
	in.DstPorts, out.SrcPorts = c.onlyInboundSet(), c.onlyOutboundSet()
	l.add("drop-invalid-inbound", why, in, Drop)
	l.add("drop-invalid-outbound", why, out, Drop)
	return l.rules
}

// onlyFamily is the family to redirect, zero for both.
func (c Config) onlyFamily() Family {
	if c.NoIPv6 {
		return IPv4
	}
	return 0
}

func (c Config) skipInboundSet() PortSet  { return PortSet{setSkipInbound, c.skipInbound()} }
func (c Config) skipOutboundSet() PortSet { return PortSet{setSkipOutbound, c.SkipOutboundPorts} }
func (c Config) onlyInboundSet() PortSet  { return PortSet{setOnlyInbound, c.OnlyInboundPorts} }
func (c Config) onlyOutboundSet() PortSet { return PortSet{setOnlyOutbound, c.OnlyOutboundPorts} }

// subnetSets splits subnets into one set a family, leaving out families that
// have none and the family that is left alone anyway.
func (c Config) subnetSets(name string, subnets []netip.Prefix) []SubnetSet {
	families := Plan{config: c}.Families()
	var out []SubnetSet
	for _, f := range families {
		if of := ofFamily(subnets, f); len(of) > 0 {
			out = append(out, SubnetSet{name + number(f), f, of})
		}
	}
	return out
}

// number returns "4" or "6", the end of names that a family has its own of.
func number(f Family) string { return string('0' + rune(f)) }

// list collects the rules of a chain. Every rule is about TCP alone.
type list struct{ rules []Rule }

// add appends a rule, unless it asks for a set that is empty: no packet could
// match it.
func (l *list) add(id, why string, m Match, v Verdict) {
	for _, s := range []PortSet{m.SrcPorts, m.DstPorts} {
		if s.Name != "" && s.Ports.Empty() {
			return
		}
	}
	m.Proto = TCP
	l.rules = append(l.rules, Rule{ID: id, Match: m, Verdict: v, Why: why})
}

// midway lets packets go that open no connection. Conntrack begins when the first
// rules come, and takes the next packet of a connection that is open by then for
// its first (nf_conntrack_tcp_loose): redirected, it would end the connection.
func (l *list) midway(id string) {
	l.add(id, "connections from before the rules stay where they are", Match{Midway: true}, Return)
}

func (l *list) redirect(id, why string, m Match, port uint16) {
	l.add(id, why, m, Redirect)
	l.rules[len(l.rules)-1].RedirectTo = port
}
