package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/proxy/discovery/file"
	"github.com/meshctl/meshctl/proxy/policy"
)

func put(t *testing.T, name, text string) string {
	t.Helper()
	fresh := name + ".new"
	if err := os.WriteFile(fresh, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fresh, name); err != nil {
		t.Fatal(err)
	}
	return name
}

// eventually waits for a condition that a change of a file brings about.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// opaqueBoth declares a port on the Service, on the pod, on both or on neither.
func opaqueBoth(server netip.AddrPort, onService, onPod bool) string {
	annotation := func(on bool) string {
		if !on {
			return ""
		}
		return fmt.Sprintf("  annotations:\n    config.linkerd.io/opaque-ports: \"%d\"\n", server.Port())
	}
	return "apiVersion: v1\nkind: Service\nmetadata:\n  name: search\n  namespace: shop\n" + annotation(onService) +
		fmt.Sprintf("spec:\n  clusterIP: 10.96.7.7\n  ports:\n  - name: api\n    port: %d\n---\n", server.Port()) +
		"apiVersion: v1\nkind: Pod\nmetadata:\n  name: search-0\n  namespace: shop\n" + annotation(onPod) + "status:\n  podIP: 127.0.0.1\n---\n" +
		"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nmetadata:\n  name: search-1\n  namespace: shop\n  labels:\n    kubernetes.io/service-name: search\n" +
		fmt.Sprintf("ports:\n- name: api\n  port: %d\nendpoints:\n- addresses: [127.0.0.1]\n  targetRef: {kind: Pod, name: search-0, namespace: shop}\n", server.Port())
}

// An application that speaks HTTP on a port that is declared opaque is reached,
// and its requests are not looked at, whoever declared it.
func TestHTTPOnAPortThatIsDeclaredOpaquePassesUncounted(t *testing.T) {
	server := web(t, nil)
	for name, on := range map[string][2]bool{"on the pod": {false, true}, "on the Service": {true, false}, "on both": {true, true}, "on neither": {}} {
		t.Run(name, func(t *testing.T) {
			resources := put(t, filepath.Join(t.TempDir(), "x.yaml"), opaqueBoth(server, on[0], on[1]))
			dst := netip.AddrPortFrom(netip.MustParseAddr("10.96.7.7"), server.Port())
			r := run(t, dst, func(c *Config) { c.Resources, c.Namespace = []string{resources}, "shop" })
			c := client(t, r.outbound(), false)
			if got := fetch(t, c, "/"); got != "HTTP/1.1" {
				t.Errorf("served as %q", got)
			}
			c.CloseIdleConnections()
			if on[0] || on[1] {
				r.metric("1", "tcp_close_total{", `peer="dst"`)
				if _, page := r.get("/metrics"); strings.Contains(page, "\nrequest_total{") {
					t.Error("a request was counted on an opaque port")
				}
				return
			}
			r.metric("1", "request_total{", `direction="outbound"`)
		})
	}
}

func TestOutboundConnectionsFollowTheFiles(t *testing.T) {
	first, second := serve(t, mail), web(t, nil)
	dst := netip.MustParseAddrPort("10.96.7.7:80")
	at := func(server netip.AddrPort) string {
		return strings.Replace(opaqueBoth(server, false, false), fmt.Sprintf("port: %d\n---", server.Port()), "port: 80\n---", 1)
	}
	name := put(t, filepath.Join(t.TempDir(), "x.yaml"), at(first))
	r := run(t, dst, func(c *Config) { c.Resources, c.Namespace = []string{name}, "shop" })
	expect(t, dial(t, r.outbound()), "220 mail ESMTP\r\n")
	put(t, name, "kind: [")
	eventually(t, "the broken file is told", func() bool { return strings.Contains(r.log.String(), "a resource file is broken") })
	expect(t, dial(t, r.outbound()), "220 mail ESMTP\r\n")
	r.metric("1", "meshctl_resource_problems{", `severity="error"`)
	r.metric("1", "meshctl_resource_loads_total{", `result="broken"`)
	put(t, name, at(second))
	eventually(t, "the new endpoint", func() bool {
		return r.p.targets.cache.Resolve(dst).View().Endpoints[0].Addr == second
	})
	if got := fetch(t, client(t, r.outbound(), false), "/"); got != "HTTP/1.1" {
		t.Errorf("served as %q", got)
	}
	r.metric("0", "meshctl_resource_problems{", `severity="error"`)
}

func TestResourcesThatAreBrokenAtTheStartEndIt(t *testing.T) {
	name := put(t, filepath.Join(t.TempDir(), "x.yaml"), "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\nspec:\n  ports:\n  - port: 0\n")
	cfg, _ := testConfig(netip.AddrPort{})
	cfg.Resources = []string{name}
	before := openFDs(t)
	_, err := New(cfg)
	if p, ok := errors.AsType[file.Problem](err); !ok || p.Object.Line != 7 || p.Field != "spec.ports[0].port" {
		t.Errorf("err %v", err)
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestThePodsOpaquePortsAreThoseOfItsAnnotationAndChangeWithIt(t *testing.T) {
	for _, tt := range []struct {
		name, list string
		opaque     []uint16
		not        []uint16
	}{
		{"none", "-", []uint16{3306, 25}, []uint16{4406}},
		{"it replaces the default", "4406", []uint16{4406}, []uint16{3306, 25}},
		{"it adds", "+4406", []uint16{4406, 3306}, []uint16{80}},
		{"it is empty", "", nil, []uint16{3306, 4406}},
		{"it names a port", "db,4406,unheard-of", []uint16{5506, 4406}, []uint16{3306}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "annotations")
			text := "unrelated=\"x\"\n"
			if tt.list != "-" {
				text += "config.linkerd.io/opaque-ports=\"" + tt.list + "\"\n"
			}
			put(t, name, text)
			r := run(t, netip.MustParseAddrPort("127.0.0.1:1"), func(c *Config) {
				c.Annotations, c.OpaquePorts = name, policy.DefaultOpaque()
				c.Policy.PortNames = []policy.NamedPort{{Name: "web", Number: 80}, {Name: "db", Number: 5506}}
			})
			holds(t, r, tt.opaque, tt.not)
			put(t, name, "config.linkerd.io/opaque-ports=\"9999\"\n")
			eventually(t, "the new list", func() bool { return r.p.targets.own.Kind(9999).String() == "opaque" })
			holds(t, r, []uint16{9999}, append(tt.opaque, tt.not...))
			put(t, name, "config.linkerd.io/opaque-ports=\"70000\"\n")
			eventually(t, "the wrong list is told", func() bool { return strings.Contains(r.log.String(), "the opaque ports stay as they were") })
			holds(t, r, []uint16{9999}, []uint16{3306})
			put(t, name, "")
			eventually(t, "the default list again", func() bool { return r.p.targets.own.Kind(3306).String() == "opaque" })
		})
	}
}

func holds(t *testing.T, r *running, opaque, not []uint16) {
	t.Helper()
	for _, p := range opaque {
		if k := r.p.targets.own.Kind(p); k.String() != "opaque" {
			t.Errorf("port %d is %s", p, k)
		}
	}
	for _, p := range not {
		if k := r.p.targets.own.Kind(p); k.String() == "opaque" {
			t.Errorf("port %d is opaque", p)
		}
	}
}

func TestWhatTheCommandLineSaysOfOpaquePortsWins(t *testing.T) {
	name := put(t, filepath.Join(t.TempDir(), "annotations"), "config.linkerd.io/opaque-ports=\"4406\"\n")
	r := run(t, netip.MustParseAddrPort("127.0.0.1:1"), func(c *Config) {
		c.Annotations, c.OpaquePorts, c.OpaquePortsSaid = name, ports.Of(5555), true
	})
	holds(t, r, []uint16{5555}, []uint16{4406})
}
