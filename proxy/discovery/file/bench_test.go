package file

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
)

// The size of a large cluster.
const (
	manyServices = 5_000
	perService   = 10
)

// largeCluster is what kubectl prints of one, as YAML or JSON.
func largeCluster(asJSON bool) []byte {
	var b bytes.Buffer
	var items []any
	b.WriteString("apiVersion: v1\nitems:\n")
	for i := range manyServices {
		name, ip := fmt.Sprintf("service-%d", i), fmt.Sprintf("10.96.%d.%d", i>>8, i&255)
		fmt.Fprintf(&b, `- apiVersion: v1
  kind: Service
  metadata:
    creationTimestamp: "2026-11-02T09:14:07Z"
    labels:
      app: %s
    name: %s
    namespace: shop
    resourceVersion: "71235"
    uid: 0b7c6d32-6a3c-4b59-9a0b-7a4d2c1c0001
  spec:
    clusterIP: %s
    clusterIPs:
    - %s
    internalTrafficPolicy: Cluster
    ipFamilies:
    - IPv4
    ipFamilyPolicy: SingleStack
    ports:
    - name: http
      port: 80
      protocol: TCP
      targetPort: 8080
    selector:
      app: %s
    sessionAffinity: None
    type: ClusterIP
  status:
    loadBalancer: {}
- addressType: IPv4
  apiVersion: discovery.k8s.io/v1
  endpoints:
`, name, name, ip, ip, name)
		var endpoints []any
		for j := range perService {
			n := i*perService + j
			addr := fmt.Sprintf("10.%d.%d.%d", 128+n>>16, n>>8&255, n&255)
			fmt.Fprintf(&b, `  - addresses:
    - %s
    conditions:
      ready: true
      serving: true
      terminating: false
    nodeName: node-%d
    targetRef:
      kind: Pod
      name: %s-%d
      namespace: shop
      uid: 0b7c6d32-6a3c-4b59-9a0b-7a4d2c1c0101
    zone: z%d
`, addr, n%100, name, j, n%3)
			endpoints = append(endpoints, map[string]any{"addresses": []string{addr}, "conditions": map[string]any{"ready": true, "serving": true, "terminating": false},
				"nodeName": fmt.Sprintf("node-%d", n%100), "targetRef": map[string]any{"kind": "Pod", "name": fmt.Sprintf("%s-%d", name, j), "namespace": "shop"}, "zone": fmt.Sprintf("z%d", n%3)})
		}
		fmt.Fprintf(&b, `  kind: EndpointSlice
  metadata:
    labels:
      kubernetes.io/service-name: %s
    name: %s-abcde
    namespace: shop
  ports:
  - name: http
    port: 8080
    protocol: TCP
`, name, name)
		items = append(items,
			map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": name, "namespace": "shop"},
				"spec": map[string]any{"clusterIP": ip, "clusterIPs": []string{ip}, "ports": []any{map[string]any{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}}}},
			map[string]any{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints,
				"metadata": map[string]any{"name": name + "-abcde", "namespace": "shop", "labels": map[string]any{"kubernetes.io/service-name": name}},
				"ports":    []any{map[string]any{"name": "http", "port": 8080, "protocol": "TCP"}}})
	}
	b.WriteString("kind: List\nmetadata:\n  resourceVersion: \"\"\n")
	if !asJSON {
		return b.Bytes()
	}
	text, err := json.MarshalIndent(map[string]any{"apiVersion": "v1", "kind": "List", "items": items}, "", "    ")
	if err != nil {
		panic(err)
	}
	return text
}

func BenchmarkReadALargeCluster(b *testing.B) {
	for _, form := range []string{"yaml", "json"} {
		b.Run(form, func(b *testing.B) {
			text := largeCluster(form == "json")
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				c := read("x."+form, text, "shop")
				if len(c.problems) > 0 || len(c.objects.Slices) != manyServices {
					b.Fatal(c.problems)
				}
			}
		})
	}
}

func BenchmarkBuildALargeCluster(b *testing.B) {
	objects := read("x.json", largeCluster(true), "shop").objects
	var s *cluster.Snapshot
	b.ReportAllocs()
	for b.Loop() {
		s = cluster.Build(shop(), objects, s)
	}
	b.ReportMetric(float64(manyServices*perService), "endpoints")
}

func BenchmarkFindInALargeCluster(b *testing.B) {
	s := cluster.Build(shop(), read("x.json", largeCluster(true), "shop").objects, nil)
	dst := netip.MustParseAddrPort("10.96.1.1:80")
	b.ReportAllocs()
	for b.Loop() {
		if v := s.Find(dst); len(v.Endpoints) != perService {
			b.Fatal(v)
		}
	}
}

// BenchmarkReloadALargeCluster changes one small file beside a large one, with
// 1,000 destinations in use.
func BenchmarkReloadALargeCluster(b *testing.B) {
	dir := b.TempDir()
	for name, text := range map[string][]byte{"large.json": largeCluster(true), "small.yaml": []byte(web("10.244.0.1"))} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	r := NewReader(Config{Paths: []string{dir}, Cluster: shop()})
	s, _ := r.Load()
	cache := discovery.NewCache(discovery.CacheConfig{}, s)
	for i := range 1000 {
		cache.Resolve(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), 80))
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		if err := os.WriteFile(filepath.Join(dir, "small.yaml"), []byte(web(fmt.Sprintf("10.244.%d.%d", i>>8&255, i&255))), 0o644); err != nil {
			b.Fatal(err)
		}
		s, report := r.Load()
		if report.Broken() {
			b.Fatal(report.Err())
		}
		cache.Replace(s)
	}
}
