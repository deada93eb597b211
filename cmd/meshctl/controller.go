package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/meshctl/meshctl/controller"
	"github.com/meshctl/meshctl/controller/webhook"
	"github.com/meshctl/meshctl/internal/listen"
	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/proxy"
	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/discovery/destination/wire"
	"github.com/meshctl/meshctl/proxy/discovery/file"
	"github.com/meshctl/meshctl/proxy/discovery/kube"
	"github.com/meshctl/meshctl/proxy/identity"
	"github.com/meshctl/meshctl/proxy/policy"
)

// controllerFlags are the flags of `meshctl controller` as they are written.
type controllerFlags struct {
	listen, adminListen string
	resources           []string
	kubeconfig, context string
	kubernetes          bool
	identity            proxy.Config // only what it says of the identity
	trustDomain, domain string
	opaquePorts         string
	insecure            bool
	byDefault           string
	grace               time.Duration
	webhook             webhookFlags
	logLevel, logFormat string
}

func newControllerCommand() *cobra.Command {
	c := &controllerFlags{}
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Serve Linkerd's destination and policy APIs to proxies",
		Long: `Serve io.linkerd.proxy.destination, .outbound and .inbound from what a Kubernetes
API server says, or files: "meshctl proxy --destination" asks them, and
so can Linkerd's proxies. Any number of replicas may run; each serves what it
sees, and there is no leader.

Callers have to be of the mesh: --identity-dir or --spiffe-socket gives the
controller its own certificate, and whoever calls has to have one of the same
anchors and trust domain. --insecure serves plaintext, on loopback only.`,
		Example: `  meshctl controller --kubernetes --identity-dir /var/run/identity
  meshctl controller --resources objects/ --insecure --listen 127.0.0.1:8086`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.OutOrStdout(), cmd.ErrOrStderr()) },
	}
	c.register(cmd)
	return cmd
}

func (c *controllerFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.listen, "listen", "[::]:8086", "where proxies ask")
	f.StringVar(&c.adminListen, "admin-listen", "[::]:9996", "/live /ready /metrics")
	f.StringSliceVar(&c.resources, "resources", nil, "files, or directories of *.yaml and *.json, with Kubernetes objects as kubectl prints them; read again when they change")
	f.BoolVar(&c.kubernetes, "kubernetes", false, "the same with the pod's own service account")
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "read the objects from the Kubernetes API that this file names, as kubectl does, instead of --resources")
	f.StringVar(&c.context, "context", "", "context of --kubeconfig; empty: its current one")
	registerIdentity(f, &c.identity)
	f.StringVar(&c.trustDomain, "identity-trust-domain", cluster.DefaultTrustDomain, "what the identities of meshed pods, and of callers, end in")
	f.StringVar(&c.domain, "cluster-domain", "cluster.local", "what the names of Services end in")
	f.StringVar(&c.opaquePorts, "opaque-ports", policy.DefaultOpaque().String(), "the default list of opaque ports; a leading + adds to it, empty means none")
	f.StringVar(&c.byDefault, "default-inbound-policy", "all-unauthenticated", "who may call ports that no Server selects, where no annotation says it")
	f.BoolVar(&c.insecure, "insecure", false, "serve plaintext to anybody; --listen has to be on loopback then")
	f.DurationVar(&c.grace, "shutdown-grace-period", 5*time.Second, "how long streams have to end")
	c.webhook.register(f)
	f.StringVar(&c.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&c.logFormat, "log-format", "plain", "plain or json")
}

// sources says how many sources of objects there are.
func (c *controllerFlags) sources() int {
	n := 0
	for _, said := range []bool{len(c.resources) > 0, c.kubernetes, c.kubeconfig != ""} {
		if said {
			n++
		}
	}
	return n
}

func (c *controllerFlags) check() (controller.Serving, error) {
	s := controller.Serving{Grace: c.grace}
	var err error
	if s.Listen, err = listen.Parse(c.listen); err != nil {
		return s, usagef("--listen: %w", err)
	}
	if c.adminListen != "" {
		if s.AdminListen, err = listen.Parse(c.adminListen); err != nil {
			return s, usagef("--admin-listen: %w", err)
		}
	}
	if c.sources() != 1 {
		return s, usagef("one of --resources, --kubernetes and --kubeconfig says where objects come from")
	}
	if err := identityOf(&c.identity); err != nil {
		return s, err
	}
	certified := c.identity.IdentityDir != "" || c.identity.SPIFFESocket != ""
	switch {
	case certified && c.insecure:
		return s, usagef("--insecure and an identity: choose one")
	case !certified && !c.insecure:
		return s, &usageError{err: errors.New("no identity to serve with"), hint: "--identity-dir or --spiffe-socket; --insecure serves plaintext on loopback"}
	case c.insecure:
		if err := s.Validate(); err != nil {
			return s, usagef("--listen: %w", err)
		}
	}
	return s, nil
}

func (c *controllerFlags) run(out, w io.Writer) error {
	serving, err := c.check()
	if err != nil {
		return err
	}
	log, err := newLogger(w, c.logLevel, c.logFormat)
	if err != nil {
		return err
	}
	opaque, err := ports.ParseOver(c.opaquePorts, policy.DefaultOpaque())
	if err != nil {
		return usagef("--opaque-ports: %w", err)
	}
	byDefault, err := policy.ParseDefault(c.byDefault)
	if err != nil {
		return usagef("--default-inbound-policy: %w", err)
	}
	signaled, _, stop := signals()
	defer stop()
	ctx, cancel := context.WithCancel(signaled)
	defer cancel()
	source, err := c.identify(ctx, log)
	if err != nil {
		return err
	}
	if source != nil {
		defer source.Close()
		serving.TLS = controller.TLS(source, c.trustDomain)
	}
	p, err := c.picture(log, cluster.Config{Everyone: true, Opaque: opaque, TrustDomain: c.trustDomain})
	if err != nil {
		return err
	}
	hook, err := c.webhook.server(p.api, c.trustDomain, out, log)
	if err != nil {
		return err
	}
	serving.Ready = func() error {
		if hook != nil {
			if err := hook.cert.Ready(); err != nil {
				return err
			}
		}
		if source != nil {
			if _, err := source.Current(); err != nil {
				return err
			}
		}
		return p.ready()
	}
	s := controller.New(controller.Config{Picture: p.picture, Synced: p.synced, Wire: wire.Config{Domain: c.domain}, Log: log,
		Policy: policy.Config{Default: byDefault, TrustDomain: c.trustDomain}})
	var following sync.WaitGroup
	following.Go(func() { p.follow(ctx, s.Changed) })
	var hookErr error
	if hook != nil {
		serving.More = hook.handler.WriteMetrics
		following.Go(func() {
			if hookErr = hook.run(ctx, log); hookErr != nil {
				cancel()
			}
		})
	}
	err = s.Serve(ctx, serving, func(addrs []net.Addr) { log.Info("controller ready", "listen", addrs, "admin", serving.AdminListen) })
	cancel()
	following.Wait()
	return cmp.Or(err, hookErr)
}

func (c *controllerFlags) identify(ctx context.Context, log *slog.Logger) (source identity.Source, err error) {
	switch {
	case c.identity.IdentityDir != "":
		source, err = identity.Files(ctx, identity.FilesConfig{Dir: c.identity.IdentityDir, Log: log})
	case c.identity.SPIFFESocket != "":
		source, err = identity.Workload(ctx, identity.WorkloadConfig{Socket: c.identity.SPIFFESocket, Log: log})
	}
	if err != nil && isIdentityFile(err) {
		err = inputError{err}
	}
	return source, err
}

// served is a picture, and how it is kept up to date.
type served struct {
	picture controller.Picture
	synced  <-chan struct{} // nil: it is whole
	api     *webhook.API    // nil: there is none
	ready   func() error
	follow  func(context.Context, func(*discovery.Change))
}

func (c *controllerFlags) picture(log *slog.Logger, cfg cluster.Config) (served, error) {
	if len(c.resources) > 0 {
		return pictureOfFiles(file.Config{Paths: c.resources, Cluster: cfg, Log: log})
	}
	k, err := kube.Open(kube.Config{Kubeconfig: c.kubeconfig, Context: c.context, Cluster: cfg, Log: log})
	if err != nil {
		return served{}, inputError{err}
	}
	client, base, err := k.API()
	if err != nil {
		return served{}, inputError{err}
	}
	return served{
		api:     &webhook.API{HTTP: client, Base: base},
		picture: k, synced: k.Synced(), follow: k.Run,
		ready: func() error {
			select {
			case <-k.Synced():
				return nil
			default:
				return errors.New("the objects of " + k.Server() + " are not all here yet")
			}
		},
	}, nil
}

func pictureOfFiles(cfg file.Config) (served, error) {
	r := file.NewReader(cfg)
	snapshot, report := r.Load()
	if err := report.Err(); err != nil {
		return served{}, inputError{err}
	}
	p := controller.NewStatic(snapshot)
	return served{
		picture: p, ready: func() error { return nil },
		follow: func(ctx context.Context, changed func(*discovery.Change)) {
			r.Watch(ctx, func(s *cluster.Snapshot) {
				p.Replace(s)
				changed(&discovery.Change{All: true})
			})
		},
	}, nil
}
