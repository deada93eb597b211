package targets

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/integration/built"
	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/integration/servers"
)

const controlledPod = `apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: web-1, labels: {app: web}}
spec:
  containers: [{name: app, image: app, ports: [{name: http, containerPort: 8080}]}]
status: {phase: Running, podIP: 10.231.0.2, podIPs: [{ip: 10.231.0.2}]}
`

// protected are Servers of the pod's two ports; nobody may call them.
const protected = `apiVersion: policy.linkerd.io/v1beta3
kind: Server
metadata: {namespace: shop, name: raw}
spec: {podSelector: {matchLabels: {app: web}}, port: 9000, proxyProtocol: opaque}
---
apiVersion: policy.linkerd.io/v1beta3
kind: Server
metadata: {namespace: shop, name: http}
spec: {podSelector: {matchLabels: {app: web}}, port: http, proxyProtocol: HTTP/1}
`

// allowed lets the other end of the cable in.
const allowed = `apiVersion: policy.linkerd.io/v1alpha1
kind: NetworkAuthentication
metadata: {namespace: shop, name: near}
spec: {networks: [{cidr: 10.231.0.0/16}]}
---
apiVersion: policy.linkerd.io/v1alpha1
kind: AuthorizationPolicy
metadata: {namespace: shop, name: near}
spec:
  targetRef: {kind: Namespace, name: shop}
  requiredAuthenticationRefs: [{group: policy.linkerd.io, kind: NetworkAuthentication, name: near}]
`

// control starts a controller beside a pod's proxy, which asks it on loopback.
func control(t *testing.T, n *lab.Namespace, dir string) *servers.Process {
	t.Helper()
	p := servers.Start(t, n.Command(context.Background(), program, "controller", "--resources", dir, "--insecure", "--listen", "127.0.0.1:8086", "--admin-listen", "127.0.0.1:9996"))
	await(t, "the controller listens", func() bool {
		c, err := n.Dial(lab.Owner{}, netip.AddrPort{}, addr("127.0.0.1:8086"), time.Second)
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
	return p
}

// echo answers each line, and counts who got so far.
func echo(t *testing.T, n *lab.Namespace, at netip.AddrPort) *atomic.Int64 {
	t.Helper()
	l := n.Listen(t, at)
	var seen atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			seen.Add(1)
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	return &seen
}

// echoed sends a line over a connection and reads it back.
func echoed(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 6))
	return err
}

func TestAControllerSaysWhoMayCallAndWhatDestinationsAre(t *testing.T) {
	n := network(t, "10.244.0.11")
	pod := netip.AddrPortFrom(lab.PodV4, 9000)
	seen := echo(t, n.Pod, pod)
	echo(t, n.Peer, addr("10.244.0.11:8080"))
	servers.HTTP1(t, servers.At(n.Pod, lab.PodV4, 8080))
	db := service{name: "db", ip: "10.96.1.3", port: 80, target: 8080, pods: []string{"10.244.0.11"}, annotations: `config.linkerd.io/opaque-ports: "80"`}
	v := newVolume(t, file(db.yaml(), controlledPod, protected))
	first := control(t, n.Pod, v.dir)
	w := &world{Net: n, volume: v, proxy: built.Mesh(t, program, n, "--destination", "127.0.0.1:8086", "--namespace", "shop", "--pod", "web-1")}

	// What is declared counts from the first connection on.
	c := w.dial(t, addr("10.96.1.3:80"))
	must(t, echoed(c))
	if got := w.proxy.To(t, addr("10.96.1.3:80")); got.Reason != "declared" || got.Protocol != "opaque" || !strings.Contains(got.Service, "shop/db") {
		t.Errorf("the first connection: %+v", got)
	}
	gone, err := n.Pod.Dial(built.App, netip.AddrPort{}, addr("10.96.1.3:81"), 10*time.Second)
	if err == nil { // else the reset was faster than connect's return
		must(t, gone.SetDeadline(time.Now().Add(20*time.Second)))
		_, err = gone.Read(make([]byte, 1))
		gone.Close()
	}
	if !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("a port that the Service does not have: %v", err)
	}
	await(t, "the refusal is counted", func() bool {
		return w.proxy.Sample(t).Sum("meshctl_refused_total", `reason="no_such_port"`) == 1
	})

	// Nor is there a first connection that nobody has asked about.
	call := func() (*net.TCPConn, error) {
		c, err := n.Peer.Dial(lab.Owner{}, netip.AddrPort{}, pod, 5*time.Second)
		if errors.Is(err, unix.ECONNRESET) {
			return nil, err // the reset was faster than connect's return
		}
		must(t, err)
		t.Cleanup(func() { c.Close() })
		return c, echoed(c)
	}
	if _, err := call(); err == nil || seen.Load() != 0 {
		t.Errorf("the first call: %v, %d got through", err, seen.Load())
	}
	conn, err := n.Peer.Dial(lab.Owner{}, netip.AddrPort{}, netip.AddrPortFrom(lab.PodV4, 8080), 5*time.Second)
	must(t, err)
	defer conn.Close()
	from := bufio.NewReader(conn)
	ask := func() int { // all on one connection
		t.Helper()
		must(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
		_, err := io.WriteString(conn, "GET /204 HTTP/1.1\r\nHost: web\r\n\r\n")
		must(t, err)
		r, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, w.proxy.Logged(t))
		}
		_, _ = io.Copy(io.Discard, r.Body)
		return r.StatusCode
	}
	if got := ask(); got != http.StatusForbidden {
		t.Errorf("the first request: %d", got)
	}

	v.write(t, file(db.yaml(), controlledPod, protected, allowed))
	await(t, "a request is allowed", func() bool { return ask() == http.StatusNoContent })
	var live *net.TCPConn // ports are asked about one by one
	await(t, "a call is allowed", func() bool { live, err = call(); return err == nil })

	// Without the controller what it said last counts.
	first.Signal(unix.SIGKILL)
	<-first.Gone()
	if _, err := call(); err != nil {
		t.Errorf("without the controller: %v\n%s", err, w.proxy.Logged(t))
	}
	must(t, echoed(live))
	v.write(t, file(db.yaml(), controlledPod, protected))
	control(t, n.Pod, v.dir)
	must(t, live.SetDeadline(time.Now().Add(30*time.Second)))
	if _, err := live.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a live connection that is not allowed any more: %v\n%s", err, w.proxy.Logged(t))
	}
	await(t, "a request is refused again", func() bool { return ask() == http.StatusForbidden })
	if n := w.proxy.Sample(t).Sum("inbound_tcp_authz_terminate_total"); n < 1 {
		t.Errorf("%v connections ended", n)
	}
}
