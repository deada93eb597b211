package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/proxy"
	"github.com/meshctl/meshctl/redirect"
)

func TestOnlySkipRulesThatSeeConnectionsAreCounted(t *testing.T) {
	got := skipCounts([]redirect.RuleCount{
		{Chain: "invalid", ID: "skip-inbound-ports", Packets: 900}, // sees packets, not connections
		{Chain: "inbound", ID: "skip-inbound-ports", Packets: 1},
		{Chain: "inbound", ID: "redirect-inbound", Packets: 2},
		{Chain: "outbound", ID: "proxy-uid", Packets: 3},
		{Chain: "outbound", ID: "skip-outbound-ports", Packets: 4},
		{Chain: "outbound", ID: "skip-outbound-subnets", Packets: 5},
	})
	want := []proxy.SkipCount{
		{Direction: proxy.Inbound, Rule: "skip-inbound-ports", Packets: 1},
		{Direction: proxy.Outbound, Rule: "skip-outbound-ports", Packets: 4},
		{Direction: proxy.Outbound, Rule: "skip-outbound-subnets", Packets: 5},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
