package discovery

import (
	"strings"
	"testing"

	"github.com/meshctl/meshctl/internal/annotation"
	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/proxy/protocol"
)

// The objects of the table; each has its own line.
var (
	service   = Object{"Service", "shop", "db", "x.yaml", 10}
	space     = Object{"Namespace", "", "shop", "x.yaml", 20}
	pod       = Object{"Pod", "shop", "db-0", "x.yaml", 30}
	network   = Object{"EgressNetwork", "shop", "out", "x.yaml", 40}
	defaultly = ports.Of(25, 3306)
)

func list(t *testing.T, by Object, value string) List {
	t.Helper()
	if value == "-" {
		return List{}
	}
	p, err := annotation.ParsePorts(value)
	if err != nil {
		t.Fatal(err)
	}
	return List{by, p}
}

// TestTheDecisionOfAPortsProtocol has a row for each source and for each pair in
// which one source wins over another. "-" is: no annotation.
func TestTheDecisionOfAPortsProtocol(t *testing.T) {
	for _, tt := range []struct {
		name                  string
		kind                  Kind
		port                  uint16
		portName              string
		app                   string // appProtocol; "-": none
		svc, ns, egress       string
		pod, podSpace, target string // the receiver's lists, and "port" or "port/name"; "": no receiver
		want                  protocol.Kind
		reason                Reason
		by                    Object
		warning               string
	}{
		// A Service's port: appProtocol first.
		{name: "http", kind: ServicePort, port: 80, app: "http", svc: "-", ns: "-", want: protocol.HTTP1, reason: AppProtocol, by: service},
		{name: "in any case", kind: ServicePort, port: 80, app: "HTTP", svc: "-", ns: "-", want: protocol.HTTP1, reason: AppProtocol, by: service},
		{name: "h2c", kind: ServicePort, port: 80, app: "kubernetes.io/h2c", svc: "-", ns: "-", want: protocol.HTTP2, reason: AppProtocol, by: service},
		{name: "ws", kind: ServicePort, port: 80, app: "kubernetes.io/ws", svc: "-", ns: "-", want: protocol.HTTP1, reason: AppProtocol, by: service},
		{name: "opaque", kind: ServicePort, port: 80, app: "linkerd.io/opaque", svc: "-", ns: "-", want: protocol.Opaque, reason: AppProtocol, by: service},
		{name: "tcp", kind: ServicePort, port: 80, app: "linkerd.io/tcp", svc: "-", ns: "-", want: protocol.Opaque, reason: AppProtocol, by: service},
		{name: "https is not known", kind: ServicePort, port: 80, app: "https", svc: "-", ns: "-", want: protocol.Opaque, reason: UnknownAppProtocol, by: service, warning: `"https"`},
		{name: "wss is not known", kind: ServicePort, port: 80, app: "kubernetes.io/wss", svc: "-", ns: "-", want: protocol.Opaque, reason: UnknownAppProtocol, by: service, warning: `"kubernetes.io/wss"`},
		{name: "empty is not said", kind: ServicePort, port: 80, app: "", svc: "-", ns: "-", reason: DefaultList},
		{name: "appProtocol over the Service's list", kind: ServicePort, port: 80, app: "http", svc: "80", ns: "80", want: protocol.HTTP1, reason: AppProtocol, by: service},
		{name: "appProtocol over the default list", kind: ServicePort, port: 3306, app: "http", svc: "-", ns: "-", want: protocol.HTTP1, reason: AppProtocol, by: service},
		// Then the lists.
		{name: "the Service's list", kind: ServicePort, port: 4406, app: "-", svc: "4406", ns: "-", want: protocol.Opaque, reason: ServiceList, by: service},
		{name: "a range", kind: ServicePort, port: 4450, app: "-", svc: "4406-4500", ns: "-", want: protocol.Opaque, reason: ServiceList, by: service},
		{name: "a name", kind: ServicePort, port: 4406, portName: "mysql", app: "-", svc: "mysql", ns: "-", want: protocol.Opaque, reason: ServiceList, by: service},
		{name: "another's name", kind: ServicePort, port: 4406, portName: "web", app: "-", svc: "mysql", ns: "-", reason: ServiceList, by: service},
		{name: "a list replaces the default", kind: ServicePort, port: 3306, app: "-", svc: "4406", ns: "-", reason: ServiceList, by: service},
		{name: "an empty list is none", kind: ServicePort, port: 3306, app: "-", svc: "", ns: "3306", reason: ServiceList, by: service},
		{name: "a plus adds", kind: ServicePort, port: 3306, app: "-", svc: "+4406", ns: "-", want: protocol.Opaque, reason: ServiceList, by: service},
		{name: "the Service's list over the namespace's", kind: ServicePort, port: 4406, app: "-", svc: "1", ns: "4406", reason: ServiceList, by: service},
		{name: "the namespace's list", kind: ServicePort, port: 4406, app: "-", svc: "-", ns: "4406", want: protocol.Opaque, reason: NamespaceList, by: space},
		{name: "the namespace's list replaces the default", kind: ServicePort, port: 3306, app: "-", svc: "-", ns: "4406", reason: NamespaceList, by: space},
		{name: "the default list", kind: ServicePort, port: 3306, app: "-", svc: "-", ns: "-", want: protocol.Opaque, reason: DefaultList},
		{name: "nothing", kind: ServicePort, port: 80, app: "-", svc: "-", ns: "-", reason: DefaultList},
		// The receiving pods of a Service.
		{name: "the pod says opaque, the Service nothing", kind: ServicePort, port: 80, app: "-", svc: "-", ns: "-", pod: "8080", podSpace: "-", target: "8080", want: protocol.Opaque, reason: PodList, by: pod},
		{name: "the pod's port counts, not the Service's", kind: ServicePort, port: 80, app: "-", svc: "-", ns: "-", pod: "80", podSpace: "-", target: "8080", reason: DefaultList},
		{name: "the pod's opaque wins over http", kind: ServicePort, port: 80, app: "http", svc: "-", ns: "-", pod: "8080", podSpace: "-", target: "8080", want: protocol.Opaque, reason: PodList, by: pod, warning: "opaque wins"},
		{name: "the pod's opaque wins over a list without it", kind: ServicePort, port: 9200, app: "-", svc: "1", ns: "-", pod: "9200", podSpace: "-", target: "9200", want: protocol.Opaque, reason: PodList, by: pod, warning: "opaque wins"},
		{name: "only the Service says opaque", kind: ServicePort, port: 9200, app: "-", svc: "9200", ns: "-", pod: "1", podSpace: "-", target: "9200", want: protocol.Opaque, reason: ServiceList, by: service, warning: "leaves port 9200 out"},
		{name: "both say opaque", kind: ServicePort, port: 9200, app: "-", svc: "9200", ns: "-", pod: "9200", podSpace: "-", target: "9200", want: protocol.Opaque, reason: ServiceList, by: service},
		{name: "a pod that says nothing", kind: ServicePort, port: 9200, app: "-", svc: "9200", ns: "-", pod: "-", podSpace: "-", target: "9200", want: protocol.Opaque, reason: ServiceList, by: service},
		{name: "the default list is not the pod's word", kind: ServicePort, port: 80, app: "http", svc: "-", ns: "-", pod: "-", podSpace: "-", target: "3306", want: protocol.HTTP1, reason: AppProtocol, by: service},
		{name: "the pod's namespace speaks for it", kind: ServicePort, port: 80, app: "-", svc: "-", ns: "8080", pod: "-", podSpace: "8080", target: "8080", want: protocol.Opaque, reason: NamespaceList, by: space},
		{name: "a container port's name", kind: ServicePort, port: 80, app: "-", svc: "-", ns: "-", pod: "mysql", podSpace: "-", target: "8080/mysql", want: protocol.Opaque, reason: PodList, by: pod},
		{name: "an unknown appProtocol is opaque, whatever the pod says", kind: ServicePort, port: 80, app: "mysql", svc: "-", ns: "-", pod: "1", podSpace: "-", target: "8080", want: protocol.Opaque, reason: UnknownAppProtocol, by: service, warning: `"mysql"`},
		// Pods by their own address, and behind headless Services.
		{name: "headless: appProtocol does not count", kind: HeadlessPod, port: 80, app: "linkerd.io/opaque", svc: "80", ns: "80", pod: "-", podSpace: "-", target: "80", reason: DefaultList},
		{name: "headless: the pod's list", kind: HeadlessPod, port: 80, app: "http", svc: "-", ns: "-", pod: "80", podSpace: "-", target: "80", want: protocol.Opaque, reason: PodList, by: pod},
		{name: "pod: its list", kind: Pod, port: 80, app: "-", pod: "80", podSpace: "-", target: "80", want: protocol.Opaque, reason: PodList, by: pod},
		{name: "pod: its list replaces the default", kind: Pod, port: 3306, app: "-", pod: "80", podSpace: "-", target: "3306", reason: PodList, by: pod},
		{name: "pod: an empty list is none", kind: Pod, port: 3306, app: "-", pod: "", podSpace: "3306", target: "3306", reason: PodList, by: pod},
		{name: "pod: its namespace's list", kind: Pod, port: 80, app: "-", pod: "-", podSpace: "80", target: "80", want: protocol.Opaque, reason: NamespaceList, by: space},
		{name: "pod: the default list", kind: Pod, port: 3306, app: "-", pod: "-", podSpace: "-", target: "3306", want: protocol.Opaque, reason: DefaultList},
		{name: "pod that nobody knows", kind: HeadlessPod, port: 3306, app: "-", want: protocol.Opaque, reason: DefaultList},
		// Outside.
		{name: "egress: its list", kind: Egress, port: 443, app: "-", egress: "443", want: protocol.Opaque, reason: EgressList, by: network},
		{name: "egress: its list replaces the default", kind: Egress, port: 3306, app: "-", egress: "443", reason: EgressList, by: network},
		{name: "egress: the default list", kind: Egress, port: 3306, app: "-", egress: "-", want: protocol.Opaque, reason: DefaultList},
		{name: "egress: nothing", kind: Egress, port: 443, app: "-", egress: "-", reason: DefaultList},
		{name: "address: the default list", kind: Address, port: 3306, app: "-", want: protocol.Opaque, reason: DefaultList},
		{name: "address: nothing", kind: Address, port: 443, app: "-", reason: DefaultList},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := Facts{Kind: tt.kind, Port: tt.port, PortName: tt.portName, AppAt: service, Default: defaultly}
			if tt.app != "-" {
				f.AppProtocol = &tt.app
			}
			if tt.kind == ServicePort || tt.kind == HeadlessPod && tt.svc != "" {
				f.Service, f.Namespace = list(t, service, tt.svc), list(t, space, tt.ns)
			}
			if tt.kind == Egress {
				f.Egress = list(t, network, tt.egress)
			}
			if tt.target != "" {
				port, name, _ := strings.Cut(tt.target, "/")
				r := Receiver{Pod: list(t, pod, tt.pod), Space: list(t, space, tt.podSpace), Port: ports.Of(atoi(port)).Ranges()[0].Lo}
				if name != "" {
					r.Names = []string{name}
				}
				f.Receivers = []Receiver{r}
			}
			d := Decide(f)
			if d.Kind != tt.want || d.Reason != tt.reason || d.By != tt.by {
				t.Errorf("got %v by %v (%v): %s", d.Kind, d.By, d.Reason, d)
			}
			if got := strings.Join(d.Warnings, "; "); (tt.warning == "") != (got == "") || !strings.Contains(got, tt.warning) {
				t.Errorf("warnings %q, want %q", got, tt.warning)
			}
		})
	}
}

func atoi(s string) (n uint16) {
	for _, c := range s {
		n = n*10 + uint16(c-'0')
	}
	return n
}

func TestADecisionIsToldWithItsObjectAndLine(t *testing.T) {
	app := "http"
	for _, tt := range []struct {
		facts Facts
		want  string
	}{
		{Facts{Kind: ServicePort, Port: 80, AppProtocol: &app, AppAt: service}, `http/1: appProtocol "http" of Service shop/db (x.yaml:10)`},
		{Facts{Kind: ServicePort, Port: 80, Namespace: list(t, space, "+80")}, `opaque: opaque-ports "+80" of Namespace shop (x.yaml:20)`},
		{Facts{Kind: Egress, Port: 80, Egress: list(t, network, "")}, `detect: not in opaque-ports "" of EgressNetwork shop/out (x.yaml:40)`},
		{Facts{Kind: Address, Port: 25, Default: defaultly}, "opaque: in the default list of opaque ports, 25,3306"},
		{Facts{Kind: Address, Port: 26, Default: defaultly}, "detect: not in the default list of opaque ports"},
	} {
		if got := Decide(tt.facts).String(); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}
