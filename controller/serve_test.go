package controller

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	dst "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/destination"
	"github.com/meshctl/meshctl/proxy/discovery/destination/wire"
)

// web is a Service with as many endpoints; more is appended to its annotations.
func web(endpoints ...string) string {
	var b strings.Builder
	b.WriteString(`apiVersion: v1
kind: Service
metadata: {namespace: shop, name: web}
spec: {clusterIP: 10.0.0.1, ports: [{name: main, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: main, port: 8080}]
endpoints:
`)
	for _, e := range endpoints {
		fmt.Fprintf(&b, "- {addresses: [%s], conditions: {ready: true}}\n", e)
	}
	if len(endpoints) == 0 {
		return strings.TrimSuffix(b.String(), "endpoints:\n")
	}
	return b.String()
}

func addrs(v *discovery.View) string {
	var out []string
	for _, e := range v.Endpoints {
		out = append(out, e.Addr.String())
	}
	return strings.Join(out, " ")
}

func dialed(t *testing.T, addr string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient("passthrough:///"+addr, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestStreamsSendOnlyWhatChanged(t *testing.T) {
	w := newWorld(t)
	w.set(web("10.1.0.1", "10.1.0.2"))
	r := w.serve("127.0.0.1:0", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := dst.NewDestinationClient(dialed(t, r.addr)).Get(ctx, &dst.GetDestination{Path: "web.shop.svc.cluster.local:80"})
	if err != nil {
		t.Fatal(err)
	}
	next := func() string {
		t.Helper()
		u, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, a := range u.GetAdd().GetAddrs() {
			fmt.Fprintf(&b, "+%s ", wire.AddrPort(a.GetAddr()))
		}
		for _, a := range u.GetRemove().GetAddrs() {
			fmt.Fprintf(&b, "-%s ", wire.AddrPort(a))
		}
		if n := u.GetNoEndpoints(); n != nil {
			fmt.Fprintf(&b, "none, exists: %v", n.GetExists())
		}
		return strings.TrimSpace(b.String())
	}
	for _, step := range []struct {
		objects string
		want    []string
	}{
		{web("10.1.0.1", "10.1.0.2"), []string{"+10.1.0.1:8080 +10.1.0.2:8080"}},
		{web("10.1.0.2", "10.1.0.3"), []string{"+10.1.0.3:8080", "-10.1.0.1:8080"}},
		{web("10.1.0.3"), []string{"-10.1.0.2:8080"}},
		{web(), []string{"none, exists: true"}},
		{web("10.1.0.9"), []string{"+10.1.0.9:8080"}},
		{"", []string{"none, exists: false"}},
	} {
		w.set(step.objects)
		w.set(step.objects) // the same again is no change
		for _, want := range step.want {
			if got := next(); got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
	}
}

func TestWhatCannotBeAskedIsRefusedWithAReason(t *testing.T) {
	w := newWorld(t)
	w.set(web("10.1.0.1"))
	c := dialed(t, w.serve("127.0.0.1:0", nil).addr)
	get := func(path string) error {
		s, err := dst.NewDestinationClient(c).Get(t.Context(), &dst.GetDestination{Path: path})
		if err != nil {
			return err
		}
		_, err = s.Recv()
		return err
	}
	profile := func(path string) error {
		s, err := dst.NewDestinationClient(c).GetProfile(t.Context(), &dst.GetDestination{Path: path})
		if err != nil {
			return err
		}
		_, err = s.Recv()
		return err
	}
	policy := func(spec *outbound.TrafficSpec) error {
		_, err := outbound.NewOutboundPoliciesClient(c).Get(t.Context(), spec)
		return err
	}
	for what, tt := range map[string]struct {
		err  error
		code codes.Code
	}{
		"no port":             {get("web.shop.svc.cluster.local"), codes.InvalidArgument},
		"no Service":          {get("example.com:80"), codes.InvalidArgument},
		"port 0":              {get("web.shop.svc.cluster.local:0"), codes.InvalidArgument},
		"an address outside":  {get("192.0.2.1:80"), codes.InvalidArgument},
		"empty":               {get(""), codes.InvalidArgument},
		"profile: no name":    {profile("example.com:80"), codes.InvalidArgument},
		"profile: unknown":    {profile("db.shop.svc.cluster.local:80"), codes.NotFound},
		"policy: no target":   {policy(&outbound.TrafficSpec{}), codes.InvalidArgument},
		"a Service's address": {get("10.0.0.1:80"), codes.OK},
		"profile: an address": {profile("192.0.2.1:80"), codes.OK},
		"profile: a name":     {profile("web.shop.svc.cluster.local:80"), codes.OK},
		"policy: a name":      {policy(&outbound.TrafficSpec{Target: &outbound.TrafficSpec_Authority{Authority: "web.shop.svc.cluster.local:80"}}), codes.OK},
	} {
		if got := status.Code(tt.err); got != tt.code {
			t.Errorf("%s: %v, want %v", what, tt.err, tt.code)
		}
	}
}

func TestManyWatchersOfOneServiceShareOneComputation(t *testing.T) {
	w := newWorld(t)
	w.set(web("10.1.0.1"))
	r := w.serve("127.0.0.1:0", nil)
	c := dst.NewDestinationClient(dialed(t, r.addr))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	const watchers = 200
	var streams []dst.Destination_GetClient
	for range watchers {
		s, err := c.Get(ctx, &dst.GetDestination{Path: "web.shop.svc.cluster.local:80"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	before := r.api.worked.Load()
	w.set(web("10.1.0.1", "10.1.0.2"))
	for _, s := range streams {
		if u, err := s.Recv(); err != nil || len(u.GetAdd().GetAddrs()) != 1 {
			t.Fatalf("%v, %v", u, err)
		}
	}
	if n := r.api.worked.Load() - before; n != 1 {
		t.Errorf("%d computations for one change", n)
	}
	if n := r.api.hub.size(); n != 1 {
		t.Errorf("%d topics", n)
	}
	cancel()
	eventually(t, "nothing is watched any more", func() bool { return r.api.hub.size() == 0 })
}

func TestASlowReaderGetsTheLatestStateAndNoBacklog(t *testing.T) {
	w := newWorld(t)
	many := func(third int) []string {
		out := make([]string, 0, 400)
		for i := range 400 {
			out = append(out, fmt.Sprintf("10.%d.%d.%d", third%200+2, i/200, i%200+1))
		}
		return out
	}
	w.set(web(many(0)...))
	r := w.serve("127.0.0.1:0", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	slow, err := dst.NewDestinationClient(dialed(t, r.addr, grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10))).
		Get(ctx, &dst.GetDestination{Path: "web.shop.svc.cluster.local:80"})
	if err != nil {
		t.Fatal(err)
	}
	quick, cache := client(t, destination.Config{Addrs: []string{r.addr}, Namespace: "shop"})
	target := cache.Resolve(at("10.0.0.1:80"))
	const changes = 150
	for i := 1; i <= changes; i++ {
		w.set(web(many(i)...))
	}
	last := many(changes)[399] + ":8080"
	eventually(t, "a client that reads is up to date", func() bool { return strings.Contains(addrs(target.View()), last) })
	if n := quick.Stats().Messages; n == 0 {
		t.Error("nothing was read")
	}
	// What the slow one reads now was in the windows, and then comes the latest.
	var now wire.Endpoints
	messages := 0
	for len(now.List) != 400 || now.List[399].Addr.String() != last {
		u, err := slow.Recv()
		if err != nil {
			t.Fatal(err)
		}
		now = now.Apply(u)
		messages++
	}
	if messages > changes {
		t.Errorf("%d messages after %d changes: a backlog", messages, changes)
	}
	t.Logf("%d changes, %d messages", changes, messages)
}

func TestTwoReplicasKilledInTurnLoseNothing(t *testing.T) {
	w := newWorld(t)
	w.set(web("10.1.0.1"))
	replicas := []*replica{w.serve("127.0.0.1:0", nil), w.serve("127.0.0.1:0", nil)}
	addr := []string{replicas[0].addr, replicas[1].addr}
	c, cache := client(t, destination.Config{Addrs: addr, Namespace: "shop"})
	target := cache.Resolve(at("10.0.0.1:80"))
	eventually(t, "the first answer", func() bool { return addrs(target.View()) == "10.1.0.1:8080" })
	for round := range 4 {
		i := round % 2
		replicas[i].kill()
		want := fmt.Sprintf("10.1.1.%d", round+1)
		w.set(web(want))
		eventually(t, "the other replica says "+want, func() bool {
			v := target.View()
			if len(v.Endpoints) != 1 {
				t.Fatalf("round %d: the view is %v", round, v)
			}
			return addrs(v) == want+":8080"
		})
		replicas[i] = w.serve(addr[i], nil)
	}
	if s := c.Stats(); !s.Connected || s.Age != 0 {
		t.Errorf("%+v", s)
	}
}

func TestTheLastStateIsKeptWhileNothingAnswers(t *testing.T) {
	w := newWorld(t)
	w.set(web("10.1.0.1"))
	r := w.serve("127.0.0.1:0", nil)
	c, cache := client(t, destination.Config{Addrs: []string{r.addr}, Namespace: "shop", Wait: 200 * time.Millisecond})
	target := cache.Resolve(at("10.0.0.1:80"))
	eventually(t, "the first answer", func() bool { return addrs(target.View()) == "10.1.0.1:8080" })
	r.kill()
	eventually(t, "the loss is noticed", func() bool { s := c.Stats(); return !s.Connected && s.Age > 0 })
	if got := addrs(target.View()); got != "10.1.0.1:8080" {
		t.Errorf("after the loss: %s", got)
	}
	late := cache.Resolve(at("10.0.0.2:80")) // nobody answers: the address as it is
	eventually(t, "an unknown address counts as it is", func() bool { v := late.View(); return !v.Pending && addrs(v) == "10.0.0.2:80" })
	w.set(web("10.1.0.7"))
	w.serve(r.addr, nil)
	eventually(t, "it is up to date again", func() bool { return addrs(target.View()) == "10.1.0.7:8080" && c.Stats().Age == 0 })
}

func TestAViewIsPendingUntilTheAnswerAndNotForLong(t *testing.T) {
	w := newWorld(t)
	w.set(web("10.1.0.1"))
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, cache := client(t, destination.Config{Addrs: []string{l.Addr().String()}, Namespace: "shop", Wait: 300 * time.Millisecond})
	for port := uint16(1); ; port++ { // until Run has begun
		v := cache.Resolve(netip.AddrPortFrom(netip.MustParseAddr("10.0.0.2"), port)).View()
		if v.Pending && len(v.Endpoints) == 0 {
			break
		}
		if port == 5000 {
			t.Fatal("no view is pending")
		}
		time.Sleep(time.Millisecond)
	}
	target := cache.Resolve(at("10.0.0.1:80"))
	eventually(t, "it is given up", func() bool { v := target.View(); return !v.Pending && addrs(v) == "10.0.0.1:80" })
}

func TestWhatNobodyHoldsIsNotWatched(t *testing.T) {
	w := newWorld(t)
	w.set(web("10.1.0.1"))
	r := w.serve("127.0.0.1:0", nil)
	c, cache := client(t, destination.Config{Addrs: []string{r.addr}, Namespace: "shop", Idle: 200 * time.Millisecond})
	held := cache.Resolve(at("10.0.0.1:80"))
	cache.Resolve(at("192.0.2.1:443"))
	eventually(t, "an answer", func() bool { return addrs(held.View()) == "10.1.0.1:8080" })
	eventually(t, "the one that is held stays", func() bool { runtime.GC(); return c.Stats().Watched == 1 })
	runtime.KeepAlive(held)
	held = nil
	eventually(t, "nothing is watched", func() bool { runtime.GC(); return c.Stats().Watched == 0 && r.api.hub.size() == 0 })
}

func TestAThousandChangesReachEveryClient(t *testing.T) {
	w := newWorld(t)
	w.set(web("10.1.0.1"))
	r := w.serve("127.0.0.1:0", nil)
	const clients = 5
	var targets []*discovery.Target
	for range clients {
		_, cache := client(t, destination.Config{Addrs: []string{r.addr}, Namespace: "shop"})
		targets = append(targets, cache.Resolve(at("10.0.0.1:80")))
	}
	var applying sync.WaitGroup
	applying.Go(func() {
		for i := range 1000 {
			w.set(web(fmt.Sprintf("10.2.%d.%d", i/250, i%250+1), "10.3.0.1"))
		}
	})
	applying.Wait()
	for i, target := range targets {
		eventually(t, fmt.Sprintf("client %d has the last state", i), func() bool { return addrs(target.View()) == "10.2.3.250:8080 10.3.0.1:8080" })
	}
}
