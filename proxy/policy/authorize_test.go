package policy

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/proxy/message"
	"github.com/meshctl/meshctl/proxy/protocol"
	"github.com/meshctl/meshctl/proxy/route"
)

func get(path string) *message.Head { return request("GET", path) }

func request(method, path string) *message.Head {
	return &message.Head{Version: message.HTTP11, Method: []byte(method), Scheme: []byte("http"), Authority: []byte("web"), Path: []byte(path)}
}

func obj(kind, name string) Object { return Object{Kind: kind, Namespace: "shop", Name: name} }

// pod is the proxy's own in these tests.
func pod() Pod {
	return Pod{
		Object: obj("Pod", "web-0"), Labels: map[string]string{"app": "web", "tier": "front"},
		Ports:  []NamedPort{{"http", 8080}, {"admin", 9990}, {"http", 8081}},
		Probes: []Probe{{8080, "/healthz"}, {7070, "/healthz"}},
	}
}

func byApp(app string) *Selector { return &Selector{Labels: map[string]string{"app": app}} }

func srv(name string, port uint16) *Server {
	return &Server{Object: obj("Server", name), Pods: byApp("web"), Port: port, Labels: map[string]string{"srv": name}}
}

func allow(name, kind, target string, required ...Required) *AuthorizationPolicy {
	g := Group
	if kind == "Namespace" {
		g = ""
	}
	return &AuthorizationPolicy{Object: obj("AuthorizationPolicy", name), Target: Target{g, kind, target}, Required: required}
}

func ids(name string) Required {
	return Required{Group: Group, Kind: "MeshTLSAuthentication", Name: name}
}
func nets(name string) Required {
	return Required{Group: Group, Kind: "NetworkAuthentication", Name: name}
}

func meshTLS(name string, identities ...string) *MeshTLSAuthentication {
	return &MeshTLSAuthentication{Object: obj("MeshTLSAuthentication", name), Identities: identities}
}

func network(name, cidr string, except ...string) *NetworkAuthentication {
	n := Network{CIDR: netip.MustParsePrefix(cidr)}
	for _, e := range except {
		n.Except = append(n.Except, netip.MustParsePrefix(e))
	}
	return &NetworkAuthentication{Object: obj("NetworkAuthentication", name), Networks: []Network{n}}
}

// called is a client with an identity.
func called(id string) Client { return Client{Addr: addr("10.1.2.3"), Mesh: true, ID: id} }

func TestWhoMeshTLSAuthenticationsLetIn(t *testing.T) {
	const tail = ".serviceaccount.identity.linkerd.cluster.local"
	for _, tt := range []struct {
		authn *MeshTLSAuthentication
		yes   []string
		no    []string
	}{
		{meshTLS("a", "*"), []string{web, "spiffe://other/x"}, nil},
		{meshTLS("a", web), []string{web}, []string{"web.shop" + tail + ".evil", "xweb.shop" + tail, strings.ToUpper(web), "web.other" + tail, "spiffe://cluster.local/ns/shop/sa/web"}},
		{meshTLS("a", "*.shop"+tail), []string{web, "a.b.shop" + tail}, []string{"shop" + tail, ".shop" + tail, "web.xshop" + tail, "web.shop" + tail + ".evil",
			"spiffe://evil/x.shop" + tail}},
		{meshTLS("a", "spiffe://td/ns/shop/sa/web"), []string{"spiffe://td/ns/shop/sa/web"}, []string{"spiffe://td/ns/shop/sa/web2", "spiffe://td/ns/shop/sa/web/x", web}},
		{meshTLS("a", "*shop"+tail, "w*b", "**", "", "*."), nil, []string{web, "shop" + tail, "wb", "**", "a."}},
		{&MeshTLSAuthentication{Object: obj("MeshTLSAuthentication", "a"), Refs: []IdentityRef{{Kind: "ServiceAccount", Name: "web"}}},
			[]string{web, "spiffe://cluster.local/ns/shop/sa/web"}, []string{"web.other" + tail, "spiffe://evil/ns/shop/sa/web", "spiffe://cluster.local/ns/other/sa/web"}},
		{&MeshTLSAuthentication{Object: obj("MeshTLSAuthentication", "a"), Refs: []IdentityRef{{Kind: "ServiceAccount", Namespace: "other", Name: "web"}}},
			[]string{"web.other" + tail}, []string{web}},
		{&MeshTLSAuthentication{Object: obj("MeshTLSAuthentication", "a"), Refs: []IdentityRef{{Kind: "Namespace", Name: "other"}}},
			[]string{"a.other" + tail, "spiffe://cluster.local/ns/other/sa/a"},
			[]string{web, "a.another" + tail, "spiffe://cluster.local/ns/other/sa/", "spiffe://cluster.local/ns/other/sa/a/b", "spiffe://cluster.local/ns/others/sa/a", "spiffe://evil/ns/other/sa/a"}},
		{&MeshTLSAuthentication{Object: obj("MeshTLSAuthentication", "a"), Refs: []IdentityRef{{Kind: "Namespace"}}}, []string{web}, []string{"a.other" + tail}},
		{meshTLS("a"), nil, []string{web}},
	} {
		p := Compile(Config{Pod: pod()}, Objects{Servers: []*Server{srv("web", 8080)}, MeshTLS: []*MeshTLSAuthentication{tt.authn},
			Authorizations: []*AuthorizationPolicy{allow("ap", "Server", "web", ids("a"))}}).Port(8080)
		for _, id := range tt.yes {
			d := p.AuthorizeConnection(called(id))
			if want := (Ref{Group, "authorizationpolicy", "shop", "ap"}); d.Authz != want {
				t.Errorf("%+v: %s: %+v", tt.authn, id, d)
			}
		}
		for _, id := range append(tt.no, "") {
			if d := p.AuthorizeConnection(called(id)); d.Allowed {
				t.Errorf("%+v lets %q in", tt.authn, id)
			}
		}
		if p.AuthorizeConnection(claims).Allowed {
			t.Errorf("%+v lets a client in that has proved nothing", tt.authn)
		}
	}
}

func TestAllThatAPolicyRequiresMustHold(t *testing.T) {
	both := Compile(Config{Pod: pod()}, Objects{
		Servers: []*Server{srv("web", 8080)}, MeshTLS: []*MeshTLSAuthentication{meshTLS("web", web), meshTLS("all", "*")},
		Networks:       []*NetworkAuthentication{network("ten", "10.0.0.0/8", "10.9.0.0/16")},
		Authorizations: []*AuthorizationPolicy{allow("ap", "Server", "web", ids("web"), nets("ten"), ids("all"))},
	}).Port(8080)
	for _, tt := range []struct {
		c    Client
		want bool
	}{
		{Client{addr("10.1.2.3"), true, web}, true},
		{Client{addr("::ffff:10.1.2.3"), true, web}, true},
		{Client{addr("10.9.2.3"), true, web}, false},
		{Client{addr("::ffff:10.9.2.3"), true, web}, false},
		{Client{addr("11.1.2.3"), true, web}, false},
		{Client{addr("10.1.2.3"), true, "other"}, false},
		{Client{addr("10.1.2.3"), false, web}, false},
		{Client{addr("10.1.2.3"), true, ""}, false},
		{Client{netip.Addr{}, true, web}, false},
	} {
		if d := both.AuthorizeConnection(tt.c); d.Allowed != tt.want {
			t.Errorf("%+v: %+v", tt.c, d)
		}
	}
}

func TestWhatCannotBeResolvedLetsNobodyIn(t *testing.T) {
	for name, a := range map[string]*AuthorizationPolicy{
		"no such MeshTLSAuthentication": allow("ap", "Server", "web", ids("gone")),
		"no such network":               allow("ap", "Server", "web", nets("gone")),
		"one there and one not":         allow("ap", "Server", "web", ids("all"), nets("gone")),
		"of another namespace":          allow("ap", "Server", "web", Required{Group, "MeshTLSAuthentication", "other", "all"}),
		"an unknown kind":               allow("ap", "Server", "web", Required{Group, "JWTAuthentication", "", "all"}),
		"a kind of another group":       allow("ap", "Server", "web", Required{"evil.example", "MeshTLSAuthentication", "", "all"}),
		"another Server":                allow("ap", "Server", "web2", ids("all")),
		"another namespace as target":   allow("ap", "Namespace", "other"),
		"a Server of another group":     {Object: obj("AuthorizationPolicy", "ap"), Target: Target{"evil.example", "Server", "web"}},
	} {
		p := Compile(Config{Pod: pod(), Default: AllUnauthenticated}, Objects{Servers: []*Server{srv("web", 8080)},
			MeshTLS: []*MeshTLSAuthentication{meshTLS("all", "*")}, Authorizations: []*AuthorizationPolicy{a}}).Port(8080)
		if d := p.AuthorizeConnection(meshInside); d.Allowed || d.Reason != NoAuthorization {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func TestAPolicyWithoutRequirementsLetsEverybodyIn(t *testing.T) {
	p := Compile(Config{Pod: pod()}, Objects{Servers: []*Server{srv("web", 8080)}, Authorizations: []*AuthorizationPolicy{allow("ap", "Server", "web")}}).Port(8080)
	if !p.AuthorizeConnection(outside).Allowed {
		t.Error("it lets nobody in")
	}
}

func TestAServiceAccountCanBeRequiredByName(t *testing.T) {
	p := Compile(Config{Pod: pod()}, Objects{Servers: []*Server{srv("web", 8080)},
		Authorizations: []*AuthorizationPolicy{allow("ap", "Server", "web", Required{Kind: "ServiceAccount", Name: "web"})}}).Port(8080)
	if !p.AuthorizeConnection(called(web)).Allowed || p.AuthorizeConnection(called("db.shop.serviceaccount.identity.linkerd.cluster.local")).Allowed {
		t.Error("the ServiceAccount does not count")
	}
}

func TestAPolicyOfTheNamespaceIsForAllItsServers(t *testing.T) {
	tab := Compile(Config{Pod: pod(), Default: Deny}, Objects{Servers: []*Server{srv("a", 8080), srv("b", 8082)}, Authorizations: []*AuthorizationPolicy{allow("ap", "Namespace", "shop")}})
	for port, want := range map[uint16]bool{8080: true, 8082: true, 8083: false} {
		if got := tab.Port(port).AuthorizeConnection(outside).Allowed; got != want {
			t.Errorf("port %d: %v", port, got)
		}
	}
}

func TestServerAuthorizations(t *testing.T) {
	one := func(f func(*ServerAuthorization)) *ServerAuthorization {
		a := &ServerAuthorization{Object: obj("ServerAuthorization", "sa"), Server: "web"}
		f(a)
		return a
	}
	ten := []Network{{CIDR: netip.MustParsePrefix("203.0.113.0/24")}}
	for name, tt := range map[string]struct {
		a       *ServerAuthorization
		yes, no []Client
	}{
		"unauthenticated is for the cluster": {one(func(a *ServerAuthorization) { a.Unauthenticated = true }), []Client{inside, nameless, meshInside}, []Client{outside, meshOut}},
		"unauthenticated from networks":      {one(func(a *ServerAuthorization) { a.Unauthenticated, a.Networks = true, ten }), []Client{outside, mappedOut}, []Client{inside}},
		"TLS without an identity":            {one(func(a *ServerAuthorization) { a.TLS = true }), []Client{nameless, meshInside}, []Client{inside, claims, meshOut}},
		"identities": {one(func(a *ServerAuthorization) {
			a.Identities = []string{"*.shop.serviceaccount.identity.linkerd.cluster.local"}
		}), []Client{meshInside}, []Client{nameless, claims, meshOut}},
		"service accounts": {one(func(a *ServerAuthorization) { a.ServiceAccounts = []IdentityRef{{Kind: "ServiceAccount", Name: "web"}} }), []Client{meshInside}, []Client{called("db"), inside}},
		"by labels": {one(func(a *ServerAuthorization) {
			a.Server, a.Selector, a.Unauthenticated = "", &Selector{Labels: map[string]string{"srv": "web"}}, true
		}), []Client{inside}, []Client{outside}},
		"by other labels": {one(func(a *ServerAuthorization) {
			a.Server, a.Selector, a.Unauthenticated = "", &Selector{Labels: map[string]string{"srv": "x"}}, true
		}), nil, []Client{inside}},
		"of another Server":    {one(func(a *ServerAuthorization) { a.Server, a.Unauthenticated = "other", true }), nil, []Client{inside}},
		"of nobody":            {one(func(*ServerAuthorization) {}), nil, []Client{inside, nameless, meshInside}},
		"of another namespace": {one(func(a *ServerAuthorization) { a.Namespace, a.Unauthenticated = "other", true }), nil, []Client{inside}},
	} {
		p := Compile(Config{Pod: pod()}, Objects{Servers: []*Server{srv("web", 8080)}, ServerAuthorizations: []*ServerAuthorization{tt.a}}).Port(8080)
		for _, c := range tt.yes {
			if d := p.AuthorizeConnection(c); !d.Allowed || d.Authz.Kind != "serverauthorization" {
				t.Errorf("%s: %+v is denied: %+v", name, c, d)
			}
		}
		for _, c := range tt.no {
			if p.AuthorizeConnection(c).Allowed {
				t.Errorf("%s: %+v is allowed", name, c)
			}
		}
	}
}

func TestWhichServersSelectAPort(t *testing.T) {
	old, young := srv("young", 8080), srv("old", 8080)
	old.Created, young.Created = time.Unix(200, 0), time.Unix(100, 0)
	young.Name, old.Name = "zz-old", "aa-young"
	byName := srv("by-name", 0)
	byName.PortName = "admin"
	twoPorts := srv("two", 0)
	twoPorts.PortName = "http"
	nowhere := srv("nowhere", 0)
	nowhere.PortName = "grpc"
	other := srv("other-pods", 1)
	other.Pods = byApp("db")
	external := srv("external", 2)
	external.Pods, external.External = nil, &Selector{}
	elsewhere := srv("elsewhere", 3)
	elsewhere.Namespace = "other"
	all := srv("all", 4)
	all.Pods = &Selector{}
	tab := Compile(Config{Pod: pod()}, Objects{Servers: []*Server{old, young, byName, nowhere, other, external, elsewhere, all}})
	for port, want := range map[uint16]string{8080: "zz-old", 9990: "by-name", 1: "all-unauthenticated", 2: "all-unauthenticated", 3: "all-unauthenticated", 4: "all", 8081: "all-unauthenticated"} {
		if p := tab.Port(port); p.Server.Name != want || p.Covered() == (want == "all-unauthenticated") {
			t.Errorf("port %d: %s, want %s", port, p.Server, want)
		}
	}
	tab = Compile(Config{Pod: pod()}, Objects{Servers: []*Server{twoPorts}})
	if !tab.Port(8080).Covered() || !tab.Port(8081).Covered() {
		t.Error("two containers have a port of that name: only one is selected")
	}
	nobody := Compile(Config{}, Objects{Servers: []*Server{{Object: Object{Kind: "Server", Name: "x"}, Pods: &Selector{}, Port: 80}}})
	if nobody.Port(80).Covered() {
		t.Error("a Server without a namespace selects a pod that is not known")
	}
}

func TestLabelSelectors(t *testing.T) {
	labels := map[string]string{"app": "web", "tier": ""}
	for _, tt := range []struct {
		s    Selector
		want bool
	}{
		{Selector{}, true},
		{Selector{Labels: map[string]string{"app": "web"}}, true},
		{Selector{Labels: map[string]string{"app": "db"}}, false},
		{Selector{Labels: map[string]string{"none": ""}}, false},
		{Selector{Labels: map[string]string{"tier": ""}}, true},
		{Selector{Expressions: []Expression{{"app", "In", []string{"db", "web"}}}}, true},
		{Selector{Expressions: []Expression{{"app", "In", nil}}}, false},
		{Selector{Expressions: []Expression{{"none", "In", []string{""}}}}, false},
		{Selector{Expressions: []Expression{{"app", "NotIn", []string{"web"}}}}, false},
		{Selector{Expressions: []Expression{{"none", "NotIn", []string{"web"}}}}, true},
		{Selector{Expressions: []Expression{{"tier", "Exists", nil}}}, true},
		{Selector{Expressions: []Expression{{"tier", "DoesNotExist", nil}}}, false},
		{Selector{Expressions: []Expression{{"none", "DoesNotExist", nil}, {"app", "Exists", nil}}}, true},
		{Selector{Labels: map[string]string{"app": "web"}, Expressions: []Expression{{"app", "Gt", []string{"1"}}}}, false},
	} {
		if got := tt.s.Matches(labels); got != tt.want {
			t.Errorf("%+v: %v", tt.s, got)
		}
	}
}

func TestWhatAServerDeclaresCountsInsteadOfThePodsList(t *testing.T) {
	s := srv("web", 8080)
	p := Compile(Config{Pod: pod()}, Objects{Servers: []*Server{s}}).Port(8080)
	if p.Kind(protocol.Opaque) != protocol.Unknown {
		t.Error("a Server that says unknown leaves it to the annotation")
	}
	for _, k := range []protocol.Kind{protocol.Opaque, protocol.TLS, protocol.HTTP1, protocol.HTTP2} {
		s.Protocol = k
		if p := Compile(Config{Pod: pod()}, Objects{Servers: []*Server{s}}).Port(8080); p.Kind(protocol.Opaque) != k || p.Kind(protocol.Unknown) != k {
			t.Errorf("%s is %s", k, p.Kind(protocol.Unknown))
		}
	}
	if p := Compile(Config{Pod: pod()}, Objects{}).Port(8080); p.Kind(protocol.Opaque) != protocol.Opaque || p.Kind(protocol.Unknown) != protocol.Unknown {
		t.Error("without a Server the annotation does not count")
	}
}

// Linkerd denied what audit is to allow where the port is opaque (linkerd2#15188).
func TestAuditAllowsOnAnOpaquePortToo(t *testing.T) {
	s := srv("db", 3306)
	s.Protocol, s.Access = protocol.Opaque, Audit
	p := Compile(Config{Pod: pod(), Default: Deny}, Objects{Servers: []*Server{s}, MeshTLS: []*MeshTLSAuthentication{meshTLS("web", web)},
		Authorizations: []*AuthorizationPolicy{allow("ap", "Server", "db", ids("web"))}}).Port(3306)
	if d := p.AuthorizeConnection(outside); !d.Allowed || !d.Audit || d.Authz != (Ref{Kind: "default", Name: "audit"}) {
		t.Errorf("a client that nothing else allows: %+v", d)
	}
	if d := p.AuthorizeConnection(meshInside); !d.Allowed || d.Audit || d.Authz.Name != "ap" {
		t.Errorf("a client that is authorized: %+v", d)
	}
}

func TestAccessPolicyAddsToAuthorizations(t *testing.T) {
	for access, want := range map[Default][2]bool{0: {false, false}, Deny: {false, false}, AllUnauthenticated: {true, true}, ClusterUnauthenticated: {true, false}, AllAuthenticated: {false, false}} {
		s := srv("web", 8080)
		s.Access = access
		p := Compile(Config{Pod: pod()}, Objects{Servers: []*Server{s}}).Port(8080)
		if got := [2]bool{p.AuthorizeConnection(inside).Allowed, p.AuthorizeConnection(outside).Allowed}; got != want {
			t.Errorf("accessPolicy %q: inside, outside %v, want %v", access, got, want)
		}
	}
}

func TestDecidingAllocatesNothing(t *testing.T) {
	p := Compile(Config{Pod: pod()}, routed()).Port(8080)
	h := get("/orders/7")
	if n := testing.AllocsPerRun(100, func() {
		p.AuthorizeConnection(meshInside)
		p.AuthorizeRequest(meshInside, h)
		p.AuthorizeRequest(outside, h)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// routed is a Server with three routes: /orders for web, /public for everybody,
// /admin for nobody.
func routed() Objects {
	r := func(name, prefix string) *Route {
		return &Route{Object: obj("HTTPRoute", name), Group: Group, Servers: []string{"web"}, Route: route.Route{
			Kind: route.HTTP, Namespace: "shop", Name: name,
			Rules: []route.Rule{{Matches: []route.Match{{Path: &route.PathMatch{Type: "PathPrefix", Value: prefix}}}}},
		}}
	}
	return Objects{
		Servers: []*Server{srv("web", 8080)},
		Routes:  []*Route{r("orders", "/orders"), r("public", "/public"), r("admin", "/admin")},
		MeshTLS: []*MeshTLSAuthentication{meshTLS("web", web), meshTLS("ops", "ops")},
		Authorizations: []*AuthorizationPolicy{
			allow("orders", "HTTPRoute", "orders", ids("web")), allow("public", "HTTPRoute", "public"), allow("ops", "Server", "web", ids("ops")),
		},
	}
}
