package table

import (
	"fmt"
	"slices"
)

// space is a Namespace.
func space(name, annotations string) string {
	return "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + ", annotations: {" + annotations + "}}\n"
}

// service is a Service of one port, named main. ip "None" makes it headless.
func service(namespace, name, ip string, port int, more string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {namespace: %s, name: %s, annotations: {%s}}
spec:
  clusterIP: %s
  ports: [{name: main, port: %d, targetPort: 8080}]
`, namespace, name, more, ip, port)
}

// slice is an EndpointSlice whose port is 8080; endpoints are YAML.
func slice(namespace, service, endpoints string) string {
	return fmt.Sprintf(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: %[1]s, name: %[2]s-1, labels: {kubernetes.io/service-name: %[2]s}}
addressType: IPv4
ports: [{name: main, port: 8080}]
endpoints: [%[3]s]
`, namespace, service, endpoints)
}

// ready is an endpoint of a slice, with its pod if there is one.
func ready(addr, pod string) string { return endpointIn(addr, pod, "{ready: true}") }

func endpointIn(addr, pod, conditions string) string {
	text := fmt.Sprintf("{addresses: [%s], conditions: %s", addr, conditions)
	if pod != "" {
		text += ", nodeName: n1, zone: a, targetRef: {kind: Pod, namespace: " + pod + "}"
	}
	return text + "}"
}

// pod is a running pod whose container has the port 8080, named web.
func pod(namespace, name, ip, annotations string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {namespace: %s, name: %s, annotations: {%s}}
spec:
  nodeName: n1
  containers: [{name: app, image: app, ports: [{name: web, containerPort: 8080}]}]
status: {phase: Running, podIP: %[4]s, podIPs: [{ip: %[4]s}]}
`, namespace, name, annotations, ip)
}

const opaquePorts = "config.linkerd.io/opaque-ports: "

// Cases are all of them.
func Cases() []Case {
	return slices.Concat(services(), speaks(), pods(), headless(), routes(), grpc(), egress(), meshed())
}

func services() []Case {
	web := service("services", "web", "10.0.0.21", 80, "")
	return []Case{
		{"a Service and its endpoints as they come and go", "services", []Step{
			{space("services", "") + web + slice("services", "web", ready("10.244.1.1", "")+","+ready("10.244.1.2", "services, name: web-2")), []Ask{
				{To: "10.0.0.21:80", Want: `
					service Service services/web port 80 (main)
					decided unknown by default_list
					to 10.244.1.1:8080
					to 10.244.1.2:8080 pod services/web-2 node n1 zone a`},
				{To: "10.0.0.21:81", Want: `
					service Service services/web port 81
					refused no_such_port`},
				{To: "10.0.0.22:80", Want: `
					address - port 80
					decided unknown by default_list
					to 10.0.0.22:80`},
			}},
			{space("services", "") + web + slice("services", "web", ready("10.244.1.2", "services, name: web-2")+","+
				endpointIn("10.244.1.3", "", "{ready: false, serving: true, terminating: true}")), []Ask{
				{To: "10.0.0.21:80", Want: `
					service Service services/web port 80 (main)
					decided unknown by default_list
					to 10.244.1.2:8080 pod services/web-2 node n1 zone a`},
			}},
			{space("services", "") + web + slice("services", "web", endpointIn("10.244.1.3", "", "{ready: false, serving: true, terminating: true}")+","+
				endpointIn("10.244.1.4", "", "{ready: false, serving: false}")), []Ask{
				{To: "10.0.0.21:80", Want: `
					service Service services/web port 80 (main)
					decided unknown by default_list
					to 10.244.1.3:8080`},
			}},
			{space("services", "") + web + slice("services", "web", ""), []Ask{
				{To: "10.0.0.21:80", Want: `
					service Service services/web port 80 (main)
					decided unknown by default_list`},
			}},
			{space("services", ""), []Ask{
				{To: "10.0.0.21:80", Want: `
					address - port 80
					decided unknown by default_list
					to 10.0.0.21:80`},
			}},
			{space("services", "") + service("services", "late", "10.0.0.22", 80, "") + slice("services", "late", ready("10.244.1.9", "")), []Ask{
				{To: "10.0.0.22:80", Want: `
					service Service services/late port 80 (main)
					decided unknown by default_list
					to 10.244.1.9:8080`},
			}},
		}},
	}
}

func speaks() []Case {
	return []Case{
		{"what a port speaks", "speaks", []Step{
			{space("speaks", opaquePorts+`"9000"`) + `---
apiVersion: v1
kind: Service
metadata: {namespace: speaks, name: many}
spec:
  clusterIP: 10.0.0.31
  ports:
  - {name: plain, port: 1}
  - {name: web, port: 2, appProtocol: http}
  - {name: h2, port: 3, appProtocol: kubernetes.io/h2c}
  - {name: tcp, port: 4, appProtocol: linkerd.io/opaque}
  - {name: odd, port: 5, appProtocol: mysql}
  - {name: udp, port: 6, protocol: UDP}
  - {name: listed, port: 9000}
  - {name: known, port: 3306}
` + service("speaks", "own", "10.0.0.32", 9000, opaquePorts+`""`), []Ask{
				{To: "10.0.0.31:1", Want: "service Service speaks/many port 1 (plain)\ndecided unknown by namespace_annotation of Namespace speaks \"9000\""},
				{To: "10.0.0.31:2", Want: "service Service speaks/many port 2 (web)\ndecided http/1 by app_protocol of Service speaks/many \"http\""},
				{To: "10.0.0.31:3", Want: "service Service speaks/many port 3 (h2)\ndecided http/2 by app_protocol of Service speaks/many \"kubernetes.io/h2c\""},
				{To: "10.0.0.31:4", Want: "service Service speaks/many port 4 (tcp)\ndecided opaque by app_protocol of Service speaks/many \"linkerd.io/opaque\""},
				{To: "10.0.0.31:5", Want: "service Service speaks/many port 5 (odd)\ndecided opaque by unknown_app_protocol of Service speaks/many \"mysql\"\n" +
					"beware appProtocol \"mysql\" of Service speaks/many port 5 is not known: the port is opaque"},
				{To: "10.0.0.31:6", Want: "service Service speaks/many port 6\nrefused no_such_port"},
				{To: "10.0.0.31:9000", Want: "service Service speaks/many port 9000 (listed)\ndecided opaque by namespace_annotation of Namespace speaks \"9000\""},
				{To: "10.0.0.31:3306", Want: "service Service speaks/many port 3306 (known)\ndecided unknown by namespace_annotation of Namespace speaks \"9000\""},
				{To: "10.0.0.32:9000", Want: "service Service speaks/own port 9000 (main)\ndecided unknown by service_annotation of Service speaks/own \"\""},
			}},
			{space("speaks", "") + service("speaks", "own", "10.0.0.32", 3306, ""), []Ask{
				{To: "10.0.0.32:3306", Want: "service Service speaks/own port 3306 (main)\ndecided opaque by default_list"},
			}},
		}},
	}
}

func pods() []Case {
	return []Case{
		{"a pod's own word", "pods", []Step{
			{space("pods", "") + pod("pods", "db-0", "10.244.2.1", opaquePorts+`"8080"`) +
				service("pods", "db", "10.0.0.41", 80, "") + slice("pods", "db", ready("10.244.2.1", "pods, name: db-0")), []Ask{
				{To: "10.244.2.1:8080", Want: `
					pod Pod pods/db-0 port 8080
					decided opaque by pod_annotation of Pod pods/db-0 "8080"
					to 10.244.2.1:8080 pod pods/db-0 node n1 opaque`},
				{To: "10.0.0.41:80", Want: `
					service Service pods/db port 80 (main)
					decided opaque by pod_annotation of Pod pods/db-0 "8080"
					to 10.244.2.1:8080 pod pods/db-0 node n1 zone a opaque`},
			}},
			{space("pods", "") + pod("pods", "db-0", "10.244.2.1", opaquePorts+`"web"`) +
				service("pods", "db", "10.0.0.41", 80, "") + slice("pods", "db", ready("10.244.2.1", "pods, name: db-0")), []Ask{
				{To: "10.244.2.1:8080", Want: `
					pod Pod pods/db-0 port 8080
					decided opaque by pod_annotation of Pod pods/db-0 "web"
					to 10.244.2.1:8080 pod pods/db-0 node n1 opaque`},
				{To: "10.244.2.1:8081", Want: `
					pod Pod pods/db-0 port 8081
					decided unknown by pod_annotation of Pod pods/db-0 "web"
					to 10.244.2.1:8081 pod pods/db-0 node n1`},
			}},
			{space("pods", "") + pod("pods", "db-1", "10.244.2.1", ""), []Ask{ // the address has passed on
				{To: "10.244.2.1:8080", Want: `
					pod Pod pods/db-1 port 8080
					decided unknown by default_list
					to 10.244.2.1:8080 pod pods/db-1 node n1`},
			}},
			{space("pods", ""), []Ask{
				{To: "10.244.2.1:8080", Want: `
					address - port 8080
					decided unknown by default_list
					to 10.244.2.1:8080`},
			}},
		}},
	}
}

func headless() []Case {
	return []Case{
		{"a headless Service's members", "headless", []Step{
			{space("headless", "") + service("headless", "set", "None", 8080, "") + slice("headless", "set", ready("10.244.3.1", "headless, name: set-0")), []Ask{
				{To: "10.244.3.1:8080", Want: `
					headless Service headless/set port 8080 (main)
					decided unknown by default_list
					to 10.244.3.1:8080 pod headless/set-0 node n1 zone a`},
				{To: "10.244.3.2:8080", Want: `
					address - port 8080
					decided unknown by default_list
					to 10.244.3.2:8080`},
			}},
			{space("headless", "") + service("headless", "set", "None", 8080, "") + pod("headless", "set-1", "10.244.3.2", opaquePorts+`"8080"`) +
				slice("headless", "set", ready("10.244.3.2", "headless, name: set-1")), []Ask{
				{To: "10.244.3.1:8080", Want: `
					address - port 8080
					decided unknown by default_list
					to 10.244.3.1:8080`},
				{To: "10.244.3.2:8080", Want: `
					headless Service headless/set port 8080 (main)
					decided opaque by pod_annotation of Pod headless/set-1 "8080"
					to 10.244.3.2:8080 pod headless/set-1 node n1 zone a opaque`},
			}},
		}},
	}
}
