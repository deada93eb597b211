package targets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/meshctl/meshctl/integration/built"
)

// starting are three Services that have no endpoint yet, as while a Deployment
// starts, and a client of each.
type starting struct {
	web, opaque, grpc service
	w                 *world
	client            *http.Client
	stub              testgrpc.TestServiceClient
}

func newStarting(n int) *starting {
	ip := func(last int) string { return fmt.Sprintf("10.96.%d.%d", 10+n, last) }
	name := func(s string) string { return fmt.Sprintf("%s-%d", s, n) }
	return &starting{
		web:    service{name: name("web"), ip: ip(1), port: 80, target: 8080},
		opaque: service{name: name("opaque"), ip: ip(2), port: 81, target: 8080, appProtocol: "linkerd.io/opaque"},
		grpc:   service{name: name("grpc"), ip: ip(3), port: 90, target: 9000, appProtocol: "kubernetes.io/h2c"},
	}
}

func (s *starting) yaml() []string { return []string{s.web.yaml(), s.opaque.yaml(), s.grpc.yaml()} }

func (s *starting) start() {
	for _, v := range []*service{&s.web, &s.opaque, &s.grpc} {
		v.pods = []string{"10.244.0.11"}
	}
}

func (s *starting) join(t *testing.T, w *world) {
	s.w, s.client = w, w.client(t, 1)
	s.stub = testgrpc.NewTestServiceClient(w.grpc(t, addr(s.grpc.ip+":90")))
}

// ask asks all three at once.
func (s *starting) ask(t *testing.T) (errs [3]error) {
	c := s.w.dial(t, addr(s.opaque.ip+":81"))
	var all sync.WaitGroup
	all.Go(func() { errs[0] = post(s.client, "http://"+s.web.ip+"/") })
	all.Go(func() {
		if _, errs[1] = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); errs[1] == nil {
			_, errs[1] = c.Read(make([]byte, 1))
		}
	})
	all.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_, errs[2] = s.stub.EmptyCall(ctx, &testgrpc.Empty{})
	})
	all.Wait()
	return errs
}

func TestAServiceWithoutEndpointsIsWaitedFor(t *testing.T) {
	n := network(t, "10.244.0.11")
	httpBackend(t, n, "web", "10.244.0.11:8080", 0, nil)
	grpcBackend(t, n, "g", "10.244.0.11:9000", 0)
	const tries = 4 // a busy machine may need longer for the change than is waited for
	var all []*starting
	objects := func() map[string]string {
		var list []string
		for _, s := range all {
			list = append(list, s.yaml()...)
		}
		return file(list...)
	}
	for i := range tries + 1 {
		all = append(all, newStarting(i))
	}
	w := meshed(t, n, objects())
	for _, s := range all {
		s.join(t, w)
	}
	for i, s := range all[:tries] {
		done := make(chan [3]error, 1)
		go func() { done <- s.ask(t) }()
		await(t, "all three wait", func() bool {
			return len(done) > 0 || w.proxy.Sample(t).Sum("meshctl_waiting_requests", `direction="outbound"`) == 2 &&
				slices.ContainsFunc(w.proxy.Connections(t), func(c built.Connection) bool { return c.State == "connecting" })
		})
		s.start()
		w.volume.write(t, objects())
		errs := <-done
		if errs == [3]error{} {
			break
		}
		if i == tries-1 {
			t.Errorf("endpoints have come in time: %v\n%s", errs, w.proxy.Logged(t))
		}
	}
	errs := all[tries].ask(t) // none ever comes
	if want := statusError("504 Gateway Timeout: no endpoint is ready"); errs[0] != want {
		t.Errorf("a request is answered %v", errs[0])
	}
	if !errors.Is(errs[1], syscall.ECONNRESET) {
		t.Errorf("an opaque connection ends with %v", errs[1])
	}
	if s := status.Convert(errs[2]); s.Code().String() != "DeadlineExceeded" || s.Message() != "no endpoint is ready" {
		t.Errorf("a call is answered %s %q", s.Code(), s.Message())
	}
}
