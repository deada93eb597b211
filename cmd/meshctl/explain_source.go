package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/redirect"
	"github.com/meshctl/meshctl/rules"
)

// source is where the rules of an explanation come from.
type source struct {
	text     string     // for people
	plan     rules.Plan // when none is false
	none     bool       // there are no rules
	addrs    map[netip.Addr]bool
	settings *proxySettings // of the proxy that runs there; nil if none was asked
}

// explainTime bounds what is read from the kernel and from a running proxy.
const explainTime = 5 * time.Second

// source finds the rules: in a namespace that was named, else by the flags, else
// in the current namespace if it holds some. The admin ports are left alone, as
// meshctl redirect does it.
func (e *explainFlags) source(cmd *cobra.Command, admin ports.Set) (source, error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), explainTime)
	defer cancel()
	f := cmd.Flags()
	said := e.ruleFlagSaid(f)
	if f.Changed("netns") {
		if said != "" {
			return source{}, usagef("either --netns, whose rules are read from the kernel, or --%s", said)
		}
		ns, err := redirect.OpenNamespace(e.netns)
		if err != nil {
			return source{}, err
		}
		defer ns.Close()
		return readSource(ctx, ns)
	}
	if said == "" {
		if s, err := currentSource(ctx); err != nil || !s.none {
			return s, err
		}
	}
	config, err := e.rules.config()
	if err != nil {
		return source{}, err
	}
	config.ControlPorts = config.ControlPorts.Union(admin)
	plan, err := rules.Build(config)
	if err != nil {
		return source{}, usagef("--%w", err)
	}
	s := source{plan: plan, text: "by the flags"}
	if said == "" {
		s.text = "the defaults of meshctl redirect"
		c := rules.DefaultConfig()
		c.ControlPorts = c.ControlPorts.Union(admin)
		if defaults, err := rules.Build(c); err != nil || !plan.Equal(defaults) {
			s.text = "by the environment (MESHCTL_...)"
		}
	}
	return s, nil
}

// ruleFlagSaid is a flag about rules that the command line has; empty if none.
// Settings of the environment are those of `meshctl redirect`, and do not say
// that somebody asked about them.
func (e *explainFlags) ruleFlagSaid(f *pflag.FlagSet) (name string) {
	var own pflag.FlagSet
	new(ruleFlags).register(&own)
	f.Visit(func(flag *pflag.Flag) {
		if _, set := os.LookupEnv(envName(flag.Name)); !set && own.Lookup(flag.Name) != nil {
			name = flag.Name
		}
	})
	return name
}

// currentSource is the current namespace. Where this user may not look, or the
// kernel has no such rules, it counts as one without; rules that are there and
// make no plan are an error.
func currentSource(ctx context.Context) (source, error) {
	ns, err := redirect.CurrentNamespace()
	if err != nil {
		return source{none: true}, nil
	}
	defer ns.Close()
	s, err := readSource(ctx, ns)
	var changed findings
	if err != nil && !errors.As(err, &changed) {
		return source{none: true}, nil
	}
	return s, err
}

// readSource reads rules, addresses and the settings of the proxy.
func readSource(ctx context.Context, ns *redirect.Namespace) (source, error) {
	choice, err := redirect.Pick(ctx, ns, redirect.Options{})
	if err != nil {
		return source{}, err
	}
	states, err := readWhole(ctx, choice)
	if err != nil {
		return source{}, err
	}
	s := source{none: true, text: "none in " + nameOf(ns)}
	for _, state := range states {
		if !state.Present {
			continue
		}
		plan, ok := state.Plan()
		if !ok {
			return source{}, findings{fmt.Sprintf("the rules in %s, by %s, are not such as this meshctl writes: somebody has changed them, or another version wrote them", nameOf(ns), state.Backend)}
		}
		s = source{plan: plan, text: fmt.Sprintf("in %s, by %s, plan %s", nameOf(ns), state.Backend, state.Hash)}
		break
	}
	if s.addrs, err = ownAddrs(ns); err != nil {
		return source{}, err
	}
	if !s.none {
		s.settings = askProxy(ctx, ns)
	}
	return s, nil
}

// readWhole reads the rules. The kernel tells of tables, chains and sets one after
// the other: rules that are being written meanwhile look like changed ones, and are
// read again.
func readWhole(ctx context.Context, b *redirect.Choice) ([]redirect.State, error) {
	for try := 1; ; try++ {
		states, err := b.Read(ctx)
		if err != nil || try == 5 || !slices.ContainsFunc(states, func(s redirect.State) bool {
			_, ok := s.Plan()
			return s.Present && !ok
		}) {
			return states, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func nameOf(ns *redirect.Namespace) string {
	if name := ns.String(); name == "the current namespace" {
		return name
	}
	return "namespace " + ns.String()
}

// ownAddrs are the addresses of a namespace's devices.
func ownAddrs(ns *redirect.Namespace) (map[netip.Addr]bool, error) {
	own := map[netip.Addr]bool{}
	err := ns.Do(func() error {
		found, err := net.InterfaceAddrs()
		if err != nil {
			return fmt.Errorf("reading the addresses: %w", err)
		}
		for _, f := range found {
			if p, err := netip.ParsePrefix(f.String()); err == nil {
				own[p.Addr().Unmap().WithZone("")] = true
			}
		}
		return nil
	})
	return own, err
}

// owns reports whether an address is known to be the namespace's own.
func (s source) owns(addr netip.Addr) bool { return s.addrs[addr] }

// explain asks the plan, or tells that there is none.
func (s source) explain(p rules.Packet) rules.Explanation {
	if !s.none {
		return s.plan.Explain(p)
	}
	return rules.Explanation{
		Connection: p.String(), Goes: "straight to where it is sent", Verdict: rules.Return.String(),
		Why: "there are no rules of meshctl",
	}
}
