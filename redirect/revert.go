package redirect

import (
	"fmt"
	"slices"
	"strings"

	"github.com/meshctl/meshctl/rules"
	ipt "github.com/meshctl/meshctl/rules/iptables"
)

// revertText is the text for `iptables-restore --noflush` that brings our
// chains and jumps back to what was found before, from what there is now.
// Nobody else's line is in it.
func revertText(before, now ipt.Found) string {
	var b strings.Builder
	for _, table := range []string{"mangle", "nat"} {
		var declared, lines, gone []string
		for _, h := range hooksOf(table) {
			name := ipt.ChainName(h)
			was, is := slices.Contains(before.Chains, name), slices.Contains(now.Chains, name)
			if !was && !is {
				continue
			}
			declared = append(declared, ":"+name+" - [0:0]")
			lines = append(lines, rulesOf(before, name)...)
			lines = append(lines, jumpsBack(before, now, h)...)
			if !was {
				gone = append(gone, "-X "+name)
			}
		}
		if len(declared) > 0 {
			body := slices.Concat(declared, lines, gone)
			fmt.Fprintf(&b, "*%s\n%s\nCOMMIT\n", table, strings.Join(body, "\n"))
		}
	}
	return b.String()
}

func hooksOf(table string) []rules.Hook {
	var out []rules.Hook
	for _, h := range []rules.Hook{rules.HookInvalid, rules.HookInbound, rules.HookOutbound} {
		if ipt.TableName(h) == table {
			out = append(out, h)
		}
	}
	return out
}

func rulesOf(f ipt.Found, chain string) []string {
	var out []string
	for _, line := range f.Rules {
		if strings.HasPrefix(line, "-A "+chain+" ") {
			out = append(out, line)
		}
	}
	return out
}

// jumpsBack deletes the jumps of now and makes those of before, in their order,
// at the head of their chains.
func jumpsBack(before, now ipt.Found, h rules.Hook) []string {
	var out []string
	for _, j := range now.Jumps {
		if j.Hook == h {
			out = append(out, "-D"+strings.TrimPrefix(j.Line, "-A"))
		}
	}
	for _, j := range slices.Backward(before.Jumps) {
		if j.Hook == h {
			chain, rest, _ := strings.Cut(strings.TrimPrefix(j.Line, "-A "), " ")
			out = append(out, fmt.Sprintf("-I %s 1 %s", chain, rest))
		}
	}
	return out
}

// foundItems is a family's listing in comparable form.
func foundItems(f rules.Family, found ipt.Found) []item {
	var out []item
	for _, h := range []rules.Hook{rules.HookInvalid, rules.HookInbound, rules.HookOutbound} {
		chain := ipt.ChainName(h)
		if slices.Contains(found.Chains, chain) {
			out = append(out, item{fmt.Sprintf("%s chain %s", f, chain), ""})
		}
		for _, j := range found.Jumps {
			if j.Hook == h {
				out = append(out, jumpItem(f, chain, j.First))
			}
		}
		out = append(out, ruleItems(f, chain, rulesOf(found, chain))...)
	}
	return out
}

// planItems is what foundItems gives where the plan is in place.
func planItems(plan rules.Plan, f rules.Family) []item {
	var out []item
	lines := ipt.Found{Rules: ipt.Lines(plan, f)}
	for _, c := range plan.Chains() {
		chain := ipt.ChainName(c.Hook)
		out = append(out, item{fmt.Sprintf("%s chain %s", f, chain), ""}, jumpItem(f, chain, true))
		out = append(out, ruleItems(f, chain, rulesOf(lines, chain))...)
	}
	return out
}

func jumpItem(f rules.Family, chain string, first bool) item {
	return item{fmt.Sprintf("%s jump to %s", f, chain), fmt.Sprintf("first %v", first)}
}

// ruleItems puts the lines that one rule became into one item.
func ruleItems(f rules.Family, chain string, lines []string) []item {
	var out []item
	for _, line := range lines {
		_, rest, _ := strings.Cut(line, `--comment "`)
		comment, _, _ := strings.Cut(rest, `"`)
		name := fmt.Sprintf("%s %s", f, ruleName(chain, comment))
		if n := len(out); n > 0 && out[n-1].name == name {
			out[n-1].code += "\n" + line
			continue
		}
		out = append(out, item{name, line})
	}
	return out
}

// expectedIn is how a plan should read in the families given.
func expectedIn(families []rules.Family) func(rules.Plan) []item {
	return func(plan rules.Plan) []item {
		var out []item
		for _, f := range families {
			if slices.Contains(plan.Families(), f) {
				out = append(out, planItems(plan, f)...)
			}
		}
		return out
	}
}
