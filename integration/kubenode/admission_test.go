package kubenode

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/lab"
)

const strict = `apiVersion: v1
kind: Namespace
metadata: {name: NAMESPACE, labels: {pod-security.kubernetes.io/enforce: LEVEL, config.linkerd.io/admission-webhooks: disabled}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: guarded, namespace: NAMESPACE}
spec:
  selector: {matchLabels: {app: guarded}}
  template:
    metadata: {labels: {app: guarded}, annotations: {linkerd.io/inject: enabled}}
    spec:
      containers:
      - ` + appContainer + `}
`

// podSecurity has the API server refuse what lint said that it would.
func podSecurity(t *testing.T, c *cluster) {
	for _, level := range []string{"baseline", "restricted"} {
		manifest := strings.NewReplacer("NAMESPACE", level, "LEVEL", level).Replace(strict)
		out, errs, code, _ := c.meshctl(manifest, "lint", "-")
		said := strings.TrimSpace(out + errs)
		if code != 2 || !strings.Contains(said, "NET_ADMIN") {
			t.Errorf("%s: lint says (exit code %d): %s", level, code, said)
		}
		c.Apply(t, c.inject(t, manifest))
		var event string
		c.until(t, "an event", time.Minute, func() (err error) {
			event, err = c.TryKubectl("get", "events", "--namespace="+level, "--field-selector=reason=FailedCreate", "-o", "jsonpath={.items[0].message}")
			if err == nil && !strings.Contains(event, "NET_ADMIN") {
				err = fmt.Errorf("%q", event)
			}
			return err
		})
		say("%s, before: %s\n%s, after: %s", level, firstLine(said), level, event)
		c.Kubectl(t, "delete", "deploy", "guarded", "--namespace="+level)
	}
}

const hooked = `apiVersion: v1
kind: Pod
metadata: {name: hooked, namespace: NAMESPACE, annotations: {linkerd.io/inject: enabled, config.linkerd.io/skip-outbound-ports: "9000"}}
spec:
  automountServiceAccountToken: false
  containers:
  - ` + appContainer + `}
`

// webhook has the controller inject a pod as it is made.
func webhook(t *testing.T, c *cluster) {
	c.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: hooked}\n")
	c.issue(t, "hooked", "default", "hooked-identity")
	manifest := strings.ReplaceAll(hooked, "NAMESPACE", "hooked")
	c.until(t, "the webhook answers", time.Minute, func() error { _, err := c.TryApply(manifest); return err })
	c.wait(t, "hooked", "condition=Ready", "pod/hooked")
	s := c.reaches(t, "hooked/hooked", webURL, wanted{Service: "Service shop/web port 80 (http)", TLS: "true", ServerID: webName})
	if !strings.Contains(s.Body, "default.hooked.serviceaccount") {
		t.Errorf("the server has heard of %s", s.Body)
	}
	say("webhook: containers %s; the server has seen %s", c.value(t, "hooked", "pod/hooked", "{.spec.initContainers[*].name} {.spec.containers[*].name}"), strings.TrimSpace(s.Body))
}

// admissionPolicy has the API server do the same by itself.
func admissionPolicy(t *testing.T, c *cluster) {
	text, err := exec.Command(c.KubectlArgs()[0], "kustomize", "../../deploy/admission-policy").Output()
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(t, strings.ReplaceAll(string(text), "localhost/meshctl:dev", Meshctl))
	c.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: policed, labels: {config.linkerd.io/admission-webhooks: disabled}}\n")
	manifest := strings.ReplaceAll(hooked, "NAMESPACE", "policed")
	c.until(t, "the policy counts", time.Minute, func() error {
		out, err := c.TryApply(manifest, "--dry-run=server", "-o", "jsonpath={.spec.initContainers[*].name}")
		if err == nil && out != "linkerd-init linkerd-proxy" {
			err = fmt.Errorf("%q", out)
		}
		return err
	})
	c.Apply(t, manifest)
	c.wait(t, "policed", "condition=Ready", "pod/hooked")
	c.reaches(t, "policed/hooked", webURL, wanted{Protocol: "http/1"})
	args := c.value(t, "policed", "pod/hooked", `{.spec.initContainers[0].args}`)
	if !strings.Contains(args, "--skip-outbound-ports=9000") {
		t.Errorf("the annotation is not honoured: %s", args)
	}
	refused, err := c.TryApply(strings.Replace(strings.Replace(manifest, "name: hooked", "name: other", 1), "skip-outbound-ports", "proxy-cpu-limit", 1))
	if err == nil || !strings.Contains(err.Error(), "config.linkerd.io/proxy-cpu-limit") {
		t.Errorf("an annotation that the policy cannot honour: %s, %v", refused, err)
	}
	say("admission policy: the pod is ready, %s; what it cannot do it refuses: %v", args, err)
}

// controllerLost kills the controller under load. What is known goes on, new pods
// start without discovery, and all is well when it is back.
func controllerLost(t *testing.T, c *cluster) {
	end := c.load(t, "shop/deploy/client", webURL)
	c.Kubectl(t, "scale", "deploy/meshctl-controller", "--namespace=meshctl", "--replicas=0")
	began := time.Now()
	ids, err := c.Ctr("containers", "ls", "-q", `labels."io.kubernetes.container.name"==controller`)
	if err != nil || ids == "" {
		t.Fatalf("the controller's containers: %q, %v", ids, err)
	}
	for id := range strings.FieldsSeq(ids) {
		_, _ = c.Ctr("tasks", "kill", "-s", "KILL", id) // unless it has ended by itself
	}
	c.Apply(t, c.inject(t, strings.ReplaceAll(strings.ReplaceAll(plain, "name: plain", "name: late"), "app: plain", "app: late"), append(asking, "--identity-secret=client-identity")...))
	c.wait(t, "shop", "condition=Ready", "pod/late")
	s := c.reaches(t, "shop/late", webURL, wanted{Protocol: "http/1", TLS: "no_identity"})
	metrics, err := c.get("shop/late", "http://127.0.0.1:4191/metrics")
	if err != nil || !strings.Contains(metrics, "\nmeshctl_destination_connected 0") {
		t.Errorf("the proxy does not say that it has no control plane: %v", err)
	}
	if log := c.Kubectl(t, "logs", "--namespace=shop", "pod/late", "-c", "linkerd-proxy"); !strings.Contains(log, "cannot be reached") {
		t.Errorf("nor does its log:\n%s", log)
	}
	say("without a controller: a new pod is ready, its connection to %s is %s", s.Rows[0].Target, s.Rows[0].TLS)
	_, err = c.TryApply(strings.ReplaceAll(strings.ReplaceAll(hooked, "NAMESPACE", "hooked"), "name: hooked", "name: refused"))
	if err == nil || !strings.Contains(err.Error(), "inject.meshctl.io") {
		t.Errorf("a pod for the webhook: %v", err)
	}
	say("and what the webhook would have to inject is refused: %v", err)
	l := end()
	say("meanwhile (%v): %d requests of a pod from before, %d failed, the longest took %v", since(began), l.Kept+l.New, l.Failed, l.Longest.Round(time.Millisecond))
	if l.Failed != 0 || l.Kept == 0 {
		t.Errorf("failed: %s", strings.Join(l.Failures, "\n"))
	}
	c.Kubectl(t, "scale", "deploy/meshctl-controller", "--namespace=meshctl", "--replicas=2")
	c.wait(t, "meshctl", "condition=Available", "deploy/meshctl-controller")
	began = time.Now()
	c.reaches(t, "shop/late", webURL, wanted{Service: "Service shop/web port 80 (http)", TLS: "true", ServerID: webName})
	say("with a controller again, the new pod's connections are by mTLS after %v", since(began))
}

const faulty = `apiVersion: v1
kind: Namespace
metadata: {name: faulty, labels: {config.linkerd.io/admission-webhooks: disabled}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: db, namespace: faulty, annotations: {config.linkerd.io/skip-inbound-ports: "3306"}}
spec:
  replicas: 0
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}, annotations: {linkerd.io/inject: enabled, config.linkerd.io/opaque-port: "33060"}}
    spec:
      containers:
      - ` + appContainer + `, ports: [{containerPort: 33060}]}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: faulty, annotations: {config.linkerd.io/opaque-ports: "33060"}}
spec:
  selector: {app: db}
  ports: [{name: sql, port: 33060}, {name: web, port: 80, appProtocol: https}]
`

// lint looks at a faulty manifest, and at the cluster that has taken it.
func lint(t *testing.T, c *cluster) {
	out, _, code, _ := c.meshctl(faulty, "lint", "-")
	say("meshctl lint of a manifest, exit code %d:\n%s", code, out)
	if code != 2 {
		t.Errorf("exit code %d", code)
	}
	c.Apply(t, faulty)
	cmd := c.Command(t.Context(), c.made.Program, "lint", "--kubeconfig="+c.Kubeconfig())
	cmd.Env = lab.Environ()
	text, err := cmd.CombinedOutput()
	say("meshctl lint of the cluster (%v):\n%s", err, text)
	for _, code := range []string{"MESH002", "MESH004", "MESH010", "MESH011"} {
		if !strings.Contains(out, code) || !strings.Contains(string(text), code) {
			t.Errorf("no %s", code)
		}
	}
	if cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("exit code %d", cmd.ProcessState.ExitCode())
	}
}
