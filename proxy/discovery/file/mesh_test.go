package file

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/proxy/discovery"
)

func meshWords(m discovery.Mesh) string {
	if !m.Meshed() {
		return m.NoTLS
	}
	return fmt.Sprintf("%s as %s at %d", m.ID, m.ServerName, m.Port)
}

func TestEveryRowOfTheMeshTable(t *testing.T) {
	s, _ := load(t)
	const orders = "orders.edge.serviceaccount.identity.linkerd.cluster.local"
	const vm = "spiffe://root.edge.example/orders-vm as orders-vm.edge.example at 4143"
	for _, tt := range []struct{ dst, want string }{
		{"10.96.14.50:80", "service " + orders + " as " + orders + " at 4143, port_skipped, not_provided_by_service_discovery, " + vm},
		{"10.244.5.1:4191", "pod port_skipped"}, // where nobody redirects
		{"10.244.5.1:4190", "pod port_skipped"},
		{"10.244.5.1:4143", "pod port_skipped"},
		{"10.244.5.2:8081", "pod " + orders + " as " + orders + " at 5143"},
		{"10.244.5.2:9005", "pod port_skipped"},
		{"10.244.5.2:5191", "pod port_skipped"},
		{"10.244.5.2:4191", "pod " + orders + " as " + orders + " at 5143"}, // moved away from there
		{"10.244.5.3:8080", "pod not_provided_by_service_discovery"},
		{"198.18.0.7:3307", "workload " + vm},
		{"198.18.0.7:4191", "workload port_skipped"},
		{"203.0.113.5:80", "egress not_provided_by_service_discovery"},
	} {
		v := s.Find(netip.MustParseAddrPort(tt.dst))
		var got []string
		for _, e := range v.Endpoints {
			got = append(got, meshWords(e.Mesh))
		}
		if diff := cmp.Diff(tt.want, v.Kind.String()+" "+strings.Join(got, ", ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.dst, diff)
		}
	}
	v := s.Find(netip.MustParseAddrPort("198.18.0.7:3307"))
	if got := v.Protocol.String(); !strings.HasPrefix(got, `opaque: opaque-ports "sql" of ExternalWorkload edge/orders-vm (`) || !v.Endpoints[0].Opaque {
		t.Errorf("%s, %+v", got, v.Endpoints)
	}
}

const meshPod = `apiVersion: v1
kind: Pod
metadata:
  name: a
  namespace: shop
  labels: {%s}
  annotations: {%s}
spec: {%s}
status: {podIP: 10.1.0.1}
`

func TestAPodsLabelsAndAnnotationsSayWhetherItIsMeshed(t *testing.T) {
	const label, id = "linkerd.io/control-plane-ns: mesh", "default.shop.serviceaccount.identity.mesh.cluster.local"
	const plain = "not_provided_by_service_discovery"
	for _, tt := range []struct{ name, labels, annotations, spec, want string }{
		{"nothing", "", "", "", plain},
		{"the label", label, "", "", id + " as " + id + " at 4143"},
		{"an empty label", `linkerd.io/control-plane-ns: ""`, "", "", plain},
		{"the annotation that asks for it is not the proxy", "", "linkerd.io/inject: enabled", "", plain},
		{"on the host's network", label, "", "hostNetwork: true", plain},
		{"a port that is no port", label, `config.linkerd.io/inbound-port: "0"`, "", id + " as " + id + " at 4143"},
		{"a list that is none", label, "config.linkerd.io/skip-inbound-ports: mysql", "", id + " as " + id + " at 4143"},
		{"a list that adds", label, `config.linkerd.io/skip-inbound-ports: "+80"`, "", "port_skipped"},
		{"a list without it", label, `config.linkerd.io/skip-inbound-ports: "81"`, "", id + " as " + id + " at 4143"},
	} {
		s, _ := inDir(t, fmt.Sprintf(meshPod, tt.labels, tt.annotations, tt.spec))
		v := s.Find(netip.MustParseAddrPort("10.1.0.1:80"))
		if got := meshWords(v.Endpoints[0].Mesh); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestAnExternalWorkloadIsReadInBothSpellingsAndToldWhatIsWrong(t *testing.T) {
	const text = `apiVersion: workload.linkerd.io/%s
kind: ExternalWorkload
metadata: {name: vm, namespace: shop}
spec:
  %s
  workloadIPs: [{ip: %s}]
`
	for _, tt := range []struct{ version, tls, ip, mesh, problem string }{
		{"v1beta1", "meshTLS: {identity: vm.example, serverName: vm.example}", "192.0.2.1", "vm.example as vm.example at 4143", ""},
		{"v1beta1", "meshTLS: {identity: vm.example}", "192.0.2.1", "vm.example as vm.example at 4143", ""},
		{"v1alpha1", "meshTls: {identity: vm.example, serverName: vm.example}", "192.0.2.1", "vm.example as vm.example at 4143", ""},
		{"v1beta1", "ports: []", "192.0.2.1", "not_provided_by_service_discovery", ""},
		{"v1beta1", "meshTLS: {serverName: vm.example}", "192.0.2.1", "", "x.yaml:5: ExternalWorkload shop/vm: spec.meshTLS.identity: it is empty"},
		{"v1beta1", "meshTLS: {identity: 7}", "192.0.2.1", "", "x.yaml:5: ExternalWorkload shop/vm: spec.meshTLS.identity: a number"},
		{"v1beta1", "meshTLS: {identity: vm.example, name: a}", "192.0.2.1", "vm.example as vm.example at 4143", "spec.meshTLS.name: no such field"},
		{"v1beta1", "ports: [{name: a, port: 70000}]", "192.0.2.1", "", "spec.ports[0].port: 70000 is no port"},
		{"v1beta1", "ports: []", "nowhere", "", `spec.workloadIPs[0].ip: "nowhere" is no address`},
	} {
		s, report := inDir(t, fmt.Sprintf(text, tt.version, tt.tls, tt.ip))
		got := ""
		if v := s.Find(netip.MustParseAddrPort("192.0.2.1:80")); v.Kind == discovery.Workload {
			got = meshWords(v.Endpoints[0].Mesh)
		}
		var problems []string
		for _, p := range report.Problems {
			problems = append(problems, p.Error())
		}
		all := strings.Join(problems, "; ")
		if got != tt.mesh || (tt.problem == "") != (all == "") || !strings.Contains(all, tt.problem) {
			t.Errorf("%s: %q, %q; want %q, %q", tt.tls, got, all, tt.mesh, tt.problem)
		}
	}
}

func TestAnEndpointOnTheHostsNetworkHasNoProxyWhateverItsLabel(t *testing.T) {
	const service = `---
apiVersion: v1
kind: Service
metadata: {name: a, namespace: shop}
spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: a-1, namespace: shop, labels: {kubernetes.io/service-name: a}}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [192.168.1.1], targetRef: {kind: Pod, name: a, namespace: shop}}]
`
	for spec, want := range map[string]bool{"hostNetwork: true": false, "hostNetwork: false": true} {
		s, _ := inDir(t, fmt.Sprintf(meshPod, "linkerd.io/control-plane-ns: mesh", "", spec)+service)
		v := s.Find(netip.MustParseAddrPort("10.96.0.1:80"))
		if len(v.Endpoints) != 1 || v.Endpoints[0].Mesh.Meshed() != want {
			t.Errorf("%s: %+v", spec, v.Endpoints)
		}
	}
}
