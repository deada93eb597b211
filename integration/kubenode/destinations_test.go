package kubenode

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

const (
	webName    = "web.shop.serviceaccount.identity.linkerd.cluster.local"
	clientName = "client.shop.serviceaccount.identity.linkerd.cluster.local"
	webURL     = "http://web.shop.svc.cluster.local/"
)

// wanted is what a connection has to be like; an empty field may be anything.
type wanted struct {
	Service, Protocol, TLS, ServerID, Declared string
}

func (w wanted) check(s seen) error {
	if s.Status != 0 && s.Status != 200 {
		return fmt.Errorf("status %d: %s", s.Status, s.Body)
	}
	r := s.Rows[0]
	for _, f := range [][2]string{{r.Service, w.Service}, {r.Protocol, w.Protocol}, {r.TLS, w.TLS}, {r.ServerID, w.ServerID}} {
		if f[1] != "" && f[0] != f[1] {
			return fmt.Errorf("%q, want %q, of %+v", f[0], f[1], r)
		}
	}
	if !strings.Contains(r.Declared, w.Declared) {
		return fmt.Errorf("declared is %q, want %q", r.Declared, w.Declared)
	}
	return nil
}

// reaches probes until the connection is like that; what has changed in the cluster
// takes its time.
func (c *cluster) reaches(t *testing.T, from, target string, w wanted) (s seen) {
	t.Helper()
	c.until(t, from+" to "+target, time.Minute, func() (err error) {
		if s, err = c.probe(t, from, target); err != nil {
			return err
		}
		return w.check(s)
	})
	return s
}

// destinations has an application reach what applications reach, and both proxies say
// who is at the other end.
func destinations(t *testing.T, c *cluster) {
	const from = "shop/deploy/client"
	pod := c.value(t, "shop", "pod/plain", "{.status.podIP}")
	for _, d := range []struct {
		what, target string
		wanted
	}{
		{"ClusterIP", webURL, wanted{Service: "Service shop/web port 80 (http)", Protocol: "http/1", TLS: "true", ServerID: webName}},
		{"ClusterIP", "tcp:web.shop.svc.cluster.local:9000", wanted{Service: "Service shop/web port 9000 (greeting)", Protocol: "opaque", TLS: "true", ServerID: webName}},
		{"headless", "http://web-each.shop.svc.cluster.local:8080/", wanted{Service: "Service shop/web-each port 8080 (http)", Protocol: "http/1", TLS: "true", ServerID: webName}},
		{"pod", "http://" + pod + ":8080/", wanted{Service: "Pod shop/plain port 8080", Protocol: "http/1", TLS: "no_identity"}},
		{"egress", "http://" + Outside + ":8080/", wanted{Service: "EgressNetwork shop/outside port 8080", Protocol: "http/1", TLS: "no_identity"}},
		{"egress", "tcp:" + Outside + ":9000", wanted{Service: "EgressNetwork shop/outside port 9000", Protocol: "opaque", TLS: "no_identity"}},
	} {
		s := c.reaches(t, from, d.target, d.wanted)
		say("%-9s %s\n  /connections: %s", d.what, d.target, s.Rows[0].text)
	}
	s := c.reaches(t, from, webURL, wanted{TLS: "true"})
	var a struct{ Host, Client string }
	if err := json.Unmarshal([]byte(s.Body), &a); err != nil {
		t.Fatal(err)
	}
	if a.Client != clientName {
		t.Errorf("the server is told of %q, want %q", a.Client, clientName)
	}
	c.until(t, "the server's proxy knows the client", time.Minute, func() error {
		rows, err := c.connections("shop/" + a.Host)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if r.Direction == "inbound" && r.TLS == "true" && r.ClientID == clientName {
				say("and of %s\n  /connections: %s", a.Host, r.text)
				return nil
			}
		}
		return fmt.Errorf("%+v", rows)
	})
}

// directly has a proxy read the API itself, with the rights that docs/kubernetes.md
// names and the pod's own service account.
func directly(t *testing.T, c *cluster) {
	doc, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, role, _ := strings.Cut(string(doc), "```yaml\napiVersion: rbac.authorization.k8s.io/v1\n")
	role, _, found := strings.Cut(role, "```")
	if !found {
		t.Fatal("docs/kubernetes.md names no rights")
	}
	c.Apply(t, "apiVersion: rbac.authorization.k8s.io/v1\n"+role)
	c.Kubectl(t, "create", "clusterrolebinding", "reads", "--clusterrole=meshctl-discovery", "--serviceaccount=shop:default")
	manifest := strings.NewReplacer("name: plain", "name: reads", "automountServiceAccountToken: false", "automountServiceAccountToken: true").Replace(plain)
	c.Apply(t, c.inject(t, manifest, "--proxy-arg=--kubernetes"))
	c.wait(t, "shop", "condition=Ready", "pod/reads")
	c.reaches(t, "shop/reads", webURL, wanted{Service: "Service shop/web port 80 (http)", Protocol: "http/1"})
	s := c.reaches(t, "shop/reads", "tcp:"+Outside+":9000", wanted{Service: "EgressNetwork shop/outside port 9000"})
	say("a proxy that reads the API itself\n  /connections: %s", s.Rows[0].text)
}

// besideKubeProxy has a pod without discovery reach a ClusterIP: our rules are in the
// pod's namespace, kube-proxy's in the node's.
func besideKubeProxy(t *testing.T, c *cluster) {
	s := c.reaches(t, "shop/plain", webURL, wanted{Protocol: "http/1"})
	say("the pod's proxy has passed %s on to the address %s as it is: kube-proxy has chosen the pod", webURL, s.Rows[0].Target)
	node, err := c.Try("", "nft", "list", "tables")
	if err != nil {
		t.Fatal(err)
	}
	ours := c.rules(t, "shop", "plain", "linkerd-proxy")
	say("tables of the node: %s; of the pod: %s", strings.Join(strings.Split(node, "\n"), ", "), ours)
	if !strings.Contains(node, "kube-proxy") || strings.Contains(node, "meshctl") || !strings.Contains(ours, "meshctl") || strings.Contains(ours, "kube-proxy") {
		t.Error("the tables are not where they belong")
	}
}
