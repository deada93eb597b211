package main

import (
	"context"
	"strings"
	"time"

	"github.com/meshctl/meshctl/proxy"
	"github.com/meshctl/meshctl/redirect"
	"github.com/meshctl/meshctl/rules"
)

// skipReadTimeout bounds one reading of the rule counters: a scrape waits for it.
const skipReadTimeout = time.Second

// skipCounter returns a function that reads what the skip rules of this
// namespace have counted, or nil where that cannot be read: it takes
// CAP_NET_ADMIN, which a proxy started by "meshctl redirect" has given up. The
// rules of iptables are left out: to read them takes a program.
func skipCounter() func() []proxy.SkipCount {
	ns, err := redirect.CurrentNamespace()
	if err != nil {
		return nil
	}
	read := func() ([]proxy.SkipCount, error) {
		ctx, cancel := context.WithTimeout(context.Background(), skipReadTimeout)
		defer cancel()
		choice, err := redirect.Pick(ctx, ns, redirect.Options{Backend: redirect.NFTables, Force: true})
		if err != nil {
			return nil, err
		}
		state, err := choice.Backend.Read(ctx)
		if err != nil {
			return nil, err
		}
		return skipCounts(state.Counters), nil
	}
	if _, err := read(); err != nil {
		ns.Close()
		return nil
	}
	return func() []proxy.SkipCount {
		counts, _ := read() // the rules may be gone, or the right: then there is nothing to show
		return counts
	}
}

// skipCounts picks the skip rules of the NAT chains, which see each connection
// once, and says which way each looks.
func skipCounts(counters []redirect.RuleCount) []proxy.SkipCount {
	directions := map[string]proxy.Direction{rules.HookInbound.String(): proxy.Inbound, rules.HookOutbound.String(): proxy.Outbound}
	var counts []proxy.SkipCount
	for _, c := range counters {
		direction, nat := directions[c.Chain]
		if !nat || !strings.HasPrefix(c.ID, "skip-") {
			continue
		}
		counts = append(counts, proxy.SkipCount{Direction: direction, Rule: c.ID, Packets: c.Packets})
	}
	return counts
}
