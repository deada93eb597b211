package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/meshctl/meshctl/internal/listen"
	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/redirect"
	"github.com/meshctl/meshctl/rules"
)

// listenAddrs finds the addresses that the proxy will listen on, from its own
// flags among args: they are bound before it starts. The admin port becomes a
// control port of the rules.
func listenAddrs(c *rules.Config, args []string) (redirect.Addrs, error) {
	any6, loop6 := fmt.Sprintf("[::]:%d", c.InboundPort), fmt.Sprintf(",[::1]:%d", c.OutboundPort)
	if c.NoIPv6 {
		any6, loop6 = fmt.Sprintf("0.0.0.0:%d", c.InboundPort), ""
	}
	var addrs redirect.Addrs
	for _, l := range []struct {
		flag, def string
		port      uint16 // that rules redirect to; 0: any
		to        *[]netip.AddrPort
	}{
		{"inbound-listen", any6, c.InboundPort, &addrs.Inbound},
		{"outbound-listen", fmt.Sprintf("127.0.0.1:%d%s", c.OutboundPort, loop6), c.OutboundPort, &addrs.Outbound},
		{"admin-listen", "[::]:4191", 0, &addrs.Admin},
	} {
		list, said := proxyFlag(args, l.flag)
		if !said {
			list = l.def
		}
		if list == "" {
			continue
		}
		parsed, err := listen.Parse(list)
		if err != nil {
			return addrs, usagef("--%s: %w", l.flag, err)
		}
		for _, a := range parsed {
			if l.port != 0 && a.Port() != l.port {
				return addrs, usagef("--%s %s: connections are redirected to port %d", l.flag, a, l.port)
			}
		}
		*l.to = parsed
	}
	for _, a := range addrs.Admin {
		c.ControlPorts = c.ControlPorts.Union(ports.Of(a.Port()))
	}
	return addrs, nil
}

// proxyFlag is the last value of a flag in a command line that is not ours to
// parse in whole.
func proxyFlag(args []string, name string) (value string, said bool) {
	for i, arg := range args {
		if rest, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			value, said = rest, true
		}
		if arg == "--"+name && i+1 < len(args) {
			value, said = args[i+1], true
		}
	}
	return value, said
}
