package kube

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/meshctl/meshctl/proxy/discovery/kube"
)

// role is the ClusterRole that the documentation asks for.
func role(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```yaml\n(apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n.*?)```").FindSubmatch(text)
	if m == nil {
		t.Fatal("docs/kubernetes.md shows no ClusterRole")
	}
	return string(m[1])
}

const binding = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: meshctl-discovery}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: meshctl-discovery}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: reader}]
`

func rights(t *testing.T, api *API, config func(token string) kube.Config) {
	api.Apply(api.GatewayAPI())
	api.Apply(Linkerd())
	api.Apply(shop)
	none := watch(t, config(Reader))
	eventually(t, func() (string, bool) {
		return none.log.String(), strings.Contains(none.log.String(), "forbids list and watch")
	}, "missing rights are not told")
	none.becomes(t, "10.0.1.1:80", "address - port 80")

	api.Apply(strings.Replace(role(t), "services, pods, namespaces", "services", 1))
	api.Apply(binding)
	some := watch(t, config(Reader)).synced(t)
	some.becomes(t, "10.0.1.1:80", "service Service shop/web port 80 (main)")
	if !strings.Contains(some.log.String(), "kind=/Pod") {
		t.Errorf("that it may not read pods is not told:\n%s", some.log)
	}

	api.Apply(role(t))
	eventually(t, func() (string, bool) { // the API server takes a moment to know of a changed role
		all := watch(t, config(Reader)).synced(t)
		text := all.log.String()
		return text, all.State().Err == nil && !strings.Contains(text, "WARN")
	}, "the documented rights are not enough")
	none.synced(t) // rights that come later count
}
