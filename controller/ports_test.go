package controller

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/destination"
	"github.com/meshctl/meshctl/proxy/message"
	"github.com/meshctl/meshctl/proxy/policy"
)

// asking is a client that asks who may call the pod shop/web-1.
type asking struct {
	*destination.Ports
	unasked *policy.Live
	changes atomic.Int64
}

func asks(t *testing.T, byDefault policy.Default, addrs ...string) *asking {
	t.Helper()
	c, err := destination.Open(destination.Config{Addrs: addrs, Namespace: "shop", Pod: "web-1", Opaque: policy.DefaultOpaque(), Wait: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	a := &asking{unasked: policy.NewLive(policy.Compile(policy.Config{Default: byDefault}, policy.Objects{}))}
	a.Ports = c.Ports(destination.PortsConfig{Unasked: a.unasked, Known: []uint16{8080},
		Port: func(_ uint16, d policy.Description) (*policy.Port, error) { return d.Port() }})
	a.Changed(func() { a.changes.Add(1) })
	cache := discovery.NewCache(discovery.CacheConfig{}, c)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); c.Run(ctx, cache) }()
	t.Cleanup(func() { stop(); <-ended })
	return a
}

// becomes waits until the port is decided about as want says.
func (a *asking) becomes(t *testing.T, number uint16, want string) {
	t.Helper()
	eventually(t, fmt.Sprintf("port %d: %s instead of %s", number, a.says(number), want), func() bool { return a.says(number) == want })
}

func (a *asking) says(number uint16) string {
	p := a.Port(number)
	if p.Pending {
		return "pending"
	}
	out := p.Server.Kind + "/" + p.Server.Name
	for _, c := range []policy.Client{
		{Addr: netip.MustParseAddr("10.1.2.3")}, {Addr: netip.MustParseAddr("10.9.2.3"), Mesh: true, ID: friend}, {Addr: netip.MustParseAddr("10.1.2.3"), Mesh: true, ID: friend},
	} {
		out += fmt.Sprintf(" %t", p.AuthorizeConnection(c).Allowed)
	}
	return out
}

const friend = "one.shop.serviceaccount.identity.linkerd.cluster.local"

func TestAProxyAsksWhoMayCall(t *testing.T) {
	w := newWorld(t)
	pod := fmt.Sprintf(podWeb, "")
	w.set(pod)
	first := w.serve("127.0.0.1:0", nil)
	a := asks(t, policy.Deny, first.addr)
	const open, guarded = "default/all-unauthenticated true true true", "server/web false false true"
	a.becomes(t, 8080, open)
	a.becomes(t, 9090, open)
	w.set(pod + served)
	a.becomes(t, 8080, guarded)
	if got := a.says(9090); got != open {
		t.Errorf("a port without a Server: %s", got)
	}
	probe := &message.Head{Method: []byte("GET"), Path: []byte("/healthz"), Authority: []byte("x")}
	if !a.Port(8080).AuthorizeRequest(policy.Client{Addr: netip.MustParseAddr("10.1.2.3")}, probe).Allowed {
		t.Error("the kubelet may not ask")
	}
	w.set(pod + strings.Replace(served, "networks: [{cidr: 10.0.0.0/8", "networks: [{cidr: 11.0.0.0/8", 1))
	a.becomes(t, 8080, "server/web false false false")
	before := a.changes.Load()
	w.set(pod + strings.Replace(served, "networks: [{cidr: 10.0.0.0/8", "networks: [{cidr: 11.0.0.0/8", 1) + " ")
	w.set(pod + served)
	a.becomes(t, 8080, guarded)
	if n := a.changes.Load() - before; n != 1 {
		t.Errorf("told of %d changes where there was one", n)
	}
	first.kill() // what was said last counts
	time.Sleep(800 * time.Millisecond)
	if got := a.says(8080); got != guarded {
		t.Errorf("without the controller: %s", got)
	}
	a.becomes(t, 7070, "default/deny false false false") // nothing was said of it: the proxy's own default
	second := w.serve(first.addr, nil)
	a.becomes(t, 7070, open)
	w.set(pod)
	a.becomes(t, 8080, open)
	second.kill()
}

func TestBeforeTheFirstAnswerTheDefaultCountsOrNobody(t *testing.T) {
	w := newWorld(t)
	r := w.serve("127.0.0.1:0", nil) // without the pod
	a := asks(t, policy.AllUnauthenticated, r.addr)
	if got := a.says(8080); got != "pending" {
		t.Errorf("at first: %s", got)
	}
	a.becomes(t, 8080, "default/deny false false false") // it is connected, and says nothing: there may be Servers
	w.set(fmt.Sprintf(podWeb, "") + served)
	a.becomes(t, 8080, "server/web false false true")

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nowhere := l.Addr().String()
	l.Close()
	lost := asks(t, policy.AllUnauthenticated, nowhere)
	lost.becomes(t, 8080, "default/all-unauthenticated true true true")
	lost.unasked.Replace(policy.Compile(policy.Config{Default: policy.Deny}, policy.Objects{})) // an annotation, say
	lost.becomes(t, 8080, "default/deny false false false")
	lost.unasked.Replace(policy.Compile(policy.Config{Default: policy.AllUnauthenticated}, policy.Objects{}))
	late := w.serve(nowhere, nil)
	lost.becomes(t, 8080, "server/web false false true")
	late.kill()
}

func TestAControlPlaneWithoutThatAPILeavesTheDefault(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer() // as Linkerd's destination controller: its policy controller is another
	served := make(chan struct{})
	go func() { defer close(served); _ = g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-served })
	a := asks(t, policy.AllAuthenticated, l.Addr().String())
	a.becomes(t, 8080, "default/all-authenticated false true true")
	a.becomes(t, 8081, "default/all-authenticated false true true")
}

func TestWhoTriesAllPortsIsNotWatchedForAll(t *testing.T) {
	w := newWorld(t)
	w.set(fmt.Sprintf(podWeb, ""))
	r := w.serve("127.0.0.1:0", nil)
	a := asks(t, policy.AllUnauthenticated, r.addr)
	a.becomes(t, 8080, "default/all-unauthenticated true true true")
	for n := 1; n <= 3000; n++ {
		a.Port(uint16(n))
	}
	if got := a.says(2999); got != "default/deny false false false" {
		t.Errorf("one port too many: %s", got)
	}
	eventually(t, "streams", func() bool { return r.api.streams[askInbound].Load() >= 1000 })
	if n := r.api.streams[askInbound].Load(); n > 1024 {
		t.Errorf("%d streams", n)
	}
	if got := a.says(8080); got != "default/all-unauthenticated true true true" {
		t.Errorf("a port that was there before: %s", got)
	}
}
