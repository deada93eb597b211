// Package demo shows what meshctl does: it makes two network namespaces without
// names, starts real servers and real clients in them, runs the program itself
// as a user would, and tells of each connection when its first byte came and
// how the proxy told what it speaks. Every row has an expectation. It is neither
// a test of details nor a benchmark.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Config is what a demo needs; nothing has a default.
type Config struct {
	Program string    // path of the meshctl to run
	Out     io.Writer // what people read
	Color   bool      // whether Out shows ANSI colours
}

// Result counts the connections of a demo.
type Result struct {
	Connections int
	Failed      int // those that did not come out as expected
}

// Run makes the demo, some 3 s long, and leaves nothing behind, also when ctx
// ends midway. The error is for what kept it from being shown; it needs the
// rights of root (CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_SETUID).
func Run(ctx context.Context, cfg Config) (Result, error) {
	began := time.Now()
	d := &demo{cfg: cfg, print: &printer{out: cfg.Out, color: cfg.Color}}
	defer d.close()
	for _, act := range []func(context.Context) error{d.setUp, d.skip, d.redirect, d.finish} {
		if err := act(ctx); err != nil {
			return d.result, errors.Join(err, d.print.err)
		}
	}
	d.verdict(time.Since(began))
	return d.result, d.print.err
}

// demo is one run.
type demo struct {
	cfg     Config
	print   *printer
	pair    *pair
	servers *servers
	admin   *admin
	proxy   *process
	result  Result
}

func (d *demo) close() {
	d.proxy.kill()
	if d.servers != nil {
		d.servers.close()
	}
	if d.pair != nil {
		d.pair.close()
	}
}

func (d *demo) setUp(ctx context.Context) (err error) {
	if d.pair, err = newPair(ctx); err != nil {
		return err
	}
	if d.servers, err = startServers(d.pair); err != nil {
		return err
	}
	d.admin = newAdmin(d.pair.pod)
	d.print.line("Two network namespaces of this process, joined by a link:")
	d.print.line("")
	d.print.line("  pod   10.77.0.2  fd77::2  <──────>  peer  10.77.0.1  fd77::1")
	d.print.line("  clients and meshctl                 servers: HTTP, TLS, MySQL, SMTP, Redis")
	d.print.line("")
	d.print.command("POD="+d.pair.pod.path(), "")
	return nil
}

// skip writes rules that leave a port alone, as an init container does.
func (d *demo) skip(ctx context.Context) error {
	d.print.command("meshctl redirect --netns $POD --rules-only --skip-outbound-ports 3306", "as an init container")
	if err := d.runShort(ctx, "redirect", "--netns", d.pair.pod.path(), "--rules-only", "--skip-outbound-ports", "3306"); err != nil {
		return err
	}
	k, err := readKernel(ctx, d.pair.pod)
	if err != nil {
		return err
	}
	d.print.line("  %d rules for IPv4 and IPv6 written in one transaction (%s)", k.rules, k.backend)
	d.print.line("")
	d.print.heading()
	d.play(ctx, skippedScene(d.pair))
	d.print.line("")
	return ctx.Err()
}

// redirect replaces the rules, and runs the proxy.
func (d *demo) redirect(ctx context.Context) (err error) {
	d.print.command("meshctl redirect --netns $POD -- --detect-timeout 2s", "skip nothing, become the proxy")
	d.proxy, err = start(d.cfg.Program, "redirect", "--netns", d.pair.pod.path(), "--", "--detect-timeout", detectTimeout.String())
	if err != nil {
		return err
	}
	if err := d.proxy.guarded(d.cfg.Program); err != nil {
		return err
	}
	if err := d.ready(ctx); err != nil {
		return err
	}
	if err := d.introduce(ctx); err != nil {
		return err
	}
	d.print.line("")
	d.print.heading()
	silent := make(chan outcome, 1)
	last := silentScene(d.pair)
	go d.tryInto(ctx, last, silent)
	for _, s := range quickScenes(d.pair, d.servers) {
		d.play(ctx, s)
	}
	d.record(last, <-silent)
	d.print.line("")
	return ctx.Err()
}

// play shows a scene.
func (d *demo) play(ctx context.Context, s scene) { d.record(s, d.try(ctx, s)) }

func (d *demo) record(s scene, o outcome) {
	if errors.Is(o.err, context.Canceled) {
		return
	}
	d.result.Connections++
	if !d.print.row(s, o) {
		d.result.Failed++
	}
}

// try makes the connection of a scene, asks how it was told while it is open,
// and closes it.
func (d *demo) try(ctx context.Context, s scene) (o outcome) {
	before := kernel{}
	if s.want.rule != "" {
		if before, o.err = readKernel(ctx, d.pair.pod); o.err != nil {
			return o
		}
	}
	c, err := dial(ctx, s.from, s.to)
	if err != nil {
		o.err = err
		return o
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if o.err = c.SetDeadline(c.began.Add(s.want.most + patience)); o.err != nil {
		return o
	}
	o.err = s.talk(ctx, c)
	o.first = c.firstByte()
	switch {
	case o.err != nil && ctx.Err() != nil:
		o.err = ctx.Err()
	case o.err != nil:
	case s.want.rule != "":
		var after kernel
		after, o.err = readKernel(ctx, d.pair.pod)
		o.hits = after.hits[s.want.rule] - before.hits[s.want.rule]
	default:
		o.told, o.seen, o.err = d.admin.find(ctx, c.local())
	}
	return o
}

// tryInto is a try beside others.
func (d *demo) tryInto(ctx context.Context, s scene, done chan<- outcome) { done <- d.try(ctx, s) }

func (d *demo) runShort(ctx context.Context, args ...string) error {
	p, err := start(d.cfg.Program, args...)
	if err != nil {
		return err
	}
	defer p.kill()
	if err := p.end(ctx); err != nil {
		return fmt.Errorf("meshctl %s: %w\n%s", args[0], err, p.said.String())
	}
	return nil
}

// finish is Ctrl-C: the proxy drains, and its watcher removes the rules.
func (d *demo) finish(ctx context.Context) error {
	d.print.line("%s", d.print.paint(bold, "^C"))
	if err := d.proxy.interrupt(); err != nil {
		return fmt.Errorf("the proxy has ended by itself (%v); it said:\n%s", d.proxy.end(ctx), d.proxy.said.String())
	}
	if err := d.proxy.end(ctx); err != nil {
		return fmt.Errorf("ending the proxy: %w\n%s", err, d.proxy.said.String())
	}
	if err := gone(ctx, d.pair.pod); err != nil {
		return err
	}
	d.print.line("  the proxy drained and ended, exit code 0; the watcher it left has removed the rules")
	d.print.line("")
	return nil
}

func (d *demo) verdict(took time.Duration) {
	switch r := d.result; {
	case r.Failed > 0:
		d.print.line("%s", d.print.paint(red, fmt.Sprintf("%d of %d connections did not come out as expected", r.Failed, r.Connections)))
	default:
		d.print.line("%s in %s; nothing is left behind", d.print.paint(green, fmt.Sprintf("All %d connections as expected", r.Connections)), inWords(took))
	}
}
