package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/proxy/protocol"
)

// faults runs Check and writes what it finds in one line each.
func faults(all Objects) string {
	var b strings.Builder
	for _, p := range Check(all) {
		fmt.Fprintf(&b, "%d %s: %s: %s\n", p.Fault, p.Object, p.Field, p.Text)
	}
	return b.String()
}

func TestObjectsInOrderHaveNoFault(t *testing.T) {
	all := routed()
	all.Authorizations[1].Required = []Required{{Kind: "ServiceAccount", Name: "x"}}
	own := pod()
	all.Pods = []*Pod{&own}
	if got := faults(all); got != "" {
		t.Error(got)
	}
}

func TestFaultsOfObjectsTogether(t *testing.T) {
	own, db := pod(), pod()
	db.Name, db.Labels = "db-0", map[string]string{"app": "db"}
	s := func(name string, f func(*Server)) *Server { x := srv(name, 8080); f(x); return x }
	all := routed()
	all.Pods = []*Pod{&own, &db}
	all.Servers = append(all.Servers,
		s("again", func(x *Server) { x.Created = time.Unix(9, 0) }), s("again", func(x *Server) { x.Created, x.Line = time.Unix(9, 0), 7 }),
		s("nothing", func(x *Server) { x.Pods = byApp("nobody") }), s("unnamed", func(x *Server) { x.PortName = "grpc" }),
		s("raw", func(x *Server) { x.Port, x.Protocol = 3306, protocol.Opaque }),
		s("external", func(x *Server) { x.Pods, x.External = nil, &Selector{} }),
		s("unseen", func(x *Server) { x.Namespace = "other" }),
	)
	all.Routes[0].Servers = append(all.Routes[0].Servers, "gone", "raw")
	all.Authorizations = append(all.Authorizations,
		allow("a", "Server", "gone"), allow("b", "HTTPRoute", "gone", ids("gone"), nets("gone")), allow("c", "Namespace", "other", Required{Group, "MeshTLSAuthentication", "other", "web"}))
	all.ServerAuthorizations = []*ServerAuthorization{{Object: obj("ServerAuthorization", "x"), Server: "gone"}, {Object: obj("ServerAuthorization", "y"), Selector: byApp("gone")}}
	want := strings.Join([]string{
		`2 AuthorizationPolicy shop/a: spec.targetRef: there is no Server shop/gone`,
		`7 AuthorizationPolicy shop/a: spec.requiredAuthenticationRefs: nothing is required: everybody may call`,
		`2 AuthorizationPolicy shop/b: spec.targetRef: there is no HTTPRoute of a Server called shop/gone`,
		`1 AuthorizationPolicy shop/b: spec.requiredAuthenticationRefs[0]: there is no MeshTLSAuthentication shop/gone: the policy lets nobody in`,
		`1 AuthorizationPolicy shop/b: spec.requiredAuthenticationRefs[1]: there is no NetworkAuthentication shop/gone: the policy lets nobody in`,
		`2 AuthorizationPolicy shop/c: spec.targetRef.name: a policy is for its own namespace, shop, not for other`,
		`1 AuthorizationPolicy shop/c: spec.requiredAuthenticationRefs[0]: there is no MeshTLSAuthentication other/web: the policy lets nobody in`,
		`4 Server shop/nothing: spec.podSelector: no pod of shop has these labels`,
		`2 HTTPRoute shop/orders: spec.parentRefs[1]: there is no Server shop/gone`,
		`8 AuthorizationPolicy shop/orders: spec.targetRef: Server shop/raw is opaque: routes and their authorizations do not count there`,
		`7 AuthorizationPolicy shop/public: spec.requiredAuthenticationRefs: nothing is required: everybody may call`,
		`5 Server shop/unnamed: spec.port: no pod that it selects has a port called "grpc": it selects nothing`,
		`2 ServerAuthorization shop/x: spec.server.name: there is no Server shop/gone`,
		`2 ServerAuthorization shop/y: spec.server.selector: no Server of shop has these labels`,
		`6 Server shop/again: : it is there twice: the one at  does not count`,
		`3 Server shop/again: spec: port 8080 of Pod shop/web-0 is Server shop/web's too, which is older or first by name: this one does not count there`,
		``,
	}, "\n")
	if d := cmp.Diff(want, faults(all)); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestOfTwoObjectsOfOneNameTheLaterCounts(t *testing.T) {
	first, second := srv("web", 8080), srv("web", 8081)
	tab := Compile(Config{Pod: pod()}, Objects{Servers: []*Server{first, second}})
	if tab.Port(8080).Covered() || !tab.Port(8081).Covered() {
		t.Error("the earlier counts")
	}
}
