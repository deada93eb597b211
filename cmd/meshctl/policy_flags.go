package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/meshctl/meshctl/internal/annotation"
	"github.com/meshctl/meshctl/internal/subnet"
	"github.com/meshctl/meshctl/proxy"
	"github.com/meshctl/meshctl/proxy/policy"
)

// policyFlags say who may call, and which pod this is.
type policyFlags struct {
	byDefault, networks, action string
	labels, pod, portNames      string
}

func (p *policyFlags) register(f *pflag.FlagSet) {
	f.StringVar(&p.byDefault, "default-inbound-policy", "", "who may call ports that no Server selects: all-unauthenticated, all-authenticated, cluster-unauthenticated, cluster-authenticated, deny or audit; wins over the annotations; none of them: all-unauthenticated")
	f.StringVar(&p.networks, "policy-cluster-networks", "10.0.0.0/8,100.64.0.0/10,172.16.0.0/12,192.168.0.0/16,fd00::/8", "the cluster's networks, for policies that ask for them")
	f.StringVar(&p.action, "detect-timeout-action", "open", "what becomes of an inbound connection that does not turn out to be HTTP: open (TCP, for whom the Server lets in), close, or one of them for some ports as in close=8080,9000-9100")
	f.StringVar(&p.labels, "labels", "", "file with the pod's own labels, as the downward API writes it; read again when they change")
	f.StringVar(&p.pod, "pod", "", "name of the Pod among the resources that this is; empty: the one with an address of this machine")
	f.StringVar(&p.portNames, "port-names", "", "names of the pod's ports, as in http=8080,admin=9990, for Servers and annotations that name one")
}

// linkerdTwins are variables of Linkerd's proxy, and of the downward API, that
// stand for flags which neither the command line nor MESHCTL_ has set.
func linkerdTwins() map[string]string {
	return map[string]string{
		"default-inbound-policy":  "LINKERD2_PROXY_INBOUND_DEFAULT_POLICY",
		"policy-cluster-networks": "LINKERD2_PROXY_POLICY_CLUSTER_NETWORKS",
		"pod":                     "POD_NAME",
		"namespace":               "POD_NAMESPACE",
	}
}

// fromTwins sets the flags of f that have a twin in the environment.
func fromTwins(f *pflag.FlagSet) error {
	for name, twin := range linkerdTwins() {
		value := os.Getenv(twin)
		if value == "" || f.Lookup(name) == nil || f.Changed(name) {
			continue
		}
		if err := f.Set(name, value); err != nil {
			return usagef("environment variable %s: %w", twin, err)
		}
	}
	return nil
}

// config reads the flags.
func (p *policyFlags) config() (proxy.InboundPolicy, error) {
	out := proxy.InboundPolicy{Labels: p.labels, Pod: p.pod}
	var err error
	if p.byDefault != "" {
		if out.Default, err = policy.ParseDefault(p.byDefault); err != nil {
			return out, usagef("--default-inbound-policy: %w", err)
		}
	}
	if out.ClusterNetworks, err = subnet.Parse(p.networks); err != nil {
		return out, usagef("--policy-cluster-networks: %w", err)
	}
	if out.ClusterNetworks == nil {
		out.ClusterNetworks = policy.DefaultClusterNetworks()[:0] // none, and not the default
	}
	if out.Actions, err = policy.ParseActions(p.action); err != nil {
		return out, usagef("--detect-timeout-action: %w", err)
	}
	if out.PortNames, err = parsePortNames(p.portNames); err != nil {
		return out, usagef("--port-names: %w", err)
	}
	return out, nil
}

func parsePortNames(text string) ([]policy.NamedPort, error) {
	var out []policy.NamedPort
	if text == "" {
		return nil, nil
	}
	for item := range strings.SplitSeq(text, ",") {
		name, number, ok := strings.Cut(strings.TrimSpace(item), "=")
		port, err := annotation.ParsePort(number)
		if !ok || name == "" || err != nil {
			return nil, fmt.Errorf("%q: want NAME=PORT", item)
		}
		out = append(out, policy.NamedPort{Name: name, Number: port})
	}
	return out, nil
}
