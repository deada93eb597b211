package targets

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/built"
	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/proxy/identity/authority"
)

const twoPods = `apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: web-1, labels: {app: web, linkerd.io/control-plane-ns: linkerd}}
spec: {serviceAccountName: web, containers: [{name: app, image: app}]}
status: {phase: Running, podIP: 10.231.0.2, podIPs: [{ip: 10.231.0.2}]}
---
apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: db-1, labels: {app: db, linkerd.io/control-plane-ns: linkerd}}
spec: {serviceAccountName: db, containers: [{name: app, image: app}]}
status: {phase: Running, podIP: 10.231.0.1, podIPs: [{ip: 10.231.0.1}]}
---
apiVersion: policy.linkerd.io/v1beta3
kind: Server
metadata: {namespace: shop, name: open}
spec: {podSelector: {matchLabels: {app: db}}, port: 9000, proxyProtocol: opaque}
---
apiVersion: policy.linkerd.io/v1alpha1
kind: AuthorizationPolicy
metadata: {namespace: shop, name: open}
spec:
  targetRef: {group: policy.linkerd.io, kind: Server, name: open}
  requiredAuthenticationRefs: [{kind: ServiceAccount, name: web}]
---
apiVersion: policy.linkerd.io/v1beta3
kind: Server
metadata: {namespace: shop, name: closed}
spec: {podSelector: {matchLabels: {app: db}}, port: 9001}
`

// TestAControllerAndTheMesh: what the receiver is told counts for the first connection
// that comes over the mesh, whose port only the transport header says.
func TestAControllerAndTheMesh(t *testing.T) {
	n := lab.Pair(t)
	v := newVolume(t, file(twoPods))
	ca, err := authority.New("cluster.local", 24*time.Hour, time.Now())
	must(t, err)
	proxies := map[string]*built.Proxy{}
	for name, ns := range map[string]*lab.Namespace{"web": n.Pod, "db": n.Peer} {
		dir := t.TempDir()
		must(t, os.Chmod(dir, 0o755))
		must(t, os.Chown(dir, built.UID(), built.UID()))
		leaf, err := ca.Issue(authority.Request{Names: []string{name + ".shop.serviceaccount.identity.linkerd.cluster.local"}, Life: time.Hour}, time.Now())
		must(t, err)
		must(t, leaf.Write(dir))
		control(t, ns, v.dir)
		proxies[name] = built.Redirected(t, program, ns, nil, "--destination", "127.0.0.1:8086", "--namespace", "shop", "--pod", name+"-1", "--identity-dir", dir)
	}
	call := func(to netip.AddrPort) error {
		c, err := n.Pod.Dial(built.App, netip.AddrPort{}, to, 5*time.Second)
		must(t, err)
		t.Cleanup(func() { c.Close() })
		return echoed(c)
	}
	open, closed := netip.AddrPortFrom(lab.PeerV4, 9000), netip.AddrPortFrom(lab.PeerV4, 9001)
	seen := map[netip.AddrPort]func() int64{}
	for _, a := range []netip.AddrPort{open, closed} {
		seen[a] = echo(t, n.Peer, a).Load
	}
	if err := call(open); err != nil || seen[open]() != 1 {
		t.Fatalf("the first connection: %v, %d got through\nweb:\n%s\ndb:\n%s", err, seen[open](), proxies["web"].Logged(t), proxies["db"].Logged(t))
	}
	if c := proxies["db"].To(t, open); c.TLS != "true" || !strings.HasPrefix(c.ClientID, "web.shop.") {
		t.Errorf("it is no mTLS of web's: %+v", c)
	}
	if err := call(closed); err == nil || errors.Is(err, os.ErrDeadlineExceeded) || seen[closed]() != 0 {
		t.Errorf("a Server that lets nobody in: %v, %d got through", err, seen[closed]())
	}
	if n := proxies["db"].Sample(t).Sum("inbound_tcp_authz_deny_total"); n < 1 {
		t.Errorf("%v denied", n)
	}
}
