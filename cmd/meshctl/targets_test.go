package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/meshctl/meshctl/proxy"
)

// exampleCluster are the objects that the tests of the proxy read too.
const exampleCluster = "../../testdata/kube"

// pretended makes answers independent of where the files are.
func pretended(text, dir string) string { return strings.ReplaceAll(text, dir, "DIR") }

func TestGoldenExplainNamesTheObjectAndTheLineThatDecide(t *testing.T) {
	var b strings.Builder
	for _, dst := range []string{
		"10.96.14.20:80", "10.96.14.20:81", "10.96.14.20:82", "10.96.14.20:83", "10.96.14.20:84", "10.96.14.20:85", "10.96.14.20:86", "10.96.14.20:87",
		"[fd00:96::1420]:80", "10.96.14.21:3306", "10.96.14.21:4406", "10.96.14.30:7000", "10.244.1.31:9000", "10.244.1.11:8084",
		"198.51.100.1:9999", "198.51.100.65:443", "203.0.113.5:25", "10.244.9.9:80", "10.96.14.50:80", "10.244.5.1:80", "10.244.5.2:8080", "198.18.0.7:8080",
	} {
		out, err := ask(t, "explain", "--skip-outbound-ports", "", "--namespace", "shop", "--resources", exampleCluster, dst)
		if err != nil {
			t.Errorf("%s: %v", dst, err)
		}
		fmt.Fprintf(&b, "$ meshctl explain --resources DIR %s\n", dst)
		for line := range strings.Lines(out) {
			if !strings.HasPrefix(line, "  rule") && !strings.HasPrefix(line, "  why") && !strings.HasPrefix(line, "  assumed") {
				b.WriteString(line) // those are of other tests
			}
		}
		b.WriteString("\n")
	}
	golden(t, "explain_targets.txt", pretended(b.String(), exampleCluster))
}

func TestExplainTellsATargetAsJSON(t *testing.T) {
	out, err := ask(t, "explain", "-o", "json", "--namespace", "shop", "--resources", exampleCluster, "10.96.14.20:86")
	if err != nil {
		t.Fatal(err)
	}
	var a explanation
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		t.Fatal(err)
	}
	want := filepath.Clean(exampleCluster) + "/shop.yaml:56"
	if a.Target == nil || a.Target.Protocol != "opaque" || a.Target.Reason != "unknown_app_protocol" || a.Target.DecidedBy != "Service shop/web" || a.Target.DecidedAt != want || len(a.Target.Warnings) != 1 {
		t.Errorf("target %+v", a.Target)
	}
	if a.Proxy.Action != "opaque" {
		t.Errorf("proxy %+v", a.Proxy)
	}
}

func TestExplainTellsTheMeshIdentityOfEachEndpointAsJSON(t *testing.T) {
	out, err := ask(t, "explain", "-o", "json", "--identity-trust-domain", "edge.example", "--resources", exampleCluster, "10.96.14.50:80")
	if err != nil {
		t.Fatal(err)
	}
	var a explanation
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		t.Fatal(err)
	}
	const orders = "orders.edge.serviceaccount.identity.linkerd.edge.example"
	want := []meshAnswer{
		{Endpoint: "10.244.5.1:8080", Identity: orders, ServerName: orders, Port: 4143},
		{Endpoint: "10.244.5.2:8080", NoTLS: "port_skipped"},
		{Endpoint: "10.244.5.3:8080", NoTLS: "not_provided_by_service_discovery"},
		{Endpoint: "198.18.0.7:8080", Identity: "spiffe://root.edge.example/orders-vm", ServerName: "orders-vm.edge.example", Port: 4143},
	}
	if a.Target == nil || !slices.Equal(a.Target.Mesh, want) {
		t.Errorf("target %+v", a.Target)
	}
}

func TestGoldenCheckTellsWhatIsWrongWithFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"good.yaml":   "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n",
		"field.yaml":  "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  namespace: shop\nspec:\n  ports:\n  - port: http\n",
		"spelt.yaml":  "apiVersion: v1\nkind: Pod\nmetadata:\n  name: b\n  namespace: shop\n  annotations:\n    config.linkerd.io/skip-oubound-ports: \"25\"\n    config.linkerd.io/opaque-ports: 25;26\n",
		"mirror.yaml": "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata:\n  name: c\n  namespace: shop\nspec:\n  parentRefs:\n  - kind: Service\n    group: \"\"\n    name: a\n  rules:\n  - filters:\n    - type: RequestMirror\n      requestMirror:\n        backendRef:\n          name: m\n          port: 80\n",
		"other.yaml":  "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: d\n",
		"annotations": "config.linkerd.io/opaque-ports=\"4406\"\nconfig.linkerd.io/proxy-uid=\"nobody\"\nconfig.linkerd.io/skip-oubound-ports=\"1\"\nconfig.linkerd.io/proxy-cpu-limit=\"1\"\n",
		"unquoted":    "config.linkerd.io/opaque-ports=4406\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var b strings.Builder
	for _, args := range [][]string{
		{"--resources", dir},
		{"--resources", filepath.Join(dir, "good.yaml")},
		{"--resources", filepath.Join(dir, "nothing.yaml")},
		{"--resources", filepath.Join(dir, "good.yaml") + "," + filepath.Join(dir, "other.yaml"), "--annotations", filepath.Join(dir, "annotations")},
		{"--annotations", filepath.Join(dir, "unquoted")},
		{"--resources", filepath.Join(dir, "field.yaml"), "-o", "json"},
		{},
	} {
		out, err := ask(t, append([]string{"check"}, args...)...)
		code := exitDone
		if err != nil {
			code = codeOf(err)
		}
		fmt.Fprintf(&b, "$ meshctl check %s\n%sexit code %d\n\n", quoted(args), out, code)
	}
	golden(t, "check.txt", pretended(b.String(), dir))
}

func annotationsFile(t *testing.T, lines ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "annotations")
	if err := os.WriteFile(name, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestAnnotationsStandForFlagsThatAreNotGiven(t *testing.T) {
	name := annotationsFile(t,
		`config.linkerd.io/skip-outbound-ports="+3306"`, `config.linkerd.io/skip-inbound-ports="7000-7010"`, `config.linkerd.io/skip-subnets="10.9.0.0/16,fd00:9::/32"`,
		`config.linkerd.io/inbound-port="5143"`, `config.linkerd.io/outbound-port="5140"`, `config.linkerd.io/proxy-uid="2200"`, `config.linkerd.io/admin-port="5191"`)
	for _, tt := range []struct {
		args []string
		want []string // in the dry run's JSON
	}{
		{nil, []string{`"3306,4567-4568"`, `"4190-4191,5191,7000-7010"`, `"10.9.0.0/16"`, `"fd00:9::/32"`, "5143", "5140", "2200"}},
		{[]string{"--skip-outbound-ports", "99", "--proxy-uid", "3000"}, []string{`"99"`, "3000", "5143"}},
		{[]string{"--outbound-ports-to-ignore", "98"}, []string{`"98"`, "2200"}},
	} {
		out, err := ask(t, append([]string{"redirect", "--dry-run", "-o", "json", "--annotations", name}, tt.args...)...)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range tt.want {
			if !strings.Contains(out, w) {
				t.Errorf("%q: no %s in\n%s", tt.args, w, out)
			}
		}
		if len(tt.args) > 0 && strings.Contains(out, `"3306,4567-4568"`) {
			t.Errorf("%q: the annotation wins over the flag", tt.args)
		}
	}
}

func TestTimesOfOneDirectionComeFromAnnotations(t *testing.T) {
	const year = 365 * 24 * time.Hour
	name := annotationsFile(t,
		`config.linkerd.io/proxy-inbound-connect-timeout="300ms"`, `config.linkerd.io/proxy-outbound-connect-timeout="4s"`,
		`config.linkerd.io/proxy-disable-inbound-protocol-detect-timeout="true"`, `config.linkerd.io/proxy-disable-outbound-protocol-detect-timeout="false"`)
	for _, tt := range []struct {
		args              []string
		inbound, outbound proxy.Times
	}{
		{nil, proxy.Times{DetectTimeout: year, ConnectTimeout: 300 * time.Millisecond}, proxy.Times{ConnectTimeout: 4 * time.Second}},
		{[]string{"--connect-timeout=2s"}, proxy.Times{DetectTimeout: year}, proxy.Times{}}, // flags win
		{[]string{"--detect-timeout=2s", "--outbound-connect-timeout=9s"}, proxy.Times{ConnectTimeout: 300 * time.Millisecond}, proxy.Times{ConnectTimeout: 9 * time.Second}},
	} {
		p := &proxyFlags{cfg: proxy.DefaultConfig()}
		cmd := &cobra.Command{}
		p.register(cmd)
		if err := cmd.ParseFlags(append(tt.args, "--annotations", name)); err != nil {
			t.Fatal(err)
		}
		c, err := p.config(io.Discard)
		if err != nil || c.Inbound != tt.inbound || c.Outbound != tt.outbound {
			t.Errorf("%q: inbound %+v, outbound %+v, %v", tt.args, c.Inbound, c.Outbound, err)
		}
	}
}

func TestAnAnnotationThatIsWrongIsRefusedWithItsKeyAndLine(t *testing.T) {
	for line, want := range map[string]string{
		`config.linkerd.io/skip-outbound-ports="25,70000"`: `line 1: config.linkerd.io/skip-outbound-ports: port list: item 2 "70000": ports end at 65535`,
		`config.linkerd.io/skip-subnets="10.0.0.0/40"`:     `line 1: config.linkerd.io/skip-subnets: item 1 "10.0.0.0/40": not a subnet`,
		`config.linkerd.io/proxy-uid="nobody"`:             `line 1: config.linkerd.io/proxy-uid: "nobody" is not a user or group number`,
		`config.linkerd.io/opaque-ports=25`:                `line 1: the value of config.linkerd.io/opaque-ports is not in double quotes`,
	} {
		name := annotationsFile(t, line)
		for _, args := range [][]string{{"redirect", "--dry-run"}, {"explain", "10.0.0.1:80"}, {"proxy"}} {
			_, err := ask(t, append(args, "--annotations", name)...)
			if err == nil || !strings.Contains(err.Error(), want) || codeOf(err) != exitInput {
				t.Errorf("%s %s: %v, exit code %d", args[0], line, err, codeOf(err))
			}
		}
	}
}

func TestTheProxyRefusesResourcesThatAreBroken(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(name, []byte("kind: [\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	_, err = ask(t, "proxy", "--resources", name, "--inbound-listen", l.Addr().String(), "--outbound-listen", "", "--admin-listen", "")
	if err == nil || codeOf(err) != exitInput || !strings.Contains(err.Error(), name+":") {
		t.Errorf("err %v", err)
	}
}

func TestThePodsListOfOpaquePortsCountsInboundInExplain(t *testing.T) {
	name := annotationsFile(t, `config.linkerd.io/opaque-ports="4406"`)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--inbound", "10.0.0.1:4406"}, "opaque by the annotation"},
		{[]string{"--inbound", "10.0.0.1:3306"}, "tells the protocol"},
		{[]string{"--inbound", "--opaque-ports", "5", "10.0.0.1:4406"}, "tells the protocol"},
		{[]string{"10.0.0.1:4406"}, "tells the protocol"},
	} {
		out, err := ask(t, append([]string{"explain", "--annotations", name}, tt.args...)...)
		if err != nil || !strings.Contains(out, tt.want) {
			t.Errorf("%q: %v\n%s", tt.args, err, out)
		}
	}
}
