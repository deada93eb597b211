package mesh

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/built"
	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/proxy/identity/authority"
)

// The identities of the two pods, and one of somebody else.
const (
	webID   = "web.shop.serviceaccount.identity.linkerd.cluster.local"
	dbID    = "db.shop.serviceaccount.identity.linkerd.cluster.local"
	otherID = "other.shop.serviceaccount.identity.linkerd.cluster.local"
)

// world is two pods of namespace shop, each with rules and a proxy of its own:
//
//	web 10.231.0.2 --veth-- db 10.231.0.1
//
// 10.232.0.10 is an address of db's namespace that is nobody's pod.
type world struct {
	*lab.Net
	ca        *authority.Authority
	web, db   *pod
	resources string // directory
}

// pod is one of the two.
type pod struct {
	ns  *lab.Namespace
	dir string // its identity
	*built.Proxy
}

// setup says how a world differs from the usual one.
type setup struct {
	plain      bool     // no identities: no mesh
	objects    string   // further ones
	webFlags   []string // of its proxy
	dbFlags    []string
	dbRedirect []string // flags of db's redirect
	before     func(*world)
}

// podObjects are the two pods, as both proxies know them. annotations are db's.
func podObjects(annotations string) string {
	object := func(name string, ip netip.Addr, annotations string) string {
		return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %[1]s
  namespace: shop
  labels: {app: %[1]s, linkerd.io/control-plane-ns: linkerd}
  annotations: {%[3]s}
spec:
  serviceAccountName: %[1]s
  containers: [{name: main, ports: [{name: http, containerPort: 8080}]}]
status:
  podIP: %[2]s
  podIPs: [{ip: %[2]s}]
  conditions: [{type: Ready, status: "True"}]
---
`, name, ip, annotations)
	}
	return object("web", lab.PodV4, "") + object("db", lab.PeerV4, annotations)
}

// meshed makes a world; it ends with the test.
func meshed(t testing.TB, s setup) *world {
	t.Helper()
	w := &world{Net: lab.Pair(t), resources: open(t)}
	w.web, w.db = &pod{ns: w.Pod}, &pod{ns: w.Peer}
	w.ca = newCA(t)
	if s.objects == "" {
		s.objects = podObjects("")
	}
	w.objects(t, s.objects)
	w.web.dir, w.db.dir = identityDir(t), identityDir(t)
	issue(t, w.ca, w.web.dir, webID)
	issue(t, w.ca, w.db.dir, dbID)
	if s.before != nil {
		s.before(w)
	}
	flags := func(p *pod, name string, more []string) []string {
		all := []string{"--resources", w.resources, "--namespace", "shop", "--pod", name, "--access-log", "json"}
		if !s.plain {
			all = append(all, "--identity-dir", p.dir)
		}
		return append(all, more...)
	}
	w.db.Proxy = built.Redirected(t, program, w.db.ns, s.dbRedirect, flags(w.db, "db", s.dbFlags)...)
	w.web.Proxy = built.Redirected(t, program, w.web.ns, nil, flags(w.web, "web", s.webFlags)...)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("web's proxy:\n%s\ndb's proxy:\n%s", w.web.Logged(t), w.db.Logged(t))
		}
	})
	return w
}

// objects makes text all the objects there are, at once.
func (w *world) objects(t testing.TB, text string) {
	t.Helper()
	file := filepath.Join(w.resources, "objects.yaml")
	must(t, os.WriteFile(file+".new", []byte(text), 0o644))
	must(t, os.Rename(file+".new", file))
}

// open is a directory of the test that every user may look into.
func open(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o711))
	must(t, os.Chmod(dir, 0o755))
	return dir
}

func newCA(t testing.TB) *authority.Authority {
	t.Helper()
	ca, err := authority.New("cluster.local", 24*time.Hour, time.Now())
	must(t, err)
	return ca
}

// identityDir is an empty directory of the proxies' user.
func identityDir(t testing.TB) string {
	t.Helper()
	dir := open(t)
	must(t, os.Chown(dir, built.UID(), built.UID()))
	return dir
}

// issued is a certificate for name, for an hour.
func issued(t testing.TB, ca *authority.Authority, name string) authority.Leaf {
	t.Helper()
	leaf, err := ca.Issue(authority.Request{Names: []string{name}, Life: time.Hour}, time.Now())
	must(t, err)
	return leaf
}

// issue writes a certificate for name into a proxy's directory.
func issue(t testing.TB, ca *authority.Authority, dir, name string) {
	t.Helper()
	must(t, issued(t, ca, name).Write(dir))
}

// at is a port of db.
func at(port uint16) netip.AddrPort { return netip.AddrPortFrom(lab.PeerV4, port) }

// dial connects as web's application; the connection ends with the test.
func (w *world) dial(t testing.TB, to netip.AddrPort) *net.TCPConn {
	t.Helper()
	return w.dialAs(t, built.App, to)
}

// around connects from web's namespace as its proxy does: past the rules.
func (w *world) around(t testing.TB, to netip.AddrPort) *net.TCPConn {
	t.Helper()
	return w.dialAs(t, lab.Owner{UID: built.UID(), GID: built.UID()}, to)
}

func (w *world) dialAs(t testing.TB, who lab.Owner, to netip.AddrPort) *net.TCPConn {
	t.Helper()
	conn, err := w.Pod.Dial(who, netip.AddrPort{}, to, 5*time.Second)
	if err != nil {
		t.Fatalf("dialling %s: %v", to, err)
	}
	t.Cleanup(func() { conn.Close() })
	must(t, conn.SetDeadline(time.Now().Add(patience)))
	return conn
}

// patience bounds what a busy machine may take for anything.
const patience = 20 * time.Second

// run runs a client program as web's application and returns what it prints.
func (w *world) run(t testing.TB, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := w.Pod.Command(ctx, "setpriv", append([]string{"--reuid=1000", "--regid=1000", "--clear-groups", "--", name}, args...)...)
	cmd.Dir, cmd.Env = os.TempDir(), append(cmd.Env, "HOME=/nonexistent")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

func (w *world) dialer() func(context.Context, string, string) (net.Conn, error) {
	return func(_ context.Context, _, addr string) (net.Conn, error) {
		to, err := netip.ParseAddrPort(addr)
		if err != nil {
			return nil, err
		}
		return w.Pod.Dial(built.App, netip.AddrPort{}, to, 5*time.Second)
	}
}

// client is an HTTP client of web's application.
func (w *world) client(t testing.TB) *http.Client {
	t.Helper()
	tr := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64, DialContext: w.dialer()}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

// await waits until ok, which something that runs elsewhere brings about.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("in vain: %s", what)
			return
		}
	}
}

// label is a label as the text format has it.
func label(name, value string) string { return name + `="` + value + `"` }

func portLabel(p uint16) string { return label("target_port", strconv.Itoa(int(p))) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// redirectedWeb is web's proxy where db has none of ours.
func redirectedWeb(t testing.TB, w *world) *built.Proxy {
	t.Helper()
	p := built.Redirected(t, program, w.web.ns, nil, "--resources", w.resources, "--namespace", "shop", "--pod", "web", "--identity-dir", w.web.dir)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("web's proxy:\n%s", p.Logged(t))
		}
	})
	return p
}
