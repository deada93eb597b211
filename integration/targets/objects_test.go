package targets

import (
	"fmt"
	"strings"
)

// service is a Service of namespace shop with one port, and its EndpointSlice.
type service struct {
	name, ip    string
	port        uint16
	appProtocol string
	annotations string // "key: value" lines
	target      uint16
	pods        []string // addresses
}

// yaml is the two objects as kubectl prints them.
func (s service) yaml() string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Service\nmetadata:\n  name: %s\n  namespace: shop\n", s.name)
	if s.annotations != "" {
		b.WriteString("  annotations:\n")
		for line := range strings.Lines(s.annotations) {
			b.WriteString("    " + strings.TrimSpace(line) + "\n")
		}
	}
	fmt.Fprintf(&b, "spec:\n  clusterIP: %s\n  ports:\n  - name: main\n    port: %d\n    targetPort: %d\n", s.ip, s.port, s.target)
	if s.appProtocol != "" {
		fmt.Fprintf(&b, "    appProtocol: %s\n", s.appProtocol)
	}
	fmt.Fprintf(&b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: %[1]s-1\n  namespace: shop\n"+
		"  labels:\n    kubernetes.io/service-name: %[1]s\naddressType: IPv4\nports:\n- name: main\n  port: %[2]d\nendpoints:\n", s.name, s.target)
	for _, p := range s.pods {
		fmt.Fprintf(&b, "- addresses:\n  - %s\n  conditions:\n    ready: true\n", p)
	}
	if len(s.pods) == 0 {
		return strings.TrimSuffix(b.String(), "\n") + " []\n"
	}
	return b.String()
}

// file is the only file of a volume.
func file(objects ...string) map[string]string {
	return map[string]string{"shop.yaml": strings.Join(objects, "---\n")}
}
