package kube

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/discovery/kube"
	"github.com/meshctl/meshctl/proxy/discovery/table"
	"github.com/meshctl/meshctl/proxy/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lines is a log that a test reads while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// watched is a source that runs, and a cache that follows it.
type watched struct {
	*kube.Source
	*discovery.Cache
	log *lines
}

func watch(t *testing.T, cfg kube.Config) watched {
	t.Helper()
	w := watched{log: &lines{}}
	cfg.Log = slog.New(slog.NewTextHandler(w.log, nil))
	cfg.Cluster.Opaque = policy.DefaultOpaque()
	s, err := kube.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.Source, w.Cache = s, discovery.NewCache(discovery.CacheConfig{}, s)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx, w.Update) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return w
}

// synced waits for the first picture.
func (w watched) synced(t *testing.T) watched {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := w.Wait(ctx); err != nil {
		t.Fatalf("%v\n%s", err, w.log)
	}
	return w
}

// becomes waits until a destination is described as wanted.
func (w watched) becomes(t *testing.T, to, want string) {
	t.Helper()
	eventually(t, func() (string, bool) {
		got := table.Text(w.Resolve(netip.MustParseAddrPort(to)).View())
		return got, strings.Contains(got, want)
	}, "%s: want %q", to, want)
}

func eventually(t *testing.T, ok func() (string, bool), format string, args ...any) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		got, done := ok()
		if done {
			return
		}
		if time.Now().After(end) {
			t.Fatalf(format+"\ngot:\n%s", append(args, got)...)
		}
	}
}

const shop = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: web}
spec: {clusterIP: 10.0.1.1, ports: [{name: main, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: main, port: 8080}]
endpoints: [{addresses: [10.244.0.1]}]
`

const otherEndpoint = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: main, port: 8080}]
endpoints: [{addresses: [10.244.0.2]}]
`

const egressNetwork = `
apiVersion: policy.linkerd.io/v1alpha1
kind: EgressNetwork
metadata: {namespace: shop, name: never}
spec: {trafficPolicy: Deny, networks: [{cidr: 203.0.113.0/24}]}
`

// TestTheAPI is one test, so that one API server is enough.
func TestTheAPI(t *testing.T) {
	api := Start(t)
	config := func(token string) kube.Config {
		return kube.Config{Kubeconfig: api.Kubeconfig(token), Look: 200 * time.Millisecond, Retry: 300 * time.Millisecond, Cluster: cluster.Config{Namespace: "shop"}}
	}
	t.Run("a kind that is not there is watched when it comes, and forgotten when it goes", func(t *testing.T) { kindsComeAndGo(t, api.On(t), config(Admin)) })
	t.Run("says what the table says", func(t *testing.T) {
		api.Apply(api.GatewayAPI())
		api.Apply(Linkerd())
		table.Run(t, table.Config{Within: time.Minute, Open: func(t *testing.T, namespace string) (discovery.Resolver, func(string)) {
			cfg := config(Admin)
			cfg.Cluster.Namespace = namespace
			set := api.On(t).Set()
			t.Cleanup(func() { set("") })
			return watch(t, cfg).synced(t), set
		}})
	})
	t.Run("an API server that is lost, and back", func(t *testing.T) { lostAndBack(t, api.On(t), config(Admin)) })
	t.Run("rights", func(t *testing.T) { rights(t, api.On(t), config) })
	t.Run("explain, check and proxy", func(t *testing.T) { program(t, api.On(t)) })
	t.Run("no API server from the start", func(t *testing.T) { without(t, api.On(t), config(Admin)) })
}

func kindsComeAndGo(t *testing.T, api *API, cfg kube.Config) {
	w := watch(t, cfg).synced(t)
	if text := w.log.String(); strings.Contains(text, "WARN") || strings.Contains(text, "ERROR") {
		t.Errorf("an API server without custom kinds is complained of:\n%s", text)
	}
	api.Apply(shop)
	w.becomes(t, "10.0.1.1:80", "to 10.244.0.1:8080")
	w.becomes(t, "203.0.113.1:80", "address - port 80")
	api.Apply(Linkerd())
	api.Apply(egressNetwork)
	w.becomes(t, "203.0.113.1:80", "refused egress_denied")
	api.Delete(Linkerd())
	w.becomes(t, "203.0.113.1:80", "address - port 80")
	api.Apply(Linkerd())
	api.Apply(egressNetwork)
	w.becomes(t, "203.0.113.1:80", "refused egress_denied")
	api.Delete(egressNetwork)
	w.becomes(t, "203.0.113.1:80", "address - port 80")
}

func lostAndBack(t *testing.T, api *API, cfg kube.Config) {
	api.Apply(shop)
	w := watch(t, cfg).synced(t)
	w.becomes(t, "10.0.1.1:80", "to 10.244.0.1:8080")
	target := w.Resolve(netip.MustParseAddrPort("10.0.1.1:80"))
	if s := w.State(); s.Age != 0 || s.Err != nil || s.Objects == 0 || s.Changes == 0 {
		t.Errorf("state %+v", s)
	}
	api.Down()
	eventually(t, func() (string, bool) { s := w.State(); return "", s.Age > time.Second && s.Err != nil }, "the loss is not noticed")
	if !strings.Contains(table.Text(target.View()), "to 10.244.0.1:8080") {
		t.Errorf("what was known is gone: %s", table.Text(target.View()))
	}
	if !strings.Contains(w.log.String(), "does not answer") {
		t.Errorf("the log does not say so:\n%s", w.log)
	}
	api.Up()
	api.Apply(otherEndpoint)
	w.becomes(t, "10.0.1.1:80", "to 10.244.0.2:8080")
	eventually(t, func() (string, bool) { s := w.State(); return s.Age.String(), s.Age == 0 && s.Err == nil }, "it is not up to date again")
	if w.Resolve(target.Dst()) != target {
		t.Error("another target")
	}
}

func without(t *testing.T, api *API, cfg kube.Config) {
	api.Apply(shop)
	api.Down()
	w := watch(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := w.Wait(ctx); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("waiting says %v", err)
	}
	w.becomes(t, "10.0.1.1:80", "address - port 80\ndecided unknown by default_list\nto 10.0.1.1:80")
	w.becomes(t, "10.0.1.1:3306", "decided opaque by default_list")
	if s := w.State(); s.Synced || s.Age == 0 || s.Err == nil {
		t.Errorf("state %+v", s)
	}
	api.Up()
	w.synced(t)
	w.becomes(t, "10.0.1.1:80", "to 10.244.0.1:8080")
}
