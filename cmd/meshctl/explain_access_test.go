package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// policies are the objects of a shop whose ports not everybody may call.
const policies = "../../testdata/policy"

func TestGoldenExplainNamesWhoMayCallAndByWhat(t *testing.T) {
	const tail = ".serviceaccount.identity.linkerd.cluster.local"
	var b strings.Builder
	for _, args := range [][]string{
		{"--from", "10.1.2.3", "--client-id", "cart.front" + tail, "--request", "GET /orders/1", "10.244.1.11:8080"},
		{"--from", "fd00::9", "--client-id", "api.shop" + tail, "--request", "GET /orders/1", "[fd00:244:1::11]:8080"},
		{"--from", "10.1.2.3", "--client-id", "cart.front" + tail, "--request", "POST /orders/1", "10.244.1.11:8080"},
		{"--from", "10.1.2.3", "--client-id", "cart.front" + tail, "--request", "GET /orders/../admin", "10.244.1.11:8080"},
		{"--from", "10.1.2.3", "--client-id", "cart.front" + tail, "10.244.1.11:8080"},
		{"--from", "10.1.2.3", "--client-id", "operator.ops" + tail, "10.244.1.11:8080"},
		{"--from", "10.1.2.3", "--request", "GET /orders/1", "10.244.1.11:8080"},
		{"--from", "192.0.2.9", "--request", "GET /", "10.244.1.11:8080"},
		{"--from", "192.0.2.66", "--request", "GET /", "10.244.1.11:8080"},
		{"--from", "10.1.2.3", "--client-id", "backup.shop" + tail, "10.244.1.11:3306"},
		{"--from", "203.0.113.5", "10.244.1.11:3306"},
		{"--from", "10.1.2.3", "--request", "GET /healthz", "10.244.1.11:9990"},
		{"--from", "10.1.2.3", "--request", "GET /ready", "10.244.1.11:9990"},
		{"--from", "10.1.2.3", "--request", "GET /metrics", "10.244.1.11:9990"},
		{"--from", "10.1.2.3", "--client-id", "x", "10.244.1.11:7000"},
		{"--from", "10.1.2.3", "10.244.1.11:7000"},
		{"--client-id", "x", "10.244.1.11:7000"},
		{"--from", "10.1.2.3", "--default-inbound-policy", "deny", "10.244.1.11:7000"},
		{"--from", "10.1.2.3", "--default-inbound-policy", "audit", "10.244.1.11:7000"},
	} {
		all := append([]string{"explain", "--skip-inbound-ports", "", "--namespace", "shop", "--inbound", "--resources", policies + "/shop.yaml"}, args...)
		out, err := ask(t, all...)
		if err != nil {
			t.Errorf("%v: %v", args, err)
		}
		fmt.Fprintf(&b, "$ meshctl explain --inbound --resources DIR %s\n", strings.Join(args, " "))
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "  server") || strings.HasPrefix(line, "  route") || strings.HasPrefix(line, "  access") || strings.HasPrefix(line, "  proxy") || strings.HasPrefix(line, "  assumed") {
				b.WriteString(line)
			}
		}
		b.WriteString("\n")
	}
	golden(t, "explain_access.txt", pretended(b.String(), policies))
}

func TestExplainTellsAccessAsJSON(t *testing.T) {
	out, err := ask(t, "explain", "-o", "json", "--skip-inbound-ports", "", "--namespace", "shop", "--inbound", "--resources", policies+"/shop.yaml", "--from", "203.0.113.5", "10.244.1.11:3306")
	if err != nil {
		t.Fatal(err)
	}
	var a explanation
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		t.Fatal(err)
	}
	if c := a.Access; c == nil || !c.Allowed || !c.Audit || c.By != "the default audit" || c.Server != "Server shop/web-db" || !c.Strict || c.Requests {
		t.Errorf("%+v", a.Access)
	}
}

func TestExplainKnowsThePodByItsLabelsToo(t *testing.T) {
	labels := filepath.Join(t.TempDir(), "labels")
	if err := os.WriteFile(labels, []byte("app=\"api\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"explain", "--skip-inbound-ports", "", "--namespace", "shop", "--inbound", "--resources", policies + "/shop.yaml"}
	_, err := ask(t, append(args, "10.9.9.9:3306")...)
	if err == nil || !strings.Contains(err.Error(), "no Pod among the resources has the address 10.9.9.9") {
		t.Errorf("a pod that is not known: %v", err)
	}
	out, err := ask(t, append(args, "--labels", labels, "10.9.9.9:3306")...)
	if err != nil || !strings.Contains(out, "Server shop/web-db") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = ask(t, append(args, "--labels", labels, "--port-names", "http=8080", "10.9.9.9:8080")...)
	if err != nil || strings.Contains(out, "Server shop/web-http") {
		t.Errorf("labels that a Server does not select: %v\n%s", err, out)
	}
}

func TestFlagsOfPoliciesThatCannotBe(t *testing.T) {
	for _, tt := range []struct{ flag, value, want string }{
		{"--default-inbound-policy", "allow", "is no policy"},
		{"--policy-cluster-networks", "10.0.0.0/33", "not a subnet"},
		{"--detect-timeout-action", "close=", "no port"},
		{"--detect-timeout-action", "shut", "want open or close"},
		{"--port-names", "http", "want NAME=PORT"},
		{"--port-names", "http=0", "want NAME=PORT"},
		{"--request", "GET", "no method and path"},
	} {
		_, err := ask(t, "explain", "--skip-inbound-ports", "", "--inbound", tt.flag, tt.value, "10.244.1.11:80")
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %q: %v", tt.flag, tt.value, err)
		}
	}
	if _, err := ask(t, "explain", "--client-id", "x", "10.244.1.11:80"); err == nil {
		t.Error("a client of an outbound connection")
	}
}

func TestGoldenCheckTellsWhatIsOddAboutPolicies(t *testing.T) {
	out, err := ask(t, "check", "--resources", policies+"/odd", "--namespace", "shop")
	if err == nil {
		t.Error("no finding is an error")
	}
	golden(t, "check_policies.txt", pretended(out, policies))
	if out, err := ask(t, "check", "--resources", policies+"/shop.yaml", "--namespace", "shop"); err != nil {
		t.Errorf("objects in order: %v\n%s", err, out)
	}
}
