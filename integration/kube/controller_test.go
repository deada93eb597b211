package kube

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/meshctl/meshctl/controller"
	"github.com/meshctl/meshctl/controller/webhook"
	"github.com/meshctl/meshctl/inject"
	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/discovery/destination"
	"github.com/meshctl/meshctl/proxy/discovery/kube"
	"github.com/meshctl/meshctl/proxy/discovery/table"
	"github.com/meshctl/meshctl/proxy/policy"
)

// TestTheController has proxies ask a controller that watches a real API server,
// and the API server ask its webhook.
func TestTheController(t *testing.T) {
	api := Start(t)
	api.Apply(api.GatewayAPI())
	api.Apply(Linkerd())
	source, err := kube.Open(kube.Config{Kubeconfig: api.Kubeconfig(Admin), Look: 200 * time.Millisecond, Retry: 300 * time.Millisecond,
		Cluster: cluster.Config{Everyone: true, Opaque: policy.DefaultOpaque()}})
	if err != nil {
		t.Fatal(err)
	}
	client, base, err := source.API()
	if err != nil {
		t.Fatal(err)
	}
	s := controller.New(controller.Config{Picture: source, Synced: source.Synced()})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	opened := make(chan string, 1)
	running.Go(func() { source.Run(ctx, s.Changed) })
	running.Go(func() {
		err := s.Serve(ctx, controller.Serving{Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, Ready: func() error { return nil }},
			func(a []net.Addr) { opened <- a[0].String() })
		if err != nil {
			t.Error(err)
		}
	})
	addr := <-opened
	t.Run("says what the table says", func(t *testing.T) {
		table.Run(t, table.Config{Within: time.Minute, Open: func(t *testing.T, namespace string) (discovery.Resolver, func(string)) {
			c, err := destination.Open(destination.Config{Addrs: []string{addr}, Namespace: namespace, Opaque: policy.DefaultOpaque()})
			if err != nil {
				t.Fatal(err)
			}
			cache := discovery.NewCache(discovery.CacheConfig{}, c)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); c.Run(ctx, cache) }()
			set := api.On(t).Set()
			t.Cleanup(func() { set(""); stop(); <-ended })
			return cache, set
		}})
	})
	t.Run("the webhook", func(t *testing.T) {
		injects(t, api.On(t), &webhook.API{HTTP: client, Base: base, Configuration: "meshctl-injector"})
	})
}

// injects has the API server call a webhook whose certificate it is told to trust.
func injects(t *testing.T, api *API, of *webhook.API) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cert := &webhook.Certificate{Names: []string{"localhost"}, Life: time.Hour, Trust: of.Trust, Again: 100 * time.Millisecond, Log: slog.New(slog.DiscardHandler)}
	handler := &webhook.Handler{Options: inject.Options{Image: "localhost/meshctl:test"}, Namespace: of.Namespace, Log: slog.New(slog.DiscardHandler)}
	web := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = web.Serve(tls.NewListener(l, &tls.Config{GetCertificate: cert.Current})) })
	running.Go(func() { cert.Run(ctx) })
	t.Cleanup(func() { stop(); _ = web.Close(); running.Wait() })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	configuration := fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: meshctl-injector}
webhooks:
- name: inject.meshctl.io
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  clientConfig: {url: "https://localhost:%s/inject"}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods], scope: Namespaced}]
`, port)
	if err := api.try(http.MethodPost, "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", "application/yaml", []byte(configuration)); err != nil {
		t.Fatal(err)
	}
	api.Apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: hook}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: unhooked, annotations: {linkerd.io/inject: disabled}}\n")
	eventually(t, func() (string, bool) {
		err := cert.Ready()
		return fmt.Sprint(err), err == nil
	}, "the certificate")
	create := func(namespace, name, more string) error {
		return api.try(http.MethodPost, "/api/v1/namespaces/"+namespace+"/pods", "application/yaml",
			[]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: "+name+"}\nspec: {"+more+"containers: [{name: app, image: app}]}\n"))
	}
	eventually(t, func() (string, bool) { // the API server reads the configuration a moment later
		err := create("hook", "web", "")
		return fmt.Sprint(err), err == nil || strings.Contains(err.Error(), "AlreadyExists")
	}, "a pod is made")
	for name, want := range map[string]bool{"hook/pods/web": true} {
		if got := containers(t, api, name); strings.Contains(got, "localhost/meshctl:test") != want {
			t.Errorf("%s has %s", name, got)
		}
	}
	if err := create("unhooked", "web", ""); err != nil {
		t.Fatal(err)
	}
	if got := containers(t, api, "unhooked/pods/web"); strings.Contains(got, "meshctl") {
		t.Errorf("a pod of a namespace that is left out has %s", got)
	}
	if err := create("hook", "node", "hostNetwork: true, "); err == nil || !strings.Contains(err.Error(), "hostNetwork") {
		t.Errorf("a pod on the node's network: %v", err)
	}
}

// containers are the images of a pod.
func containers(t *testing.T, api *API, path string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.URL+"/api/v1/namespaces/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+Admin)
	answer, err := api.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var pod struct {
		Spec struct {
			InitContainers, Containers []struct{ Image string }
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&pod); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(pod.Spec.InitContainers, pod.Spec.Containers)
}
