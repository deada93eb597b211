package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/internal/listen"
	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/proxy"
	"github.com/meshctl/meshctl/proxy/accesslog"
	"github.com/meshctl/meshctl/proxy/discovery/file"
	"github.com/meshctl/meshctl/proxy/policy"
)

// proxyFlags are the flags of `meshctl proxy` as they are written.
type proxyFlags struct {
	inboundListen, outboundListen, adminListen string
	opaquePorts                                string
	fixedTarget                                string
	targets                                    targetFlags
	policy                                     policyFlags
	flags                                      *pflag.FlagSet
	logLevel, logFormat                        string
	accessLog                                  string
	cfg                                        proxy.Config
}

func newProxyCommand() *cobra.Command {
	p := &proxyFlags{cfg: proxy.DefaultConfig()}
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Serve redirected connections: detect, observe, relay",
		Long: `Serve the connections that the rules of "meshctl redirect" send here. What a
connection speaks is told from its first bytes: HTTP/1 and HTTP/2 pass through
unchanged and are counted, everything else passes as opaque TCP. A port whose
server speaks first needs no configuration: while the client is silent the
target is dialed after --early-dial-after, and whoever speaks first decides.

SIGTERM or SIGINT drains: HTTP connections end after the exchange they are in,
others may go on for --shutdown-grace-period. A second signal ends at once.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.run(cmd.ErrOrStderr()) },
	}
	p.register(cmd)
	return cmd
}

func (p *proxyFlags) register(cmd *cobra.Command) {
	f, c := cmd.Flags(), &p.cfg
	p.flags = f
	p.targets.register(f)
	p.policy.register(f)
	registerIdentity(f, c)
	registerMesh(f, c)
	registerDestination(f, c)
	f.StringVar(&p.inboundListen, "inbound-listen", "[::]:4143", "where connections from the network are redirected to; [::] takes IPv4 too")
	f.StringVar(&p.outboundListen, "outbound-listen", "127.0.0.1:4140,[::1]:4140", "where the application's connections are redirected to; keep it on loopback")
	f.StringVar(&p.adminListen, "admin-listen", "[::]:4191", "metrics, probes and, from loopback only, /connections /config /shutdown")
	f.StringVar(&p.opaquePorts, "opaque-ports", policy.DefaultOpaque().String(), "ports relayed without detection; replaces the default, a leading + adds to it, empty means none")
	f.DurationVar(&c.DetectTimeout, "detect-timeout", c.DetectTimeout, "how long a protocol may stay unknown; then the connection is relayed as TCP")
	f.DurationVar(&c.EarlyDialAfter, "early-dial-after", c.EarlyDialAfter, "dial the target of a silent client after this time, so that a server that speaks first is heard; 0 = never")
	f.DurationVar(&c.ConnectTimeout, "connect-timeout", c.ConnectTimeout, "give up connecting to a target after this time")
	f.DurationVar(&c.Inbound.DetectTimeout, "inbound-detect-timeout", 0, "--detect-timeout of what comes in, where it differs")
	f.DurationVar(&c.Inbound.ConnectTimeout, "inbound-connect-timeout", 0, "--connect-timeout of what comes in, where it differs")
	f.DurationVar(&c.Outbound.DetectTimeout, "outbound-detect-timeout", 0, "--detect-timeout of what goes out, where it differs")
	f.DurationVar(&c.Outbound.ConnectTimeout, "outbound-connect-timeout", 0, "--connect-timeout of what goes out, where it differs")
	f.DurationVar(&c.IdleTimeout, "idle-timeout", c.IdleTimeout, "end an opaque connection on which nothing passes for this time; 0 = never")
	f.DurationVar(&c.HalfCloseTimeout, "half-close-timeout", c.HalfCloseTimeout, "end a half-closed connection on which nothing passes for this time; 0 = never")
	f.IntVar(&c.MaxDetecting, "max-detecting", c.MaxDetecting, "connections that may wait for their first bytes, or for a TLS handshake with the proxy, at once; further ones are relayed as TCP, or closed if they have begun a handshake; 0 = no limit")
	f.IntVar(&c.MaxHead, "max-head", c.MaxHead, "bytes that a request's head may have where requests are taken one by one; a larger one is answered 431")
	f.DurationVar(&c.ShutdownGracePeriod, "shutdown-grace-period", c.ShutdownGracePeriod, "how long a drain may take")
	f.BoolVar(&c.NoAdminShutdown, "no-admin-shutdown", false, "no POST /shutdown on the admin port")
	f.BoolVar(&c.Pprof, "pprof", false, "serve /debug/pprof on the admin port, to loopback")
	f.StringVar(&p.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&p.logFormat, "log-format", "plain", "plain or json")
	f.StringVar(&p.accessLog, "access-log", "", "write a line to stdout for each HTTP exchange and each TCP connection: apache or json")
	f.StringVar(&p.fixedTarget, "fixed-target", "", "take this address for every connection's original destination, for tests without rules")
	_ = f.MarkHidden("fixed-target") // it exists: registered in the line above
	f.BoolVar(&c.Intermediate, "intermediate", false, "take the requests of every outbound HTTP connection one by one, for tests")
	_ = f.MarkHidden("intermediate")
}

// config turns the flags into a Config.
func (p *proxyFlags) config(log io.Writer) (proxy.Config, error) {
	if err := fromTwins(p.flags); err != nil {
		return p.cfg, err
	}
	if err := fromAnnotations(p.flags, p.targets.annotations, proxyStandIns(p), log); err != nil {
		return p.cfg, err
	}
	c := p.cfg
	for _, l := range []struct {
		flag, list string
		to         *[]netip.AddrPort
	}{
		{"--inbound-listen", p.inboundListen, &c.InboundListen},
		{"--outbound-listen", p.outboundListen, &c.OutboundListen},
		{"--admin-listen", p.adminListen, &c.AdminListen},
	} {
		*l.to = nil
		if l.list == "" {
			continue
		}
		addrs, err := listen.Parse(l.list)
		if err != nil {
			return c, usagef("%s: %w", l.flag, err)
		}
		*l.to = addrs
	}
	var err error
	if c.OpaquePorts, err = ports.ParseOver(p.opaquePorts, policy.DefaultOpaque()); err != nil {
		return c, usagef("--opaque-ports: %w", err)
	}
	c.OpaquePortsSaid = p.flags.Changed("opaque-ports")
	c.Resources, c.Namespace, c.Annotations = p.targets.resources, p.targets.namespace, p.targets.annotations
	if c.Policy, err = p.policy.config(); err != nil {
		return c, err
	}
	if err := identityOf(&c); err != nil {
		return c, err
	}
	destinationOf(&c)
	c.TrustDomain = p.targets.trustDomain
	if c.Kubernetes, err = p.targets.api.config(c.Resources); err != nil {
		return c, err
	}
	if p.fixedTarget != "" {
		if c.FixedTarget, err = netip.ParseAddrPort(p.fixedTarget); err != nil {
			return c, usagef("--fixed-target: %w", err)
		}
	}
	if p.accessLog != "" {
		if c.AccessLog, err = accesslog.ParseFormat(p.accessLog); err != nil {
			return c, usagef("--access-log: %w", err)
		}
		c.AccessLogTo = os.Stdout
	}
	if c.Log, err = newLogger(log, p.logLevel, p.logFormat); err != nil {
		return c, err
	}
	c.Version = version
	if err := c.Validate(); err != nil {
		return c, usagef("%w", err)
	}
	c.Inherited, err = listen.Inherited(os.Getenv(listen.Env))
	_ = os.Unsetenv(listen.Env) // a child must not take descriptors of that number for listeners
	return c, err
}

func (p *proxyFlags) run(log io.Writer) error {
	cfg, err := p.config(log)
	if err != nil {
		return err
	}
	cfg.SkipPackets = skipCounter()
	px, err := proxy.New(cfg)
	if err != nil {
		if isIdentityFile(err) {
			return identityError{err}
		}
		if errors.Is(err, proxy.ErrUnknownPod) {
			return &usageError{err: err, hint: "--labels FILE with the downward API's labels, or --pod NAME of a Pod among the resources"}
		}
		if _, broken := errors.AsType[file.Problem](err); broken {
			return inputError{err}
		}
		return err
	}
	ctx, now, stop := signals()
	defer stop()
	return px.Run(ctx, now)
}

// signals returns a context that ends with the first SIGTERM or SIGINT, and a
// channel that is closed with the second.
func signals() (ctx context.Context, second <-chan struct{}, stop func()) {
	got := make(chan os.Signal, 2)
	signal.Notify(got, unix.SIGTERM, unix.SIGINT)
	ctx, cancel := context.WithCancel(context.Background())
	again := make(chan struct{})
	go func() {
		if _, ok := <-got; ok {
			cancel()
		}
		if _, ok := <-got; ok {
			close(again)
		}
	}()
	return ctx, again, func() { signal.Stop(got); close(got); cancel() }
}

// newLogger makes the logger that --log-level and --log-format describe.
func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var lv slog.Level
	if err := lv.UnmarshalText([]byte(level)); err != nil {
		return nil, usagef("--log-level %q: want debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: lv}
	switch format {
	case "plain":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	default:
		return nil, usagef("--log-format %q: want plain or json", format)
	}
}
