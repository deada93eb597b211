package redirect

import (
	"fmt"
	"slices"
	"strings"

	"github.com/meshctl/meshctl/rules"
)

// State is what one backend holds of ours in the kernel.
type State struct {
	Backend  string
	Present  bool        // anything of ours is there, whole or not
	Hash     string      // of the plan it was written from; empty when its parts disagree
	Counters []RuleCount // rule by rule, in the order of the chains
	content  []item      // all of it, in comparable form
	readBack func() []rules.Rule
	expected func(rules.Plan) []item
}

// RuleCount is how often a rule has decided. NAT rules see the first packet of
// each connection only.
type RuleCount struct {
	Family  rules.Family // zero: both at once
	Chain   string
	ID      string // empty for a rule that is not of ours
	Packets uint64
	Bytes   uint64
}

// item is one thing in the kernel: a chain, a set, a rule. Code holds all that
// decides what it does, and nothing that changes by itself.
type item struct {
	name string // what people call it
	code string
}

// Drift tells in words where the kernel differs from the plan; nothing when all
// is in place.
func (s State) Drift(plan rules.Plan) []string {
	if s.expected == nil {
		return []string{"no rules are in place"}
	}
	return differences(s.expected(plan), s.content)
}

func differences(want, got []item) []string {
	var out []string
	for _, w := range want {
		switch g := find(got, w.name); {
		case len(g) == 0:
			out = append(out, w.name+" is missing")
		case len(g) > 1:
			out = append(out, fmt.Sprintf("%s is there %d times", w.name, len(g)))
		case g[0].code != w.code:
			out = append(out, w.name+" differs")
		}
	}
	for _, g := range got {
		if len(find(want, g.name)) == 0 {
			out = append(out, g.name+" is not ours")
		}
	}
	if len(out) == 0 && !slices.Equal(want, got) {
		out = append(out, "the order differs")
	}
	return out
}

func find(items []item, name string) []item {
	var out []item
	for _, i := range items {
		if i.name == name {
			out = append(out, i)
		}
	}
	return out
}

// commonHash is the one hash that all comments which carry one agree on.
func commonHash(comments []string) string {
	var hashes []string
	for _, c := range comments {
		if _, hash := rules.ParseComment(c); hash != "" {
			hashes = append(hashes, hash)
		}
	}
	slices.Sort(hashes)
	if hashes = slices.Compact(hashes); len(hashes) == 1 {
		return hashes[0]
	}
	return ""
}

// ruleName is what people call a rule, by its comment.
func ruleName(chain, comment string) string {
	if id, _ := rules.ParseComment(comment); id != "" {
		return fmt.Sprintf("rule %s of chain %s", id, chain)
	}
	return strings.TrimSpace(fmt.Sprintf("a rule of chain %s %s", chain, comment))
}
