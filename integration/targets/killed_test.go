package targets

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
)

// logged is what the access log says of a request.
type logged struct {
	TraceID  string `json:"trace_id"`
	Endpoint string `json:"endpoint"` // that was tried last
	Error    string `json:"error"`
}

// lines are the lines about requests, by trace id.
func lines(t *testing.T, w *world, requests int) map[string]logged {
	t.Helper()
	var to map[string]logged
	await(t, "all lines of the access log are there", func() bool {
		to = map[string]logged{}
		for line := range strings.Lines(w.proxy.Printed()) {
			var l logged
			if json.Unmarshal([]byte(line), &l) == nil && l.TraceID != "" {
				to[l.TraceID] = l
			}
		}
		return len(to) == requests
	})
	return to
}

// killOne sends requests, which nobody may send twice, and kills the third
// endpoint in the middle. A request fails only if it had been sent there.
func killOne(t *testing.T, w *world, pods []*backend, at string, send func(i int) error) {
	t.Helper()
	const workers, requests = 16, 3000
	var (
		mu     sync.Mutex
		failed = map[string]error{}
		onIt   int64
	)
	killed, started := pods[2], time.Now()
	each(workers, requests, func(i int) {
		if i == requests/3 {
			for onIt = killed.busy.Load(); onIt == 0 && time.Since(started) < 20*time.Second; onIt = killed.busy.Load() {
				time.Sleep(time.Millisecond) // the others go on meanwhile
			}
			killed.stop()
		}
		if err := send(i); err != nil {
			mu.Lock()
			defer mu.Unlock()
			_, id := trace(i)
			failed[id] = err
		}
	})
	last := lines(t, w, requests)
	arrived := 0
	for id, err := range failed {
		if killed.heard(id) {
			arrived++
		}
		if l := last[id]; l.Endpoint != at || l.Error != "broken" { // else it was not sent, and could have gone elsewhere
			t.Errorf("request %s failed although it had not been sent to the endpoint that died: %v %+v", id, err, l)
		}
		for _, p := range pods {
			if p != killed && p.heard(id) {
				t.Errorf("request %s failed although endpoint %s has got it: %v", id, p.name, err)
			}
		}
	}
	for i := 1; i <= requests; i++ {
		_, id := trace(i)
		times := 0
		for _, p := range pods {
			if p.heard(id) {
				times++
			}
		}
		if times > 1 {
			t.Errorf("request %s was sent twice, and may not be", id)
		}
		if times == 0 && failed[id] == nil {
			t.Errorf("request %s was answered, and no endpoint has got it", id)
		}
	}
	if len(failed) > workers { // each has one under way
		t.Errorf("%d requests failed, and no more than %d can have been on the endpoint", len(failed), workers)
	}
	t.Logf("%d of %d requests failed, %d of them had arrived; the endpoint was serving %d", len(failed), requests, arrived, onIt)
}

func TestAnEndpointThatDiesTakesNoHTTPRequestsButThoseOnIt(t *testing.T) {
	n := network(t, fourPods...)
	var pods []*backend
	for i, p := range fourPods {
		pods = append(pods, httpBackend(t, n, strconv.Itoa(i), p+":8080", 10*time.Millisecond, nil))
	}
	w := meshed(t, n, file(service{name: "web", ip: "10.96.1.2", port: 80, target: 8080, pods: fourPods}.yaml()), "--access-log", "json")
	client := w.client(t, 16)
	killOne(t, w, pods, fourPods[2]+":8080", func(i int) error {
		req, err := http.NewRequest("POST", "http://10.96.1.2/", http.NoBody)
		if err != nil {
			return err
		}
		parent, _ := trace(i)
		req.Header.Set("Traceparent", parent)
		return do(client, req)
	})
}

func TestAnEndpointThatDiesTakesNoGRPCCallsButThoseOnIt(t *testing.T) {
	n := network(t, fourPods...)
	var pods []*backend
	for i, p := range fourPods {
		pods = append(pods, grpcBackend(t, n, strconv.Itoa(i), p+":9000", 10*time.Millisecond))
	}
	w := meshed(t, n, file(service{name: "g", ip: "10.96.1.1", port: 90, appProtocol: "kubernetes.io/h2c", target: 9000, pods: fourPods}.yaml()), "--access-log", "json")
	client := testgrpc.NewTestServiceClient(w.grpc(t, addr("10.96.1.1:90")))
	killOne(t, w, pods, fourPods[2]+":9000", func(i int) error {
		parent, _ := trace(i)
		ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), "traceparent", parent), 20*time.Second)
		defer cancel()
		_, err := client.EmptyCall(ctx, &testgrpc.Empty{})
		return err
	})
}
