package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/linkerd/linkerd2-proxy-api/go/inbound"

	"github.com/meshctl/meshctl/proxy/discovery"
)

// crowd are pods of twenty Deployments in four namespaces; that of number label has
// another label.
func crowd(pods, label int) string {
	var b strings.Builder
	for i := range pods {
		app := fmt.Sprintf("app-%d", i%20)
		if i == label {
			app = "other"
		}
		fmt.Fprintf(&b, "apiVersion: v1\nkind: Pod\nmetadata: {namespace: n%d, name: p%d, labels: {app: %s}}\n"+
			"spec: {containers: [{name: app, image: app, ports: [{name: http, containerPort: 8080}]}]}\n"+
			"status: {phase: Running, podIP: 10.1.%d.%d}\n---\n", i%4, i, app, i/250, 1+i%250)
	}
	return b.String()
}

func crowdServers(protocol string) string {
	var b strings.Builder
	for i := range 20 {
		fmt.Fprintf(&b, "apiVersion: policy.linkerd.io/v1beta3\nkind: Server\nmetadata: {namespace: n%d, name: s%d}\n"+
			"spec: {podSelector: {matchLabels: {app: app-%d}}, port: http, proxyProtocol: %s}\n---\n", i%4, i, i, protocol)
	}
	return b.String()
}

func TestAThousandPodsShareWhatIsComputed(t *testing.T) {
	const pods = 1000
	w := newWorld(t)
	w.set(crowd(pods, -1) + crowdServers("HTTP/1"))
	r := w.serve("127.0.0.1:0", nil)
	c := inbound.NewInboundServerPoliciesClient(dialed(t, r.addr))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	var heard, opaque atomic.Int64
	var reading sync.WaitGroup
	t.Cleanup(reading.Wait)
	t.Cleanup(cancel)
	for i := range pods {
		for _, port := range []uint32{8080, 9090} {
			s, err := c.WatchPort(ctx, &inbound.PortSpec{Workload: fmt.Sprintf("n%d:p%d", i%4, i), Port: port})
			if err != nil {
				t.Fatal(err)
			}
			reading.Go(func() {
				for {
					m, err := s.Recv()
					if err != nil {
						return
					}
					heard.Add(1)
					if m.GetProtocol().GetOpaque() != nil {
						opaque.Add(1)
					}
				}
			})
		}
	}
	eventually(t, "the first answers", func() bool { return heard.Load() == 2*pods })
	made := func() int {
		r.api.tables.mu.Lock()
		defer r.api.tables.mu.Unlock()
		return len(r.api.tables.made)
	}
	if n := made(); n != 20 {
		t.Errorf("%d tables of pods of twenty templates", n)
	}
	began := time.Now()
	w.set(crowd(pods, -1) + crowdServers("opaque"))
	eventually(t, "the change", func() bool { return opaque.Load() == pods })
	t.Logf("a change of twenty Servers was with %d pods within %s", pods, time.Since(began).Round(time.Millisecond))
	if n := heard.Load(); n != 3*pods {
		t.Errorf("%d messages where %d say something new", n-2*pods, pods)
	}

	before := r.api.worked.Load()
	w.write(crowd(pods, 7) + crowdServers("opaque"))
	w.picture.Replace(w.load())
	r.api.Changed(&discovery.Change{Pods: map[string]struct{}{"n3/p7": {}}})
	eventually(t, "the pod's change", func() bool { return heard.Load() == 3*pods+1 })
	if n := r.api.worked.Load() - before; n != 2 {
		t.Errorf("one pod has changed, and %d answers were computed", n)
	}
	cancel()
	reading.Wait()
	eventually(t, "nobody asks any more", func() bool { return r.api.hub.size() == 0 })
}
