package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const podWeb = `apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: web-1, labels: {app: web}%s}
spec:
  containers: [{name: app, image: app, ports: [{name: http, containerPort: 8080}], readinessProbe: {httpGet: {path: /healthz, port: 8080}}}]
status: {phase: Running, podIP: 10.1.0.1, podIPs: [{ip: 10.1.0.1}]}
---
`

const served = `apiVersion: policy.linkerd.io/v1beta3
kind: Server
metadata: {namespace: shop, name: web}
spec: {podSelector: {matchLabels: {app: web}}, port: http, proxyProtocol: HTTP/1}
---
apiVersion: policy.linkerd.io/v1alpha1
kind: AuthorizationPolicy
metadata: {namespace: shop, name: clients}
spec:
  targetRef: {group: policy.linkerd.io, kind: Server, name: web}
  requiredAuthenticationRefs:
  - {group: policy.linkerd.io, kind: MeshTLSAuthentication, name: friends}
  - {group: policy.linkerd.io, kind: NetworkAuthentication, name: near}
---
apiVersion: policy.linkerd.io/v1alpha1
kind: MeshTLSAuthentication
metadata: {namespace: shop, name: friends}
spec: {identities: ["*.shop.serviceaccount.identity.linkerd.cluster.local", "one.other.serviceaccount.identity.linkerd.cluster.local"]}
---
apiVersion: policy.linkerd.io/v1alpha1
kind: NetworkAuthentication
metadata: {namespace: shop, name: near}
spec: {networks: [{cidr: 10.0.0.0/8, except: [10.9.0.0/16]}]}
---
`

// line tells a Server in one line.
func line(s *inbound.Server) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s", s.GetLabels()["kind"], s.GetLabels()["name"])
	switch k := s.GetProtocol().GetKind().(type) {
	case *inbound.ProxyProtocol_Detect_:
		fmt.Fprintf(&b, " detect %s routes %d", k.Detect.GetTimeout().AsDuration(), len(k.Detect.GetHttpRoutes()))
	case *inbound.ProxyProtocol_Http1_:
		fmt.Fprintf(&b, " http/1 routes %d", len(k.Http1.GetRoutes()))
	case *inbound.ProxyProtocol_Opaque_:
		b.WriteString(" opaque")
	}
	for _, a := range s.GetAuthorizations() {
		fmt.Fprintf(&b, "; %s %s", a.GetLabels()["kind"], a.GetLabels()["name"])
		for _, n := range a.GetNetworks() {
			fmt.Fprintf(&b, " /%d-%d", n.GetNet().GetPrefixLen(), len(n.GetExcept()))
		}
		if ids := a.GetAuthentication().GetMeshTLS().GetIdentities(); ids != nil {
			for _, id := range ids.GetIdentities() {
				b.WriteString(" " + id.GetName())
			}
			for _, s := range ids.GetSuffixes() {
				b.WriteString(" *." + strings.Join(s.GetParts(), "."))
			}
		}
	}
	return b.String()
}

func TestWhoMayCallIsToldAndFollowed(t *testing.T) {
	w := newWorld(t)
	pod := fmt.Sprintf(podWeb, "")
	w.set(pod)
	c := inbound.NewInboundServerPoliciesClient(dialed(t, w.serve("127.0.0.1:0", nil).addr))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s, err := c.WatchPort(ctx, &inbound.PortSpec{Workload: `{"ns":"shop","pod":"web-1"}`, Port: 8080})
	if err != nil {
		t.Fatal(err)
	}
	const local = "; default localhost /8-0 /128-0"
	for _, step := range []struct{ objects, want string }{
		{pod, "default/all-unauthenticated detect 10s routes 1" + local + "; default all-unauthenticated /0-0 /0-0"},
		{pod + served, "server/web http/1 routes 2" + local + "; authorizationpolicy clients /8-1 one.other.serviceaccount.identity.linkerd.cluster.local *.shop.serviceaccount.identity.linkerd.cluster.local"},
		{fmt.Sprintf(podWeb, ", annotations: {config.linkerd.io/default-inbound-policy: cluster-authenticated}"),
			"default/cluster-authenticated detect 10s routes 2" + local + "; default cluster-authenticated /8-0 /10-0 /12-0 /16-0 /8-0 *."},
		{fmt.Sprintf(podWeb, ", annotations: {config.linkerd.io/default-inbound-policy: deny}"), "default/deny detect 10s routes 2" + local},
		{fmt.Sprintf(podWeb, `, annotations: {config.linkerd.io/opaque-ports: "8080"}`), "default/all-unauthenticated opaque" + local + "; default all-unauthenticated /0-0 /0-0"},
	} {
		w.set(step.objects)
		w.set(step.objects)
		got, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if line(got) != step.want {
			t.Errorf("got  %s\nwant %s", line(got), step.want)
		}
	}
	for spec, want := range map[*inbound.PortSpec]codes.Code{
		{Workload: "shop:web-1", Port: 8080}:   codes.OK,
		{Workload: "shop:gone", Port: 8080}:    codes.NotFound,
		{Workload: "shop:web-1"}:               codes.InvalidArgument,
		{Workload: "", Port: 8080}:             codes.InvalidArgument,
		{Workload: `{"ns":"shop"`, Port: 8080}: codes.InvalidArgument,
	} {
		if _, err := c.GetPort(ctx, spec); status.Code(err) != want {
			t.Errorf("%v: %v, want %v", spec, err, want)
		}
	}
}

func TestRoutesOfAServerComeWithTheirAuthorizations(t *testing.T) {
	w := newWorld(t)
	w.set(fmt.Sprintf(podWeb, "") + served + `apiVersion: policy.linkerd.io/v1beta3
kind: HTTPRoute
metadata: {namespace: shop, name: read}
spec:
  parentRefs: [{group: policy.linkerd.io, kind: Server, name: web}]
  rules: [{matches: [{path: {type: PathPrefix, value: /public}, method: GET}]}]
---
apiVersion: policy.linkerd.io/v1alpha1
kind: AuthorizationPolicy
metadata: {namespace: shop, name: everybody}
spec:
  targetRef: {group: policy.linkerd.io, kind: HTTPRoute, name: read}
  requiredAuthenticationRefs: [{group: policy.linkerd.io, kind: NetworkAuthentication, name: near}]
`)
	c := inbound.NewInboundServerPoliciesClient(dialed(t, w.serve("127.0.0.1:0", nil).addr))
	got, err := c.GetPort(t.Context(), &inbound.PortSpec{Workload: "shop:web-1", Port: 8080})
	if err != nil {
		t.Fatal(err)
	}
	routes := got.GetProtocol().GetHttp1().GetRoutes()
	if len(routes) != 1 || routes[0].GetMetadata().GetResource().GetName() != "read" || len(routes[0].GetAuthorizations()) != 1 ||
		routes[0].GetRules()[0].GetMatches()[0].GetPath().GetPrefix() != "/public" {
		t.Errorf("%v", routes)
	}
	if slices.ContainsFunc(got.GetAuthorizations(), func(a *inbound.Authz) bool { return a.GetLabels()["name"] == "everybody" }) {
		t.Error("who may call the route may call the Server")
	}
}
