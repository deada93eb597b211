package rules

import (
	"fmt"
	"net/netip"
	"strconv"
)

// Explanation is a Decision for people: the same in JSON and in lines.
type Explanation struct {
	Connection string `json:"connection"`      // the packet in words
	Goes       string `json:"goes"`            // what becomes of it
	Verdict    string `json:"verdict"`         // as Verdict.String says it
	To         uint16 `json:"to,omitempty"`    // the port of the proxy it is redirected to
	Chain      string `json:"chain,omitempty"` // where the rule stands; "" when no rule matches
	Rule       string `json:"rule,omitempty"`  // the rule's ID; "" when no rule matches
	Because    string `json:"because,omitempty"`
	Why        string `json:"why"`
}

// Explain tells what Eval decides on the packet: by which rule, what about the
// packet made the rule match, and why the rule is there.
func (p Plan) Explain(pk Packet) Explanation {
	d := p.Eval(pk)
	e := Explanation{
		Connection: pk.String(), Goes: p.goes(pk, d), Verdict: d.Verdict.String(),
		To: d.RedirectTo, Rule: d.Rule, Why: d.Why,
	}
	hook, ok := pk.hook()
	if !ok || d.Rule == "" {
		return e
	}
	e.Chain = hook.String()
	for _, r := range p.Rules(hook) {
		if r.ID == d.Rule {
			e.Because = p.because(r.Match, pk)
		}
	}
	return e
}

// Lines returns the explanation as lines without an end, the packet first.
func (e Explanation) Lines() []string {
	lines := []string{e.Connection, "  goes     " + e.Goes}
	if e.Rule != "" {
		lines = append(lines, "  rule     "+e.Rule+" (chain "+e.Chain+")")
	}
	if e.Because != "" {
		lines = append(lines, "  because  "+e.Because)
	}
	return append(lines, "  why      "+e.Why)
}

func (p Plan) goes(pk Packet, d Decision) string {
	switch d.Verdict {
	case Redirect:
		return fmt.Sprintf("to the proxy's %s port, %d", pk.Direction, d.RedirectTo)
	case Drop:
		return "nowhere: it is dropped"
	default:
		return "straight to where it is sent; the proxy does not see it"
	}
}

// because names what the rule found in the packet; "" for a rule that takes
// every TCP connection.
func (p Plan) because(m Match, pk Packet) string {
	switch {
	case m.UID != nil:
		return fmt.Sprintf("uid %d is the proxy's", pk.UID)
	case m.GID != nil:
		return fmt.Sprintf("gid %d is the proxy's", pk.GID)
	case m.Loopback:
		return "it goes through the device lo"
	case m.Midway:
		return "it does not open a connection"
	case m.Src.Name != "":
		return m.Src.because("source", pk.Src.Addr())
	case m.Dst.Name != "":
		return m.Dst.because("destination", pk.Dst.Addr())
	case m.SrcPorts.Name != "":
		return m.SrcPorts.because("source port", pk.Src.Port())
	case m.DstPorts.Name == setSkipInbound && p.config.ControlPorts.Contains(pk.Dst.Port()):
		return fmt.Sprintf("port %d is one of the proxy's control and admin ports", pk.Dst.Port())
	case m.DstPorts.Name != "":
		return m.DstPorts.because("port", pk.Dst.Port())
	}
	return ""
}

func (s PortSet) because(what string, port uint16) string {
	in := ""
	if r, _ := s.Ports.Find(port); r.Lo != r.Hi {
		in = fmt.Sprintf(" as part of %s", r)
	}
	return fmt.Sprintf("%s %d is in %s%s", what, port, s.Name, in)
}

func (s SubnetSet) because(what string, addr netip.Addr) string {
	for _, n := range s.Subnets {
		if n.Contains(addr.Unmap()) {
			return fmt.Sprintf("the %s %s is in %s as part of %s", what, addr.Unmap(), s.Name, n)
		}
	}
	return ""
}

// String describes the packet in one line, such as "outbound TCP to
// 10.0.0.9:3306, uid 1000".
func (p Packet) String() string {
	s := fmt.Sprintf("%s %s", p.Direction, protoName(p.Proto))
	if p.Invalid {
		s = fmt.Sprintf("%s %s packet that conntrack calls invalid", p.Direction, protoName(p.Proto))
	}
	if p.Midway {
		s = fmt.Sprintf("%s %s packet of an older connection", p.Direction, protoName(p.Proto))
	}
	if p.Src.IsValid() {
		s += " from " + p.Src.String()
	}
	s += " to " + p.Dst.String()
	if p.Direction == Outbound {
		s += fmt.Sprintf(", uid %d", p.UID)
	}
	if p.GID != 0 {
		s += fmt.Sprintf(", gid %d", p.GID)
	}
	if p.Loopback {
		s += ", through lo"
	}
	return s
}

// protoName names the protocols people may ask about (IANA, Assigned Internet
// Protocol Numbers).
func protoName(n uint8) string {
	switch n {
	case 1:
		return "ICMP"
	case TCP:
		return "TCP"
	case 17:
		return "UDP"
	case 58:
		return "ICMPv6"
	case 132:
		return "SCTP"
	default:
		return "protocol " + strconv.Itoa(int(n))
	}
}
