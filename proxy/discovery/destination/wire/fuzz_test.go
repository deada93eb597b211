package wire

import (
	"net/netip"
	"testing"

	dst "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/protobuf/proto"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/route"
)

// sample is a View with a bit of everything.
func sample(t testing.TB, kind route.Kind) *discovery.View {
	t.Helper()
	object := discovery.Object{Kind: "Service", Namespace: "shop", Name: "web"}
	one := []discovery.Endpoint{{Addr: netip.MustParseAddrPort("10.1.0.1:8080"), Pod: "shop/web-1", Node: "n", Zone: "z",
		Mesh: discovery.Mesh{ID: "spiffe://a/b", ServerName: "a.b", Port: 4143}}}
	rule := route.Rule{Backends: []route.BackendRef{{Name: "v2", Port: 80}, {Name: "gone", Port: 80}}}
	table, err := route.New(route.Config{Routes: []route.Route{{Kind: kind, Namespace: "shop", Name: "r", Hostnames: []string{"*.a"}, Rules: []route.Rule{rule, {}}}},
		Annotations: map[string]string{"balancer.linkerd.io/failure-accrual": "consecutive", "retry.linkerd.io/limit": "2"}})
	if err != nil {
		t.Fatal(err)
	}
	v := &discovery.View{Kind: discovery.ServicePort, Object: object, Port: 80, PortName: "main", Endpoints: one, Table: table, Backends: []discovery.Backend{
		{Namespace: "shop", Name: "web", Port: 80, Object: object, Endpoints: one, Own: table},
		{Namespace: "shop", Name: "v2", Port: 80, Object: discovery.Object{Kind: "Service", Namespace: "shop", Name: "v2"}, Endpoints: one, Own: table},
		{Namespace: "shop", Name: "gone", Port: 80},
	}}
	return v
}

// FuzzPlan: whatever a control plane sends, a View comes out whose Table and
// Backends fit together.
func FuzzPlan(f *testing.F) {
	to := netip.MustParseAddrPort("10.0.0.1:80")
	for _, kind := range []route.Kind{route.HTTP, route.GRPC} {
		v := sample(f, kind)
		policy := Config{}.Policy(to, v, nil)
		for range 2 { // with our own field, and without
			raw, err := proto.Marshal(policy)
			if err != nil {
				f.Fatal(err)
			}
			profile, err := proto.Marshal(Config{}.Profile(v))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(profile, raw)
			policy.ProtoReflect().SetUnknown(nil)
		}
	}
	f.Fuzz(func(t *testing.T, profile, policy []byte) {
		p, o := &dst.DestinationProfile{}, &outbound.OutboundPolicy{}
		if proto.Unmarshal(profile, p) != nil || proto.Unmarshal(policy, o) != nil {
			return
		}
		var r Reader
		plan, err := r.Plan(to, p, o)
		v, ok := r.View(plan, func(string) (Endpoints, bool) { return Endpoints{Exists: true}, true })
		if !ok {
			t.Fatal("everything was known")
		}
		switch {
		case err != nil && v.Table != nil:
			t.Error("a table that does not count")
		case v.Table != nil && len(v.Table.Backends) != len(v.Backends):
			t.Errorf("%d backends of the table, %d of the view", len(v.Table.Backends), len(v.Backends))
		case v.Kind == 0 || v.Pending:
			t.Errorf("%+v", v)
		}
	})
}

func TestAViewOfOurOwnComesBackAsItWas(t *testing.T) {
	to := netip.MustParseAddrPort("10.0.0.1:80")
	v := sample(t, route.HTTP)
	var r Reader
	plan, err := r.Plan(to, r.Profile(v), r.Policy(to, v, nil))
	if err != nil {
		t.Fatal(err)
	}
	got, _ := r.View(plan, func(path string) (Endpoints, bool) {
		if path != "web.shop.svc.cluster.local:80" && path != "v2.shop.svc.cluster.local:80" {
			t.Errorf("Get is asked for %s", path)
		}
		var e Endpoints
		for _, u := range (Endpoints{Exists: true, List: v.Endpoints}).Updates(nil, nil) {
			raw, err := proto.Marshal(u)
			if err != nil {
				t.Fatal(err)
			}
			u.Reset()
			if err := proto.Unmarshal(raw, u); err != nil {
				t.Fatal(err)
			}
			e = e.Apply(u)
		}
		return e, true
	})
	if got.Endpoints[0] != v.Endpoints[0] || got.PortName != v.PortName || got.Object != v.Object || len(got.Backends) != 3 || got.Backends[1].Own.Breaker != v.Backends[1].Own.Breaker || !got.Backends[2].Object.IsZero() {
		t.Errorf("%+v", got)
	}
}
