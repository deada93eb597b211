package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
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
	for _, w := range warnings(config) {
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

// redirection is one run of `meshctl redirect` with everything parsed and opened.
type redirection struct {
	ns        *redirect.Namespace
	plan      rules.Plan
	options   redirect.Options
	log       *slog.Logger
	out       io.Writer
	flags     *redirectFlags
	proxyArgs []string
}

// apply writes the rules and says how.
func (r *redirection) apply(ctx context.Context, choice *redirect.Choice) error {
	replaced := choice.OtherNames()
	changed, err := choice.Apply(ctx, r.plan)
	if err != nil {
		return err
	}
	for _, w := range choice.Warnings {
		r.log.Warn(w)
	}
	what := "already in place"
	if changed {
		what = "written"
	}
	attrs := []any{"backend", choice.Backend.Name(), "reason", choice.Why, "plan", r.plan.Hash()}
	if replaced != "" {
		attrs = append(attrs, "replaced", replaced)
	}
	r.log.Info("rules "+what, attrs...)
	return nil
}

// rulesOnly is the init container.
func (r *redirection) rulesOnly(ctx context.Context) error {
	choice, err := redirect.Pick(ctx, r.ns, r.options)
	if err != nil {
		return err
	}
	if err := r.apply(ctx, choice); err != nil {
		return err
	}
	// Somebody wants the rules to stay: an earlier run's watcher must not
	// remove them when its proxy ends.
	if err := redirect.Retire(r.ns); err != nil {
		return err
	}
	c := r.plan.Config()
	r.log.Info("no proxy was started: redirected connections are refused until one listens",
		"inbound", c.InboundPort, "outbound", c.OutboundPort)
	return nil
}

// becomeProxy returns only when something failed; no rules are left then.
func (r *redirection) becomeProxy(ctx context.Context, addrs redirect.Addrs) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the own program: %w", err)
	}
	listeners, err := redirect.Listen(r.ns, addrs)
	if err != nil {
		return err
	}
	defer listeners.Close()
	choice, err := redirect.Pick(ctx, r.ns, r.options)
	if err != nil {
		return err
	}
	if err := r.leaveWatcher(program, choice); err != nil {
		return err
	}
	verifier, err := redirect.NewVerifier(ctx, r.ns)
	if err != nil {
		return err
	}
	defer verifier.Close()
	if err := r.apply(ctx, choice); err != nil {
		return err
	}
	if err := r.proveAndExec(ctx, program, verifier, listeners); err != nil {
		if _, undo := choice.Remove(context.WithoutCancel(ctx)); undo != nil {
			return fmt.Errorf("%w; the rules remain: %w", err, undo)
		}
		return err
	}
	return nil
}

// proveAndExec is quick between the rules and the open listeners: connections
// that begin in between are a second late.
func (r *redirection) proveAndExec(ctx context.Context, program string, verifier *redirect.Verifier, listeners *redirect.Listeners) error {
	var report redirect.Report
	if !r.flags.noVerify {
		report = verifier.Verify(ctx, r.plan, listeners)
	}
	if failures := report.Failures(); len(failures) > 0 {
		return findings{fmt.Sprintf("the rules do not hold: %s: %s", failures[0].Name, failures[0].Detail)}
	}
	if err := listeners.Open(); err != nil {
		return err
	}
	r.tell(report)
	if err := verifier.Close(); err != nil {
		return err
	}
	c := r.plan.Config()
	gid := c.ProxyUID
	if c.ProxyGID != nil {
		gid = *c.ProxyGID
	}
	return redirect.Exec(r.ns, redirect.Proxy{
		Program: program, Args: append([]string{"meshctl", "proxy"}, r.proxyArgs...), Env: os.Environ(),
		UID: c.ProxyUID, GID: gid, Listeners: listeners,
	})
}

// leaveWatcher starts the process that removes the rules after the proxy. The
// first process of a container can leave none: all others end with it.
func (r *redirection) leaveWatcher(program string, choice *redirect.Choice) error {
	if r.flags.keep || os.Getpid() == 1 {
		r.log.Info("the rules stay when the proxy ends", "until", "the namespace is gone or `meshctl redirect remove` is run")
		return redirect.Retire(r.ns)
	}
	return redirect.Leave(r.ns, program, []string{
		"meshctl", "redirect", "watch", "--plan", r.plan.Hash(), "--backend", choice.Backend.Name(),
		"--log-level", r.flags.logLevel, "--log-format", r.flags.logFormat,
	})
}

// tell says how much of the plan was tried, and why not all of it.
func (r *redirection) tell(report redirect.Report) {
	if r.flags.noVerify {
		return
	}
	not, why := 0, ""
	for _, c := range report {
		if c.Outcome == redirect.NotProbed {
			not, why = not+1, c.Detail
		}
	}
	r.log.Info("rules verified", "checks", len(report)-not)
	if not > 0 {
		r.log.Warn("some checks could not be made", "checks", not, "reason", why)
	}
}
