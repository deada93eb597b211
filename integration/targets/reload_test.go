package targets

import (
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/servers"
)

// declared is what the proxy says of a new connection to the address.
func declared(t *testing.T, w *world, to netip.AddrPort) string {
	t.Helper()
	conn := w.dial(t, to)
	defer conn.Close()
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatalf("no answer: %v\n%s", err, w.proxy.Logged(t))
	}
	for _, c := range w.proxy.Connections(t) {
		if c.Target == to.String() && c.BytesIn > 0 && strings.HasSuffix(c.Client, port(clientOf(conn))) {
			return c.Protocol + " " + c.Declared
		}
	}
	t.Fatalf("no connection to %s", to)
	return ""
}

func TestFilesThatChangeChangeWhatNewConnectionsAre(t *testing.T) {
	n := network(t, "10.244.0.11")
	servers.HTTP1(t, servers.At(n.Peer, netip.IPv4Unspecified(), 8080))
	s := service{name: "web", ip: "10.96.1.3", port: 80, target: 8080, pods: []string{"10.244.0.11"}}
	to := addr("10.96.1.3:80")
	w := meshed(t, n, file(s.yaml()))
	old := w.dial(t, to) // it has to outlive all changes
	ask := func() {
		t.Helper()
		if _, err := old.Write([]byte("GET /204 HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4096)
		if k, err := old.Read(b); err != nil || !strings.HasPrefix(string(b[:k]), "HTTP/1.1 204") {
			t.Fatalf("the old connection: %q, %v", b[:k], err)
		}
	}
	ask()
	for _, step := range []struct{ name, appProtocol, annotations, want string }{
		{"an appProtocol comes", "linkerd.io/opaque", "", `opaque opaque: appProtocol "linkerd.io/opaque"`},
		{"it changes", "http", "", `http/1 http/1: appProtocol "http"`},
		{"it goes, an annotation comes", "", `config.linkerd.io/opaque-ports: "80"`, `opaque opaque: opaque-ports "80" of Service shop/web`},
		{"the annotation is empty", "", `config.linkerd.io/opaque-ports: ""`, `http/1 detect: not in opaque-ports "" of Service shop/web`},
		{"nothing is declared", "", "", "http/1 detect: not in the default list"},
	} {
		s.appProtocol, s.annotations = step.appProtocol, step.annotations
		w.volume.write(t, file(s.yaml()))
		await(t, step.name, func() bool { return strings.HasPrefix(declared(t, w, to), step.want) })
		ask()
	}
}

func TestABrokenFileLeavesTheLastGoodState(t *testing.T) {
	n := network(t, "10.244.0.11")
	servers.HTTP1(t, servers.At(n.Peer, netip.IPv4Unspecified(), 8080))
	s := service{name: "web", ip: "10.96.1.3", port: 80, appProtocol: "http", target: 8080, pods: []string{"10.244.0.11"}}
	to := addr("10.96.1.3:80")
	w := meshed(t, n, file(s.yaml()))
	before := declared(t, w, to)
	broken := strings.Replace(s.yaml(), "    port: 80\n", "    port: eighty\n", 1)
	w.volume.write(t, file(broken))
	await(t, "the problem is a number", func() bool {
		return w.proxy.Sample(t).Sum("meshctl_resource_problems", `severity="error"`) > 0
	})
	if got := declared(t, w, to); got != before {
		t.Errorf("a connection is %q, was %q", got, before)
	}
	if log := w.proxy.Logged(t); !strings.Contains(log, "shop.yaml:10") || !strings.Contains(log, "port") {
		t.Errorf("the log does not name the line and the field:\n%s", log)
	}
	if out, code := checked(t, filepath.Join(w.volume.dir, "shop.yaml")); code != 2 || !strings.Contains(out, "shop.yaml:10") {
		t.Errorf("meshctl check ends with %d: %s", code, out)
	}
	s.appProtocol = "linkerd.io/opaque"
	w.volume.write(t, file(s.yaml()))
	await(t, "a good file counts again", func() bool { return strings.HasPrefix(declared(t, w, to), "opaque opaque: appProtocol") })
	if n := w.proxy.Sample(t).Sum("meshctl_resource_problems", `severity="error"`); n != 0 {
		t.Errorf("%v problems are left", n)
	}
}

// reloads is how many requests are sent while endpoints change: MESHCTL_RELOAD_REQUESTS,
// or enough to see something.
func reloads(t *testing.T) int {
	t.Helper()
	text := os.Getenv("MESHCTL_RELOAD_REQUESTS")
	if text == "" {
		return 5000
	}
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}

func TestNoRequestFailsWhileEndpointsChange(t *testing.T) {
	t.Parallel()
	const changes = 100
	n := network(t, fourPods...)
	var pods []*backend
	for i, p := range fourPods {
		pods = append(pods, httpBackend(t, n, strconv.Itoa(i), p+":8080", 2*time.Millisecond, nil))
	}
	s := service{name: "web", ip: "10.96.1.4", port: 80, target: 8080, pods: fourPods}
	w := meshed(t, n, file(s.yaml()))
	requests := reloads(t)
	done, stopped := make(chan struct{}), make(chan int)
	go func() { // joined below
		changed := 0
		defer func() { stopped <- changed }()
		for ; changed < changes; changed++ {
			s.pods = [][]string{fourPods[:1], fourPods[1:3], fourPods[3:], fourPods[:3], fourPods[2:]}[changed%5]
			w.volume.write(t, file(s.yaml()))
			select {
			case <-done:
				return
			case <-time.After(120 * time.Millisecond):
			}
		}
	}()
	failed, sent := 0, 0
	for changing := true; changing || sent < requests; { // for as long as there are changes
		failed += load(t, w, 4, 500, "http://10.96.1.4/", nil)
		sent += 500
		select {
		case changed := <-stopped:
			changing = false
			t.Logf("%d changes within the first %d requests", changed, sent)
		default:
		}
		if changing && sent > 100*requests {
			close(done)
			<-stopped
			t.Fatal("the changes do not end")
		}
	}
	loads := w.proxy.Sample(t).Sum("meshctl_resource_loads_total", `result="ok"`)
	if failed > 0 || loads < changes/4 {
		t.Errorf("%d of %d requests failed over %v loads\n%s", failed, sent, loads, w.proxy.Logged(t))
	}
	t.Logf("%d of %d requests failed over %v loads", failed, sent, loads)
	for _, p := range pods {
		if p.got.Load() == 0 {
			t.Errorf("endpoint %s got nothing", p.name)
		}
	}
}

func TestRequestsWaitForAnEndpoint(t *testing.T) {
	n := network(t, "10.244.0.11", "10.244.0.12")
	httpBackend(t, n, "a", "10.244.0.11:8080", 0, nil)
	httpBackend(t, n, "b", "10.244.0.12:8080", 0, nil)
	s := service{name: "web", ip: "10.96.1.5", port: 80, target: 8080, pods: []string{"10.244.0.11", "10.244.0.12"}}
	w := meshed(t, n, file(s.yaml()))
	client := w.client(t, 1)
	must(t, post(client, "http://10.96.1.5/"))
	empty := s
	empty.pods = nil
	w.volume.write(t, file(empty.yaml()))
	await(t, "the proxy has loaded it", func() bool { return w.proxy.Sample(t).Sum("meshctl_resource_loads_total", `result="ok"`) >= 2 })
	go func() {
		time.Sleep(300 * time.Millisecond)
		w.volume.write(t, file(s.yaml()))
	}()
	if err := post(client, "http://10.96.1.5/"); err != nil {
		t.Errorf("a request that had to wait: %v", err)
	}
}
