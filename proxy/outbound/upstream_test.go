package outbound

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/exchange"
	"github.com/meshctl/meshctl/proxy/message"
	"github.com/meshctl/meshctl/proxy/protocol"
	"github.com/meshctl/meshctl/proxy/route"
)

func TestEndpointsAreSpokenToAsTheirPortIsDeclared(t *testing.T) {
	for kind, want := range map[protocol.Kind]message.Version{
		protocol.HTTP1: message.HTTP11, protocol.HTTP2: message.HTTP2, protocol.Unknown: 0, protocol.Opaque: 0,
	} {
		v := &discovery.View{Protocol: discovery.Decision{Kind: kind}, Endpoints: []discovery.Endpoint{{Addr: netip.MustParseAddrPort("10.1.0.1:80")}}}
		if got := parent(v).Backends[0].Version; got != want {
			t.Errorf("declared %s: version %d, want %d", kind, got, want)
		}
	}
}

// lanes are those of one loop.
func lanes(t *testing.T) []*exchange.Lane {
	t.Helper()
	l, err := conn.NewLoop()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Stop(); _ = l.Run() })
	return exchange.NewLanes(exchange.Config{}, []*conn.Loop{l})
}

func TestATargetHasOneUpstream(t *testing.T) {
	r := router()
	r.Lanes = lanes(t)
	to := discovery.Fixed(netip.MustParseAddrPort("10.96.0.1:80"), discovery.View{Endpoints: []discovery.Endpoint{
		{Addr: netip.MustParseAddrPort("10.1.0.1:80")}, {Addr: netip.MustParseAddrPort("10.1.0.2:80")}}})
	up := r.upstream(to)
	if up.Endpoints() != 2 || r.upstream(to) != up {
		t.Error("another Upstream for the same target, or without its endpoints")
	}
	seen := map[string]bool{}
	for range 50 {
		c, at, ok := up.Pick(r.Lanes[0])
		if !ok {
			t.Fatal("no endpoint")
		}
		c.GivenUp(r.Lanes[0])
		seen[at.Addr.String()] = true
	}
	if d := cmp.Diff(map[string]bool{"10.1.0.1:80": true, "10.1.0.2:80": true}, seen); d != "" {
		t.Error(d)
	}
}

func TestABackendHasItsOwnBreakerAndTheTargetItsTables(t *testing.T) {
	own, err := route.New(route.Config{Annotations: map[string]string{"balancer.linkerd.io/failure-accrual": "consecutive"}})
	if err != nil {
		t.Fatal(err)
	}
	one := []discovery.Endpoint{{Addr: netip.MustParseAddrPort("10.1.0.1:80")}}
	v := &discovery.View{Table: own, Endpoints: one, Backends: []discovery.Backend{{Endpoints: one}, {Endpoints: one, Own: own}}}
	p := parent(v)
	if len(p.Backends) != 2 || p.Backends[0].Breaker.MaxFailures != 7 || p.Backends[1].Breaker.MaxFailures != 7 {
		t.Errorf("%+v", p.Backends)
	}
}

func TestARuleThatNamesItsOwnParentSharesItsEndpoints(t *testing.T) {
	shop := discovery.Object{Kind: "Service", Namespace: "shop", Name: "web"}
	one := []discovery.Endpoint{{Addr: netip.MustParseAddrPort("10.1.0.1:80")}}
	web := discovery.Backend{Namespace: "shop", Name: "web", Port: 80, Object: shop, Endpoints: one}
	next := discovery.Backend{Namespace: "shop", Name: "next", Port: 80, Endpoints: one}
	v := &discovery.View{Kind: discovery.ServicePort, Object: shop, Port: 80, PortName: "http", Table: &route.Table{}, Endpoints: one, Backends: []discovery.Backend{web, next, web}}
	p := parent(v)
	if p.Backends[0].Name != p.Backends[2].Name || p.Backends[0].Name == p.Backends[1].Name {
		t.Errorf("backends %q %q %q", p.Backends[0].Name, p.Backends[1].Name, p.Backends[2].Name)
	}
	v.Table = nil
	if was := p.Backends[0].Name; parent(v).Backends[0].Name != was {
		t.Error("without routes the destination has another name, and loses its estimates")
	}
	v.Kind, v.Object.Kind = discovery.Egress, "EgressNetwork"
	if parent(v).Backends[0].Name == web.String() {
		t.Error("an EgressNetwork is taken for a Service")
	}
}
