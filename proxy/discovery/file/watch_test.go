package file

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/meshctl/meshctl/internal/annotation"
	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var dst = netip.MustParseAddrPort("10.96.0.1:80")

// web is a Service at dst with one endpoint.
func web(endpoint string) string {
	return "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  namespace: shop\nspec:\n  clusterIP: 10.96.0.1\n  ports:\n  - port: 80\n---\n" +
		"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nmetadata:\n  name: web-1\n  namespace: shop\n  labels:\n    kubernetes.io/service-name: web\n" +
		"ports:\n- name: \"\"\n  port: 8080\nendpoints:\n- addresses:\n  - " + endpoint + "\n"
}

// watched is a cache that follows files.
type watched struct {
	cache  *discovery.Cache
	target *discovery.Target
	loads  chan Report
}

// follow reads paths again until the test ends. Polling is far off unless poll says
// otherwise, so that it is the events that tell.
func follow(t *testing.T, poll time.Duration, paths ...string) *watched {
	t.Helper()
	w := &watched{loads: make(chan Report, 1000)}
	r := NewReader(Config{Paths: paths, Cluster: shop(), Settle: 10 * time.Millisecond, Poll: poll, Told: func(r Report) { w.loads <- r }})
	s, report := r.Load()
	if err := report.Err(); err != nil {
		t.Fatal(err)
	}
	<-w.loads
	w.cache = discovery.NewCache(discovery.CacheConfig{}, s)
	w.target = w.cache.Resolve(dst)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Watch(ctx, func(s *cluster.Snapshot) { w.cache.Replace(s) })
	}()
	t.Cleanup(func() { cancel(); <-done })
	<-w.loads // the look right after the watch has begun
	return w
}

// goesTo waits until the target has that one endpoint.
func (w *watched) goesTo(t *testing.T, want string) {
	t.Helper()
	w.until(t, want, func() string { return addrs(w.target.View().Endpoints) })
}

func (w *watched) until(t *testing.T, want string, is func() string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); is() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it is %q, want %q", is(), want)
		}
	}
}

// load waits for the next load that is broken, or not.
func (w *watched) load(t *testing.T, broken bool) Report {
	t.Helper()
	end := time.After(20 * time.Second)
	for {
		select {
		case r := <-w.loads:
			if r.Broken() == broken {
				return r
			}
		case <-end:
			t.Fatalf("no load with broken=%t", broken)
		}
	}
}

func TestAFileThatIsWrittenIsReadAgain(t *testing.T) {
	name := write(t, filepath.Join(t.TempDir(), "web.yaml"), web("10.244.0.1"))
	w := follow(t, time.Hour, name)
	w.goesTo(t, "10.244.0.1:8080")
	write(t, name, web("10.244.0.2"))
	w.goesTo(t, "10.244.0.2:8080")
	write(t, name, web("10.244.0.3")) // the same size, within the same tick of the clock
	w.goesTo(t, "10.244.0.3:8080")
}

func TestAFileThatIsReplacedIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	name := write(t, filepath.Join(dir, "web.yaml"), web("10.244.0.1"))
	w := follow(t, time.Hour, name)
	for i := 2; i < 5; i++ {
		fresh := write(t, filepath.Join(dir, ".new"), web(fmt.Sprintf("10.244.0.%d", i)))
		if err := os.Rename(fresh, name); err != nil {
			t.Fatal(err)
		}
		w.goesTo(t, fmt.Sprintf("10.244.0.%d:8080", i))
	}
}

// TestAMountOfKubernetesIsFollowed swaps the link "..data" as the kubelet does.
//
//	dir/web.yaml -> ..data/web.yaml
//	dir/..data   -> ..1 (then ..2, ..3)
func TestAMountOfKubernetesIsFollowed(t *testing.T) {
	dir := t.TempDir()
	swap := func(i int) {
		t.Helper()
		version := fmt.Sprintf("..%d", i)
		if err := os.Mkdir(filepath.Join(dir, version), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version, "web.yaml"), web(fmt.Sprintf("10.244.0.%d", i)))
		if err := os.Symlink(version, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
		if i > 1 {
			if err := os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..%d", i-1))); err != nil {
				t.Fatal(err)
			}
		}
	}
	swap(1)
	if err := os.Symlink("..data/web.yaml", filepath.Join(dir, "web.yaml")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, filepath.Join(dir, "web.yaml")} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			w := follow(t, time.Hour, path)
			last := lastVersion(t, dir)
			for i := last + 1; i <= last+3; i++ {
				swap(i)
				w.goesTo(t, fmt.Sprintf("10.244.0.%d:8080", i))
			}
		})
	}
}

// lastVersion is the number of the directory that "..data" leads to.
func lastVersion(t *testing.T, dir string) (n int) {
	t.Helper()
	to, err := os.Readlink(filepath.Join(dir, "..data"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(to, "..%d", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestABrokenFileKeepsWhatItSaidAndOthersGoOn(t *testing.T) {
	dir := t.TempDir()
	name := write(t, filepath.Join(dir, "web.yaml"), web("10.244.0.1"))
	w := follow(t, time.Hour, dir)
	before := w.target.View()

	replace(t, name, strings.Replace(web("10.244.0.2"), "port: 8080", "port: eighty", 1))
	if r := w.load(t, true); len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Error(), "web.yaml:21: EndpointSlice shop/web-1: ports[0].port: ") {
		t.Errorf("problems %v", r.Problems)
	}
	if w.target.View() != before {
		t.Error("a broken file changed the view")
	}

	other := netip.MustParseAddrPort("10.96.0.2:443")
	write(t, filepath.Join(dir, "other.yaml"), "apiVersion: v1\nkind: Service\nmetadata:\n  name: other\n  namespace: shop\nspec:\n  clusterIP: 10.96.0.2\n  ports:\n  - port: 443\n")
	w.until(t, "Service shop/other port 443", func() string { return w.cache.Resolve(other).View().String() })
	w.goesTo(t, "10.244.0.1:8080")

	replace(t, name, web("10.244.0.3"))
	w.goesTo(t, "10.244.0.3:8080")
	if r := w.load(t, false); len(r.Problems) != 1 { // other has no EndpointSlice
		t.Errorf("problems %v", r.Problems)
	}

	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	w.until(t, "address", func() string { return w.target.View().Kind.String() })
}

func TestAnUnchangedTargetKeepsItsViewWhenOthersChange(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "web.yaml"), web("10.244.0.1"))
	write(t, filepath.Join(dir, "route.yaml"), httpRoute("  - backendRefs:\n    - name: web\n      port: 80\n"))
	w := follow(t, time.Hour, dir)
	before := w.target.View()
	if before.Table == nil {
		t.Fatal("no table")
	}
	write(t, filepath.Join(dir, "more.yaml"), "apiVersion: v1\nkind: Service\nmetadata:\n  name: more\n  namespace: shop\nspec:\n  clusterIP: 10.96.0.9\n  ports:\n  - port: 1\n")
	w.until(t, "service", func() string {
		return w.cache.Resolve(netip.MustParseAddrPort("10.96.0.9:1")).View().Kind.String()
	})
	if w.target.View() != before {
		t.Error("the view is another one")
	}
}

func TestWhereNoEventComesLookingHelps(t *testing.T) {
	// A link to a directory that is swapped above the watched ones: no event
	// there tells of it.
	root := t.TempDir()
	for i := 1; i <= 2; i++ {
		below := filepath.Join(root, fmt.Sprint(i), "below")
		if err := os.MkdirAll(below, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(below, "web.yaml"), web(fmt.Sprintf("10.244.0.%d", i))+strings.Repeat("#", i)+"\n")
	}
	if err := os.Symlink("1", filepath.Join(root, "now")); err != nil {
		t.Fatal(err)
	}
	w := follow(t, 20*time.Millisecond, filepath.Join(root, "now", "below"))
	w.goesTo(t, "10.244.0.1:8080")
	if err := os.Symlink("2", filepath.Join(root, "tmp")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(root, "tmp"), filepath.Join(root, "now")); err != nil {
		t.Fatal(err)
	}
	w.goesTo(t, "10.244.0.2:8080")
}

func TestViewsMayBeReadWhileFilesChange(t *testing.T) {
	dir := t.TempDir()
	name := write(t, filepath.Join(dir, "web.yaml"), web("10.244.0.1"))
	w := follow(t, time.Hour, dir)
	var stop atomic.Bool
	done := make(chan int)
	for range 2 {
		go func() {
			n := 0
			for version := uint64(0); !stop.Load(); n++ {
				v := w.cache.Resolve(dst).View()
				if v.Version < version || len(v.Endpoints) != 1 {
					t.Errorf("version %d after %d, %d endpoints", v.Version, version, len(v.Endpoints))
					break
				}
				version = v.Version
			}
			done <- n
		}()
	}
	for i := range 100 {
		fresh := write(t, filepath.Join(dir, ".new"), web(fmt.Sprintf("10.244.1.%d", i+1)))
		if err := os.Rename(fresh, name); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	w.goesTo(t, "10.244.1.100:8080")
	stop.Store(true)
	if a, b := <-done, <-done; a == 0 || b == 0 {
		t.Error("a reader did not come to read")
	}
}

func TestThePodsAnnotationsAreFollowed(t *testing.T) {
	dir := t.TempDir()
	name := write(t, filepath.Join(dir, "annotations"), "config.linkerd.io/opaque-ports=\"4406\"\n")
	said, told := make(chan string, 10), make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		WatchAnnotations(ctx, name, slog.New(slog.NewTextHandler(sink(told), nil)), func(p annotation.Pod, _ []annotation.Note) {
			said <- p.OpaquePorts.String()
		})
	}()
	if got := <-said; got != "4406" {
		t.Errorf("at first it says %s", got)
	}
	await := func(from <-chan string, want string) {
		t.Helper()
		select {
		case got := <-from:
			if !strings.Contains(got, want) {
				t.Errorf("got %s, want %s", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("nothing was told of %s", want)
		}
	}
	replace(t, name, "config.linkerd.io/opaque-ports=4407\n") // no quotes: as if it were half written
	await(told, "line 1")                                     // it has been read
	replace(t, name, "config.linkerd.io/opaque-ports=\"4408\"\n")
	await(said, "4408")
	cancel()
	<-done
}

// replace writes a file at once. One that is being written may be read as an empty
// one: that counts, and then so does what is right.
func replace(t *testing.T, name, text string) {
	t.Helper()
	if err := os.Rename(write(t, name+"~", text), name); err != nil {
		t.Fatal(err)
	}
}

// sink takes the lines of a log.
type sink chan<- string

// Write implements io.Writer.
func (s sink) Write(line []byte) (int, error) {
	s <- string(line)
	return len(line), nil
}
