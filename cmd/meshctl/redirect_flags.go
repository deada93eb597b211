package main

import (
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/internal/subnet"
	"github.com/meshctl/meshctl/rules"
)

// ruleFlags are the flags that say what is redirected, as they are written. A
// command that needs a rules.Config registers them and asks for config.
type ruleFlags struct {
	inboundPort, outboundPort     uint16
	proxyUID                      uint32
	proxyGID                      string
	skipInbound, skipOutbound     string
	onlyInbound, onlyOutbound     string
	skipSubnets                   []string
	skipInSubnets, skipOutSubnets []string
	keepInvalid                   bool
	ipv6                          string
	annotations                   string
	flags                         *pflag.FlagSet
	strict                        map[string]bool // lists given by their linkerd2-proxy-init names
}

func (r *ruleFlags) register(f *pflag.FlagSet) {
	d := rules.DefaultConfig()
	r.strict = map[string]bool{}
	r.flags = f
	f.Uint16VarP(&r.inboundPort, "inbound-port", "p", d.InboundPort, "the proxy's port for connections that come in")
	f.Uint16Var(&r.outboundPort, "outbound-port", d.OutboundPort, "the proxy's port for connections that the application opens")
	f.Uint32VarP(&r.proxyUID, "proxy-uid", "u", d.ProxyUID, "user that the proxy runs as; its own connections stay direct")
	f.StringVarP(&r.proxyGID, "proxy-gid", "g", "", "group of the proxy; if given, its connections stay direct too")
	f.StringVar(&r.skipInbound, "skip-inbound-ports", d.SkipInboundPorts.String(), "ports of the application left alone, as 25,4444-4500; a leading + adds to the default")
	f.StringVar(&r.skipOutbound, "skip-outbound-ports", d.SkipOutboundPorts.String(), "ports of servers left alone; a leading + adds to the default")
	f.StringVarP(&r.onlyInbound, "only-inbound-ports", "r", "", "redirect only these ports of the application")
	f.StringVar(&r.onlyOutbound, "only-outbound-ports", "", "redirect only these ports of servers")
	f.StringSliceVar(&r.skipSubnets, "skip-subnets", nil, "subnets left alone in both directions, as 10.0.0.0/8,fd00::/8")
	f.StringSliceVar(&r.skipInSubnets, "skip-inbound-subnets", nil, "clients' subnets left alone")
	f.StringSliceVar(&r.skipOutSubnets, "skip-outbound-subnets", nil, "servers' subnets left alone")
	f.BoolVar(&r.keepInvalid, "keep-invalid", false, "do not drop packets that conntrack calls invalid (they can reset redirected connections)")
	f.StringVar(&r.ipv6, "ipv6", "auto", "auto, required (fail where IPv6 cannot be redirected) or off (IPv6 goes around the proxy)")
	f.Lookup("ipv6").NoOptDefVal = "auto"
	f.StringVar(&r.annotations, "annotations", "", "file with the pod's own annotations, as the downward API writes it; flags win over it")
}

// config turns the flags into a Config; every error is a usage error that names
// the flag.
func (r *ruleFlags) config() (rules.Config, error) {
	c := rules.DefaultConfig()
	if err := fromAnnotations(r.flags, r.annotations, ruleStandIns(), os.Stderr); err != nil {
		return c, err
	}
	c.InboundPort, c.OutboundPort, c.ProxyUID, c.KeepInvalid = r.inboundPort, r.outboundPort, r.proxyUID, r.keepInvalid
	if r.proxyGID != "" {
		gid, err := strconv.ParseUint(r.proxyGID, 10, 32)
		if err != nil {
			return c, usagef("--proxy-gid %q is no group number", r.proxyGID)
		}
		number := uint32(gid)
		c.ProxyGID = &number
	}
	if err := r.controlPorts(&c); err != nil {
		return c, err
	}
	if err := r.portLists(&c); err != nil {
		return c, err
	}
	if err := r.subnetLists(&c); err != nil {
		return c, err
	}
	switch r.ipv6 {
	case "auto", "true", "required":
	case "off", "false":
		c.NoIPv6 = true
	default:
		return c, usagef("--ipv6 %q: want auto, required or off", r.ipv6)
	}
	if err := c.Validate(); err != nil {
		return c, usagef("--%w", err)
	}
	return c, nil
}

func (r *ruleFlags) portLists(c *rules.Config) error {
	for _, l := range []struct {
		flag, list string
		to         *ports.Set
	}{
		{"skip-inbound-ports", r.skipInbound, &c.SkipInboundPorts},
		{"skip-outbound-ports", r.skipOutbound, &c.SkipOutboundPorts},
		{"only-inbound-ports", r.onlyInbound, &c.OnlyInboundPorts},
		{"only-outbound-ports", r.onlyOutbound, &c.OnlyOutboundPorts},
	} {
		set, err := ports.ParseOver(l.list, *l.to)
		if r.strict[l.flag] {
			set, err = ports.ParseStrict(l.list)
		}
		if err != nil {
			return usagef("--%s: %w", l.flag, err)
		}
		*l.to = set
	}
	return nil
}

func (r *ruleFlags) subnetLists(c *rules.Config) error {
	for _, l := range []struct {
		flag string
		list []string
		to   []*[]netip.Prefix
	}{
		{"skip-subnets", r.skipSubnets, []*[]netip.Prefix{&c.SkipInboundSubnets, &c.SkipOutboundSubnets}},
		{"skip-inbound-subnets", r.skipInSubnets, []*[]netip.Prefix{&c.SkipInboundSubnets}},
		{"skip-outbound-subnets", r.skipOutSubnets, []*[]netip.Prefix{&c.SkipOutboundSubnets}},
	} {
		list, err := subnet.Parse(strings.Join(l.list, ","))
		if err != nil {
			return usagef("--%s: %w", l.flag, err)
		}
		for _, to := range l.to {
			*to = append(*to, list...)
		}
	}
	return nil
}
