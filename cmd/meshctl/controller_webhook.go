package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/meshctl/meshctl/controller/webhook"
	"github.com/meshctl/meshctl/inject"
	"github.com/meshctl/meshctl/internal/listen"
)

// webhookFlags are the controller's flags of the mutating webhook.
type webhookFlags struct {
	listen, configuration, service string
	life                           time.Duration
	csi                            string
	options                        inject.Options
}

func (o *webhookFlags) register(f *pflag.FlagSet) {
	c := &o.options
	f.StringVar(&o.listen, "webhook-listen", "", "where the API server asks what to inject into a new pod: POST /inject; empty: nowhere")
	f.StringVar(&o.configuration, "webhook-configuration", "meshctl-injector", "MutatingWebhookConfiguration whose caBundle is kept up to date")
	f.StringVar(&o.service, "webhook-service", "meshctl-injector.meshctl.svc", "names by which the API server calls, for the webhook's own certificate")
	f.DurationVar(&o.life, "webhook-certificate-life", 24*time.Hour, "life of that certificate; it is replaced after two thirds")
	f.StringVar(&c.Image, "webhook-image", "", "image of the containers that are injected (default: localhost/meshctl:VERSION)")
	f.StringVar(&c.InitImage, "webhook-init-image", "", "image of the init container, such as one with iptables in it (default: --webhook-image)")
	f.StringVar(&c.PullPolicy, "webhook-image-pull-policy", "", "Always, IfNotPresent or Never (default: Kubernetes' own)")
	f.StringVar(&c.Backend, "webhook-backend", "auto", "how the init container writes the rules: auto, nftables, iptables-nft, iptables-legacy or iptables")
	f.BoolVar(&c.NoNativeSidecar, "webhook-no-native-sidecar", false, "the proxy as an ordinary container, for Kubernetes before 1.29")
	f.StringVar(&c.Identity.Secret, "webhook-identity-secret", "", "Secret with tls.crt, tls.key and ca.crt, in the pod's namespace: turns mTLS on")
	f.StringVar(&o.csi, "webhook-identity-csi", "", "CSI driver that gives each pod its certificate: cert-manager or spire: turns mTLS on")
	f.StringVar(&c.ControlPlaneNamespace, "webhook-control-plane-namespace", "linkerd", "value of the label linkerd.io/control-plane-ns, which marks pods that take mTLS")
	f.StringArrayVar(&c.InitArgs, "webhook-redirect-arg", nil, "further argument of meshctl redirect; may be given again")
	f.StringArrayVar(&c.ProxyArgs, "webhook-proxy-arg", nil, "further argument of meshctl proxy, as --webhook-proxy-arg=--destination=...; may be given again")
}

// webhookServer is the webhook, ready to run.
type webhookServer struct {
	addrs   []netip.AddrPort
	handler *webhook.Handler
	cert    *webhook.Certificate
}

// server makes the webhook; nil if none is asked for. api is nil where objects come
// from files: then the certificate is printed.
func (o *webhookFlags) server(api *webhook.API, trustDomain string, out io.Writer, log *slog.Logger) (*webhookServer, error) {
	if o.listen == "" {
		return nil, nil
	}
	addrs, err := listen.Parse(o.listen)
	if err != nil {
		return nil, usagef("--webhook-listen: %w", err)
	}
	if o.life < time.Minute {
		return nil, usagef("--webhook-certificate-life: %s is less than a minute", o.life)
	}
	c := o.options
	c.Version, c.Identity.TrustDomain, c.Identity.CSI = version, trustDomain, csiDriver(o.csi)
	if c.Identity.None() {
		c.Identity.TrustDomain = ""
	}
	if c.Image == "" {
		c.Image = "localhost/meshctl:" + version
	}
	if err := c.Validate(); err != nil {
		return nil, usagef("%w", err)
	}
	s := &webhookServer{
		addrs: addrs, handler: &webhook.Handler{Options: c, Log: log},
		cert: &webhook.Certificate{Names: strings.Split(o.service, ","), Life: o.life, Log: log},
	}
	if api == nil {
		var printed []byte
		s.handler.Namespace = func(context.Context, string) (map[string]string, error) { return nil, nil }
		s.cert.Trust = func(_ context.Context, bundle []byte) error {
			if !bytes.Equal(bundle, printed) {
				printed = bundle
				_, err := out.Write(bundle)
				return err
			}
			return nil
		}
		return s, nil
	}
	api.Configuration = o.configuration
	s.handler.Namespace, s.cert.Trust = api.Namespace, api.Trust
	return s, nil
}

func csiDriver(word string) string {
	switch word {
	case "cert-manager":
		return inject.CertManagerCSI
	case "spire":
		return inject.SPIRECSI
	default:
		return word
	}
}

// run serves until ctx ends.
func (s *webhookServer) run(ctx context.Context, log *slog.Logger) error {
	mux := http.NewServeMux()
	mux.Handle("/inject", s.handler)
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	var running sync.WaitGroup
	defer running.Wait()
	failed := make(chan error, len(s.addrs))
	for _, a := range s.addrs {
		l, err := net.Listen("tcp", a.String())
		if err != nil {
			_ = web.Close()
			return err
		}
		running.Go(func() {
			l := tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.cert.Current, NextProtos: []string{"h2", "http/1.1"}})
			if err := web.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		})
	}
	inner, stop := context.WithCancel(ctx)
	defer stop()
	running.Go(func() { s.cert.Run(inner) })
	log.Info("webhook listening", "addr", s.addrs)
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	grace, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = web.Shutdown(grace) // what is left then is cut
	return err
}
