package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/meshctl/meshctl/redirect"
	"github.com/meshctl/meshctl/rules"
)

// statusFlags are the flags of `meshctl redirect status`.
type statusFlags struct {
	placeFlags
	rules  ruleFlags
	output string
}

func newStatusCommand() *cobra.Command {
	o := &statusFlags{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the rules in the kernel, what they counted, and how they differ from the flags",
		Long: `Show which backend holds the rules, what each rule has counted, and where the
kernel differs from what the flags ask for. The exit code is 2 when it does, or
when there are no rules.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.placeFlags.register(cmd.Flags())
	o.rules.register(cmd.Flags())
	cmd.Flags().StringVarP(&o.output, "output", "o", "text", "text or json")
	return cmd
}

// status is what the command found, as -o json writes it.
type status struct {
	Backends []backendStatus `json:"backends"`
	Plan     string          `json:"plan"`
	Drift    []string        `json:"drift"`
}

type backendStatus struct {
	Name  string       `json:"name"`
	Plan  string       `json:"plan,omitempty"`
	Rules []ruleStatus `json:"rules"`
}

type ruleStatus struct {
	Family  string `json:"family,omitempty"`
	Chain   string `json:"chain,omitempty"`
	Rule    string `json:"rule"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

func (o *statusFlags) run(cmd *cobra.Command) error {
	config, err := o.rules.config()
	if err != nil {
		return err
	}
	plan, err := rules.Build(config)
	if err != nil {
		return usagef("--%w", err)
	}
	if o.output != "text" && o.output != "json" {
		return usagef("--output %q: want text or json", o.output)
	}
	choice, _, done, err := o.pick(cmd)
	if err != nil {
		return err
	}
	defer done()
	states, err := choice.Read(cmd.Context())
	if err != nil {
		return err
	}
	s := statusOf(states, plan)
	if o.output == "json" {
		if err := json.NewEncoder(cmd.OutOrStdout()).Encode(s); err != nil {
			return fmt.Errorf("writing the status: %w", err)
		}
	} else {
		s.print(cmd.OutOrStdout())
	}
	if len(s.Drift) > 0 {
		return findings{"not as the flags ask for: " + s.Drift[0]}
	}
	return nil
}

// pick opens the namespace and finds the backends that hold something.
func (p *placeFlags) pick(cmd *cobra.Command) (*redirect.Choice, *redirect.Namespace, func(), error) {
	options, err := p.options(false)
	if err != nil {
		return nil, nil, nil, err
	}
	ns, err := p.open(cmd.Flags())
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), p.timeout)
	done := func() { cancel(); ns.Close() }
	cmd.SetContext(ctx)
	choice, err := redirect.Pick(ctx, ns, options)
	if err != nil {
		done()
		return nil, nil, nil, err
	}
	return choice, ns, done, nil
}

// statusOf puts states together. Two backends that hold rules are a drift.
func statusOf(states []redirect.State, plan rules.Plan) status {
	s := status{Plan: plan.Hash(), Backends: []backendStatus{}, Drift: []string{}}
	for _, state := range states {
		if !state.Present {
			continue
		}
		b := backendStatus{Name: state.Backend, Plan: state.Hash, Rules: []ruleStatus{}}
		for _, c := range state.Counters {
			r := ruleStatus{Chain: c.Chain, Rule: c.ID, Packets: c.Packets, Bytes: c.Bytes}
			if c.Family != 0 {
				r.Family = c.Family.String()
			}
			b.Rules = append(b.Rules, r)
		}
		s.Backends = append(s.Backends, b)
		if len(s.Backends) > 1 {
			s.Drift = append(s.Drift, "a second copy of the rules is in "+state.Backend)
		}
		for _, d := range state.Drift(plan) {
			s.Drift = append(s.Drift, state.Backend+": "+d)
		}
	}
	if len(s.Backends) == 0 {
		s.Drift = append(s.Drift, "there are no rules")
	}
	return s
}

func (s status) print(w io.Writer) {
	for _, b := range s.Backends {
		plan := b.Plan
		if plan == "" {
			plan = "not told"
		}
		fmt.Fprintf(w, "%s, plan %s\n", b.Name, plan)
		for _, r := range b.Rules {
			name := r.Rule
			if name == "" {
				name = "(not ours)"
			}
			where := strings.TrimSpace(r.Family + " " + r.Chain)
			fmt.Fprintf(w, "  %-9s %-30s %10d packets %12d bytes\n", where, name, r.Packets, r.Bytes)
		}
	}
	for _, d := range s.Drift {
		fmt.Fprintln(w, "drift:", d)
	}
	if len(s.Drift) == 0 {
		fmt.Fprintln(w, "as the flags ask for")
	}
}
