package kubenode

import (
	"os"
	"os/exec"
	"testing"
)

// app is a container of the application as a careful person writes it.
const appContainer = `{name: app, image: "` + App + `", imagePullPolicy: Never,
          securityContext: {runAsUser: 1000, runAsNonRoot: true, readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}`

const web = `apiVersion: v1
kind: ServiceAccount
metadata: {name: web, namespace: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  template:
    metadata: {labels: {app: web}}
    spec:
      serviceAccountName: web
      automountServiceAccountToken: false
      containers:
      - ` + appContainer + `,
         ports: [{name: http, containerPort: 8080}, {name: greeting, containerPort: 9000}],
         readinessProbe: {httpGet: {path: /, port: http}, periodSeconds: 1},
         lifecycle: {preStop: {sleep: {seconds: 3}}}}
`

const webServices = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: http}, {name: greeting, port: 9000}]
---
apiVersion: v1
kind: Service
metadata: {name: web-each, namespace: shop}
spec:
  clusterIP: None
  selector: {app: web}
  ports: [{name: http, port: 8080}, {name: greeting, port: 9000}]
---
apiVersion: policy.linkerd.io/v1alpha1
kind: EgressNetwork
metadata: {name: outside, namespace: shop}
spec:
  networks: [{cidr: 198.51.100.0/24}]
  trafficPolicy: Allow
`

const client = `apiVersion: v1
kind: ServiceAccount
metadata: {name: client, namespace: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: client, namespace: shop}
spec:
  selector: {matchLabels: {app: client}}
  template:
    metadata: {labels: {app: client}}
    spec:
      serviceAccountName: client
      automountServiceAccountToken: false
      containers:
      - ` + appContainer + `, args: [wait]}
`

// plain is a pod without identity and without discovery: the least that there is.
const plain = `apiVersion: v1
kind: Pod
metadata: {name: plain, namespace: shop}
spec:
  automountServiceAccountToken: false
  containers:
  - ` + appContainer + `}
`

// workloads puts the controller and injected pods into the cluster, and waits.
func (c *cluster) workloads(t testing.TB) {
	t.Helper()
	c.Kubectl(t, "apply", "-f", c.overlay(t)+"/../base/namespace.yaml")
	c.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {config.linkerd.io/admission-webhooks: disabled}}\n")
	c.issue(t, "meshctl", "meshctl-controller", "meshctl-controller-identity")
	c.issue(t, "shop", "web", "web-identity")
	c.issue(t, "shop", "client", "client-identity")
	c.Kubectl(t, "apply", "-k", c.file("overlay"))
	c.Kubectl(t, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
	c.Apply(t, webServices)
	c.Apply(t, c.inject(t, web, append(asking, "--identity-secret=web-identity")...))
	c.Apply(t, c.inject(t, client, append(asking, "--identity-secret=client-identity")...))
	c.Apply(t, c.inject(t, plain))
	c.wait(t, "meshctl", "condition=Available", "deploy/meshctl-controller")
	c.wait(t, "shop", "condition=Available", "deploy/web", "deploy/client")
	c.wait(t, "shop", "condition=Ready", "pod/plain")
}

// asking are the flags of inject for proxies that ask the controller.
var asking = []string{"--proxy-arg=--destination=" + controllerAddr, "--proxy-arg=--destination-name=" + controllerName}

// overlay is deploy/base with the test's own image, and returns its folder.
func (c *cluster) overlay(t testing.TB) string {
	t.Helper()
	if err := os.MkdirAll(c.file("overlay"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-r", "../../deploy/base", c.file("base")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c.Write(t, "overlay/kustomization.yaml", `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../base]
images: [{name: localhost/meshctl, newTag: e2e}]
patches:
- target: {kind: Deployment, name: meshctl-controller}
  patch: |-
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --webhook-image=`+Meshctl+`}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --webhook-identity-secret=hooked-identity}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --webhook-proxy-arg=--destination=`+controllerAddr+`}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --webhook-proxy-arg=--destination-name=`+controllerName+`}
`)
	return c.file("overlay")
}
