package targets

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

// fourPods are the endpoints of the Services below.
var fourPods = []string{"10.244.0.11", "10.244.0.12", "10.244.0.13", "10.244.0.14"}

// each calls f n times, from workers goroutines at once.
func each(workers, n int, f func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				f(i)
			}
		})
	}
	all.Wait()
}

// A stall of one endpoint counts for 10 s, as it should: on a busy machine it may
// take that long until four that are alike look alike. Endpoints that are not
// chosen evenly never do.
func TestRequestsOfOneGRPCConnectionGoToAllEndpoints(t *testing.T) {
	n := network(t, fourPods...)
	var pods []*backend
	for i, p := range fourPods {
		pods = append(pods, grpcBackend(t, n, strconv.Itoa(i), p+":9000", 25*time.Millisecond)) // long against the noise of a busy machine
	}
	w := meshed(t, n, file(service{name: "g", ip: "10.96.1.1", port: 90, appProtocol: "kubernetes.io/h2c", target: 9000, pods: fourPods}.yaml()))
	client := testgrpc.NewTestServiceClient(w.grpc(t, addr("10.96.1.1:90")))
	const calls = 4000 // at which chance alone is off by 10 % once in a thousand times
	const most = 12
	for batch := 1; ; batch++ {
		for _, p := range pods {
			p.got.Store(0)
		}
		each(64, calls, func(int) {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			if _, err := client.EmptyCall(ctx, &testgrpc.Empty{}); err != nil {
				t.Error(err)
			}
		})
		even := true
		var got []int64
		for _, p := range pods {
			n := p.got.Load()
			got = append(got, n)
			even = even && n >= calls/4*90/100 && n <= calls/4*110/100
		}
		t.Logf("batch %d: %v", batch, got)
		if even || t.Failed() {
			return
		}
		if batch == most {
			t.Fatalf("the endpoints never got within 10 %% of a quarter of %d calls, at last %v", calls, got)
		}
	}
}

func TestASlowEndpointGetsFewerRequests(t *testing.T) {
	n := network(t, fourPods...)
	var pods []*backend
	for i, p := range fourPods {
		delay := 10 * time.Millisecond
		if i == 3 {
			delay = 100 * time.Millisecond
		}
		pods = append(pods, httpBackend(t, n, strconv.Itoa(i), p+":8080", delay, nil))
	}
	w := meshed(t, n, file(service{name: "web", ip: "10.96.1.2", port: 80, target: 8080, pods: fourPods}.yaml()))
	const requests = 4000
	if failed := load(t, w, 32, requests, "http://10.96.1.2/", nil); failed > 0 {
		t.Errorf("%d requests failed", failed)
	}
	slow := pods[3].got.Load()
	if slow > requests/4/2 {
		t.Errorf("the slow endpoint got %d of %d requests", slow, requests)
	}
	t.Logf("the slow endpoint got %d of %d requests", slow, requests)
}

// load sends POST requests, which nobody may send twice, and returns how many
// were not answered 200. before is called before each.
func load(t *testing.T, w *world, workers, requests int, url string, before func(i int)) int {
	t.Helper()
	client := w.client(t, workers)
	var failed atomic.Int64
	each(workers, requests, func(i int) {
		if before != nil {
			before(i)
		}
		err := post(client, url)
		if err != nil && failed.Add(1) <= 3 {
			t.Logf("request %d: %v", i, err)
		}
	})
	return int(failed.Load())
}

func post(client *http.Client, url string) error {
	req, err := http.NewRequest("POST", url, http.NoBody)
	if err != nil {
		return err
	}
	return do(client, req)
}

// do is an error unless the answer is a whole 200.
func do(client *http.Client, req *http.Request) error {
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return statusError(resp.Status + ": " + resp.Header.Get("l5d-proxy-error"))
	}
	return nil
}

// statusError is an answer that is not 200.
type statusError string

// Error is the status.
func (s statusError) Error() string { return string(s) }
