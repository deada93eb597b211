package policy

import (
	"testing"

	"github.com/meshctl/meshctl/proxy/protocol"
	"github.com/meshctl/meshctl/proxy/route"
)

func TestRequestsAreDecidedByTheirRoute(t *testing.T) {
	p := Compile(Config{Pod: pod()}, routed()).Port(8080)
	if !p.HTTP() {
		t.Fatal("requests are not taken one by one")
	}
	ops := called("ops")
	for _, tt := range []struct {
		c     Client
		path  string
		authz string // empty: denied
		route string // empty: 404
	}{
		{meshInside, "/orders/1", "orders", "orders"},
		{meshInside, "/orders", "orders", "orders"},
		{meshInside, "/orders?x=/admin", "orders", "orders"},
		{meshInside, "/ordersX", "", ""},
		{meshInside, "/public/a", "public", "public"},
		{outside, "/public/a", "public", "public"},
		{outside, "/orders/1", "", "orders"},
		{meshInside, "/admin", "", "admin"},
		{ops, "/admin", "ops", "admin"}, // who may call the Server may call its routes
		{ops, "/orders/1", "ops", "orders"},
		{ops, "/none", "", ""}, // and still there is no such route
		{loopback, "/admin", "localhost", "admin"},
		{loopback, "/none", "", ""},
	} {
		r := p.AuthorizeRequest(tt.c, get(tt.path))
		if r.Authz.Name != tt.authz || r.Allowed != (tt.authz != "") || r.Route.Name != tt.route || r.NoRoute != (tt.route == "") {
			t.Errorf("%+v %s: %+v", tt.c, tt.path, r)
		}
		if tt.route != "" && (r.Route.Group != Group || r.Route.Kind != "httproute" || r.Route.Namespace != "shop") {
			t.Errorf("%s: route %+v", tt.path, r.Route)
		}
	}
}

// Who is no HTTP has no route: authorizations of routes are not for a client that
// waits until its time is up, sends other bytes, or TLS of its own.
func TestAConnectionThatIsNotHTTPHasOnlyTheServersAuthorizations(t *testing.T) {
	p := Compile(Config{Pod: pod()}, routed()).Port(8080)
	if d := p.AuthorizeConnection(meshInside); d.Allowed {
		t.Errorf("who may call a route got the whole port: %+v", d)
	}
	if d := p.AuthorizeConnection(outside); d.Allowed {
		t.Errorf("a public route opens the whole port: %+v", d)
	}
	if !p.AuthorizeConnection(called("ops")).Allowed {
		t.Error("who may call the Server may not")
	}
	if p.StrictDetect {
		t.Error("strict without being asked")
	}
	objects := routed()
	objects.Servers[0].Detect = Close
	if !Compile(Config{Pod: pod()}, objects).Port(8080).StrictDetect {
		t.Error("the Server's annotation does not count")
	}
	everywhere, _ := ParseActions("close")
	if !Compile(Config{Pod: pod(), Actions: everywhere}, routed()).Port(8080).StrictDetect {
		t.Error("the flag does not count")
	}
	objects.Servers[0].Detect = Open
	if Compile(Config{Pod: pod(), Actions: everywhere}, objects).Port(8080).StrictDetect {
		t.Error("the Server's annotation does not win over the flag")
	}
}

// What a route allows by its path it must not allow for a path that the server
// may read as another one.
func TestAPathThatCanBeReadInTwoWaysIsForTheServersAuthorizationsOnly(t *testing.T) {
	p := Compile(Config{Pod: pod()}, routed()).Port(8080)
	for _, path := range []string{
		"/orders/../admin", "/orders/..", "/orders/.", "/orders/./x", "/orders/%2e%2e/admin", "/orders/.%2E/admin", "/orders/..%2fadmin", "/orders/..%5cadmin",
		"/orders/..\\admin", "/orders/\\admin", "/orders//admin", "/orders//", "/orders/..;/admin", "/orders/..;x=1/admin", "/orders/;/admin", "/orders/%2Fadmin", "/orders/a%00b",
	} {
		if r := p.AuthorizeRequest(meshInside, get(path)); r.Allowed || r.Reason != AmbiguousPath {
			t.Errorf("%s: %+v", path, r)
		}
		if !p.AuthorizeRequest(called("ops"), get(path)).Allowed {
			t.Errorf("%s: who may call all of the Server may not", path)
		}
	}
	for _, path := range []string{"/orders/", "/orders/a..b/...", "/orders/.well-known/x", "/orders/a;v=1", "/orders/%20", "/orders/%c3%a9", "/orders/100%", "/orders/x?y=../%2e//", "/orders/a%2", "/orders/a/"} {
		if r := p.AuthorizeRequest(meshInside, get(path)); !r.Allowed {
			t.Errorf("%s: %+v", path, r)
		}
	}
}

func TestTwoGroupsMayHaveARouteOfOneName(t *testing.T) {
	objects := routed()
	twin := *objects.Routes[0]
	twin.Group = GatewayGroup
	twin.Route.Rules = []route.Rule{{Matches: []route.Match{{Path: &route.PathMatch{Value: "/twin"}}}}}
	objects.Routes = append(objects.Routes, &twin)
	gateway := allow("twin", "HTTPRoute", "orders", ids("ops"))
	gateway.Target.Group = GatewayGroup
	objects.Authorizations = append(objects.Authorizations[:2:2], gateway)
	p := Compile(Config{Pod: pod()}, objects).Port(8080)
	for _, tt := range []struct{ id, path, authz, group string }{
		{web, "/orders", "orders", Group}, {"ops", "/orders", "", Group}, {"ops", "/twin", "twin", GatewayGroup}, {web, "/twin", "", GatewayGroup},
	} {
		if r := p.AuthorizeRequest(called(tt.id), get(tt.path)); r.Authz.Name != tt.authz || r.Route.Group != tt.group {
			t.Errorf("%s %s: %+v", tt.id, tt.path, r)
		}
	}
}

func TestMethodsOfGRPC(t *testing.T) {
	s := srv("web", 8080)
	s.Protocol, s.GRPC = protocol.HTTP2, true
	p := Compile(Config{Pod: pod()}, Objects{Servers: []*Server{s}, MeshTLS: []*MeshTLSAuthentication{meshTLS("web", web)},
		Routes: []*Route{{Object: obj("GRPCRoute", "buy"), Group: GatewayGroup, Servers: []string{"web"}, Route: route.Route{Kind: route.GRPC, Namespace: "shop", Name: "buy",
			Rules: []route.Rule{{Matches: []route.Match{{RPC: &route.RPCMatch{Service: "shop.Orders", Method: "Buy"}}}}}}}},
		Authorizations: []*AuthorizationPolicy{{Object: obj("AuthorizationPolicy", "buy"), Target: Target{GatewayGroup, "GRPCRoute", "buy"}, Required: []Required{ids("web")}}},
	}).Port(8080)
	if r := p.AuthorizeRequest(meshInside, request("POST", "/shop.Orders/Buy")); !r.Allowed || r.Route.Kind != "grpcroute" {
		t.Errorf("%+v", r)
	}
	if r := p.AuthorizeRequest(inside, request("POST", "/shop.Orders/Buy")); r.Allowed || r.NoRoute {
		t.Errorf("%+v", r)
	}
	if r := p.AuthorizeRequest(meshInside, request("POST", "/shop.Orders/Cancel")); !r.NoRoute {
		t.Errorf("%+v", r)
	}
}

func TestOpaqueServersHaveNoRoutes(t *testing.T) {
	for _, k := range []protocol.Kind{protocol.Opaque, protocol.TLS} {
		objects := routed()
		objects.Servers[0].Protocol = k
		if Compile(Config{Pod: pod()}, objects).Port(8080).HTTP() {
			t.Errorf("%s has requests", k)
		}
	}
}

func TestARouteThatCannotBeUsedLetsNothingThrough(t *testing.T) {
	objects := routed()
	objects.Routes[1].Route.Rules[0].Matches[0].Path.Type = "Fuzzy"
	p := Compile(Config{Pod: pod()}, objects).Port(8080)
	if r := p.AuthorizeRequest(called("ops"), get("/orders")); r.Allowed || !r.NoRoute {
		t.Errorf("%+v", r)
	}
}

func TestProbesAreAllowedWhereNoRouteSaysOtherwise(t *testing.T) {
	for d, want := range map[Default]bool{AllAuthenticated: true, Deny: true, ClusterAuthenticated: true} {
		tab := Compile(Config{Pod: pod(), Default: d}, Objects{})
		p := tab.Port(8080)
		if p.HTTP() != want || p.Kind(protocol.Unknown) != protocol.Unknown {
			t.Errorf("%s: requests are not looked at", d)
		}
		for _, tt := range []struct {
			method, path string
			want         bool
		}{
			{"GET", "/healthz", true}, {"GET", "/healthz?full=1", true}, {"POST", "/healthz", false}, {"GET", "/healthz/", false}, {"GET", "/healthz/../x", false}, {"GET", "/", false}, {"get", "/healthz", false},
		} {
			r := p.AuthorizeRequest(outside, request(tt.method, tt.path))
			if r.Allowed != tt.want || tt.want && (r.Route != probeRoute || r.Authz != probeRoute) {
				t.Errorf("%s: %s %s: %+v", d, tt.method, tt.path, r)
			}
		}
		if p.AuthorizeConnection(outside).Allowed {
			t.Errorf("%s: a probe's port is open for TCP", d)
		}
		if tab.Port(8082).HTTP() {
			t.Errorf("%s: a port without probes looks at requests", d)
		}
	}
	covered := Objects{Servers: []*Server{srv("web", 8080)}}
	p := Compile(Config{Pod: pod()}, covered).Port(8080)
	if r := p.AuthorizeRequest(outside, get("/healthz")); !r.Allowed || r.Authz != probeRoute || p.AuthorizeRequest(outside, get("/")).Allowed || p.AuthorizeConnection(outside).Allowed {
		t.Errorf("a Server without routes: %+v", r)
	}
	if r := Compile(Config{Pod: pod()}, routed()).Port(8080).AuthorizeRequest(outside, get("/healthz")); r.Allowed || !r.NoRoute {
		t.Errorf("a Server with routes says which requests there are: %+v", r)
	}
	covered.Servers[0].Protocol = protocol.Opaque
	if Compile(Config{Pod: pod()}, covered).Port(8080).HTTP() {
		t.Error("an opaque port looks at requests")
	}
	if Compile(Config{Pod: pod(), Default: Audit}, Objects{}).Port(8080).HTTP() {
		t.Error("requests are taken one by one where everybody may call")
	}
}
