package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/redirect"
	"github.com/meshctl/meshctl/rules"
)

// verifyFlags are the flags of `meshctl redirect verify`.
type verifyFlags struct {
	placeFlags
	rules ruleFlags
}

func newVerifyCommand() *cobra.Command {
	o := &verifyFlags{}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Try with real connections whether the rules hold",
		Long: `Try with real connections whether the namespace does what the flags say: both
directions and both families are redirected, skipped ports and the proxy's user
stay direct. It needs no network; a peer is made for it and removed after.

Where a proxy runs already, the connections have to come out behind it. Where
none runs, its ports are bound for the moment. The exit code is 2 when something
does not hold.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.placeFlags.register(cmd.Flags())
	o.rules.register(cmd.Flags())
	return cmd
}

func (o *verifyFlags) run(cmd *cobra.Command) error {
	config, err := o.rules.config()
	if err != nil {
		return err
	}
	addrs, err := listenAddrs(&config, nil)
	if err != nil {
		return err
	}
	addrs.Admin = nil // it is of no use here, and another's admin port may be elsewhere
	plan, err := rules.Build(config)
	if err != nil {
		return usagef("--%w", err)
	}
	_, ns, done, err := o.pick(cmd)
	if err != nil {
		return err
	}
	defer done()
	listeners, err := redirect.Listen(ns, addrs)
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		fmt.Fprintln(cmd.OutOrStdout(), "a proxy listens already: connections have to come out behind it")
	case err != nil:
		return err
	default:
		defer listeners.Close()
	}
	verifier, err := redirect.NewVerifier(cmd.Context(), ns)
	if err != nil {
		return err
	}
	report := verifier.Verify(cmd.Context(), plan, listeners)
	if err := verifier.Close(); err != nil {
		return err
	}
	for _, c := range report {
		fmt.Fprintf(cmd.OutOrStdout(), "%-10s  %s: %s\n", c.Outcome, c.Name, c.Detail)
	}
	if failures := report.Failures(); len(failures) > 0 {
		return findings{fmt.Sprintf("%d of %d checks failed: %s", len(failures), len(report), failures[0].Name)}
	}
	return nil
}
