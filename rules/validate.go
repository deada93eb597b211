package rules

import (
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/internal/subnet"
)

// FieldError says which field of a Config cannot be, and why.
type FieldError struct {
	Field  string // the field as flags spell it, such as "skip-outbound-ports"
	Reason string
}

// Error returns "field: reason".
func (e *FieldError) Error() string { return e.Field + ": " + e.Reason }

// Validate returns a *FieldError for the first field that would give rules that
// loop, catch nothing or shut the proxy out, and nil if there is none.
func (c Config) Validate() error {
	for _, check := range []func(Config) *FieldError{
		Config.checkListeners, Config.checkOwner, Config.checkSkippedPorts, Config.checkSubnets,
	} {
		if err := check(c); err != nil {
			return err
		}
	}
	return nil
}

func (c Config) checkListeners() *FieldError {
	switch {
	case c.InboundPort == 0:
		return &FieldError{"inbound-port", "0 is no port"}
	case c.OutboundPort == 0:
		return &FieldError{"outbound-port", "0 is no port"}
	case c.InboundPort == c.OutboundPort:
		return &FieldError{"outbound-port", fmt.Sprintf("%d is the inbound port already", c.OutboundPort)}
	case c.ControlPorts.Contains(c.InboundPort):
		return &FieldError{"inbound-port", fmt.Sprintf("%d is a control port (%s)", c.InboundPort, c.ControlPorts)}
	case c.ControlPorts.Contains(c.OutboundPort):
		return &FieldError{"outbound-port", fmt.Sprintf("%d is a control port (%s)", c.OutboundPort, c.ControlPorts)}
	}
	return nil
}

// checkOwner refuses owners that are no proxy's own. -1 is what the kernel
// takes for "no id" (chown(2)), so it can own no socket.
func (c Config) checkOwner() *FieldError {
	switch {
	case c.ProxyUID == 0:
		return &FieldError{"proxy-uid", "0 is root: everything that runs as root would go around the proxy"}
	case c.ProxyUID == math.MaxUint32:
		return &FieldError{"proxy-uid", "-1 is no user"}
	case c.ProxyGID == nil:
		return nil
	case *c.ProxyGID == 0:
		return &FieldError{"proxy-gid", "0 is root's group: everything that runs in it would go around the proxy"}
	case *c.ProxyGID == math.MaxUint32:
		return &FieldError{"proxy-gid", "-1 is no group"}
	}
	return nil
}

// checkSkippedPorts refuses a list that takes the proxy's own ports out of the
// rules: it is nearly always a slip. The list of all ports is no slip: it asks
// for no redirection at all, and gets a warning.
func (c Config) checkSkippedPorts() *FieldError {
	for _, list := range []struct {
		field string
		ports ports.Set
	}{{"skip-inbound-ports", c.SkipInboundPorts}, {"skip-outbound-ports", c.SkipOutboundPorts}} {
		if all(list.ports) {
			continue
		}
		for _, own := range []struct {
			name string
			port uint16
		}{{"inbound", c.InboundPort}, {"outbound", c.OutboundPort}} {
			if r, ok := list.ports.Find(own.port); ok {
				return &FieldError{list.field, covers(r, own.port) + " the proxy's own " + own.name + " port"}
			}
		}
	}
	return nil
}

// covers begins the sentence about a list item that holds port.
func covers(item ports.Range, port uint16) string {
	if item.Lo == item.Hi {
		return fmt.Sprintf("%d is", port)
	}
	return fmt.Sprintf("%s covers %d,", item, port)
}

func (c Config) checkSubnets() *FieldError {
	for _, l := range []struct {
		field string
		list  []netip.Prefix
	}{{"skip-inbound-subnets", c.SkipInboundSubnets}, {"skip-outbound-subnets", c.SkipOutboundSubnets}} {
		for _, s := range l.list {
			if reason := subnet.Wrong(s); reason != "" {
				return &FieldError{l.field, fmt.Sprintf("%s: %s", s, reason)}
			}
		}
	}
	return nil
}

// all reports whether s holds every port.
func all(s ports.Set) bool { return s.Len() == math.MaxUint16 }

// Warnings returns a sentence for each thing in c that is allowed and probably
// not meant; nil if there is none.
func (c Config) Warnings() []string {
	var out []string
	warn := func(when bool, format string, args ...any) {
		if when {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	warn(all(c.SkipInboundPorts), "skip-inbound-ports holds every port: nothing is redirected inbound")
	warn(all(c.SkipOutboundPorts), "skip-outbound-ports holds every port: nothing is redirected outbound")
	warn(shadowed(c.OnlyInboundPorts, c.skipInbound()), "every one of only-inbound-ports is skipped too: nothing is redirected inbound")
	warn(shadowed(c.OnlyOutboundPorts, c.SkipOutboundPorts), "every one of only-outbound-ports is skipped too: nothing is redirected outbound")
	warn(c.NoIPv6, "IPv6 is left alone: connections over IPv6 go around the proxy")
	for _, s := range covering(slices.Concat(c.SkipInboundSubnets, c.SkipOutboundSubnets)) {
		warn(s.Bits() == 0, "the skipped subnet %s holds every %s address", s, familyOf(s.Addr()))
		warn(c.NoIPv6 && s.Addr().Is6(), "the skipped subnet %s has no effect while IPv6 is left alone", s)
	}
	return out
}

// shadowed reports whether only is given and leaves nothing beside skip.
func shadowed(only, skip ports.Set) bool {
	return !only.Empty() && only.Intersect(skip).Equal(only)
}

// skipInbound returns the ports left alone inbound, the control ports among them.
func (c Config) skipInbound() ports.Set { return c.SkipInboundPorts.Union(c.ControlPorts) }
