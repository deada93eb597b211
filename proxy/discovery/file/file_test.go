package file

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
)

const kube = "../../../testdata/kube/"

func shop() cluster.Config {
	return cluster.Config{Namespace: "shop", Opaque: ports.Of(25, 587, 3306, 4444, 5432, 6379, 9300, 11211)}
}

// load reads the example cluster.
func load(t *testing.T) (*cluster.Snapshot, Report) {
	t.Helper()
	s, report := NewReader(Config{Paths: []string{kube}, Cluster: shop()}).Load()
	if err := report.Err(); err != nil {
		t.Fatal(err)
	}
	return s, report
}

func TestEveryRowOfTheProtocolTable(t *testing.T) {
	s, _ := load(t)
	for _, tt := range []struct{ dst, what, decision, endpoints string }{
		{"10.96.14.20:80", "service Service shop/web port 80 (http)", "detect: not in the default list of opaque ports", "10.244.1.11:8080 10.244.2.12:8080"},
		{"[fd00:96::1420]:80", "service Service shop/web port 80 (http)", "detect: not in the default list of opaque ports", "[fd00:244:1::11]:8080"},
		{"10.96.14.20:81", "service Service shop/web port 81 (declared)", `http/1: appProtocol "http" of Service shop/web (shop.yaml:31)`, "10.244.1.11:8080 10.244.2.12:8080"},
		{"10.96.14.20:82", "service Service shop/web port 82 (grpc)", `http/2: appProtocol "kubernetes.io/h2c" of Service shop/web (shop.yaml:36)`, "10.244.1.11:8082 10.244.2.12:8082"},
		{"10.96.14.20:83", "service Service shop/web port 83 (opaque)", `opaque: appProtocol "linkerd.io/opaque" of Service shop/web (shop.yaml:41)`, "10.244.1.11:8083 10.244.2.12:8083"},
		{"10.96.14.20:84", "service Service shop/web port 84 (tcp)", `opaque: appProtocol "linkerd.io/tcp" of Service shop/web (shop.yaml:46)`, "10.244.1.11:8084 10.244.2.12:8084"},
		{"10.96.14.20:85", "service Service shop/web port 85 (ws)", `http/1: appProtocol "kubernetes.io/ws" of Service shop/web (shop.yaml:51)`, "10.244.1.11:8085 10.244.2.12:8085"},
		{"10.96.14.20:86", "service Service shop/web port 86 (strange)", `opaque: appProtocol "mysql" of Service shop/web (shop.yaml:56)`, "10.244.1.11:8086 10.244.2.12:8086"},
		{"10.96.14.20:87", "service Service shop/web port 87", "refused: no_such_port", ""},
		{"10.96.14.20:53", "service Service shop/web port 53", "refused: no_such_port", ""},
		{"10.96.14.21:3306", "service Service shop/db port 3306 (mysql)", `detect: not in opaque-ports "4406,galera" of Service shop/db (shop.yaml:75)`, "10.244.1.21:3306"},
		{"10.96.14.21:4406", "service Service shop/db port 4406 (alt)", `opaque: opaque-ports "4406,galera" of Service shop/db (shop.yaml:75)`, "10.244.1.21:4406"},
		{"10.96.14.21:4569", "service Service shop/db port 4569 (galera)", `opaque: opaque-ports "4406,galera" of Service shop/db (shop.yaml:75)`, "10.244.1.21:4569"},
		{"10.96.14.30:7000", "service Service data/queue port 7000 (peer)", `opaque: opaque-ports "7000-7010" of Namespace data (spaces.yaml:7)`, "10.244.3.1:7000"},
		{"10.96.14.30:3306", "service Service data/queue port 3306 (sql)", `detect: not in opaque-ports "7000-7010" of Namespace data (spaces.yaml:7)`, "10.244.3.1:3306"},
		{"10.96.14.40:9200", "service Service shop/search port 9200 (api)", `http/1: appProtocol "http" of Service shop/search (services.json:21)`, "10.244.4.1:9200"},
		{"10.96.14.40:9300", "service Service shop/search port 9300 (peer)", `detect: not in opaque-ports "9200" of Service shop/search (services.json:9)`, "10.244.4.1:9300"},
		{"10.244.1.31:6379", "headless Service shop/cache port 6379 (redis)", `opaque: opaque-ports "+admin" of Pod shop/cache-0 (shop.yaml:341)`, "10.244.1.31:6379"},
		{"10.244.1.31:9000", "headless Service shop/cache port 9000 (admin)", `opaque: opaque-ports "+admin" of Pod shop/cache-0 (shop.yaml:341)`, "10.244.1.31:9000"},
		{"10.244.1.31:9001", "pod Pod shop/cache-0 port 9001", `detect: not in opaque-ports "+admin" of Pod shop/cache-0 (shop.yaml:341)`, "10.244.1.31:9001"},
		{"10.244.1.11:8084", "pod Pod shop/web-0 port 8084", `opaque: opaque-ports "8084" of Pod shop/web-0 (shop.yaml:317)`, "10.244.1.11:8084"},
		{"[fd00:244:1::11]:3306", "pod Pod shop/web-0 port 3306", `detect: not in opaque-ports "8084" of Pod shop/web-0 (shop.yaml:317)`, "[fd00:244:1::11]:3306"},
		{"[::ffff:10.244.1.11]:8084", "pod Pod shop/web-0 port 8084", `opaque: opaque-ports "8084" of Pod shop/web-0 (shop.yaml:317)`, "10.244.1.11:8084"},
		{"198.51.100.1:9999", "egress EgressNetwork shop/partners port 9999", `opaque: opaque-ports "3306,9999" of EgressNetwork shop/partners (spaces.yaml:74)`, "198.51.100.1:9999"},
		{"198.51.100.1:6379", "egress EgressNetwork shop/partners port 6379", `detect: not in opaque-ports "3306,9999" of EgressNetwork shop/partners (spaces.yaml:74)`, "198.51.100.1:6379"},
		{"198.51.100.65:443", "egress EgressNetwork shop/forbidden port 443", "refused: egress_denied", "198.51.100.65:443"},
		{"198.51.100.129:3306", "egress EgressNetwork linkerd-egress/everything port 3306", "opaque: in the default list of opaque ports, 25,587,3306,4444,5432,6379,9300,11211", "198.51.100.129:3306"},
		{"[2001:db8::1]:443", "egress EgressNetwork shop/partners port 443", `detect: not in opaque-ports "3306,9999" of EgressNetwork shop/partners (spaces.yaml:74)`, "[2001:db8::1]:443"},
		{"203.0.113.5:80", "egress EgressNetwork linkerd-egress/everything port 80", "detect: not in the default list of opaque ports", "203.0.113.5:80"},
		{"10.244.1.40:80", "address an address that no object names", "detect: not in the default list of opaque ports", "10.244.1.40:80"},
		{"192.168.56.10:3306", "address an address that no object names", "opaque: in the default list of opaque ports, 25,587,3306,4444,5432,6379,9300,11211", "192.168.56.10:3306"},
	} {
		v := s.Find(netip.MustParseAddrPort(tt.dst))
		decision := v.Protocol.String()
		if v.Refused != 0 {
			decision = "refused: " + v.Refused.String()
		}
		got := []string{v.Kind.String() + " " + v.String(), strings.ReplaceAll(decision, kube, ""), addrs(v.Endpoints)}
		if diff := cmp.Diff([]string{tt.what, tt.decision, tt.endpoints}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.dst, diff)
		}
	}
}

func addrs(list []discovery.Endpoint) string {
	var out []string
	for _, e := range list {
		out = append(out, e.Addr.String())
	}
	return strings.Join(out, " ")
}

func TestEndpointsKnowTheirPodNodeAndZone(t *testing.T) {
	s, _ := load(t)
	v := s.Find(netip.MustParseAddrPort("10.96.14.20:84"))
	unmeshed := discovery.Mesh{NoTLS: discovery.NotProvided}
	want := []discovery.Endpoint{
		{Addr: netip.MustParseAddrPort("10.244.1.11:8084"), Pod: "shop/web-0", Node: "node-a", Zone: "z1", Opaque: true, Mesh: unmeshed},
		{Addr: netip.MustParseAddrPort("10.244.2.12:8084"), Pod: "shop/web-1", Node: "node-b", Zone: "z2", Mesh: unmeshed},
	}
	if diff := cmp.Diff(want, v.Endpoints, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

func TestRoutesComeWithTheirBackends(t *testing.T) {
	s, _ := load(t)
	v := s.Find(netip.MustParseAddrPort("10.96.14.20:80"))
	if v.Table == nil {
		t.Fatal("no table at the port that a route is attached to")
	}
	var got []string
	for i, b := range v.Backends {
		if i > 0 && (b.Namespace != v.Table.Backends[i].Namespace || b.Name != v.Table.Backends[i].Name || b.Port != v.Table.Backends[i].Port) {
			t.Errorf("backend %d is %s, in the table %v", i, b, v.Table.Backends[i])
		}
		got = append(got, b.String()+" "+addrs(b.Endpoints))
	}
	want := []string{"shop/web:80 10.244.1.11:8080 10.244.2.12:8080", "data/queue:7000 10.244.3.1:7000", "shop/web:80 10.244.1.11:8080 10.244.2.12:8080"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if v := s.Find(netip.MustParseAddrPort("10.96.14.20:81")); v.Table != nil {
		t.Error("a table at a port that the route leaves out")
	}
}

func TestWhatIsOddIsToldWithItsLine(t *testing.T) {
	_, report := load(t)
	var got []string
	for _, p := range report.Problems {
		got = append(got, strings.ReplaceAll(p.Error(), kube, ""))
	}
	want := []string{
		`shop.yaml:41: Service shop/web: spec.ports[3]: Service shop/web says opaque for port 83, Pod shop/web-0 leaves port 8083 out: it finds out the protocol for itself [contradiction]`,
		`shop.yaml:56: Service shop/web: spec.ports[6].appProtocol: appProtocol "mysql" of Service shop/web port 86 is not known: the port is opaque [unknown-app-protocol]`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"v1 ConfigMap": 1, "HTTPRoute of no Service, Server or EgressNetwork": 1}, report.Skipped); diff != "" {
		t.Error(diff)
	}
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func inDir(t *testing.T, text string) (*cluster.Snapshot, Report) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "x.yaml"), text)
	s, report := NewReader(Config{Paths: []string{dir}, Cluster: shop()}).Load()
	for i := range report.Problems {
		report.Problems[i].Object.File = filepath.Base(report.Problems[i].Object.File)
	}
	return s, report
}
