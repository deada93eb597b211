package rules

// ConfigOf returns the Config that rules read back from a kernel were built
// from, as far as they tell. They are in any order and in parts: several may
// have one ID, each with a part of its ports or subnets. Rules whose ID is none
// of Build's are passed over, so the caller has to compare the plan of the
// answer with what is in the kernel.
func ConfigOf(found []Rule) Config {
	c := Config{KeepInvalid: true}
	for _, r := range found {
		m := r.Match
		switch r.ID {
		case "proxy-uid":
			if m.UID != nil {
				c.ProxyUID = *m.UID
			}
		case "proxy-gid":
			c.ProxyGID = m.GID
		case "skip-inbound-ports":
			c.SkipInboundPorts = c.SkipInboundPorts.Union(m.DstPorts.Ports)
		case "skip-outbound-ports":
			c.SkipOutboundPorts = c.SkipOutboundPorts.Union(m.DstPorts.Ports)
		case "skip-inbound-subnets4", "skip-inbound-subnets6":
			c.SkipInboundSubnets = append(c.SkipInboundSubnets, m.Src.Subnets...)
		case "skip-outbound-subnets4", "skip-outbound-subnets6":
			c.SkipOutboundSubnets = append(c.SkipOutboundSubnets, m.Dst.Subnets...)
		case "redirect-inbound":
			c.InboundPort, c.OnlyInboundPorts = r.RedirectTo, c.OnlyInboundPorts.Union(m.DstPorts.Ports)
			c.NoIPv6 = m.Family == IPv4
		case "redirect-outbound":
			c.OutboundPort, c.OnlyOutboundPorts = r.RedirectTo, c.OnlyOutboundPorts.Union(m.DstPorts.Ports)
		case "tracked":
			c.KeepInvalid = false
		}
	}
	// The kernel has one set for both; which of them are the proxy's own makes
	// no difference to a plan, only to how it is explained.
	c.ControlPorts = c.SkipInboundPorts.Intersect(DefaultConfig().ControlPorts)
	return c
}
