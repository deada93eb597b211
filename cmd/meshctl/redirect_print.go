package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/meshctl/meshctl/rules"
	"github.com/meshctl/meshctl/rules/iptables"
	"github.com/meshctl/meshctl/rules/nftables"
)

// printPlan writes what would be in force. The same plan gives the same bytes.
func printPlan(w io.Writer, plan rules.Plan, form string) error {
	var text string
	switch form {
	case "text":
		text = planText(plan)
	case "nft":
		text = nftables.Text(plan)
	case "iptables":
		for _, f := range plan.Families() {
			text += fmt.Sprintf("# %s\n%s", f, iptables.Restore(plan, f, iptables.Found{}))
		}
	case "json":
		b, err := json.MarshalIndent(plan, "", "  ")
		if err != nil {
			return fmt.Errorf("writing the plan as JSON: %w", err)
		}
		text = string(b) + "\n"
	default:
		return usagef("--output %q: want text, nft, iptables or json", form)
	}
	_, err := io.WriteString(w, text)
	return err
}

// planText is the plan for people: what happens to a packet, line by line.
func planText(plan rules.Plan) string {
	var b strings.Builder
	for i, chain := range plan.Chains() {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s (at %s, priority %d)\n", chain.Hook, chain.Hook.Netfilter(), chain.Hook.Priority())
		for _, r := range chain.Rules {
			verdict := r.Verdict.String()
			if r.Verdict == rules.Redirect {
				verdict = fmt.Sprintf("redirect to %d", r.RedirectTo)
			}
			fmt.Fprintf(&b, "  %-28s %-17s %s\n", r.ID, verdict, r.Why)
		}
	}
	for _, s := range plan.PortSets() {
		fmt.Fprintf(&b, "\n%s: %s", s.Name, s.Ports)
	}
	for _, s := range plan.SubnetSets() {
		fmt.Fprintf(&b, "\n%s: %s", s.Name, strings.Trim(fmt.Sprint(s.Subnets), "[]"))
	}
	return b.String() + "\n"
}
