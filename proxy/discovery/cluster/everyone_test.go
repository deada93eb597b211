package cluster

import (
	"net/netip"
	"testing"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/route"
)

func TestAPictureForEveryoneSaysWhatEachNamespaceWouldSee(t *testing.T) {
	routeOf := func(namespace string) *Route {
		return &Route{
			Object:  discovery.Object{Kind: "HTTPRoute", Namespace: namespace, Name: "r"},
			Route:   route.Route{Kind: route.HTTP, Namespace: namespace, Name: "r", Rules: []route.Rule{{}}},
			Parents: []Parent{{Kind: "Service", Namespace: "shop", Name: "web"}},
		}
	}
	egress := func(namespace, name, cidr string) *Egress {
		return &Egress{Object: discovery.Object{Kind: "EgressNetwork", Namespace: namespace, Name: name}, Networks: []Network{{CIDR: netip.MustParsePrefix(cidr)}}}
	}
	all := Objects{
		Services: []*Service{{Object: discovery.Object{Kind: "Service", Namespace: "shop", Name: "web"},
			IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Ports: []Port{{Number: 80}}}},
		Routes:   []*Route{routeOf("shop"), routeOf("client")},
		Egresses: []*Egress{egress("client", "mine", "1.0.0.0/8"), egress("other", "theirs", "1.2.0.0/16"), egress(GlobalEgress, "all", "0.0.0.0/0")},
	}
	everyone := Build(Config{Everyone: true}, all, nil)
	for _, namespace := range []string{"shop", "client", "other", "fourth"} {
		single := Build(Config{Namespace: namespace}, all, nil)
		for _, to := range []string{"10.0.0.1:80", "1.2.3.4:443", "9.9.9.9:443"} {
			dst := netip.MustParseAddrPort(to)
			got, want := everyone.In(namespace).Find(dst), single.Find(dst)
			if got.Kind != want.Kind || got.Object != want.Object {
				t.Errorf("%s from %s: %s, want %s", to, namespace, got.String(), want.String())
			}
			if (got.Table == nil) != (want.Table == nil) || got.Table != nil && got.Table.Actions[0].Route != want.Table.Actions[0].Route {
				t.Errorf("%s from %s: another table", to, namespace)
			}
		}
	}
}

func TestAServiceThatChangesKeepsTheTablesOfAllItsClients(t *testing.T) {
	svc := func(policy string) *Service {
		return &Service{Object: discovery.Object{Kind: "Service", Namespace: "shop", Name: "web"}, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
			Ports: []Port{{Number: 80}}, Policy: map[string]string{"timeout.linkerd.io/request": policy}}
	}
	l := NewLive(Config{Everyone: true})
	r := &Route{Object: discovery.Object{Kind: "HTTPRoute", Namespace: "client", Name: "r"},
		Route:   route.Route{Kind: route.HTTP, Namespace: "client", Name: "r", Rules: []route.Rule{{}}},
		Parents: []Parent{{Kind: "Service", Namespace: "shop", Name: "web"}}}
	l.Apply([]Item{{Key{ServiceKind, "shop", "web"}, Objects{Services: []*Service{svc("1s")}}}, {Key{"gateway.networking.k8s.io/HTTPRoute", "client", "r"}, Objects{Routes: []*Route{r}}}})
	l.Apply([]Item{{Key{ServiceKind, "shop", "web"}, Objects{Services: []*Service{svc("2s")}}}})
	l.Read(func(s *Snapshot) {
		for namespace, routed := range map[string]bool{"client": true, "shop": false} {
			v := s.In(namespace).Find(netip.MustParseAddrPort("10.0.0.1:80"))
			if v.Table == nil || v.Table.Routed != routed || v.Table.Actions[0].Policy.Timeouts.Request.String() != "2s" {
				t.Errorf("%s sees %+v", namespace, v.Table)
			}
		}
	})
}
