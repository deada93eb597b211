package kubenode

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const onlyClient = `apiVersion: policy.linkerd.io/v1beta3
kind: Server
metadata: {name: web, namespace: shop}
spec: {podSelector: {matchLabels: {app: web}}, port: http, proxyProtocol: HTTP/1}
---
apiVersion: policy.linkerd.io/v1alpha1
kind: MeshTLSAuthentication
metadata: {name: client, namespace: shop}
spec: {identities: ["` + clientName + `"]}
---
apiVersion: policy.linkerd.io/v1alpha1
kind: AuthorizationPolicy
metadata: {name: web, namespace: shop}
spec:
  targetRef: {group: policy.linkerd.io, kind: Server, name: web}
  requiredAuthenticationRefs: [{group: policy.linkerd.io, kind: MeshTLSAuthentication, name: client}]
`

// authorization lets one identity in, then everybody again; and nobody out.
func authorization(t *testing.T, c *cluster) {
	const orders = webURL + "orders" // not a path of probes, which anybody may ask for
	answers := func(from, want string) {
		t.Helper()
		c.until(t, from+" hears "+want, time.Minute, func() error {
			out, err := c.get(from, orders)
			if text := fmt.Sprint(out, err); !strings.Contains(text, want) {
				return fmt.Errorf("%s", text)
			}
			return nil
		})
	}
	answers("shop/plain", `"host":"web-`)
	c.Apply(t, onlyClient)
	began := time.Now()
	answers("shop/plain", "403 Forbidden")
	took := since(began)
	answers("shop/deploy/client", `"client":"`+clientName)
	ip := c.value(t, "shop", "pods", `{.items[?(@.metadata.labels.app=="web")].status.podIP}`)
	ip, _, _ = strings.Cut(ip, " ")
	text, err := c.Try("", c.made.Program, "explain", "--inbound", "--kubeconfig="+c.Kubeconfig(), "--namespace=shop", "--request=GET /orders", ip+":8080")
	if err != nil || !strings.Contains(text, "server   Server shop/web") || !strings.Contains(text, "access   denied") {
		t.Errorf("explain says (%v):\n%s", err, text)
	}
	say("an AuthorizationPolicy for %s only counts after %v; meshctl explain --inbound:\n%s", clientName, took, text)
	c.Kubectl(t, "delete", "server,authorizationpolicy,meshtlsauthentication", "--all", "--namespace=shop")
	answers("shop/plain", `"host":"web-`)

	deny := `-p={"spec":{"trafficPolicy":"%s"}}`
	c.Kubectl(t, "patch", "egressnetwork", "outside", "--namespace=shop", "--type=merge", fmt.Sprintf(deny, "Deny"))
	c.until(t, "the way out is closed", time.Minute, func() error {
		if out, err := c.get("shop/deploy/client", "http://"+Outside+":8080/"); err == nil {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	c.Kubectl(t, "patch", "egressnetwork", "outside", "--namespace=shop", "--type=merge", fmt.Sprintf(deny, "Allow"))
	c.reaches(t, "shop/deploy/client", "http://"+Outside+":8080/", wanted{Protocol: "http/1"})
	say("an EgressNetwork with trafficPolicy: Deny closes the way out, and Allow opens it")
}

// crash has the sidecar killed: the kubelet starts it again, in the same network, with
// the same rules.
func crash(t *testing.T, c *cluster) {
	id := c.container(t, "shop", "plain", "linkerd-proxy")
	if _, err := c.Ctr("tasks", "kill", "-s", "KILL", id); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	c.until(t, "the sidecar is there again", time.Minute, func() error {
		status := c.value(t, "shop", "pod/plain", `{.status.initContainerStatuses[?(@.name=="linkerd-proxy")].restartCount} {.status.conditions[?(@.type=="Ready")].status}`)
		if status != "1 True" {
			return fmt.Errorf("restarts and readiness: %s", status)
		}
		return nil
	})
	c.reaches(t, "shop/plain", webURL, wanted{Protocol: "http/1"})
	init := c.value(t, "shop", "pod/plain", `{.status.initContainerStatuses[?(@.name=="linkerd-init")].restartCount}`)
	app := c.value(t, "shop", "pod/plain", `{.status.containerStatuses[?(@.name=="app")].restartCount}`)
	say("sidecar killed: it serves again after %v; restarts of the init container %s, of the application %s", since(began), init, app)
	if app != "0" {
		t.Error("the application was restarted, too")
	}
}
