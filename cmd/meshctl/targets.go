package main

import (
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/meshctl/meshctl/internal/annotation"
	"github.com/meshctl/meshctl/internal/listen"
	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/discovery/file"
	"github.com/meshctl/meshctl/rules"
)

// targetFlags say where it is written what a destination is, and what the pod
// says of itself.
type targetFlags struct {
	resources   []string
	namespace   string
	trustDomain string
	annotations string
	api         apiFlags
}

func (t *targetFlags) register(f *pflag.FlagSet) {
	t.registerResources(f)
	f.StringVar(&t.annotations, "annotations", "", "file with the pod's own annotations, as the downward API writes it; flags win over it")
}

func (t *targetFlags) registerResources(f *pflag.FlagSet) {
	f.StringSliceVar(&t.resources, "resources", nil, "files, or directories of *.yaml and *.json, with Kubernetes objects as kubectl prints them; read again when they change")
	t.api.register(f)
	f.StringVar(&t.namespace, "namespace", "default", "the pod's namespace: whose EgressNetworks and routes count")
	f.StringVar(&t.trustDomain, "identity-trust-domain", cluster.DefaultTrustDomain, "what the identities of meshed pods end in")
}

// inputError is a file that cannot be used; exit code 65.
type inputError struct{ error }

func (e inputError) Unwrap() error { return e.error }
func (e inputError) ExitCode() int { return exitInput }

// standIn is an annotation that stands for a flag. value is false if the pod does
// not have it.
type standIn struct {
	key   string
	flag  string
	value func(p annotation.Pod) (string, bool)
}

// fromAnnotations sets the flags that a pod's annotations stand for, and that
// neither the command line nor the environment has set. A wrong value is an
// error; a misspelt key is told to w.
func fromAnnotations(f *pflag.FlagSet, name string, list []standIn, w io.Writer) error {
	if name == "" {
		return nil
	}
	pod, notes, err := file.Annotations(name)
	if err != nil {
		return inputError{err}
	}
	for _, n := range notes {
		if n.Wrong() {
			return inputError{fmt.Errorf("%s: %w", name, n)}
		}
		if n.Misspelt() {
			fmt.Fprintf(w, "meshctl: warning: %s: %v\n", name, n)
		}
	}
	for _, s := range list {
		value, said := s.value(pod)
		if !said || f.Changed(s.flag) || f.Changed(ofBoth(s.flag)) {
			continue
		}
		if err := f.Set(s.flag, value); err != nil {
			return inputError{fmt.Errorf("%s: %s: %w", name, s.key, err)}
		}
	}
	return nil
}

// ofBoth is the flag for both directions of one for a single direction; else flag
// itself.
func ofBoth(flag string) string {
	switch flag {
	case "inbound-connect-timeout", "outbound-connect-timeout":
		return "connect-timeout"
	case "inbound-detect-timeout", "outbound-detect-timeout":
		return "detect-timeout"
	}
	return flag
}

// forEver is the time that Linkerd takes for none: 365 days.
func forEver(never *bool) (string, bool) {
	if never == nil || !*never {
		return "", false
	}
	return (365 * 24 * time.Hour).String(), true
}

// proxyStandIns are the annotations that stand for flags of `meshctl proxy`.
// opaque-ports is not among them: it changes while the proxy runs.
func proxyStandIns(p *proxyFlags) []standIn {
	return []standIn{
		{annotation.InboundPort, "inbound-listen", func(a annotation.Pod) (string, bool) { return onPort(p.inboundListen, a.InboundPort) }},
		{annotation.OutboundPort, "outbound-listen", func(a annotation.Pod) (string, bool) { return onPort(p.outboundListen, a.OutboundPort) }},
		{annotation.AdminPort, "admin-listen", func(a annotation.Pod) (string, bool) { return onPort(p.adminListen, a.AdminPort) }},
		{annotation.ShutdownGrace, "shutdown-grace-period", func(a annotation.Pod) (string, bool) { return duration(a.ShutdownGrace) }},
		{annotation.InboundConnectTimeout, "inbound-connect-timeout", func(a annotation.Pod) (string, bool) { return duration(a.InboundConnectTimeout) }},
		{annotation.ConnectTimeout, "outbound-connect-timeout", func(a annotation.Pod) (string, bool) { return duration(a.ConnectTimeout) }},
		{annotation.NoInboundDetectTimeout, "inbound-detect-timeout", func(a annotation.Pod) (string, bool) { return forEver(a.NoInboundDetectTimeout) }},
		{annotation.NoOutboundDetectTimeout, "outbound-detect-timeout", func(a annotation.Pod) (string, bool) { return forEver(a.NoOutboundDetectTimeout) }},
		{annotation.LogLevel, "log-level", func(a annotation.Pod) (string, bool) { return text(a.LogLevel) }},
		{annotation.LogFormat, "log-format", func(a annotation.Pod) (string, bool) { return text(a.LogFormat) }},
	}
}

// onPort is a list of listen addresses with another port.
func onPort(list string, port *uint16) (string, bool) {
	if port == nil {
		return "", false
	}
	addrs, err := listen.Parse(list)
	if err != nil {
		return "", false // the list is complained of when it is used
	}
	out := make([]string, len(addrs))
	for i, a := range addrs {
		out[i] = netip.AddrPortFrom(a.Addr(), *port).String()
	}
	return strings.Join(out, ","), true
}

func duration(d *time.Duration) (string, bool) {
	if d == nil {
		return "", false
	}
	return d.String(), true
}

func text(s *string) (string, bool) {
	if s == nil {
		return "", false
	}
	return *s, true
}

func number[N uint16 | uint32](n *N) (string, bool) {
	if n == nil {
		return "", false
	}
	return strconv.FormatUint(uint64(*n), 10), true
}

// ruleStandIns are the annotations that stand for flags of `meshctl redirect`.
func ruleStandIns() []standIn {
	return []standIn{
		{annotation.InboundPort, "inbound-port", func(a annotation.Pod) (string, bool) { return number(a.InboundPort) }},
		{annotation.OutboundPort, "outbound-port", func(a annotation.Pod) (string, bool) { return number(a.OutboundPort) }},
		{annotation.ProxyUID, "proxy-uid", func(a annotation.Pod) (string, bool) { return number(a.ProxyUID) }},
		{annotation.ProxyGID, "proxy-gid", func(a annotation.Pod) (string, bool) { return number(a.ProxyGID) }},
		{annotation.SkipInboundPorts, "skip-inbound-ports", func(a annotation.Pod) (string, bool) { return text(a.SkipInboundPorts) }},
		{annotation.SkipOutboundPorts, "skip-outbound-ports", func(a annotation.Pod) (string, bool) { return text(a.SkipOutboundPorts) }},
		{annotation.SkipSubnets, "skip-subnets", func(a annotation.Pod) (string, bool) { return subnets(a.SkipSubnets) }},
	}
}

func subnets(list []netip.Prefix) (string, bool) {
	items := make([]string, len(list))
	for i, p := range list {
		items[i] = p.String()
	}
	return strings.Join(items, ","), len(list) > 0
}

// controlPorts lets the annotations move the ports that are always left alone
// inbound.
func (r *ruleFlags) controlPorts(c *rules.Config) error {
	if r.annotations == "" {
		return nil
	}
	pod, _, err := file.Annotations(r.annotations)
	if err != nil {
		return inputError{err}
	}
	for _, p := range []*uint16{pod.AdminPort, pod.ControlPort} {
		if p != nil {
			c.ControlPorts = c.ControlPorts.Union(ports.Of(*p))
		}
	}
	return nil
}
