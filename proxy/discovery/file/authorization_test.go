package file

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/proxy/policy"
	"github.com/meshctl/meshctl/proxy/protocol"
)

const policyDir = "../../../testdata/policy/"

func TestPoliciesAreReadAsTheyAreWritten(t *testing.T) {
	s, report := NewReader(Config{Paths: []string{policyDir + "shop.yaml"}, Cluster: shop()}).Load()
	if len(report.Problems) > 0 || len(report.Skipped) > 0 {
		t.Fatalf("problems %v, skipped %v", report.Problems, report.Skipped)
	}
	all := s.Policies()
	own := all.Own("shop", "", func(a netip.Addr) bool { return a == netip.MustParseAddr("fd00:244:1::11") })
	if own == nil || own.Name != "web-0" || own.Labels["app"] != "web" || len(own.IPs) != 2 {
		t.Fatalf("own pod %+v", own)
	}
	if d := cmp.Diff([]policy.NamedPort{{Name: "http", Number: 8080}, {Name: "admin", Number: 9990}}, own.Ports); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]policy.Probe{{Port: 9990, Path: "/healthz"}, {Port: 9990, Path: "/ready"}}, own.Probes); d != "" {
		t.Error(d)
	}
	if all.DefaultOf("shop") != policy.ClusterAuthenticated || all.DefaultOf("other") != 0 {
		t.Errorf("default of the namespace %s", all.DefaultOf("shop"))
	}
	http, db := all.Servers[0], all.Servers[1]
	if http.PortName != "http" || http.Protocol != protocol.HTTP1 || http.Access != 0 || http.Line != 38 || !strings.HasSuffix(http.File, "shop.yaml") {
		t.Errorf("%+v", http)
	}
	if db.Port != 3306 || db.Protocol != protocol.Unknown || db.Access != policy.Audit || db.Detect != policy.Close || db.Labels["tier"] != "data" {
		t.Errorf("%+v", db)
	}
	if d := cmp.Diff(&policy.Selector{Expressions: []policy.Expression{{Key: "app", Operator: "In", Values: []string{"web", "api"}}}}, db.Pods); d != "" {
		t.Error(d)
	}
	if len(all.Routes) != 2 || all.Routes[0].Group != policy.Group || all.Routes[1].Group != policy.GatewayGroup || all.Routes[1].Servers[0] != "web-http" {
		t.Errorf("routes %+v", all.Routes)
	}
	if want := (policy.Required{Kind: "ServiceAccount", Namespace: "ops", Name: "operator"}); all.Authorizations[2].Required[0] != want || all.Authorizations[2].Target.Kind != "Namespace" {
		t.Errorf("%+v", all.Authorizations[2])
	}
	if d := cmp.Diff([]policy.IdentityRef{{Kind: "ServiceAccount", Name: "api"}}, all.MeshTLS[0].Refs); d != "" {
		t.Error(d)
	}
	if got := all.Networks[0].Networks; len(got) != 2 || got[0].Except[0] != netip.MustParsePrefix("192.0.2.66/32") {
		t.Errorf("%+v", got)
	}
	if a := all.ServerAuthorizations[0]; a.Selector == nil || a.Unauthenticated || a.TLS || len(a.ServiceAccounts) != 1 || len(a.Networks) != 1 {
		t.Errorf("%+v", a)
	}
}

// policyFile is an object of policy.linkerd.io with a spec in YAML's short form.
func policyFile(t *testing.T, version, kind, spec string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "o.yaml")
	text := "apiVersion: policy.linkerd.io/" + version + "\nkind: " + kind + "\nmetadata: {name: x, namespace: shop}\nspec: " + spec + "\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestPoliciesThatCannotBeBreakALoad(t *testing.T) {
	for _, tt := range []struct{ kind, spec, want string }{
		{"Server", `{podSelector: {}, port: 0}`, "spec.port: 0 is no port"},
		{"Server", `{podSelector: {}, port: 65536}`, "spec.port: 65536 is no port"},
		{"Server", `{podSelector: {}, port: ""}`, "spec.port: neither a port nor the name of one"},
		{"Server", `{podSelector: {}}`, "spec.port: 0 is no port"},
		{"Server", `{port: 80}`, "neither podSelector nor externalWorkloadSelector"},
		{"Server", `{podSelector: {}, port: 80, proxyProtocol: http}`, `spec.proxyProtocol: "http": want unknown`},
		{"Server", `{podSelector: {}, port: 80, accessPolicy: allow}`, `spec.accessPolicy: "allow" is no policy`},
		{"Server", `{podSelector: {matchExpressions: [{key: a, operator: Equals, values: [b]}]}, port: 80}`, "matchExpressions[0].operator"},
		{"Server", `{podSelector: {matchExpressions: [{key: a, operator: In}]}, port: 80}`, "matchExpressions[0].values: In needs values"},
		{"Server", `{podSelector: [], port: 80}`, "a list where a mapping is wanted"},
		{"AuthorizationPolicy", `{targetRef: {kind: Server, name: a}, requiredAuthenticationRefs: []}`, "spec.targetRef.kind: Server: want"},
		{"AuthorizationPolicy", `{targetRef: {group: policy.linkerd.io, kind: Server}, requiredAuthenticationRefs: []}`, "spec.targetRef.name: no name"},
		{"AuthorizationPolicy", `{targetRef: {group: policy.linkerd.io, kind: Server, name: a}, requiredAuthenticationRefs: [{kind: MeshTLSAuthentication, name: a}]}`, "spec.requiredAuthenticationRefs[0].kind"},
		{"MeshTLSAuthentication", `{}`, "neither identities nor identityRefs"},
		{"MeshTLSAuthentication", `{identities: ["a*"]}`, `spec.identities[0]: "a*"`},
		{"MeshTLSAuthentication", `{identityRefs: [{kind: Pod, name: a}]}`, "spec.identityRefs[0].kind: Pod"},
		{"NetworkAuthentication", `{networks: []}`, "no network"},
		{"NetworkAuthentication", `{networks: [{cidr: 10.0.0.0/33}]}`, `spec.networks[0].cidr: "10.0.0.0/33" is no subnet`},
		{"NetworkAuthentication", `{networks: [{cidr: "::ffff:10.0.0.0/104"}]}`, "is no subnet"},
		{"NetworkAuthentication", `{networks: [{cidr: 10.0.0.0/8, except: [x]}]}`, `spec.networks[0].except[0]: "x"`},
		{"ServerAuthorization", `{server: {}, client: {unauthenticated: true}}`, "want one of name and selector"},
		{"ServerAuthorization", `{server: {name: a, selector: {}}, client: {unauthenticated: true}}`, "want one of name and selector"},
		{"ServerAuthorization", `{server: {name: a}, client: {}}`, "it lets nobody in"},
		{"ServerAuthorization", `{server: {name: a}, client: {meshTLS: {}}}`, "it lets nobody in"},
	} {
		_, report := NewReader(Config{Paths: []string{policyFile(t, "v1", tt.kind, tt.spec)}, Cluster: shop()}).Load()
		if err := report.Err(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s: %v, want %q", tt.kind, tt.spec, err, tt.want)
		}
	}
}

func TestABrokenPolicyKeepsTheOneBefore(t *testing.T) {
	name := policyFile(t, "v1beta3", "Server", `{podSelector: {}, port: 80}`)
	r := NewReader(Config{Paths: []string{name}, Cluster: shop()})
	r.Load()
	if err := os.WriteFile(name, []byte("apiVersion: policy.linkerd.io/v1beta3\nkind: Server\nmetadata: {name: x, namespace: shop}\nspec: {podSelector: {}, port: 0}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, report := r.Load()
	if all := s.Policies(); !report.Broken() || len(all.Servers) != 1 || all.Servers[0].Port != 80 {
		t.Errorf("broken %v, servers %+v", report.Broken(), all.Servers)
	}
}

// FuzzPolicies holds what is read, whatever the file says, to being compiled and
// asked without a panic, and to letting nobody in by something that is not there.
func FuzzPolicies(f *testing.F) {
	for _, name := range []string{"shop.yaml", "odd/odd.yaml"} {
		text, err := os.ReadFile(policyDir + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			f.Add([]byte(doc))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c := read("o.yaml", text, "shop")
		all := c.objects.Policies
		policy.Check(all)
		own := policy.Pod{Object: policy.Object{Namespace: "shop"}, Labels: map[string]string{"app": "web"}}
		tab := policy.Compile(policy.Config{Pod: own, Default: policy.Deny}, all)
		client := policy.Client{Addr: netip.MustParseAddr("10.1.2.3"), Mesh: true, ID: "a.front.serviceaccount.identity.linkerd.cluster.local"}
		for _, port := range []uint16{80, 3306, 8080} {
			p := tab.Port(port)
			if d := p.AuthorizeConnection(client); d.Allowed && !p.Covered() {
				t.Errorf("%s lets a client in where nobody may", d.Authz)
			} else if d.Allowed && d.Authz.Kind != "default" && all.Find(d.Authz) == (policy.Object{}) {
				t.Errorf("%s is not there", d.Authz)
			}
		}
	})
}
