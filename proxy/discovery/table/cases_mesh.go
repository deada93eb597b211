package table

import "fmt"

// meshedPod is a pod of the ServiceAccount shop that an injector has given a proxy.
func meshedPod(namespace, name, ip, annotations string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {namespace: %s, name: %s, labels: {linkerd.io/control-plane-ns: linkerd}, annotations: {%s}}
spec:
  nodeName: n1
  serviceAccountName: shop
  containers: [{name: app, image: app, ports: [{name: web, containerPort: 8080}]}]
status: {phase: Running, podIP: %[4]s, podIPs: [{ip: %[4]s}]}
`, namespace, name, annotations, ip)
}

func meshed() []Case {
	const id = "shop.meshed.serviceaccount.identity.linkerd.cluster.local"
	base := space("meshed", "") + service("meshed", "web", "10.0.0.91", 80, "") +
		slice("meshed", "web", ready("10.244.91.1", "meshed, name: web-1")+","+ready("10.244.91.2", "meshed, name: web-2"))
	plain := pod("meshed", "web-1", "10.244.91.1", "") + pod("meshed", "web-2", "10.244.91.2", "")
	skips := meshedPod("meshed", "web-2", "10.244.91.2", `config.linkerd.io/skip-inbound-ports: "8080"`)
	moved := meshedPod("meshed", "web-1", "10.244.91.1", `config.linkerd.io/inbound-port: "5143", config.linkerd.io/opaque-ports: "8080"`)
	return []Case{
		{"endpoints that join the mesh", "meshed", []Step{
			{base + plain, []Ask{{To: "10.0.0.91:80", Want: `
				service Service meshed/web port 80 (main)
				decided unknown by default_list
				to 10.244.91.1:8080 pod meshed/web-1 node n1 zone a
				to 10.244.91.2:8080 pod meshed/web-2 node n1 zone a`}}},
			{base + meshedPod("meshed", "web-1", "10.244.91.1", "") + skips, []Ask{
				{To: "10.0.0.91:80", Want: `
					service Service meshed/web port 80 (main)
					decided unknown by default_list
					to 10.244.91.1:8080 pod meshed/web-1 node n1 zone a mesh ` + id + ` as ` + id + ` at 4143
					to 10.244.91.2:8080 pod meshed/web-2 node n1 zone a port_skipped`},
				{To: "10.244.91.2:8081", Want: `
					pod Pod meshed/web-2 port 8081
					decided unknown by default_list
					to 10.244.91.2:8081 pod meshed/web-2 node n1 mesh ` + id + ` as ` + id + ` at 4143`},
				{To: "10.244.91.1:4191", Want: `
					pod Pod meshed/web-1 port 4191
					decided unknown by default_list
					to 10.244.91.1:4191 pod meshed/web-1 node n1 port_skipped`},
			}},
			{base + moved + skips, []Ask{{To: "10.244.91.1:8080", Want: `
				pod Pod meshed/web-1 port 8080
				decided opaque by pod_annotation of Pod meshed/web-1 "8080"
				to 10.244.91.1:8080 pod meshed/web-1 node n1 opaque mesh ` + id + ` as ` + id + ` at 5143`}}},
			{base + plain, []Ask{{To: "10.0.0.91:80", Want: `
				service Service meshed/web port 80 (main)
				decided unknown by default_list
				to 10.244.91.1:8080 pod meshed/web-1 node n1 zone a
				to 10.244.91.2:8080 pod meshed/web-2 node n1 zone a`}}},
		}},
	}
}
