package controller

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/discovery/destination/wire"
	"github.com/meshctl/meshctl/proxy/discovery/file"
	"github.com/meshctl/meshctl/proxy/discovery/table"
	"github.com/meshctl/meshctl/proxy/policy"
	"github.com/meshctl/meshctl/proxy/protocol"
)

// This file holds the API itself to the table, without the field of our own: what
// Linkerd's proxies read, and what we read of Linkerd's controller.

// carried cuts from the lines of the table what the API does not have: names of
// ports, reasons, warnings, nodes, and what a backend's port is declared to be.
func carried(line string) string {
	switch word, _, _ := strings.Cut(line, " "); {
	case word == "beware", strings.HasPrefix(line, "backend decided"):
		return ""
	case word == "decided":
		line, _, _ = strings.Cut(line, " by ")
	case word == "to", strings.HasPrefix(line, "backend to"):
		before, after, ok := strings.Cut(line, " node ")
		if ok {
			_, after, _ = strings.Cut(after, " ")
			line = strings.TrimSpace(before + " " + after)
		}
	case strings.Contains(line, " port "):
		line, _, _ = strings.Cut(line, " (")
	}
	return line
}

// throughTheAPI turns Views into messages and back.
type throughTheAPI struct {
	t         *testing.T
	s         *cluster.Snapshot
	namespace string
}

// Find implements discovery.Source.
func (f throughTheAPI) Find(dst netip.AddrPort) discovery.View {
	c := wire.Config{}
	from := f.s.In(f.namespace).Find(dst)
	profile, out := c.Profile(&from), c.Policy(dst, &from, nil)
	out.ProtoReflect().SetUnknown(nil)
	raw, err := proto.Marshal(out)
	if err != nil {
		f.t.Fatal(err)
	}
	out.Reset()
	if err := proto.Unmarshal(raw, out); err != nil {
		f.t.Fatal(err)
	}
	r := wire.Reader{Opaque: policy.DefaultOpaque()}
	plan, err := r.Plan(dst, profile, out)
	if err != nil {
		f.t.Error(err)
	}
	v, ok := r.View(plan, func(path string) (wire.Endpoints, bool) {
		s := New(Config{Picture: NewStatic(f.s)})
		k, err := s.service(path)
		if err != nil {
			f.t.Fatal(err)
		}
		b := f.s.Backend(k.namespace, k.name, k.port, !k.v6)
		var got wire.Endpoints
		for _, u := range (wire.Endpoints{Exists: !b.Object.IsZero(), List: b.Endpoints}).Updates(nil, nil) {
			got = got.Apply(u)
		}
		return got, true
	})
	if !ok {
		f.t.Fatal("members are missing")
	}
	if out.GetProtocol().GetGrpc() != nil && from.Protocol.Kind == protocol.Unknown {
		// The API cannot say that what is not HTTP/2 passes beside GRPCRoutes.
		if v.Protocol.Kind != protocol.HTTP2 {
			f.t.Errorf("GRPCRoutes, and %s", v.Protocol.Kind)
		}
		v.Protocol.Kind = protocol.Unknown
	}
	return v
}

func TestTheAPICarriesWhatItHasFieldsFor(t *testing.T) {
	table.Run(t, table.Config{Within: time.Millisecond, Carried: carried, Open: func(t *testing.T, namespace string) (discovery.Resolver, func(string)) {
		w := newWorld(t)
		c := discovery.NewCache(discovery.CacheConfig{}, throughTheAPI{t, w.picture.now.Load(), namespace})
		return c, func(objects string) {
			w.set(objects)
			c.Replace(throughTheAPI{t, w.picture.now.Load(), namespace})
		}
	}})
}

// everything is a Service with all that routes can say and the API has.
const everything = `apiVersion: v1
kind: Service
metadata:
  namespace: shop
  name: web
  annotations: {balancer.linkerd.io/failure-accrual: consecutive, balancer.linkerd.io/failure-accrual-consecutive-max-failures: "3"}
spec: {clusterIP: 10.0.0.1, ports: [{name: main, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: v2}
spec: {clusterIP: 10.0.0.2, ports: [{port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  namespace: shop
  name: all
  annotations: {timeout.linkerd.io/idle: 5s, timeout.linkerd.io/response: 4s, retry.linkerd.io/http: "5xx,429", retry.linkerd.io/limit: "3", retry.linkerd.io/timeout: 300ms}
spec:
  parentRefs: [{group: "", kind: Service, name: web}]
  hostnames: [web.example, "*.shop.example"]
  rules:
  - matches:
    - {path: {type: Exact, value: /a}, method: GET, headers: [{name: x-one, value: "1"}, {type: RegularExpression, name: x-two, value: "^b+$"}]}
    - {path: {type: RegularExpression, value: "/r/[0-9]+"}, queryParams: [{name: q, value: v}, {type: RegularExpression, name: p, value: "z.*"}]}
    filters:
    - {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-set, value: s}], add: [{name: x-add, value: a}], remove: [x-gone]}}
    - {type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: x-back, value: "2"}]}}
    timeouts: {request: 3s, backendRequest: 1s}
    backendRefs: [{name: web, port: 80, weight: 9}, {name: v2, port: 80, weight: 1, filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: v, value: "2"}]}}]}]
  - matches: [{path: {type: PathPrefix, value: /old}, method: PATCH}]
    filters: [{type: RequestRedirect, requestRedirect: {scheme: https, hostname: new.example, port: 8443, statusCode: 301, path: {type: ReplacePrefixMatch, replacePrefixMatch: /new}}}]
  - matches: [{path: {type: PathPrefix, value: /nobody}}]
    backendRefs: [{name: v2, port: 80, weight: 0}]
  - matches: [{path: {type: PathPrefix, value: /gone}}]
    backendRefs: [{name: gone, port: 80}]
  - {}
`

func find(t *testing.T, objects string) (direct, through discovery.View) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "o.yaml")
	if err := os.WriteFile(name, []byte(objects), 0o600); err != nil {
		t.Fatal(err)
	}
	s, report := file.NewReader(file.Config{Paths: []string{name}, Cluster: cluster.Config{Everyone: true}}).Load()
	if err := report.Err(); err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		t.Log(p)
	}
	to := at("10.0.0.1:80")
	return s.In("shop").Find(to), throughTheAPI{t, s, "shop"}.Find(to)
}

// told is what a Table says, in lines that can be compared.
func told(v discovery.View) []string {
	out := []string{fmt.Sprintf("breaker %+v", v.Table.Breaker)}
	for _, a := range v.Table.Actions {
		out = append(out, fmt.Sprintf("%v rule %d: %+v", a.Route, a.Rule, a.Policy))
		for _, s := range a.Shares() {
			out = append(out, fmt.Sprintf("  -> %v", v.Table.Backends[s.Backend]))
		}
	}
	for _, b := range v.Backends[1:] {
		out = append(out, fmt.Sprintf("backend %s %s", b, b.Object))
	}
	return out
}

func TestRoutesComeThroughTheAPIWhole(t *testing.T) {
	direct, through := find(t, everything)
	got := strings.ReplaceAll(strings.Join(told(through), "\n"), "backend none/none:1 \n", "")
	if d := cmp.Diff(strings.Join(told(direct), "\n"), got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	for _, request := range []string{
		"GET web.example/a; x-one: 1; x-two: bbb", "GET web.example/a; x-one: 1", "GET other.example/a; x-one: 1; x-two: b",
		"GET a.shop.example/r/12?q=v&p=zz", "GET a.shop.example/r/12?q=v", "PATCH web.example/old/x", "GET web.example/nobody", "GET web.example/gone/x", "POST web.example/else",
	} {
		a, b := ruleOf(direct, request), ruleOf(through, request)
		if a != b {
			t.Errorf("%s: %s, through the API %s", request, a, b)
		}
	}
}

// ruleOf is the request's line of the table.
func ruleOf(v discovery.View, request string) string {
	for line := range strings.Lines(table.Text(&v, request)) {
		if strings.HasPrefix(line, "request") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func TestARewriteThatTheAPIDoesNotHaveFailsInsteadOfGoingAstray(t *testing.T) {
	direct, through := find(t, strings.Replace(everything, "  - {}\n", "  - filters: [{type: URLRewrite, urlRewrite: {hostname: x.example}}]\n    backendRefs: [{name: v2, port: 80}]\n", 1))
	last := len(through.Table.Actions) - 1
	if n := len(direct.Table.Actions[last].Shares()); n != 1 {
		t.Fatalf("%d shares of the rule itself", n)
	}
	if n := len(through.Table.Actions[last].Shares()); n != 0 {
		t.Errorf("a request that is not rewritten goes to %d backends", n)
	}
}
