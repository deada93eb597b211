// Package nftables writes a Plan in the language of nftables: as the text
// nft(8) reads, and as the netlink objects that need no program. The kernel
// gets the same rules from both. It sends nothing itself.
package nftables

import (
	"fmt"
	"strings"

	"github.com/meshctl/meshctl/rules"
)

// Name of the one table that is ours, in family inet. All else in the kernel
// belongs to others.
const TableName = "meshctl"

// Text returns a script for "nft -f -" that puts the plan in place of what
// table inet meshctl held, in one transaction: either all of it or nothing.
// The first "add" lets the "delete" succeed where there is no table yet.
func Text(p rules.Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "add table inet %s\ndelete table inet %s\ntable inet %s {\n", TableName, TableName, TableName)
	for _, s := range setsOf(p) {
		s.write(&b)
	}
	for i, c := range p.Chains() {
		if i > 0 {
			b.WriteString("\n")
		}
		writeChain(&b, p, c)
	}
	b.WriteString("}\n")
	return b.String()
}

// RemoveText returns a script for "nft -f -" that takes the table out, and
// succeeds where there is none.
func RemoveText() string {
	return fmt.Sprintf("add table inet %s\ndelete table inet %s\n", TableName, TableName)
}

func (s set) write(b *strings.Builder) {
	fmt.Fprintf(b, "\tset %s {\n\t\ttype %s\n\t\tflags interval\n\t\telements = { ", s.name, s.typ.Name)
	for i, iv := range s.intervals {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(iv.text)
	}
	b.WriteString(" }\n\t}\n\n")
}

func writeChain(b *strings.Builder, p rules.Plan, c rules.Chain) {
	kind := "filter"
	if c.Hook.NAT() {
		kind = "nat"
	}
	fmt.Fprintf(b, "\tchain %s {\n\t\ttype %s hook %s priority %d; policy accept;\n",
		c.Hook, kind, c.Hook.Netfilter(), c.Hook.Priority())
	comments := p.Comments(c)
	for i, r := range c.Rules {
		fmt.Fprintf(b, "\t\t%s counter %s comment \"%s\"\n", matchText(r.Match, c.Hook), verdictText(r), comments[i])
	}
	b.WriteString("\t}\n")
}

// matchText writes the conditions in the order in which exprs puts them.
func matchText(m rules.Match, h rules.Hook) string {
	var out []string
	say := func(when bool, format string, args ...any) {
		if when {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	say(m.Family != 0, "meta nfproto %s", strings.ToLower(m.Family.String()))
	say(m.CT == rules.Invalid, "ct state invalid")
	say(m.CT == rules.NotInvalid, "ct state != invalid")
	say(m.Loopback && h.Netfilter() == "output", `oifname "lo"`)
	say(m.Loopback && h.Netfilter() != "output", `iifname "lo"`)
	// A match on a TCP port or on flags says it by itself.
	say(m.Proto != 0 && m.SrcPorts.Name == "" && m.DstPorts.Name == "" && !m.Midway, "meta l4proto tcp")
	say(m.UID != nil, "meta skuid %d", deref(m.UID))
	say(m.GID != nil, "meta skgid %d", deref(m.GID))
	say(m.Src.Name != "", "%s saddr @%s", ip(m.Src), m.Src.Name)
	say(m.Dst.Name != "", "%s daddr @%s", ip(m.Dst), m.Dst.Name)
	say(m.SrcPorts.Name != "", "tcp sport @%s", m.SrcPorts.Name)
	say(m.DstPorts.Name != "", "tcp dport @%s", m.DstPorts.Name)
	say(m.Midway, "tcp flags & (fin | syn | rst | ack) != syn")
	return strings.Join(out, " ")
}

func verdictText(r rules.Rule) string {
	if r.Verdict == rules.Redirect {
		return fmt.Sprintf("redirect to :%d", r.RedirectTo)
	}
	return r.Verdict.String()
}

// ip returns the header that addresses of s stand in, as nft spells it.
func ip(s rules.SubnetSet) string {
	if s.Family == rules.IPv6 {
		return "ip6"
	}
	return "ip"
}

// deref returns what id points to, 0 for nil.
func deref(id *uint32) uint32 {
	if id == nil {
		return 0
	}
	return *id
}
