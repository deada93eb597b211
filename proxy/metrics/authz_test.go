package metrics

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// decision is one as a label set.
func decision(port uint16, authz string) Authorization {
	a := Authorization{Server: Ref{"policy.linkerd.io", "server", "shop", "web"}, Port: port, TLS: "true"}
	if authz != "" {
		a.Authz = Ref{"policy.linkerd.io", "authorizationpolicy", "shop", authz}
	}
	return a
}

func TestDecisionsAreCountedByServerAndAuthorization(t *testing.T) {
	m := New(Config{})
	m.Authorized(decision(80, "web")).AllowConnection()
	m.Authorized(decision(80, "web")).AllowConnection()
	m.Authorized(decision(80, "")).DenyConnection()
	m.Authorized(decision(80, "web")).TerminateConnection()
	m.Authorized(decision(80, "")).TerminateConnection() // another series, not the same once more
	r := decision(80, "web")
	r.Route = Ref{"gateway.networking.k8s.io", "httproute", "shop", "orders"}
	m.Authorized(r).AllowRequest()
	m.Authorized(r).AllowConnection()
	m.Authorized(Authorization{Server: Ref{Kind: "default", Name: "deny"}, TLS: "no_identity"}).DenyRequest()
	m.Authorized(decision(80, "")).RouteNotFound()
	const server = `srv_group="policy.linkerd.io",srv_kind="server",srv_name="web",srv_namespace="shop",srv_port="80",tls="true"} `
	const authz = `authz_group="policy.linkerd.io",authz_kind="authorizationpolicy",authz_name="web",authz_namespace="shop",`
	const route = `route_group="gateway.networking.k8s.io",route_kind="httproute",route_name="orders",route_namespace="shop",`
	want := []string{
		"inbound_http_authz_allow_total{" + authz + route + server + "1",
		`inbound_http_authz_deny_total{srv_kind="default",srv_name="deny",tls="no_identity"} 1`,
		"inbound_http_route_not_found_total{" + server + "1",
		"inbound_tcp_authz_allow_total{" + authz + route + server + "1",
		"inbound_tcp_authz_allow_total{" + authz + server + "2",
		"inbound_tcp_authz_deny_total{" + server + "1",
		"inbound_tcp_authz_terminate_total{" + authz + server + "1",
		"inbound_tcp_authz_terminate_total{" + server + "1",
	}
	got := scrape(t, m, "inbound_tcp_authz_allow_total", "inbound_tcp_authz_deny_total", "inbound_tcp_authz_terminate_total", "inbound_http_authz_allow_total",
		"inbound_http_authz_deny_total", "inbound_http_route_not_found_total")
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestLookingADecisionUpAllocatesNothing(t *testing.T) {
	m := New(Config{})
	m.Authorized(decision(80, "web"))
	if n := testing.AllocsPerRun(100, func() { m.Authorized(decision(80, "web")).AllowRequest() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestDecisionsOfManyPortsAreBounded(t *testing.T) {
	m := New(Config{MaxSeries: 10})
	var counting sync.WaitGroup
	for i := range 4 {
		counting.Go(func() {
			for port := range 100 {
				m.Authorized(decision(uint16(1+port), fmt.Sprint("by", i))).AllowConnection()
			}
		})
	}
	counting.Wait()
	all := scrape(t, m, "inbound_tcp_authz_allow_total", "meshctl_series_folded_total")
	lines := grep(all, "inbound_tcp_authz_allow_total")
	if len(lines) != 11 || sum(t, lines) != 400 {
		t.Errorf("%d series with %v connections", len(lines), sum(t, lines))
	}
	if got := sum(t, grep(lines, "inbound_tcp_authz_allow_total", `{srv_name="other"}`)); got != 390 {
		t.Errorf("%v under other", got)
	}
	if got := sum(t, grep(all, "meshctl_series_folded_total", `family="authorization"`)); got != 390 {
		t.Errorf("%v foldings", got)
	}
}
