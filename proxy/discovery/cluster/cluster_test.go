package cluster

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/route"
)

func object(kind, namespace, name string, line int) discovery.Object {
	return discovery.Object{Kind: kind, Namespace: namespace, Name: name, File: "x.yaml", Line: line}
}

func egress(namespace, name string, day int, networks ...string) *Egress {
	e := &Egress{Object: object("EgressNetwork", namespace, name, 1), Created: time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC)}
	for _, n := range networks {
		cidr, holes, _ := strings.Cut(n, " but ")
		one := Network{CIDR: netip.MustParsePrefix(cidr)}
		for _, hole := range strings.Fields(holes) {
			one.Except = append(one.Except, netip.MustParsePrefix(hole))
		}
		e.Networks = append(e.Networks, one)
	}
	return e
}

func TestWhichEgressNetworkAnAddressBelongsTo(t *testing.T) {
	all := []*Egress{
		egress(GlobalEgress, "global-host", 1, "203.0.113.7/32"),
		egress(GlobalEgress, "all", 1),
		egress("shop", "wide", 5, "203.0.113.0/24", "2001:db8::/32"),
		egress("shop", "narrow", 6, "203.0.113.128/25 but 203.0.113.200/32 203.0.113.224/27"),
		egress("shop", "younger", 9, "198.51.100.0/24"),
		egress("shop", "older", 8, "198.51.100.0/24"),
		egress("shop", "b", 3, "192.0.2.0/24"),
		egress("shop", "a", 3, "192.0.2.0/24"),
		egress("other", "others", 1, "0.0.0.0/0"),
	}
	s := Build(Config{Namespace: "shop"}, Objects{Egresses: all}, nil)
	for addr, want := range map[string]string{
		"203.0.113.7":   "shop/wide",          // the namespace's before the global one, however specific
		"203.0.113.129": "shop/narrow",        // the most specific
		"203.0.113.200": "shop/wide",          // a hole
		"203.0.113.230": "shop/wide",          // a hole
		"198.51.100.1":  "shop/older",         // the oldest
		"192.0.2.1":     "shop/a",             // the name
		"2001:db8::1":   "shop/wide",          // IPv6
		"8.8.8.8":       "linkerd-egress/all", // none of the namespace's
		"2600::1":       "linkerd-egress/all",
		"10.1.2.3":      "", // the cluster's own
		"192.168.1.1":   "",
		"fd00::1":       "",
	} {
		v := s.Find(netip.AddrPortFrom(netip.MustParseAddr(addr), 443))
		got := ""
		if v.Kind == discovery.Egress {
			got = v.Object.Namespace + "/" + v.Object.Name
		}
		if got != want {
			t.Errorf("%s belongs to %q, want %q", addr, got, want)
		}
	}
	if v := Build(Config{Namespace: "elsewhere"}, Objects{Egresses: all}, nil).Find(netip.MustParseAddrPort("203.0.113.7:1")); v.Object.Name != "global-host" {
		t.Errorf("of another namespace: %s", v.Object)
	}
}

// ours is a Service at 10.96.0.1 with the given endpoints, as "address state".
func ours(endpoints ...string) Objects {
	svc := &Service{Object: object("Service", "shop", "web", 1), IPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, Ports: []Port{{Number: 80}}}
	sl := &Slice{Object: object("EndpointSlice", "shop", "web-1", 10), Service: "web", Ports: []SlicePort{{Number: 8080}}}
	for _, text := range endpoints {
		addr, state, _ := strings.Cut(text, " ")
		sl.Endpoints = append(sl.Endpoints, SliceEndpoint{Addr: netip.MustParseAddr(addr), Ready: state == "ready", Serving: state != "down"})
	}
	return Objects{Services: []*Service{svc}, Slices: []*Slice{sl}}
}

func TestEndpointsThatAreReadyCountElseThoseThatStillServe(t *testing.T) {
	for _, tt := range []struct {
		name      string
		endpoints []string
		want      string
	}{
		{"ready", []string{"10.1.0.2 ready", "10.1.0.1 ready"}, "10.1.0.1:8080 10.1.0.2:8080"},
		{"one is not", []string{"10.1.0.1 ready", "10.1.0.2 down"}, "10.1.0.1:8080"},
		{"one terminates", []string{"10.1.0.1 ready", "10.1.0.2 serving"}, "10.1.0.1:8080"},
		{"all terminate", []string{"10.1.0.1 serving", "10.1.0.2 serving", "10.1.0.3 down"}, "10.1.0.1:8080 10.1.0.2:8080"},
		{"none", []string{"10.1.0.3 down"}, ""},
		{"twice", []string{"10.1.0.1 ready", "10.1.0.1 ready"}, "10.1.0.1:8080"},
		{"another family", []string{"10.1.0.1 ready", "fd00::1 ready"}, "10.1.0.1:8080"},
	} {
		v := Build(Config{Namespace: "shop"}, ours(tt.endpoints...), nil).Find(netip.MustParseAddrPort("10.96.0.1:80"))
		var got []string
		for _, e := range v.Endpoints {
			got = append(got, e.Addr.String())
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %v, want %s", tt.name, got, tt.want)
		}
	}
}

func httpRoute(namespace, name string, port uint16, parent string) *Route {
	ns, svc, _ := strings.Cut(parent, "/")
	r := route.Route{Kind: route.HTTP, Namespace: namespace, Name: name, Rules: []route.Rule{{Name: name}}}
	return &Route{Object: object("HTTPRoute", namespace, name, 30), Route: r, Parents: []Parent{{Kind: "Service", Namespace: ns, Name: svc, Port: port}}}
}

// attachedTo names the routes of the table at 10.96.0.1:80.
func attachedTo(s *Snapshot) string {
	c := s.tables[tableKey{parent{"Service", name{"shop", "web"}}, 80, ""}]
	if c == nil {
		return ""
	}
	var out []string
	for _, r := range c.routes {
		out = append(out, r.Namespace+"/"+r.Name)
	}
	return strings.Join(out, " ")
}

func TestRoutesOfTheClientsNamespaceReplaceThoseOfTheService(t *testing.T) {
	producer, consumer := httpRoute("shop", "producer", 0, "shop/web"), httpRoute("client", "consumer", 0, "shop/web")
	stranger, elsewhere := httpRoute("third", "stranger", 0, "shop/web"), httpRoute("shop", "elsewhere", 81, "shop/web")
	for _, tt := range []struct{ client, want string }{
		{"client", "client/consumer"}, {"shop", "shop/producer"}, {"fourth", "shop/producer"},
	} {
		all := ours("10.1.0.1 ready")
		all.Routes = []*Route{producer, consumer, stranger, elsewhere}
		if got := attachedTo(Build(Config{Namespace: tt.client}, all, nil)); got != tt.want {
			t.Errorf("for clients of %s: %s, want %s", tt.client, got, tt.want)
		}
	}
}

func TestATableIsTakenOverWhileNothingOfItChanges(t *testing.T) {
	all := ours("10.1.0.1 ready")
	all.Routes = []*Route{httpRoute("shop", "a", 80, "shop/web")}
	cfg, dst := Config{Namespace: "shop"}, netip.MustParseAddrPort("10.96.0.1:80")
	first := Build(cfg, all, nil)
	again := Build(cfg, all, first)
	if first.Find(dst).Table != again.Find(dst).Table || first.Find(dst).Table == nil {
		t.Error("the table was made again")
	}
	all.Routes = []*Route{httpRoute("shop", "a", 80, "shop/web")} // read again
	if Build(cfg, all, again).Find(dst).Table == first.Find(dst).Table {
		t.Error("the table of a route that was read again is the old one")
	}
}

func TestAnOpaquePortHasNoRoutes(t *testing.T) {
	all := ours("10.1.0.1 ready")
	app := "linkerd.io/tcp"
	all.Services[0].Ports[0].AppProtocol = &app
	all.Routes = []*Route{httpRoute("shop", "a", 80, "shop/web")}
	if v := Build(Config{Namespace: "shop"}, all, nil).Find(netip.MustParseAddrPort("10.96.0.1:80")); v.Table != nil {
		t.Error("a table at an opaque port")
	}
}

func TestPoliciesAloneMakeATable(t *testing.T) {
	all := ours("10.1.0.1 ready")
	all.Services[0].Policy = map[string]string{"timeout.linkerd.io/request": "5s"}
	v := Build(Config{Namespace: "shop"}, all, nil).Find(netip.MustParseAddrPort("10.96.0.1:80"))
	if v.Table == nil || len(v.Backends) != 1 || v.Backends[0].Own != v.Table || len(v.Backends[0].Endpoints) != 1 {
		t.Errorf("table %v, backends %+v", v.Table, v.Backends)
	}
}

func TestABackendThatIsNotThereIsWarnedOf(t *testing.T) {
	all := ours("10.1.0.1 ready")
	r := httpRoute("shop", "a", 80, "shop/web")
	r.Route.Rules[0].Backends = []route.BackendRef{{Name: "gone", Port: 80}, {Name: "web", Port: 80}, {Name: "web", Port: 99}}
	all.Routes = []*Route{r}
	s := Build(Config{Namespace: "shop"}, all, nil)
	var got []string
	for _, w := range s.Warnings() {
		got = append(got, w.Object.Place()+" "+w.Text)
	}
	want := []string{
		"x.yaml:30 there is no Service shop/gone:80 here: requests for it fail",
		"x.yaml:30 there is no Service shop/web:99 here: requests for it fail",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	v := s.Find(netip.MustParseAddrPort("10.96.0.1:80"))
	for i, b := range v.Backends {
		if missing := b.Object.IsZero(); missing != (i > 0 && b.String() != "shop/web:80") {
			t.Errorf("backend %d, %s: missing %t", i, b, missing)
		}
	}
}

func TestOfTwoThatClaimTheSameTheLaterCounts(t *testing.T) {
	ip := []netip.Addr{netip.MustParseAddr("10.96.0.1")}
	s := Build(Config{}, Objects{
		Services: []*Service{
			{Object: object("Service", "shop", "a", 1), IPs: ip},
			{Object: object("Service", "shop", "a", 2), IPs: ip},
			{Object: object("Service", "shop", "b", 3), IPs: ip},
		},
		Pods: []*Pod{{Object: object("Pod", "shop", "p", 4), IPs: ip}, {Object: object("Pod", "shop", "q", 5), IPs: ip}},
	}, nil)
	if v := s.Find(netip.MustParseAddrPort("10.96.0.1:80")); v.Object.Name != "b" {
		t.Errorf("the address is that of %s", v.Object)
	}
	var got []string
	for _, w := range s.Warnings() {
		got = append(got, w.Object.String()+" "+w.Text)
	}
	want := []string{
		"Service shop/a it is there twice: the one at x.yaml:1 does not count",
		"Service shop/b it has the address 10.96.0.1 of Service shop/a, which does not count",
		"Pod shop/q it has the address 10.96.0.1 of Pod shop/p, which does not count",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
