package kube

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
)

// What needs an API server is in integration/kube.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func key(kind, name string) cluster.Key { return cluster.Key{Kind: kind, Namespace: "n", Name: name} }

func pod(name string) cluster.Item {
	return cluster.Item{Key: key(cluster.PodKind, name), Objects: cluster.Objects{Pods: []*cluster.Pod{{}}}}
}

func TestAQueueKeepsTheLastOfEachObject(t *testing.T) {
	known := func(kind string) []cluster.Key {
		return []cluster.Key{key(kind, "gone"), key(kind, "stays"), key(kind, "broken")}
	}
	q := newQueue()
	q.put(pod("early"))
	q.replace(cluster.PodKind, []cluster.Item{pod("stays"), pod("deleted")}, map[cluster.Key]bool{key(cluster.PodKind, "broken"): true})
	q.put(cluster.Item{Key: key(cluster.PodKind, "deleted")})
	q.put(pod("late"))
	got := map[string]int{}
	for _, it := range q.take(known) {
		got[it.Name] = len(it.Objects.Pods)
	}
	want := map[string]int{"gone": 0, "stays": 1, "deleted": 0, "late": 1}
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for n, pods := range want {
		if have, ok := got[n]; !ok || have != pods {
			t.Errorf("%s: got %v, want %v", n, got, want)
		}
	}
	if rest := q.take(known); len(rest) > 0 {
		t.Errorf("left: %v", rest)
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	good := "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\ncontexts: [{name: a, context: {cluster: c}}]\n"
	for _, tt := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"no pod", Config{}, "this is no pod"},
		{"no file", Config{Kubeconfig: filepath.Join(dir, "none")}, "none"},
		{"no YAML", Config{Kubeconfig: write("broken", "{")}, "broken"},
		{"no such context", Config{Kubeconfig: write("good", good), Context: "b"}, `"b"`},
		{"a certificate that is none", Config{REST: &rest.Config{Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("x")}}}, "https://127.0.0.1:1"},
		{"in order", Config{Kubeconfig: write("good", good)}, ""},
	} {
		_, err := Open(tt.cfg)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestWithoutAnAPIAnswersWaitAndThenGoOnWithout has an API server that nobody
// listens for: port 1 of the machine itself.
func TestWithoutAnAPIAnswersWaitAndThenGoOnWithout(t *testing.T) {
	s, err := Open(Config{REST: &rest.Config{Host: "https://127.0.0.1:1"}, Patience: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	dst := netip.MustParseAddrPort("10.96.0.1:80")
	if v := s.Find(dst); !v.Pending || len(v.Endpoints) > 0 {
		t.Errorf("at first: %+v", v)
	}
	cache := discovery.NewCache(discovery.CacheConfig{}, s)
	target := cache.Resolve(dst)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx, cache.Update) })
	for end := time.Now().Add(30 * time.Second); target.View().Pending && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
	}
	if v := target.View(); v.Pending || v.Kind != discovery.Address || len(v.Endpoints) != 1 || v.Endpoints[0].Addr != dst {
		t.Errorf("after the wait: %+v", v)
	}
	if st := s.State(); st.Synced || st.Age <= 0 || st.Err == nil {
		t.Errorf("state %+v", st)
	}
	cancel()
	running.Wait()
}

func TestEveryKindThatFilesHaveIsWatched(t *testing.T) {
	needed := 0
	for _, k := range kinds() {
		if k.custom() != (k.resource == "") {
			t.Errorf("%s: custom %t, and served at %q", k.name, k.custom(), k.resource)
		}
		if k.needed {
			needed++
		}
	}
	if needed != 2 {
		t.Errorf("%d kinds are needed, want Services and EndpointSlices", needed)
	}
}
