package metrics

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAServiceIsALabelOfItsConnectionsAndRequests(t *testing.T) {
	m := New(Config{})
	c, h := m.TCP(Outbound, Src, served, TLSLabels{}), m.HTTP(Outbound, served, TLSLabels{})
	c.Open()
	h.Request()
	m.HTTP(Outbound, web, TLSLabels{}).Request() // the same address, before it was a Service's
	const service = `authority="web.shop.svc.cluster.local:80",direction="outbound",dst_namespace="shop",dst_port="80",dst_service="web"`
	const address = `target_addr="10.0.0.7:8080",target_ip="10.0.0.7",target_port="8080"`
	for name, want := range map[string][]string{
		"tcp_open_total": {`tcp_open_total{` + service + `,peer="src",` + address + `} 1`},
		"request_total":  {`request_total{` + service + `,` + address + `} 1`, `request_total{direction="outbound",` + address + `} 1`},
	} {
		if d := cmp.Diff(want, scrape(t, m, name)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func TestRequestsOfARouteAreCountedApart(t *testing.T) {
	m := New(Config{})
	for _, r := range []Route{{"HTTPRoute", "shop", "a"}, {}} {
		h := m.Route(Outbound, shop, r)
		h.Request()
		h.Response(ResponseLabels{Status: 503}, 0, false)
	}
	want := []string{
		`route_response_total{authority="web.shop.svc.cluster.local:80",classification="failure",direction="outbound",dst_namespace="shop",dst_port="80",dst_service="web",route_kind="HTTPRoute",route_name="a",route_namespace="shop",status_code="503"} 1`,
		`route_response_total{authority="web.shop.svc.cluster.local:80",classification="failure",direction="outbound",dst_namespace="shop",dst_port="80",dst_service="web",route_kind="default",route_name="default",status_code="503"} 1`,
	}
	if d := cmp.Diff(want, scrape(t, m, "route_response_total")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := scrape(t, m, "response_total"); len(got) != 0 {
		t.Errorf("they are counted as a target's, too: %v", got)
	}
}

func TestARouteIsFoldedLikeATarget(t *testing.T) {
	m := New(Config{MaxSeries: 1})
	m.Route(Outbound, shop, Route{"HTTPRoute", "shop", "a"}).Request()
	m.Route(Outbound, shop, Route{"HTTPRoute", "shop", "b"}).Request()
	want := []string{`route_request_total{direction="outbound",route_kind="other",route_name="other",route_namespace="other"} 1`}
	if d := cmp.Diff(want, grep(scrape(t, m, "route_request_total"), "route_request_total", "other")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestBalancersOfOneServiceAreAddedUp(t *testing.T) {
	m := New(Config{Balancers: func() []Balancer {
		return []Balancer{{shop, shop, 2, 1, 9}, {shop, shop, 3, 0, 7}} // over IPv4 and over IPv6
	}})
	const l = `{authority="web.shop.svc.cluster.local:80",backend_name="web",backend_namespace="shop",backend_port="80",dst_namespace="shop",dst_port="80",dst_service="web",endpoint_state=`
	want := []string{`outbound_http_balancer_endpoints` + l + `"pending"} 1`, `outbound_http_balancer_endpoints` + l + `"ready"} 5`}
	if d := cmp.Diff(want, scrape(t, m, "outbound_http_balancer_endpoints")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	want = []string{`meshctl_retry_budget{authority="web.shop.svc.cluster.local:80",dst_namespace="shop",dst_port="80",dst_service="web"} 7`} // the least
	if d := cmp.Diff(want, scrape(t, m, "meshctl_retry_budget")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
