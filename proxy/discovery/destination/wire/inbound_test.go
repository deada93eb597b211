package wire

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	netpb "github.com/linkerd/linkerd2-proxy-api/go/net"
	"google.golang.org/protobuf/proto"

	"github.com/meshctl/meshctl/proxy/message"
	"github.com/meshctl/meshctl/proxy/policy"
	"github.com/meshctl/meshctl/proxy/protocol"
	"github.com/meshctl/meshctl/proxy/route"
)

func shop(kind, name string) policy.Object {
	return policy.Object{Kind: kind, Namespace: "shop", Name: name}
}

// guarded are Servers on 8080 (with routes), 8081, 5432 (opaque) and 9090 (gRPC,
// with a route), with a bit of everything.
func guarded() policy.Objects {
	server := func(name string, port uint16, kind protocol.Kind) *policy.Server {
		return &policy.Server{Object: shop("Server", name), Pods: &policy.Selector{}, Port: port, Protocol: kind}
	}
	web, grpc := server("web", 8080, protocol.HTTP1), server("grpc", 9090, protocol.HTTP2)
	grpc.GRPC = true
	plain := server("plain", 8081, protocol.Unknown)
	plain.Detect = policy.Close
	need := func(kind, name string) policy.Required {
		return policy.Required{Group: policy.Group, Kind: kind, Name: name}
	}
	rules := []route.Rule{{Matches: []route.Match{{Path: &route.PathMatch{Type: "PathPrefix", Value: "/public"}, Method: "GET"}},
		Filters: []route.Filter{{Type: "RequestHeaderModifier", RequestHeaders: &route.HeaderModifier{Set: []route.Header{{Name: "x-by", Value: "mesh"}}}}}}}
	return policy.Objects{
		Servers: []*policy.Server{web, plain, server("db", 5432, protocol.Opaque), grpc},
		Authorizations: []*policy.AuthorizationPolicy{
			{Object: shop("AuthorizationPolicy", "friends"), Target: policy.Target{Group: policy.Group, Kind: "Server", Name: "web"},
				Required: []policy.Required{need("MeshTLSAuthentication", "friends"), need("NetworkAuthentication", "near")}},
			{Object: shop("AuthorizationPolicy", "readers"), Target: policy.Target{Group: policy.Group, Kind: "HTTPRoute", Name: "read"},
				Required: []policy.Required{need("NetworkAuthentication", "near")}},
			{Object: shop("AuthorizationPolicy", "all"), Target: policy.Target{Group: policy.Group, Kind: "Server", Name: "db"},
				Required: []policy.Required{need("MeshTLSAuthentication", "any")}},
		},
		ServerAuthorizations: []*policy.ServerAuthorization{{Object: shop("ServerAuthorization", "old"), Server: "plain", TLS: true}},
		MeshTLS: []*policy.MeshTLSAuthentication{
			{Object: shop("MeshTLSAuthentication", "friends"), Identities: []string{"a.shop", "*.b.shop"}},
			{Object: shop("MeshTLSAuthentication", "any"), Identities: []string{"*"}},
		},
		Networks: []*policy.NetworkAuthentication{{Object: shop("NetworkAuthentication", "near"),
			Networks: []policy.Network{{CIDR: netip.MustParsePrefix("10.0.0.0/8"), Except: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}}}}},
		Routes: []*policy.Route{
			{Object: shop("HTTPRoute", "read"), Group: policy.Group, Servers: []string{"web"}, Route: route.Route{Kind: route.HTTP, Namespace: "shop", Name: "read", Rules: rules}},
			{Object: shop("GRPCRoute", "buy"), Group: policy.GatewayGroup, Servers: []string{"grpc"}, Route: route.Route{Kind: route.GRPC, Namespace: "shop", Name: "buy",
				Rules: []route.Rule{{Matches: []route.Match{{RPC: &route.RPCMatch{Type: "Exact", Service: "shop.Orders", Method: "Buy"}}}}}}},
		},
	}
}

func guardedPort(number uint16, d policy.Default) *policy.Port {
	pod := policy.Pod{Object: shop("Pod", "web-1"), Probes: []policy.Probe{{Port: 8081, Path: "/healthz"}, {Port: 7070, Path: "/ready"}}}
	return policy.Compile(policy.Config{Pod: pod, Default: d}, guarded()).Port(number)
}

func TestAPortComesBackAsItWas(t *testing.T) {
	for _, d := range []policy.Default{policy.Deny, policy.Audit, policy.ClusterAuthenticated, policy.AllUnauthenticated, policy.AllAuthenticated} {
		for _, number := range []uint16{8080, 8081, 5432, 9090, 7070, 1} {
			p := guardedPort(number, d)
			got := InboundPort("shop", passed(t, Inbound(p, nil)))
			if diff := cmp.Diff(p.Describe(), got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
				t.Errorf("%d: %s", number, diff)
			}
		}
	}
}

// passed is s as it comes out of a connection.
func passed(t *testing.T, s *inbound.Server) *inbound.Server {
	t.Helper()
	raw, err := proto.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	out := &inbound.Server{}
	if err := proto.Unmarshal(raw, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTheAPIByItselfDecidesTheSame: what Linkerd's control plane says, without our
// field, comes to the same decisions.
func TestTheAPIByItselfDecidesTheSame(t *testing.T) {
	clients := []policy.Client{{Addr: netip.MustParseAddr("203.0.113.1")}}
	for _, a := range []string{"10.1.1.1", "10.9.1.1", "203.0.113.1", "fd00::1"} {
		for _, id := range []string{"", "a.shop", "x.b.shop", "other"} {
			clients = append(clients, policy.Client{Addr: netip.MustParseAddr(a), Mesh: true, ID: id})
		}
	}
	requests := []*message.Head{
		{Method: []byte("GET"), Path: []byte("/public/x"), Authority: []byte("web")}, {Method: []byte("POST"), Path: []byte("/public"), Authority: []byte("web")},
		{Method: []byte("GET"), Path: []byte("/healthz"), Authority: []byte("web")}, {Method: []byte("GET"), Path: []byte("/ready"), Authority: []byte("web")},
		{Method: []byte("POST"), Path: []byte("/shop.Orders/Buy"), Authority: []byte("web")}, {Method: []byte("POST"), Path: []byte("/shop.Orders/Sell"), Authority: []byte("web")},
	}
	decided := 0
	for _, d := range []policy.Default{policy.Deny, policy.Audit, policy.ClusterAuthenticated, policy.AllUnauthenticated, policy.AllAuthenticated} {
		for _, number := range []uint16{8080, 8081, 5432, 9090, 7070, 1} {
			want := guardedPort(number, d)
			s := Inbound(want, nil)
			s.ProtoReflect().SetUnknown(nil)
			got, err := InboundPort("shop", passed(t, s)).Port()
			if err != nil {
				t.Fatal(err)
			}
			if got.Server != want.Server || got.Protocol != want.Protocol || got.GRPC != want.GRPC || got.HTTP() != want.HTTP() {
				t.Errorf("%s %d: %+v, want %+v", d, number, got, want)
			}
			for _, c := range clients {
				a, b := want.AuthorizeConnection(c), got.AuthorizeConnection(c)
				a.Reason, b.Reason = "", ""
				if a != b {
					t.Errorf("%s %d: %+v gets %+v, want %+v", d, number, c, b, a)
				}
				for _, r := range requests {
					a, b := want.AuthorizeRequest(c, r), got.AuthorizeRequest(c, r)
					if a.Allowed != b.Allowed || a.NoRoute != b.NoRoute || a.Authz != b.Authz || a.Route != b.Route {
						t.Errorf("%s %d: %+v %s %s gets %+v, want %+v", d, number, c, r.Method, r.Path, b, a)
					}
					decided++
				}
			}
		}
	}
	t.Logf("%d decisions about requests", decided)
}

func TestWhatCannotBeReadLetsNobodyIn(t *testing.T) {
	outside := policy.Client{Addr: netip.MustParseAddr("203.0.113.1"), Mesh: true, ID: "a"}
	for name, s := range map[string]*inbound.Server{
		"nothing": {},
		"an authorization without networks": {Authorizations: []*inbound.Authz{{
			Authentication: &inbound.Authn{Permit: &inbound.Authn_Unauthenticated{Unauthenticated: &inbound.Authn_PermitUnauthenticated{}}}}}},
		"an authorization without authentication": {Authorizations: []*inbound.Authz{{Networks: []*inbound.Network{{Net: network(netip.MustParsePrefix("0.0.0.0/0"))}}}}},
		"no identities": {Authorizations: []*inbound.Authz{{Networks: []*inbound.Network{{Net: network(netip.MustParsePrefix("0.0.0.0/0"))}},
			Authentication: &inbound.Authn{Permit: &inbound.Authn_MeshTLS{MeshTLS: &inbound.Authn_PermitMeshTLS{Clients: &inbound.Authn_PermitMeshTLS_Identities{}}}}}}},
		"a hole that is none": {Authorizations: []*inbound.Authz{{Networks: []*inbound.Network{{Net: network(netip.MustParsePrefix("0.0.0.0/0")), Except: []*netpb.IPNetwork{{PrefixLen: 99}}}},
			Authentication: &inbound.Authn{Permit: &inbound.Authn_Unauthenticated{Unauthenticated: &inbound.Authn_PermitUnauthenticated{}}}}}},
	} {
		p, err := InboundPort("shop", s).Port()
		if err != nil {
			t.Fatal(err)
		}
		if p.AuthorizeConnection(outside).Allowed {
			t.Errorf("%s lets somebody in", name)
		}
	}
	// A route that cannot be followed takes all requests with it.
	s := Inbound(guardedPort(8080, policy.Deny), nil)
	s.ProtoReflect().SetUnknown(nil)
	s.Protocol.GetHttp1().Routes[0].Rules[0].Filters = []*inbound.HttpRoute_Filter{{}}
	p, err := InboundPort("shop", s).Port()
	r := p.AuthorizeRequest(policy.Client{Addr: netip.MustParseAddr("10.1.1.1"), Mesh: true, ID: "a.shop"},
		&message.Head{Method: []byte("GET"), Path: []byte("/public/x"), Authority: []byte("web")})
	if err == nil || r.Allowed {
		t.Errorf("%+v, %v", r, err)
	}
}

// FuzzInboundPort: whatever a control plane sends, there is a Port that can be asked.
func FuzzInboundPort(f *testing.F) {
	for _, number := range []uint16{8080, 8081, 5432, 9090, 7070} {
		s := Inbound(guardedPort(number, policy.ClusterAuthenticated), nil)
		for range 2 {
			raw, err := proto.Marshal(s)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(raw)
			s.ProtoReflect().SetUnknown(nil)
		}
	}
	head := &message.Head{Method: []byte("GET"), Path: []byte("/public/x"), Authority: []byte("web")}
	f.Fuzz(func(t *testing.T, raw []byte) {
		s := &inbound.Server{}
		if proto.Unmarshal(raw, s) != nil {
			return
		}
		p, _ := InboundPort("shop", s).Port()
		p.AuthorizeConnection(policy.Client{Addr: netip.MustParseAddr("10.1.1.1")})
		p.AuthorizeRequest(policy.Client{Addr: netip.MustParseAddr("10.1.1.1")}, head)
	})
}
