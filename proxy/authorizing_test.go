package proxy

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/meshctl/meshctl/proxy/discovery/kube"
	"github.com/meshctl/meshctl/proxy/policy"
)

const aServer = `apiVersion: policy.linkerd.io/v1beta3
kind: Server
metadata: {name: web, namespace: shop}
spec: {podSelector: {matchLabels: {app: web}}, port: http}
`

const aPod = `apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop, labels: {app: web}, annotations: {config.linkerd.io/default-inbound-policy: audit}}
spec: {containers: [{name: web, ports: [{containerPort: 8080, name: http}]}]}
status: {podIP: 203.0.113.77}
`

const aSpace = `apiVersion: v1
kind: Namespace
metadata: {name: shop, annotations: {config.linkerd.io/default-inbound-policy: deny}}
`

// guarded is a proxy of the namespace shop with these objects, and the folder they are in.
func guarded(t *testing.T, objects string, set func(*Config)) (*Proxy, string, error) {
	t.Helper()
	dir := t.TempDir()
	place(t, dir, "objects.yaml", objects)
	cfg := DefaultConfig()
	cfg.InboundListen = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}
	cfg.OutboundListen, cfg.AdminListen = nil, nil
	cfg.Resources, cfg.Namespace = []string{filepath.Join(dir, "objects.yaml")}, "shop"
	if set != nil {
		set(&cfg)
	}
	p, err := New(cfg)
	if err == nil {
		t.Cleanup(p.close)
	}
	return p, dir, err
}

func place(t *testing.T, dir, name, text string) string {
	t.Helper()
	name = filepath.Join(dir, name)
	if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestAProxyThatCannotTellWhetherServersSelectItDoesNotStart(t *testing.T) {
	_, _, err := guarded(t, aServer, nil)
	if !errors.Is(err, ErrUnknownPod) {
		t.Errorf("servers, and no pod: %v", err)
	}
	_, _, err = guarded(t, aServer, func(c *Config) { c.Policy.Pod = "web-1" })
	if !errors.Is(err, ErrUnknownPod) || !strings.Contains(err.Error(), "shop/web-1") {
		t.Errorf("a pod that is not there: %v", err)
	}
	if _, _, err = guarded(t, aServer, func(c *Config) {
		c.OutboundListen, c.InboundListen = c.InboundListen, nil
	}); err != nil {
		t.Errorf("outbound only: %v", err)
	}
	if _, _, err = guarded(t, aServer, func(c *Config) { c.Namespace = "other" }); err != nil {
		t.Errorf("Servers of another namespace: %v", err)
	}
}

func TestThePodIsKnownByItsNameItsLabelsOrItsAddress(t *testing.T) {
	covered := func(p *Proxy) bool { return p.authz.live.Port(8080).Covered() }
	p, _, err := guarded(t, aServer+"---\n"+aPod, func(c *Config) { c.Policy.Pod = "web-0" })
	if err != nil || !covered(p) {
		t.Errorf("by name: %v", err)
	}
	labels := place(t, t.TempDir(), "labels", "app=\"web\"\n")
	p, _, err = guarded(t, aServer, func(c *Config) {
		c.Policy.Labels, c.Policy.PortNames = labels, []policy.NamedPort{{Name: "http", Number: 8080}}
	})
	if err != nil || !covered(p) {
		t.Errorf("by labels: %v", err)
	}
	other := place(t, t.TempDir(), "labels", "app=\"db\"\n")
	p, _, err = guarded(t, aServer+"---\n"+aPod, func(c *Config) { c.Policy.Pod, c.Policy.Labels = "web-0", other })
	if err != nil || covered(p) {
		t.Errorf("the labels file does not win over the object: %v", err)
	}
	if own := ownAddress(t); own != "" {
		p, _, err = guarded(t, aServer+"---\n"+strings.Replace(aPod, "203.0.113.77", own, 1), nil)
		if err != nil || !covered(p) {
			t.Errorf("by its address %s: %v", own, err)
		}
	}
	if _, _, err = guarded(t, aServer+"---\n"+strings.Replace(aPod, "203.0.113.77", "127.0.0.1", 1), nil); !errors.Is(err, ErrUnknownPod) {
		t.Errorf("loopback is everybody's: %v", err)
	}
	if _, _, err = guarded(t, aServer, func(c *Config) { c.Policy.Labels = "/does/not/exist" }); err == nil {
		t.Error("a labels file that is not there")
	}
}

// ownAddress is one of this machine's that is not loopback; empty: it has none,
// and what is to be shown cannot be shown here.
func ownAddress(t *testing.T) string {
	t.Helper()
	c, err := firstAddress()
	if err != nil {
		t.Log("this machine has no address but loopback")
		return ""
	}
	return c
}

func TestTheOrderOfDefaultPolicies(t *testing.T) {
	annotations := place(t, t.TempDir(), "annotations", "config.linkerd.io/default-inbound-policy=\"cluster-unauthenticated\"\n")
	for _, tt := range []struct {
		objects string
		set     func(*Config)
		want    policy.Default
	}{
		{aSpace, nil, policy.Deny},
		{aSpace + "---\n" + aPod, func(c *Config) { c.Policy.Pod = "web-0" }, policy.Audit},
		{aSpace + "---\n" + aPod, func(c *Config) { c.Policy.Pod, c.Annotations = "web-0", annotations }, policy.ClusterUnauthenticated},
		{aSpace + "---\n" + aPod, func(c *Config) {
			c.Policy.Pod, c.Annotations, c.Policy.Default = "web-0", annotations, policy.AllAuthenticated
		}, policy.AllAuthenticated},
		{aPod, nil, policy.AllUnauthenticated},
	} {
		p, _, err := guarded(t, tt.objects, tt.set)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.authz.live.Table().Default(); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}

// lines is a log that a test can read while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.buf.String(), text)
}

func TestPoliciesFollowTheirFiles(t *testing.T) {
	dir := t.TempDir()
	labels := place(t, dir, "labels", "app=\"web\"\n")
	annotations := place(t, dir, "annotations", "")
	var log lines
	p, objects, err := guarded(t, aPod, func(c *Config) {
		c.Policy.Labels, c.Policy.Pod, c.Annotations = labels, "web-0", annotations
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan struct{}, 100)
	p.authz.live.Changed(func() { told <- struct{}{} })
	t.Cleanup(p.follow())
	outside := policy.Client{Addr: netip.MustParseAddr("203.0.113.5")}
	allowed := func() bool { return p.authz.live.Port(8080).AuthorizeConnection(outside).Allowed }
	if !allowed() {
		t.Fatal("audit lets nobody in")
	}
	place(t, objects, "objects.yaml", aServer+"---\n"+aPod)
	eventually(t, "a Server does not count", func() bool { return !allowed() })
	place(t, dir, "labels", "app=\"db\"\n")
	eventually(t, "other labels do not count", allowed)
	place(t, dir, "annotations", "config.linkerd.io/default-inbound-policy=\"deny\"\n")
	eventually(t, "the annotation does not count", func() bool { return !allowed() })
	place(t, dir, "annotations", "config.linkerd.io/default-inbound-policy=\"no-such\"\n")
	place(t, objects, "objects.yaml", "kind: [\n")
	eventually(t, "a broken file is not told of", func() bool { return log.has("a resource file is broken") })
	if len(told) < 3 {
		t.Errorf("told of %d changes", len(told))
	}
}

func TestWhatCannotBeToldLaterKeepsThePolicyAndIsLogged(t *testing.T) {
	var log lines
	p, _, err := guarded(t, aSpace, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	if err != nil {
		t.Fatal(err)
	}
	p.authz.setObjects(policy.Objects{Servers: []*policy.Server{{Object: policy.Object{Kind: "Server", Namespace: "shop", Name: "x"}, Pods: &policy.Selector{}, Port: 80}}})
	if p.authz.live.Table().Default() != policy.Deny || !log.has("the inbound policy stays as it was") {
		t.Error("the policy has changed without a word")
	}
}

func firstAddress() (string, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
			return p.Addr().String(), nil
		}
	}
	return "", errors.New("none")
}

func TestTheAPIMustSayWhichPodThisIsBeforeAnybodyMayCall(t *testing.T) {
	var log lines
	p, _, err := guarded(t, "", func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	if err != nil {
		t.Fatal(err)
	}
	p.cfg.Kubernetes = &kube.Config{} // as if the objects came from it
	outside := policy.Client{Addr: netip.MustParseAddr("203.0.113.5")}
	allowed := func() bool { return p.authz.live.Port(80).AuthorizeConnection(outside).Allowed }
	if !allowed() {
		t.Error("before the API has answered the default policy does not count")
	}
	server := &policy.Server{Object: policy.Object{Kind: "Server", Namespace: "shop", Name: "x"}, Pods: &policy.Selector{}, Port: 8080}
	p.authz.setObjects(policy.Objects{Servers: []*policy.Server{server}})
	if allowed() || !log.has("it is not known which pod this is") {
		t.Error("there are Servers, nobody knows which pod this is, and everybody may call")
	}
	own := netip.MustParseAddr("203.0.113.77")
	pod := &policy.Pod{Object: policy.Object{Kind: "Pod", Namespace: "shop", Name: "web-0"}, IPs: []netip.Addr{own}}
	p.cfg.Policy.Pod = "web-0"
	p.authz.setObjects(policy.Objects{Servers: []*policy.Server{server}, Pods: []*policy.Pod{pod}})
	if !allowed() || !p.authz.live.Port(8080).Covered() {
		t.Error("the pod is known, and its policy does not count")
	}
	p.authz.setObjects(policy.Objects{Servers: []*policy.Server{server}})
	if !allowed() {
		t.Error("what was known once does not stay")
	}
}
