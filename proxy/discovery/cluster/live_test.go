package cluster_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/internal/annotation"
	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/discovery/table"
	"github.com/meshctl/meshctl/proxy/policy"
	"github.com/meshctl/meshctl/proxy/route"
)

// toss makes objects at random, of few names and addresses, so that they meet.
type toss struct{ *rand.Rand }

func (r toss) name() string     { return string(rune('a' + r.IntN(4))) }
func (r toss) addr() netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(24))}) }
func (r toss) item() cluster.Item {
	n := r.name()
	k := []string{cluster.ServiceKind, cluster.SliceKind, cluster.SliceKind, cluster.PodKind, cluster.PodKind, "/Namespace", "gateway.networking.k8s.io/HTTPRoute"}[r.IntN(7)]
	it := cluster.Item{Key: cluster.Key{Kind: k, Namespace: "shop", Name: n}}
	if r.IntN(4) == 0 {
		return it
	}
	o := discovery.Object{Kind: k[strings.Index(k, "/")+1:], Namespace: "shop", Name: n}
	switch k {
	case cluster.ServiceKind:
		svc := &cluster.Service{Object: o, Headless: r.IntN(2) == 0, Ports: []cluster.Port{{Number: 80, Name: "main", At: o}}}
		if !svc.Headless {
			svc.IPs = []netip.Addr{r.addr()}
		}
		if r.IntN(3) == 0 {
			svc.Policy = map[string]string{"timeout.linkerd.io/request": "3s"}
		}
		it.Objects.Services = []*cluster.Service{svc}
	case cluster.SliceKind:
		sl := &cluster.Slice{Object: o, Service: r.name(), Ports: []cluster.SlicePort{{Name: "main", Number: 8080}}}
		for range r.IntN(3) {
			sl.Endpoints = append(sl.Endpoints, cluster.SliceEndpoint{Addr: r.addr(), Ready: r.IntN(2) == 0, Serving: true, Pod: r.name()})
		}
		it.Objects.Slices = []*cluster.Slice{sl}
	case cluster.PodKind:
		p := &cluster.Pod{Object: o, IPs: []netip.Addr{r.addr()}, Opaque: r.list(o)}
		if last := p.IPs[0].As4()[3]; last%2 == 0 {
			p.Proxy = cluster.Proxy{ControlPlane: "linkerd", Account: fmt.Sprint("sa", last), Skip: ports.Of(8078 + uint16(last)%4)}
		}
		it.Objects.Pods = []*cluster.Pod{p}
	case "/Namespace":
		it.Namespace, it.Name, o.Namespace, o.Name = "", "shop", "", "shop"
		it.Objects.Namespaces = []*cluster.Namespace{{Object: o, Opaque: r.list(o)}}
	default:
		rt := route.Route{Kind: route.HTTP, Namespace: "shop", Name: n, Rules: []route.Rule{{Backends: []route.BackendRef{{Name: r.name(), Port: 80}}}}}
		it.Objects.Routes = []*cluster.Route{{Object: o, Route: rt, Parents: []cluster.Parent{{Kind: "Service", Namespace: "shop", Name: r.name(), Port: 80}}}}
	}
	return it
}

func (r toss) list(o discovery.Object) discovery.List {
	if r.IntN(2) == 0 {
		return discovery.List{}
	}
	p, err := annotation.ParsePorts(fmt.Sprint(8080 + r.IntN(2)))
	if err != nil {
		panic(err)
	}
	return discovery.List{By: o, Ports: p}
}

// everywhere is what r says of all addresses that there may be.
func everywhere(find func(netip.AddrPort) *discovery.View) []string {
	var out []string
	for i := range 24 {
		for _, port := range []uint16{80, 8080} {
			dst := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), port)
			out = append(out, dst.String()+" "+table.Text(find(dst), "GET a/"))
		}
	}
	return out
}

// TestAPictureThatChangesIsTheOneBuiltAnew compares, after each of many changes,
// what is said of every address: by the Targets that only hear of what touches
// them, and by a picture made anew of the same objects.
func TestAPictureThatChangesIsTheOneBuiltAnew(t *testing.T) {
	compared := 0
	for seed := range uint64(40) {
		r := toss{rand.New(rand.NewPCG(seed, 1))}
		cfg := cluster.Config{Namespace: "shop", Opaque: ports.Of(3306)}
		live := cluster.NewLive(cfg)
		cache := discovery.NewCache(discovery.CacheConfig{}, live)
		last := map[cluster.Key]cluster.Item{}
		for step := range 80 {
			var items []cluster.Item
			for range 1 + r.IntN(3) {
				it := r.item()
				items = slices.DeleteFunc(items, func(o cluster.Item) bool { return o.Key == it.Key })
				items = append(items, it)
			}
			cache.Update(live.Apply(items))
			for _, it := range items {
				last[it.Key] = it
			}
			if claimedTwice(last) {
				continue // which of two counts depends on the order of changes
			}
			compared++
			var all cluster.Objects
			for _, k := range slices.SortedFunc(maps.Keys(last), byName) {
				all.Add(last[k].Objects)
			}
			fresh := cluster.Build(cfg, all, nil)
			want := everywhere(func(dst netip.AddrPort) *discovery.View { v := fresh.Find(dst); return &v })
			got := everywhere(func(dst netip.AddrPort) *discovery.View { return cache.Resolve(dst).View() })
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("seed %d, step %d, after %+v (-built anew +changed):\n%s", seed, step, items, diff)
			}
		}
	}
	if compared < 500 {
		t.Errorf("only %d pictures were compared", compared)
	}
}

func byName(a, b cluster.Key) int {
	return strings.Compare(a.Kind+" "+a.Namespace+" "+a.Name, b.Kind+" "+b.Namespace+" "+b.Name)
}

// claimedTwice reports whether an address belongs to two Services, pods, or members.
func claimedTwice(last map[cluster.Key]cluster.Item) bool {
	seen := map[string]bool{}
	twice := false
	add := func(key string) {
		twice = twice || seen[key]
		seen[key] = true
	}
	for _, it := range last {
		for _, s := range it.Objects.Services {
			for _, a := range s.IPs {
				add("service " + a.String())
			}
		}
		for _, p := range it.Objects.Pods {
			for _, a := range p.IPs {
				add("pod " + a.String())
			}
		}
		for _, sl := range it.Objects.Slices {
			for _, e := range sl.Endpoints {
				add("member " + e.Addr.String())
			}
		}
	}
	return twice
}

func TestAnAddressGoesBackToWhoClaimedItBefore(t *testing.T) {
	at := netip.MustParseAddrPort("10.0.0.1:80")
	pod := func(n string) cluster.Item {
		o := discovery.Object{Kind: "Pod", Namespace: "shop", Name: n}
		return cluster.Item{Key: cluster.Key{Kind: cluster.PodKind, Namespace: "shop", Name: n}, Objects: cluster.Objects{Pods: []*cluster.Pod{{Object: o, IPs: []netip.Addr{at.Addr()}}}}}
	}
	live := cluster.NewLive(cluster.Config{})
	is := func(want string) {
		t.Helper()
		if got := live.Find(at).Object.Name; got != want {
			t.Errorf("it is %q, want %q", got, want)
		}
	}
	live.Apply([]cluster.Item{pod("old"), pod("new")})
	is("new")
	live.Apply([]cluster.Item{{Key: pod("new").Key}})
	is("old")
	live.Apply([]cluster.Item{pod("new"), {Key: pod("old").Key}})
	is("new")
	live.Apply([]cluster.Item{{Key: pod("new").Key}})
	is("")
}

func TestWhatSaysTheSameChangesNothing(t *testing.T) {
	r := toss{rand.New(rand.NewPCG(1, 1))}
	live := cluster.NewLive(cluster.Config{})
	it := r.item()
	for it.Objects.Len() == 0 {
		it = r.item()
	}
	if live.Apply([]cluster.Item{it}).IsZero() {
		t.Error("a new object changes nothing")
	}
	if !live.Apply([]cluster.Item{it}).IsZero() {
		t.Error("the same object changes something")
	}
	if n := live.Len(); n != 1 {
		t.Errorf("%d objects", n)
	}
	live.Apply([]cluster.Item{{Key: it.Key}})
	if n := live.Len(); n != 0 {
		t.Errorf("%d objects are left", n)
	}
}

func TestPoliciesAreAskedAboutPodsOfTheClientsNamespaceOnly(t *testing.T) {
	pod := func(namespace, label string) cluster.Item {
		o := discovery.Object{Kind: "Pod", Namespace: namespace, Name: "a"}
		return cluster.Item{Key: cluster.Key{Kind: cluster.PodKind, Namespace: namespace, Name: "a"}, Objects: cluster.Objects{
			Pods:     []*cluster.Pod{{Object: o}},
			Policies: policy.Objects{Pods: []*policy.Pod{{Object: policy.Object{Namespace: namespace, Name: "a"}, Labels: map[string]string{"app": label}}}},
		}}
	}
	live := cluster.NewLive(cluster.Config{Namespace: "shop"})
	labels := func() (out []string) {
		live.Read(func(s *cluster.Snapshot) {
			for _, p := range s.Policies().Pods {
				out = append(out, p.Labels["app"])
			}
		})
		return out
	}
	for _, step := range []struct {
		item    cluster.Item
		changed bool
		want    string
	}{
		{pod("other", "x"), false, ""},
		{pod("shop", "x"), true, "x"},
		{pod("shop", "y"), true, "y"},
		{pod("shop", "y"), false, "y"},
		{cluster.Item{Key: pod("shop", "").Key}, true, ""},
	} {
		change := live.Apply([]cluster.Item{step.item})
		if got := strings.Join(labels(), " "); got != step.want || change.Policies != step.changed {
			t.Errorf("after %v: %q, changed %t; want %q, %t", step.item.Key, got, change.Policies, step.want, step.changed)
		}
	}
}

func TestAPodAmongEveryonesIsAskedAboutByItself(t *testing.T) {
	l := cluster.NewLive(cluster.Config{Everyone: true})
	item := func(label string) cluster.Item {
		o := discovery.Object{Kind: "Pod", Namespace: "shop", Name: "a"}
		return cluster.Item{Key: cluster.Key{cluster.PodKind, "shop", "a"}, Objects: cluster.Objects{Pods: []*cluster.Pod{{Object: o}},
			Policies: policy.Objects{Pods: []*policy.Pod{{Object: policy.Object{Namespace: "shop", Name: "a"}, Labels: map[string]string{"app": label}}}}}}
	}
	for _, label := range []string{"web", "db"} {
		change := l.Apply([]cluster.Item{item(label)})
		if _, named := change.Pods["shop/a"]; change.Policies || change.All || !named {
			t.Errorf("%s: %+v", label, change)
		}
		l.Read(func(s *cluster.Snapshot) {
			if p := s.PolicyPod("shop", "a"); p == nil || p.Labels["app"] != label {
				t.Errorf("%s: %+v", label, p)
			}
		})
	}
	l.Apply([]cluster.Item{{Key: cluster.Key{"policy.linkerd.io/Server", "shop", "s"}, Objects: cluster.Objects{Policies: policy.Objects{Servers: []*policy.Server{{}}}}}}) // a new picture
	l.Read(func(s *cluster.Snapshot) {
		if s.PolicyPod("shop", "a") == nil {
			t.Error("a new picture has forgotten the pod")
		}
	})
	l.Apply([]cluster.Item{{Key: cluster.Key{cluster.PodKind, "shop", "a"}}})
	l.Read(func(s *cluster.Snapshot) {
		if s.PolicyPod("shop", "a") != nil {
			t.Error("a pod that is gone is known")
		}
	})
}
