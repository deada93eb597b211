package targets

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/meshctl/meshctl/integration/servers"
)

func TestNumbersNameTheServiceAndTheRoute(t *testing.T) {
	r := newRouted(t)
	client := r.client(t, 1)
	for range 5 {
		r.ask(t, client, "GET", "x", "/exact", nil)
	}
	r.flaky.Store(1)
	r.ask(t, client, "GET", "x", "/flaky", nil)
	r.ask(t, client, "GET", "x", "/slow", nil)
	r.ask(t, client, "GET", "forged.example", "/nowhere", nil)
	client.CloseIdleConnections()
	s := r.proxy.Sample(t)
	web := []string{`dst_service="web"`, `dst_namespace="shop"`, `dst_port="80"`, `authority="web.shop.svc.cluster.local:80"`, `direction="outbound"`}
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"request_total", web, 8},
		{"response_total", append([]string{`status_code="200"`, `classification="success"`}, web...), 6},
		{"response_total", append([]string{`status_code="504"`, `classification="failure"`}, web...), 1},
		{"response_total", append([]string{`status_code="404"`}, web...), 1},
		{"response_latency_ms_count", append([]string{`status_code="200"`}, web...), 6},
		{"tcp_open_total", append([]string{`peer="src"`, `target_addr="10.96.2.1:80"`}, web...), -1}, // one or more
		{"route_request_total", append([]string{`route_kind="HTTPRoute"`, `route_namespace="shop"`, `route_name="by-request"`}, web...), 6},
		{"route_response_total", append([]string{`route_name="by-request"`, `status_code="504"`}, web...), 1},
		{"route_response_total", append([]string{`route_name="again"`, `status_code="200"`}, web...), 1},
		{"route_response_latency_ms_count", append([]string{`route_name="by-request"`, `status_code="200"`}, web...), 5},
		{"meshctl_retries_total", []string{`dst_service="web"`, `dst_namespace="shop"`}, 1},
		{"outbound_http_errors_total", []string{`error="timeout"`}, 1},
		{"outbound_http_errors_total", []string{`error="no_route"`}, 1},
		{"outbound_http_balancer_endpoints", []string{`dst_service="web"`, `backend_name="web"`, `endpoint_state="ready"`}, 1},
		{"outbound_http_balancer_endpoints", []string{`dst_service="web"`, `backend_name="next"`, `endpoint_state="ready"`}, 1},
		{"outbound_http_balancer_endpoints", []string{`endpoint_state="pending"`}, 0},
		{"meshctl_exchanges", []string{`direction="outbound"`}, 0},
		{"meshctl_pool_connections", []string{`direction="outbound"`, `state="idle"`}, -1},
		{"meshctl_retry_budget", []string{`dst_service="web"`, `dst_namespace="shop"`}, -1},
	} {
		got := s.Sum(c.name, c.labels...)
		if got != c.want && (c.want >= 0 || got < 1) {
			t.Errorf("%s%v is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
	for _, line := range s {
		if strings.Contains(line, "forged.example") {
			t.Errorf("what a client wrote is a label: %s", line)
		}
	}
}

func TestAnEndpointThatIsAwayIsPending(t *testing.T) {
	n := network(t, "10.244.0.11", "10.244.0.12")
	httpBackend(t, n, "a", "10.244.0.11:8080", 0, nil)
	w := meshed(t, n, file(service{name: "web", ip: "10.96.1.6", port: 80, target: 8080, pods: []string{"10.244.0.11", "10.244.0.12"}}.yaml()))
	if failed := load(t, w, 2, 50, "http://10.96.1.6/", nil); failed > 0 {
		t.Errorf("%d requests failed although one endpoint is there", failed)
	}
	await(t, "the other one is pending", func() bool {
		if err := post(w.client(t, 1), "http://10.96.1.6/"); err != nil {
			t.Fatal(err)
		}
		s := w.proxy.Sample(t)
		return s.Sum("outbound_http_balancer_endpoints", `endpoint_state="pending"`) == 1 && s.Sum("outbound_http_balancer_endpoints", `endpoint_state="ready"`) == 1
	})
}

func TestTheAccessLogHasALineForEachRequestAndConnection(t *testing.T) {
	n := network(t, "10.244.0.1", "10.244.0.11", "10.244.0.12")
	servers.MariaDB(t, templates, servers.At(n.Peer, netip.IPv4Unspecified(), 3307))
	httpBackend(t, n, "web", "10.244.0.11:8080", 0, nil)
	httpBackend(t, n, "next", "10.244.0.12:8080", 0, nil)
	files := kube(t, "routes")
	for name, text := range kube(t, "targets") {
		files[name] = text
	}
	w := meshed(t, n, files, "--access-log", "json")
	for _, url := range []string{"http://10.96.2.1/prefix/a?b=%22%0d%0a", "http://10.244.0.11:8080/seen?in=passing"} {
		req, err := http.NewRequest("GET", url, nil)
		must(t, err)
		req.Header.Set("User-Agent", "test \"quoted\"\t\xff")
		req.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
		must(t, do(w.client(t, 1), req))
	}
	talkMariaDB(t, w, addr("10.96.0.3:3306"))
	var request, seen, connection map[string]any
	await(t, "the lines are written", func() bool {
		for line := range strings.Lines(w.proxy.Log()) {
			var m map[string]any
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				continue // not of the access log
			}
			switch {
			case m["path"] == "/seen?in=passing":
				seen = m
			case m["path"] != nil:
				request = m
			case m["protocol"] == "opaque":
				connection = m
			}
		}
		return request != nil && seen != nil && connection != nil
	})
	for key, want := range map[string]any{"method": "GET", "path": "/prefix/a?b=%22%0d%0a", "authority": "10.96.2.1", "version": "HTTP/1.1", "status": 200.0,
		"user_agent": "test \"quoted\"\t\uFFFD", "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "service": "shop/web:80",
		"route": "HTTPRoute shop/by-request", "orig_dst": "10.96.2.1:80", "endpoint": "10.244.0.12:8080", "direction": "outbound"} {
		if request[key] != want {
			t.Errorf("%s of the request is %v, want %v", key, request[key], want)
		}
	}
	for key, want := range map[string]any{"method": "GET", "status": 200.0, "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "orig_dst": "10.244.0.11:8080"} {
		if seen[key] != want {
			t.Errorf("%s of the request that was seen in passing is %v, want %v", key, seen[key], want)
		}
	}
	for key, want := range map[string]any{"service": "shop/plain:3306", "orig_dst": "10.96.0.3:3306", "endpoint": "10.244.0.1:3307", "reason": "declared"} {
		if connection[key] != want {
			t.Errorf("%s of the connection is %v, want %v", key, connection[key], want)
		}
	}
	if out, ok := connection["bytes_out"].(float64); !ok || out < 100 {
		t.Errorf("the connection has %v bytes", connection["bytes_out"])
	}
}
