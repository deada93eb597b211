package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/meshctl/meshctl/redirect"
	"github.com/meshctl/meshctl/rules"
)

// placeFlags say where rules are and which way they are written.
type placeFlags struct {
	netns   string
	backend string
	wait    time.Duration
	timeout time.Duration
	force   bool
}

// redirectFlags are the flags of `meshctl redirect`.
type redirectFlags struct {
	placeFlags
	rules               ruleFlags
	rulesOnly, keep     bool
	noVerify            bool
	dryRun              bool
	output              string
	closeWait           int
	logLevel, logFormat string
}

func newRedirectCommand() *cobra.Command {
	o := &redirectFlags{}
	cmd := &cobra.Command{
		Use:   "redirect [flags] [-- flags of the proxy]",
		Short: "Redirect a network namespace's TCP traffic, prove it, become the proxy",
		Long: `Write the rules that send a network namespace's TCP connections to the proxy,
prove with real connections that they hold, then become the proxy as an ordinary
user without rights. The rules are removed when the proxy ends.

With --rules-only the rules are written and nothing is started: that is the init
container of a pod.`,
		Example: `  meshctl redirect --netns pod --skip-outbound-ports 3306
  meshctl redirect --netns pod -- --opaque-ports +5000
  meshctl redirect --rules-only
  meshctl redirect --dry-run -o nft`,
		Args: onlyAfterDash,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	f := cmd.Flags()
	o.placeFlags.register(f)
	o.rules.register(f)
	f.BoolVar(&o.rulesOnly, "rules-only", false, "write the rules and exit")
	f.BoolVar(&o.keep, "keep-rules", false, "leave the rules when the proxy ends")
	f.BoolVar(&o.noVerify, "no-verify", false, "do not try the rules with real connections (a firewall here may drop those that come in)")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would be in force, write nothing")
	o.output = "text"
	f.VarP(&outputOrPort{o, f}, "output", "o", "of --dry-run: text, nft, iptables or json")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&o.logFormat, "log-format", "plain", "plain or json")
	o.registerAliases(f)
	cmd.AddCommand(newStatusCommand(), newVerifyCommand(), newRemoveCommand(), newWatchCommand())
	return cmd
}

func (p *placeFlags) register(f *pflag.FlagSet) {
	f.StringVar(&p.netns, "netns", "", "network namespace, by name or path (default: the current one)")
	f.StringVar(&p.backend, "backend", "auto", "auto, nftables, iptables-nft, iptables-legacy or iptables")
	f.DurationVar(&p.wait, "wait", 5*time.Second, "how long to wait for the xtables lock")
	f.DurationVar(&p.timeout, "timeout", 30*time.Second, "how long all of it may take")
	f.BoolVar(&p.force, "force", false, "write also beside another mesh's rules")
}

// onlyAfterDash lets arguments through that follow "--": they are the proxy's.
func onlyAfterDash(cmd *cobra.Command, args []string) error {
	if n := len(args); n > 0 && cmd.ArgsLenAtDash() != 0 {
		return fmt.Errorf("unexpected argument %q (the proxy's flags go after --)", args[0])
	}
	return nil
}

// open opens the namespace. An empty --netns that was said is refused: it would
// be the caller's own namespace by accident.
func (p *placeFlags) open(f *pflag.FlagSet) (*redirect.Namespace, error) {
	if !f.Changed("netns") {
		return redirect.CurrentNamespace()
	}
	return redirect.OpenNamespace(p.netns)
}

func (p *placeFlags) options(needIPv6 bool) (redirect.Options, error) {
	kind, err := redirect.ParseKind(p.backend)
	if err != nil {
		return redirect.Options{}, usagef("--backend: %w", err)
	}
	if p.wait < 0 || p.timeout <= 0 {
		return redirect.Options{}, usagef("--wait and --timeout must be times above 0")
	}
	return redirect.Options{Backend: kind, Wait: p.wait, NeedIPv6: needIPv6, Force: p.force}, nil
}

func (o *redirectFlags) run(cmd *cobra.Command, args []string) error {
	config, err := o.rules.config()
	if err != nil {
		return err
	}
	addrs, err := listenAddrs(&config, args)
	if err != nil {
		return err
	}
	plan, err := rules.Build(config)
	if err != nil {
		return usagef("--%w", err)
	}
	options, err := o.options(o.rules.ipv6 == "required")
	if err != nil {
		return err
	}
	log, err := newLogger(cmd.ErrOrStderr(), o.logLevel, o.logFormat)
	if err != nil {
		return err
	}
	if o.dryRun {
		return printPlan(cmd.OutOrStdout(), plan, o.output)
	}
	ns, err := o.open(cmd.Flags())
	if err != nil {
		return err
	}
	defer ns.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), o.timeout)
	defer cancel()
	for _, w := range config.Warnings() {
		log.Warn(w)
	}
	r := redirection{ns: ns, plan: plan, options: options, log: log, out: cmd.OutOrStdout(), flags: o, proxyArgs: args}
	if o.closeWait > 0 {
		if err := redirect.SetCloseWait(ns, o.closeWait); err != nil {
			return err
		}
	}
	if o.rulesOnly {
		return r.rulesOnly(ctx)
	}
	return r.becomeProxy(ctx, addrs)
}
