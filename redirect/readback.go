package redirect

import "github.com/meshctl/meshctl/rules"

// Plan reads the plan back from what the kernel holds. It is false when no plan
// of this program would give just that: the rules are not there, somebody has
// changed them, or another version wrote them.
func (s State) Plan() (rules.Plan, bool) {
	if s.readBack == nil {
		return rules.Plan{}, false
	}
	config := rules.ConfigOf(s.readBack())
	for range 2 {
		plan, err := rules.Build(config)
		if err == nil && plan.Hash() == s.Hash && len(s.Drift(plan)) == 0 {
			return plan, true
		}
		// By iptables, IPv6 left alone and IPv6 that cannot be had look alike.
		config.NoIPv6 = !config.NoIPv6
	}
	return rules.Plan{}, false
}
