// Package iptables writes a Plan in the language of iptables-restore, for one
// family at a time, and reads from listings what is already there. It runs no
// program itself. One text serves iptables-nft and iptables-legacy alike.
package iptables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/rules"
)

// hooks are the places where a chain of ours can stand, in the order in which
// they are written: what guards redirected traffic comes before what redirects.
func hooks() []rules.Hook {
	return []rules.Hook{rules.HookInvalid, rules.HookInbound, rules.HookOutbound}
}

// ChainName returns the name of our chain for a hook: MESHCTL_INBOUND,
// MESHCTL_OUTBOUND or MESHCTL_INVALID.
func ChainName(h rules.Hook) string { return "MESHCTL_" + strings.ToUpper(h.String()) }

// TableName returns the table our chain for a hook is in: nat or mangle.
func TableName(h rules.Hook) string {
	if h.NAT() {
		return "nat"
	}
	return "mangle"
}

// Parent returns the built-in chain that our chain is called from: PREROUTING
// or OUTPUT.
func Parent(h rules.Hook) string { return strings.ToUpper(h.Netfilter()) }

// Lines returns the rules of our chains for a family as "-A CHAIN ..." lines,
// spelled exactly as iptables-save spells them, so that a listing can be
// compared with them. Jumps are not among them. There are none for a family
// the plan leaves alone.
func Lines(p rules.Plan, f rules.Family) []string {
	var out []string
	if !slices.Contains(p.Families(), f) {
		return nil
	}
	for _, c := range p.Chains() {
		out = append(out, chainLines(p, c, f)...)
	}
	return out
}

func chainLines(p rules.Plan, c rules.Chain, f rules.Family) []string {
	var out []string
	comments := p.Comments(c)
	for i, r := range c.Rules {
		for _, match := range matches(r.Match, c.Hook, f) {
			out = append(out, fmt.Sprintf("-A %s%s -m comment --comment %q -j %s",
				ChainName(c.Hook), match, comments[i], target(r)))
		}
	}
	return out
}

// jump returns what follows "-A PREROUTING" or "-I PREROUTING 1" in the rule
// that calls our chain.
func jump(h rules.Hook) string {
	what := "TCP connections that local processes open"
	switch h {
	case rules.HookInbound:
		what = "TCP connections that come in"
	case rules.HookInvalid:
		what = "TCP packets that come in"
	}
	return fmt.Sprintf(" -p tcp -m comment --comment %q -j %s", "meshctl: "+what, ChainName(h))
}

func target(r rules.Rule) string {
	if r.Verdict == rules.Redirect {
		return fmt.Sprintf("REDIRECT --to-ports %d", r.RedirectTo)
	}
	return strings.ToUpper(r.Verdict.String())
}

// matches returns the conditions of m for a family, each with a blank before
// it. One match becomes several lines when it needs more than one subnet or
// more ports than multiport holds, and none when it is about the other family.
// Any of the lines may match, so a match is never negated by this package.
func matches(m rules.Match, h rules.Hook, f rules.Family) []string {
	if m.Family != 0 && m.Family != f {
		return nil
	}
	tail := ""
	if m.Midway {
		tail = " -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN"
	}
	switch m.CT {
	case rules.Invalid:
		tail += " -m conntrack --ctstate INVALID"
	case rules.NotInvalid:
		tail += " -m conntrack ! --ctstate INVALID"
	}
	if m.UID != nil {
		tail += fmt.Sprintf(" -m owner --uid-owner %d", *m.UID)
	}
	if m.GID != nil {
		tail += fmt.Sprintf(" -m owner --gid-owner %d", *m.GID)
	}
	out := []string{""}
	out = times(out, subnets("-s", m.Src, f))
	out = times(out, subnets("-d", m.Dst, f))
	out = times(out, []string{device(m, h) + " -p tcp" + tail})
	out = times(out, multiport("--sports", m.SrcPorts))
	return times(out, multiport("--dports", m.DstPorts))
}

// device returns the condition on the device, "" if there is none.
func device(m rules.Match, h rules.Hook) string {
	switch {
	case !m.Loopback:
		return ""
	case h.Netfilter() == "output":
		return " -o lo"
	default:
		return " -i lo"
	}
}

// times joins every head with every tail.
func times(heads, tails []string) []string {
	var out []string
	for _, h := range heads {
		for _, t := range tails {
			out = append(out, h+t)
		}
	}
	return out
}

// subnets returns one condition for each subnet of s; one empty condition when
// nothing is asked, none when s is of the other family.
func subnets(flag string, s rules.SubnetSet, f rules.Family) []string {
	if s.Name == "" {
		return []string{""}
	}
	var out []string
	for _, n := range s.Subnets {
		switch {
		case s.Family != f:
		case n.Bits() == 0: // iptables-save says nothing of a subnet that holds all
			out = append(out, "")
		default:
			out = append(out, " "+flag+" "+n.String())
		}
	}
	return out
}

// slots is how many ports one multiport match holds (iptables-extensions(8));
// a range takes two.
const slots = 15

// multiport returns one condition for each 15 slots of s; one empty condition
// when nothing is asked.
func multiport(flag string, s rules.PortSet) []string {
	if s.Name == "" {
		return []string{""}
	}
	var out, items []string
	free := slots
	flush := func() {
		if len(items) > 0 {
			out = append(out, " -m multiport "+flag+" "+strings.Join(items, ","))
		}
		items, free = nil, slots
	}
	for _, r := range s.Ports.Ranges() {
		item, takes := multiportItem(r)
		if takes > free {
			flush()
		}
		items, free = append(items, item), free-takes
	}
	flush()
	return out
}

// multiportItem spells a range, and says how many slots it takes.
func multiportItem(r ports.Range) (item string, takes int) {
	if r.Lo == r.Hi {
		return r.String(), 1
	}
	return fmt.Sprintf("%d:%d", r.Lo, r.Hi), 2
}
