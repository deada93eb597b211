package live

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/meshctl/meshctl/integration/kube"
	"github.com/meshctl/meshctl/lint"
)

const faulty = `
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {pod-security.kubernetes.io/enforce: privileged}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{port: 80, appProtocol: grpc}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, annotations: {config.linkerd.io/opaque-ports: "25"}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {linkerd.io/inject: enabled}}
    spec: {containers: [{name: web, image: web}], hostNetwork: true}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: shop}
spec: {podSelector: {}, ingress: [{ports: [{port: 80}]}]}
---
apiVersion: policy.linkerd.io/v1beta3
kind: Server
metadata: {name: web, namespace: shop}
spec: {podSelector: {matchLabels: {app: wbe}}, port: 80}
`

func TestAClusterIsRead(t *testing.T) {
	api := kube.Start(t)
	text, err := os.ReadFile("../../deploy/base/crds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	api.Apply(string(text))
	api.Apply(faulty)
	c, err := Read(t.Context(), Config{Kubeconfig: api.Kubeconfig(kube.Admin)})
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	for _, f := range lint.Check(c.Objects, lint.Config{}) {
		if strings.Contains(f.Object, "shop/") {
			codes = append(codes, string(f.Code))
			if f.File != "" || f.Line != 0 {
				t.Errorf("a place in a file: %+v", f)
			}
		}
	}
	want := []lint.Code{lint.HostNetwork, lint.WrongObject, lint.ProxyPortBlocked, lint.SelectsNothing, lint.OpaqueAppProtocol}
	for _, w := range want {
		if !strings.Contains(strings.Join(codes, " "), string(w)) {
			t.Errorf("%s is not found: %v", w, codes)
		}
	}
	if c.Minor < 30 || len(c.LeftOut) > 0 || len(c.Findings) > 0 {
		t.Errorf("minor %d, left out %v, findings %v", c.Minor, c.LeftOut, c.Findings)
	}

	only, err := Read(t.Context(), Config{Kubeconfig: api.Kubeconfig(kube.Admin), Namespace: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range only.Objects {
		if o.Namespace != "shop" && o.Name != "shop" {
			t.Errorf("of another namespace: %v", o)
		}
	}

	none, err := Read(t.Context(), Config{Kubeconfig: api.Kubeconfig(kube.Reader)})
	if err != nil {
		t.Fatal(err)
	}
	if len(none.LeftOut) < 10 || !strings.Contains(none.LeftOut[0], "/api/v1/namespaces: 403") {
		t.Errorf("a user without rights: %v", none.LeftOut)
	}
}

func TestAKubeconfigThatIsNotThereIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none")
	if _, err := Read(t.Context(), Config{Kubeconfig: file}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("%v", err)
	}
}
