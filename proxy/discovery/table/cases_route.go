package table

import "fmt"

// httpRoute is an HTTPRoute to a Service's port 80; rules are YAML.
func httpRoute(namespace, name, parent, rules string) string {
	return fmt.Sprintf(`---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {namespace: %s, name: %s}
spec:
  parentRefs: [{group: "", kind: Service, name: %s, port: 80}]
  rules: [%s]
`, namespace, name, parent, rules)
}

func routes() []Case {
	shop := func(annotations string) string {
		return space("routes", "") + service("routes", "web", "10.0.0.51", 80, annotations) + slice("routes", "web", ready("10.244.4.1", "")) +
			service("routes", "v2", "10.0.0.52", 80, "") + slice("routes", "v2", ready("10.244.4.2", ""))
	}
	split := httpRoute("routes", "split", "web", `{matches: [{path: {type: PathPrefix, value: /new}}], backendRefs: [{name: v2, port: 80}]}, {backendRefs: [{name: web, port: 80}, {name: gone, port: 80}]}`)
	return []Case{
		{"routes of a Service", "routes", []Step{
			{shop(""), []Ask{{To: "10.0.0.51:80", Requests: []string{"GET web/"}, Want: `
				service Service routes/web port 80 (main)
				decided unknown by default_list
				to 10.244.4.1:8080
				request GET web/ -> itself`}}},
			{shop("") + split, []Ask{{To: "10.0.0.51:80", Requests: []string{"GET web/new/x", "GET web/old"}, Want: `
				service Service routes/web port 80 (main)
				decided unknown by default_list
				to 10.244.4.1:8080
				request GET web/new/x -> HTTPRoute routes/split rule 0 routes/v2:80
				request GET web/old -> HTTPRoute routes/split rule 1 routes/web:80 routes/gone:80
				backend routes/v2:80 Service routes/v2
				backend decided unknown by default_list
				backend to 10.244.4.2:8080
				backend routes/web:80 Service routes/web
				backend decided unknown by default_list
				backend to 10.244.4.1:8080
				backend routes/gone:80 -`}}},
			{shop("") + split + service("routes", "gone", "10.0.0.53", 80, "") + slice("routes", "gone", ready("10.244.4.3", "")), []Ask{{To: "10.0.0.51:80", Want: `
				service Service routes/web port 80 (main)
				decided unknown by default_list
				to 10.244.4.1:8080
				backend routes/v2:80 Service routes/v2
				backend decided unknown by default_list
				backend to 10.244.4.2:8080
				backend routes/web:80 Service routes/web
				backend decided unknown by default_list
				backend to 10.244.4.1:8080
				backend routes/gone:80 Service routes/gone
				backend decided unknown by default_list
				backend to 10.244.4.3:8080`}}},
			{shop("timeout.linkerd.io/request: 3s, retry.linkerd.io/http: 5xx"), []Ask{{To: "10.0.0.51:80", Requests: []string{"GET web/"}, Want: `
				service Service routes/web port 80 (main)
				decided unknown by default_list
				to 10.244.4.1:8080
				request GET web/ -> itself within 3s retries 1`}}},
		}},
	}
}

func grpc() []Case {
	return []Case{
		{"a GRPCRoute counts before an HTTPRoute", "grpc", []Step{
			{space("grpc", "") + service("grpc", "api", "10.0.0.61", 80, "") + slice("grpc", "api", ready("10.244.5.1", "")) +
				httpRoute("grpc", "web", "api", "{backendRefs: [{name: api, port: 80}]}") + `---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {namespace: grpc, name: calls}
spec:
  parentRefs: [{group: "", kind: Service, name: api, port: 80}]
  rules: [{matches: [{method: {service: shop.Cart, method: Add}}], backendRefs: [{name: api, port: 80}]}]
`, []Ask{{To: "10.0.0.61:80", Requests: []string{"POST api/shop.Cart/Add; content-type: application/grpc", "POST api/shop.Cart/Remove; content-type: application/grpc"}, Want: `
				service Service grpc/api port 80 (main)
				decided unknown by default_list
				to 10.244.5.1:8080
				request POST api/shop.Cart/Add; content-type: application/grpc -> GRPCRoute grpc/calls rule 0 grpc/api:80
				request POST api/shop.Cart/Remove; content-type: application/grpc -> no rule
				backend grpc/api:80 Service grpc/api
				backend decided unknown by default_list
				backend to 10.244.5.1:8080`}}},
		}},
	}
}

// network is an EgressNetwork of one subnet.
func network(namespace, name, policy, cidr, annotations string) string {
	return fmt.Sprintf(`---
apiVersion: policy.linkerd.io/v1alpha1
kind: EgressNetwork
metadata: {namespace: %s, name: %s, annotations: {%s}}
spec: {trafficPolicy: %s, networks: [{cidr: %s}]}
`, namespace, name, annotations, policy, cidr)
}

func egress() []Case {
	return []Case{
		{"EgressNetworks", "egress", []Step{
			{space("egress", "") + network("egress", "some", "Allow", "203.0.113.0/24", opaquePorts+`"25"`) +
				network("egress", "never", "Deny", "203.0.113.128/25", "") + network("elsewhere", "not-ours", "Deny", "198.51.100.0/24", "") + space("elsewhere", ""), []Ask{
				{To: "203.0.113.1:443", Want: `
					egress EgressNetwork egress/some port 443
					decided unknown by egress_annotation of EgressNetwork egress/some "25"
					to 203.0.113.1:443`},
				{To: "203.0.113.1:25", Want: `
					egress EgressNetwork egress/some port 25
					decided opaque by egress_annotation of EgressNetwork egress/some "25"
					to 203.0.113.1:25`},
				{To: "203.0.113.200:443", Want: `
					egress EgressNetwork egress/never port 443
					refused egress_denied`},
				{To: "198.51.100.1:443", Want: `
					address - port 443
					decided unknown by default_list
					to 198.51.100.1:443`},
			}},
			{space("egress", "") + network("egress", "never", "Allow", "203.0.113.128/25", ""), []Ask{
				{To: "203.0.113.1:443", Want: `
					address - port 443
					decided unknown by default_list
					to 203.0.113.1:443`},
				{To: "203.0.113.200:443", Want: `
					egress EgressNetwork egress/never port 443
					decided unknown by default_list
					to 203.0.113.200:443`},
			}},
		}},
	}
}
