package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/meshctl/meshctl/redirect"
	"github.com/meshctl/meshctl/rules"
)

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
		Program: program, Args: append([]string{"meshctl", "proxy"}, r.argsOfProxy()...), Env: os.Environ(),
		UID: c.ProxyUID, GID: gid, Listeners: listeners,
	})
}

// argsOfProxy lets the proxy read the annotations that the rules were made of,
// unless it was told which to read.
func (r *redirection) argsOfProxy() []string {
	file := r.flags.rules.annotations
	if file == "" || slices.ContainsFunc(r.proxyArgs, func(a string) bool {
		return a == "--annotations" || strings.HasPrefix(a, "--annotations=")
	}) {
		return r.proxyArgs
	}
	return append([]string{"--annotations", file}, r.proxyArgs...)
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
