package metrics

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/meshctl/meshctl/proxy/protocol"
)

// documented is a row of docs/metrics.md.
type documented struct {
	kind   string
	labels []string
}

// readDoc returns the rows of docs/metrics.md that are about a metric.
func readDoc(t *testing.T) map[string]documented {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge|histogram) \\|([^|]*)\\|")
	rows := map[string]documented{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		if _, twice := rows[m[1]]; twice {
			t.Errorf("%s is described twice", m[1])
		}
		labels := strings.Fields(strings.ReplaceAll(m[3], "`", ""))
		if i := slices.Index(labels, "target"); i >= 0 {
			labels = slices.Replace(labels, i, i+1, targetLabels()...)
		}
		if i := slices.Index(labels, "route"); i >= 0 {
			labels = slices.Replace(labels, i, i+1, append(routeLabels(), serviceLabels()...)...)
		}
		if i := slices.Index(labels, "authorization"); i >= 0 {
			labels = slices.Replace(labels, i, i+1, authorizationLabels()...)
		}
		rows[m[1]] = documented{m[2], labels}
	}
	return rows
}

// processNames returns what the Prometheus library exports of a process.
func processNames() []string {
	descs := make(chan *prometheus.Desc, 100)
	collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}).Describe(descs)
	close(descs)
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	var names []string
	for d := range descs {
		names = append(names, name.FindStringSubmatch(d.String())[1])
	}
	return names
}

func TestEveryMetricIsInTheDocumentationAndTheReverse(t *testing.T) {
	doc := readDoc(t)
	for _, f := range newPage().all {
		row, ok := doc[f.name]
		if !ok {
			t.Errorf("%s is not in docs/metrics.md", f.name)
			continue
		}
		if d := cmp.Diff(slices.Sorted(slices.Values(f.labels)), slices.Sorted(slices.Values(row.labels))); d != "" {
			t.Errorf("labels of %s (-code +docs/metrics.md):\n%s", f.name, d)
		}
		delete(doc, f.name)
	}
	for _, name := range processNames() {
		if _, ok := doc[name]; !ok {
			t.Errorf("%s is not in docs/metrics.md", name)
		}
		delete(doc, name)
	}
	for name := range doc {
		t.Errorf("docs/metrics.md describes %s, which does not exist", name)
	}
}

// shop is a Service, and served a destination that is one.
var (
	shop   = Service{"shop", "web", 80}
	served = Destination{web.Addr, shop}
)

// busy returns a Metrics in which everything has happened once.
func busy() *Metrics {
	m := New(Config{
		Kubernetes: func() Kubernetes { return Kubernetes{Synced: true, Objects: 1, Changes: 1} },
		Version:    "1", SkipPackets: func() []SkipCount { return []SkipCount{{Inbound, "r", 1}} },
		Balancers:    func() []Balancer { return []Balancer{{Parent: shop, Backend: shop, Ready: 1}} },
		Pools:        func() []Pool { return []Pool{{Direction: Outbound}} },
		AccessLog:    func() (written, dropped uint64) { return 1, 1 },
		Identity:     func() Identity { return Identity{NotAfter: time.Unix(2, 0), Refreshed: time.Unix(1, 0), OK: 1} },
		ControlPlane: func() ControlPlane { return ControlPlane{Connected: true, Requests: 1, Failures: 1} },
	})
	tls := TLSLabels{TLS: "true", NoTLSReason: "x", ClientID: "c", ServerID: "s", SNI: "n"}
	c, h := m.TCP(Inbound, Src, served, tls), m.HTTP(Inbound, served, tls)
	r := m.Route(Outbound, shop, Route{"HTTPRoute", "shop", "r"})
	r.Request()
	r.Response(ResponseLabels{Status: 200, GRPC: true, Err: "reset"}, time.Millisecond, true)
	m.Retried(Outbound, shop, 2)
	m.RetrySkipped(Outbound, shop)
	m.Answered("failfast")
	m.RouteBypassed(Outbound, shop, "not_http")
	c.Open()
	c.Close("", 0)
	h.Request()
	h.Response(ResponseLabels{Status: 200, GRPC: true, Err: "reset"}, time.Millisecond, true)
	m.Detected(Inbound, 1, ResultHTTP1, "bytes", 0)
	m.DetectedName(Inbound, "mysql")
	m.TCPError(Inbound, "i/o")
	m.TCPError(Outbound, "i/o")
	m.EarlyDial(Outbound, "timeout")
	m.TransportHeader("http/2", 8080, "n", "c")
	m.Refused(Inbound, "own_listener")
	m.AcceptError("EMFILE")
	m.ObserverLost(protocol.HTTP1, "limit")
	ref := Ref{"policy.linkerd.io", "server", "shop", "web"}
	a := m.Authorized(Authorization{Server: ref, Port: 80, Authz: ref, Route: ref, TLS: "true"})
	for _, count := range []func(){a.AllowConnection, a.DenyConnection, a.TerminateConnection, a.AllowRequest, a.DenyRequest, a.RouteNotFound} {
		count()
	}
	return m
}

func TestEveryMetricIsExportedWithTheTypeAndNoOtherLabelsThanDocumented(t *testing.T) {
	doc := readDoc(t)
	families, err := busy().Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	exported := map[string]bool{}
	for _, f := range families {
		exported[f.GetName()] = true
		row := doc[f.GetName()]
		if got := strings.ToLower(f.GetType().String()); got != row.kind {
			t.Errorf("%s is a %s, documented as %s", f.GetName(), got, row.kind)
		}
		for _, series := range f.GetMetric() {
			for _, l := range series.GetLabel() {
				if !slices.Contains(row.labels, l.GetName()) {
					t.Errorf("%s has the label %s, which is not documented", f.GetName(), l.GetName())
				}
			}
		}
	}
	for _, f := range newPage().all {
		if !exported[f.name] {
			t.Errorf("%s is never exported", f.name)
		}
	}
}
