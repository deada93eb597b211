package rules

import (
	"errors"
	"math"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/internal/ports"
)

func TestTheDefaultConfigIsValidAndGivesNoWarning(t *testing.T) {
	c := DefaultConfig()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if w := c.Warnings(); w != nil {
		t.Errorf("warnings: %q", w)
	}
}

func TestAConfigThatWouldLoopOrCatchNothingIsRefused(t *testing.T) {
	id := func(n uint32) *uint32 { return &n }
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"inbound port 0", func(c *Config) { c.InboundPort = 0 }, "inbound-port: 0 is no port"},
		{"outbound port 0", func(c *Config) { c.OutboundPort = 0 }, "outbound-port: 0 is no port"},
		{"one port for both", func(c *Config) { c.InboundPort, c.OutboundPort = 5000, 5000 }, "outbound-port: 5000 is the inbound port already"},
		{"inbound port is a control port", func(c *Config) { c.InboundPort = 4191 }, "inbound-port: 4191 is a control port (4190-4191)"},
		{"outbound port is a control port", func(c *Config) { c.OutboundPort = 4190 }, "outbound-port: 4190 is a control port (4190-4191)"},
		{"uid unset, or root", func(c *Config) { c.ProxyUID = 0 }, "proxy-uid: 0 is root: everything that runs as root would go around the proxy"},
		{"uid -1", func(c *Config) { c.ProxyUID = math.MaxUint32 }, "proxy-uid: -1 is no user"},
		{"gid 0", func(c *Config) { c.ProxyGID = id(0) }, "proxy-gid: 0 is root's group: everything that runs in it would go around the proxy"},
		{"gid -1", func(c *Config) { c.ProxyGID = id(math.MaxUint32) }, "proxy-gid: -1 is no group"},
		{"inbound list with the inbound port", func(c *Config) { c.SkipInboundPorts = ports.Of(80, 4143) }, "skip-inbound-ports: 4143 is the proxy's own inbound port"},
		{"inbound list with the outbound port", func(c *Config) { c.SkipInboundPorts = ports.Of(4140) }, "skip-inbound-ports: 4140 is the proxy's own outbound port"},
		{"outbound list with the outbound port in a range", func(c *Config) { c.SkipOutboundPorts = set("80,4000-4142") }, "skip-outbound-ports: 4000-4142 covers 4140, the proxy's own outbound port"},
		{"nearly all ports", func(c *Config) { c.SkipOutboundPorts = set("1-65534") }, "skip-outbound-ports: 1-65534 covers 4143, the proxy's own inbound port"},
		{"a listener moved onto a skipped port", func(c *Config) { c.InboundPort = 4567 }, "skip-inbound-ports: 4567-4568 covers 4567, the proxy's own inbound port"},
		{"no subnet", func(c *Config) { c.SkipInboundSubnets = []netip.Prefix{{}} }, "skip-inbound-subnets: invalid Prefix: not a subnet"},
		{"a v4-mapped subnet", func(c *Config) { c.SkipOutboundSubnets = []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")} },
			"skip-outbound-subnets: ::ffff:10.0.0.0/104: an IPv4 subnet in IPv6 clothes: write it as IPv4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := DefaultConfig()
			c.change(&cfg)
			_, err := Build(cfg)
			var fe *FieldError
			if !errors.As(err, &fe) || err.Error() != c.want {
				t.Errorf("Build:\n got %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestWhatIsProbablyNotMeantGivesAWarning(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   []string
	}{
		{"everything skipped", func(c *Config) { c.SkipInboundPorts, c.SkipOutboundPorts = set("1-65535"), set("1-65535") }, []string{
			"skip-inbound-ports holds every port: nothing is redirected inbound",
			"skip-outbound-ports holds every port: nothing is redirected outbound",
		}},
		{"included ports that are skipped", func(c *Config) { c.OnlyInboundPorts, c.OnlyOutboundPorts = ports.Of(4191), ports.Of(4567) }, []string{
			"every one of only-inbound-ports is skipped too: nothing is redirected inbound",
			"every one of only-outbound-ports is skipped too: nothing is redirected outbound",
		}},
		{"one included port left", func(c *Config) { c.OnlyOutboundPorts = ports.Of(80, 4567) }, nil},
		{"a family left alone", func(c *Config) { subnets("10.0.0.0/8,fd00::/8")(c); c.SkipInboundSubnets = nil; c.NoIPv6 = true }, []string{
			"IPv6 is left alone: connections over IPv6 go around the proxy",
			"the skipped subnet fd00::/8 has no effect while IPv6 is left alone",
		}},
		{"a whole family skipped", func(c *Config) { c.SkipOutboundSubnets = prefixes("0.0.0.0/0") }, []string{
			"the skipped subnet 0.0.0.0/0 holds every IPv4 address",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := DefaultConfig()
			c.change(&cfg)
			if err := cfg.Validate(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, cfg.Warnings()); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}
