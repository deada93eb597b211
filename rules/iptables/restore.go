package iptables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/meshctl/meshctl/rules"
)

// Restore returns the text for "iptables-restore --noflush" (ip6tables-restore
// for IPv6) that puts the plan in place of what of ours is there already. Have
// is what Parse found in the same family; the zero value is an empty kernel.
//
// A ":CHAIN" line makes a chain or empties it, and nothing of a table is in
// force before its COMMIT, so no connection sees half a chain. Jumps that are
// where they belong are left alone; others are deleted and made anew, first in
// their chain. For a family the plan leaves alone the text removes what is ours.
func Restore(p rules.Plan, f rules.Family, have Found) string {
	if !slices.Contains(p.Families(), f) {
		return Remove(have)
	}
	wanted := map[rules.Hook]rules.Chain{}
	for _, c := range p.Chains() {
		wanted[c.Hook] = c
	}
	return script(func(h rules.Hook) []string {
		c, ok := wanted[h]
		if !ok {
			return have.removal(h)
		}
		lines := append([]string{declare(h)}, chainLines(p, c, f)...)
		return append(lines, have.jumpChanges(h)...)
	})
}

// Remove returns the text for "iptables-restore --noflush" that takes out what
// Parse found of ours; "" when there is nothing to do.
func Remove(have Found) string { return script(have.removal) }

// script writes the lines of each hook into the table they belong to. Tables
// without lines are left out: even naming one would make the kernel set it up.
func script(lines func(rules.Hook) []string) string {
	var b strings.Builder
	for _, table := range []string{"mangle", "nat"} {
		var body []string
		for _, h := range hooks() {
			if TableName(h) == table {
				body = append(body, lines(h)...)
			}
		}
		if len(body) > 0 {
			fmt.Fprintf(&b, "*%s\n%s\nCOMMIT\n", table, strings.Join(sorted(body), "\n"))
		}
	}
	return b.String()
}

// sorted puts the declarations of chains before all other lines, keeping the
// order otherwise.
func sorted(lines []string) []string {
	var declarations, others []string
	for _, l := range lines {
		if strings.HasPrefix(l, ":") {
			declarations = append(declarations, l)
		} else {
			others = append(others, l)
		}
	}
	return append(declarations, others...)
}

// declare returns the line that makes our chain, or empties it.
func declare(h rules.Hook) string { return ":" + ChainName(h) + " - [0:0]" }

// jumpChanges returns the lines that leave one jump to our chain, first in its
// built-in chain.
func (f Found) jumpChanges(h rules.Hook) []string {
	if f.jumpInPlace(h) {
		return nil
	}
	return append(f.jumpDeletions(h), fmt.Sprintf("-I %s 1%s", Parent(h), jump(h)))
}

// removal returns the lines that take our chain and all jumps to it out.
func (f Found) removal(h rules.Hook) []string {
	out := f.jumpDeletions(h)
	if f.hasChain(h) {
		out = append(append([]string{declare(h)}, out...), "-X "+ChainName(h))
	}
	return out
}

func (f Found) jumpDeletions(h rules.Hook) []string {
	var out []string
	for _, j := range f.Jumps {
		if j.Hook == h {
			out = append(out, "-D"+strings.TrimPrefix(j.Line, "-A"))
		}
	}
	return out
}
