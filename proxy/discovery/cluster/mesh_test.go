package cluster

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/proxy/discovery"
)

// meshed are objects of every kind that may be in the mesh.
func meshed() Objects {
	addr := netip.MustParseAddr
	proxied := func(account, skip string) Proxy {
		set, err := ports.Parse(skip)
		if err != nil {
			panic(err)
		}
		return Proxy{ControlPlane: "linkerd", Account: account, Skip: set}
	}
	moved := proxied("web", "")
	moved.Port = 5143
	all := ours("10.1.0.1 ready", "10.1.0.2 ready", "10.1.0.3 ready", "10.1.0.4 ready", "10.1.0.5 ready", "192.0.2.7 ready", "10.1.0.9 ready")
	for i, pod := range []string{"meshed", "plain", "skipping", "moved", "own", "", "gone"} {
		all.Slices[0].Endpoints[i].Pod = pod
	}
	all.Slices[0].Endpoints[5].Workload = "vm"
	headless := &Service{Object: object("Service", "shop", "each", 2), Headless: true, Ports: []Port{{Number: 8080}}}
	all.Services = append(all.Services, headless)
	all.Slices = append(all.Slices, &Slice{
		Object: object("EndpointSlice", "shop", "each-1", 11), Service: "each", Ports: []SlicePort{{Number: 9090}},
		Endpoints: []SliceEndpoint{{Addr: addr("10.1.0.1"), Ready: true, Pod: "meshed"}},
	})
	all.Pods = []*Pod{
		{Object: object("Pod", "shop", "meshed", 20), IPs: []netip.Addr{addr("10.1.0.1"), addr("fd00::1")}, Proxy: proxied("web", "")},
		{Object: object("Pod", "shop", "plain", 21), IPs: []netip.Addr{addr("10.1.0.2")}},
		{Object: object("Pod", "shop", "skipping", 22), IPs: []netip.Addr{addr("10.1.0.3")}, Proxy: proxied("", "4190,4191,8000-8100")},
		{Object: object("Pod", "shop", "moved", 23), IPs: []netip.Addr{addr("10.1.0.4")}, Proxy: moved},
		{Object: object("Pod", "shop", "own", 24), IPs: []netip.Addr{addr("10.1.0.5")}, Proxy: proxied("web", "8080")},
		{Object: object("Pod", "shop", "own-plain", 25), IPs: []netip.Addr{addr("10.1.0.6")}},
	}
	all.Workloads = []*Workload{
		{Object: object("ExternalWorkload", "shop", "vm", 30), IPs: []netip.Addr{addr("192.0.2.7"), addr("2001:db8::7")}, ID: "spiffe://example.org/vm", ServerName: "vm.example.org"},
		{Object: object("ExternalWorkload", "shop", "named", 31), IPs: []netip.Addr{addr("192.0.2.8")}, ID: "named.example.org", Port: 6143, Skip: ports.Of(22)},
		{Object: object("ExternalWorkload", "shop", "bare", 32), IPs: []netip.Addr{addr("192.0.2.9")}},
	}
	return all
}

// meshWords writes a Mesh in a line.
func meshWords(m discovery.Mesh) string {
	if !m.Meshed() {
		return m.NoTLS
	}
	text := m.ID + " at " + ports.Of(m.Port).String()
	if m.ServerName != m.ID {
		text += " as " + m.ServerName
	}
	return text
}

func TestWhichEndpointsAreMeshed(t *testing.T) {
	const web = "web.shop.serviceaccount.identity.linkerd.cluster.local at "
	const other = "default.shop.serviceaccount.identity.linkerd.cluster.local at "
	s := Build(Config{
		Namespace: "shop",
		Local: func(a netip.Addr) bool {
			return a == netip.MustParseAddr("10.1.0.5") || a == netip.MustParseAddr("10.1.0.6")
		},
	}, meshed(), nil)
	for _, tt := range []struct {
		dst  string
		want []string // of the endpoints, in their order
	}{
		{"10.96.0.1:80", []string{
			web + "4143",          // 10.1.0.1
			discovery.NotProvided, // a pod without a proxy
			discovery.PortSkipped, // that skips 8080
			web + "5143",          // whose proxy listens elsewhere
			discovery.Loopback,    // our own, whatever it skips
			discovery.NotProvided, // a pod that is not among the objects
			"spiffe://example.org/vm at 4143 as vm.example.org",
		}},
		{"10.1.0.1:9090", []string{web + "4143"}}, // behind a headless Service
		{"10.1.0.1:8081", []string{web + "4143"}},
		{"[fd00::1]:8081", []string{web + "4143"}},
		{"10.1.0.1:4143", []string{discovery.PortSkipped}}, // the proxy itself
		{"10.1.0.1:4191", []string{web + "4143"}},          // only what Skip says
		{"10.1.0.2:8080", []string{discovery.NotProvided}},
		{"10.1.0.3:4191", []string{discovery.PortSkipped}},
		{"10.1.0.3:7999", []string{other + "4143"}},
		{"10.1.0.4:5143", []string{discovery.PortSkipped}},
		{"10.1.0.4:4143", []string{web + "5143"}},
		{"10.1.0.5:80", []string{discovery.Loopback}},
		{"10.1.0.6:80", []string{discovery.Loopback}},
		{"192.0.2.7:80", []string{"spiffe://example.org/vm at 4143 as vm.example.org"}},
		{"[2001:db8::7]:80", []string{"spiffe://example.org/vm at 4143 as vm.example.org"}},
		{"192.0.2.8:80", []string{"named.example.org at 6143"}},
		{"192.0.2.8:22", []string{discovery.PortSkipped}},
		{"192.0.2.8:6143", []string{discovery.PortSkipped}},
		{"192.0.2.9:80", []string{discovery.NotProvided}},
		{"8.8.8.8:80", []string{discovery.NotProvided}},
	} {
		v := s.Find(netip.MustParseAddrPort(tt.dst))
		var got []string
		for _, e := range v.Endpoints {
			got = append(got, meshWords(e.Mesh))
			if e.Mesh.Reason() != e.Mesh.NoTLS {
				t.Errorf("%s: the reason is %q, and was %q", e.Addr, e.Mesh.Reason(), e.Mesh.NoTLS)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %s\nwant %s", tt.dst, strings.Join(got, "; "), strings.Join(tt.want, "; "))
		}
	}
}

func TestAWorkloadsAddressIsItsOwn(t *testing.T) {
	all := meshed()
	all.Egresses = []*Egress{egress("shop", "all", 1, "0.0.0.0/0")}
	v := Build(Config{Namespace: "shop"}, all, nil).Find(netip.MustParseAddrPort("192.0.2.7:80"))
	if v.Kind != discovery.Workload || v.String() != "ExternalWorkload shop/vm port 80" {
		t.Errorf("%s: %s", v.Kind, &v)
	}
}

func TestAnIdentityEndsInTheTrustDomain(t *testing.T) {
	v := Build(Config{TrustDomain: "east.example"}, meshed(), nil).Find(netip.MustParseAddrPort("10.1.0.1:80"))
	if got, want := v.Endpoints[0].Mesh.ID, "web.shop.serviceaccount.identity.linkerd.east.example"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestAPodThatJoinsTheMeshChangesTheView(t *testing.T) {
	dst := netip.MustParseAddrPort("10.96.0.1:80")
	before := meshed()
	cache := discovery.NewCache(discovery.CacheConfig{}, Build(Config{}, before, nil))
	target := cache.Resolve(dst)
	first := target.View()
	cache.Replace(Build(Config{}, meshed(), nil))
	if target.View() != first {
		t.Error("the same objects, read again, are another View")
	}
	after := meshed()
	after.Pods[1].Proxy = after.Pods[0].Proxy
	cache.Replace(Build(Config{}, after, nil))
	if v := target.View(); v == first || !v.Endpoints[1].Mesh.Meshed() {
		t.Error("the View is as it was")
	}
}

func TestTwoWorkloadsThatClaimTheSameAreToldApart(t *testing.T) {
	ip := []netip.Addr{netip.MustParseAddr("192.0.2.7")}
	s := Build(Config{}, Objects{Workloads: []*Workload{
		{Object: object("ExternalWorkload", "shop", "a", 1), IPs: ip}, {Object: object("ExternalWorkload", "shop", "a", 2), IPs: ip},
		{Object: object("ExternalWorkload", "shop", "b", 3), IPs: ip},
	}}, nil)
	var got []string
	for _, w := range s.Warnings() {
		got = append(got, w.Object.String()+" "+w.Text)
	}
	want := []string{
		"ExternalWorkload shop/a it is there twice: the one at x.yaml:1 does not count",
		"ExternalWorkload shop/b it has the address 192.0.2.7 of ExternalWorkload shop/a, which does not count",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if v := s.Find(netip.MustParseAddrPort("192.0.2.7:80")); v.Object.Name != "b" {
		t.Errorf("the address is that of %s", v.Object)
	}
}
