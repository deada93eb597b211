package targets

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// routed is a world with the objects of testdata/kube/routes; Service web has the
// backend called web, and so on.
type routed struct {
	*world
	web, next *backend
	flaky     atomic.Int64 // how often web still fails on /flaky
}

func newRouted(t *testing.T, flags ...string) *routed {
	t.Helper()
	n := network(t, "10.244.0.11", "10.244.0.12")
	r := &routed{}
	r.web = httpBackend(t, n, "web", "10.244.0.11:8080", 0, r.answer)
	r.next = httpBackend(t, n, "next", "10.244.0.12:8080", 0, nil)
	r.world = meshed(t, n, kube(t, "routes"), flags...)
	return r
}

// answer is what web does on some paths.
func (r *routed) answer(w http.ResponseWriter, req *http.Request) bool {
	switch {
	case strings.HasPrefix(req.URL.Path, "/flaky") && r.flaky.Add(-1) >= 0:
		w.WriteHeader(http.StatusServiceUnavailable)
	case strings.HasPrefix(req.URL.Path, "/slow"):
		select {
		case <-req.Context().Done():
		case <-time.After(5 * time.Second):
		}
	default:
		return false
	}
	return true
}

// ask sends a request to Service web.
func (r *routed) ask(t *testing.T, client *http.Client, method, host, path string, header http.Header) (*http.Response, heard) {
	t.Helper()
	req, err := http.NewRequest(method, "http://10.96.2.1"+path, nil)
	must(t, err)
	req.Host = host
	if header != nil {
		req.Header = header
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("%v\n%s", err, r.proxy.Logged(t))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	var h heard
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(body, &h); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
	}
	return resp, h
}

func TestHTTPRoutesDecideWhereARequestGoes(t *testing.T) {
	r := newRouted(t)
	client := r.client(t, 4)
	for _, c := range []struct {
		name, method, host, path string
		header                   http.Header
		want                     string // backend; or a status
	}{
		{"an exact path", "GET", "x", "/exact", nil, "next"},
		{"a path that an exact one begins", "GET", "x", "/exact/more", nil, "404 no route found for request"},
		{"a prefix", "GET", "x", "/prefix", nil, "next"},
		{"below a prefix", "GET", "x", "/prefix/a?b=c", nil, "next"},
		{"a prefix amid a segment", "GET", "x", "/prefixed", nil, "404 no route found for request"},
		{"a regular expression", "GET", "x", "/items/17", nil, "next"},
		{"one that matches a part only", "GET", "x", "/items/17x", nil, "404 no route found for request"},
		{"a method", "PUT", "x", "/method", nil, "next"},
		{"another method", "POST", "x", "/method", nil, "404 no route found for request"},
		{"a header", "GET", "x", "/header", http.Header{"x-canary": {"yes"}}, "next"},
		{"another value of it", "GET", "x", "/header", http.Header{"X-Canary": {"no"}}, "404 no route found for request"},
		{"a query parameter", "GET", "x", "/query?a=b&canary=1", nil, "next"},
		{"another value of it", "GET", "x", "/query?canary=10", nil, "404 no route found for request"},
		{"a rule without backends", "GET", "x", "/plain", nil, "web"},
		{"a host", "GET", "canary.example", "/anything", nil, "next"},
		{"a host with its port, in other letters", "GET", "Canary.Example:80", "/anything", nil, "next"},
		{"a wildcard", "GET", "a.b.wild.example", "/anything", nil, "next"},
		{"the wildcard's own domain", "GET", "wild.example", "/anything", nil, "404 no route found for request"},
		{"a backend without weight", "GET", "x", "/nobody", nil, "500 route has no backend"},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, h := r.ask(t, client, c.method, c.host, c.path, c.header)
			got := h.Backend
			if resp.StatusCode != http.StatusOK {
				got = resp.Status[:3] + " " + resp.Header.Get("l5d-proxy-error")
			}
			if got != c.want {
				t.Errorf("the answer is %q, want %q", got, c.want)
			}
			if resp.StatusCode == http.StatusOK && (h.Path != c.path || h.Host != c.host) {
				t.Errorf("the backend heard %s %s", h.Host, h.Path)
			}
		})
	}
}

func TestHTTPRoutesSplitEditRedirectAndBoundRequests(t *testing.T) {
	r := newRouted(t)
	client := r.client(t, 4)
	t.Run("weights", func(t *testing.T) {
		got := map[string]int{}
		for range 2000 {
			_, h := r.ask(t, client, "GET", "x", "/split", nil)
			got[h.Backend]++
		}
		if got["web"] < 1400 || got["next"] < 400 { // 1500 and 500, sigma 19
			t.Errorf("3 to 1 gave %v", got)
		}
	})
	t.Run("edits", func(t *testing.T) {
		resp, h := r.ask(t, client, "GET", "x", "/edit/this?q=1", http.Header{"X-Set": {"by-client"}, "X-Added": {"one"}, "X-Removed": {"here"}})
		if h.Host != "inner.example" || h.Path != "/rewritten/this?q=1" {
			t.Errorf("the backend heard %s %s", h.Host, h.Path)
		}
		if set, added := h.Header.Values("X-Set"), h.Header.Values("X-Added"); len(set) != 1 || set[0] != "by-route" || strings.Join(added, ",") != "one,more" || h.Header.Get("X-Removed") != "" {
			t.Errorf("the backend heard %v", h.Header)
		}
		if got := resp.Header.Get("X-Answer"); got != "by-route" {
			t.Errorf("the answer has %q", got)
		}
	})
	t.Run("redirect", func(t *testing.T) {
		resp, _ := r.ask(t, client, "GET", "x", "/moved/here", nil)
		if resp.StatusCode != 301 || resp.Header.Get("Location") != "https://elsewhere.example/new" {
			t.Errorf("%s to %q", resp.Status, resp.Header.Get("Location"))
		}
	})
	t.Run("timeout", func(t *testing.T) {
		began := time.Now()
		resp, _ := r.ask(t, client, "GET", "x", "/slow", nil)
		if took := time.Since(began); resp.StatusCode != 504 || took < 250*time.Millisecond || took > 3*time.Second {
			t.Errorf("%s after %s", resp.Status, took)
		}
		await(t, "the backend hears of it", func() bool { return r.web.busy.Load() == 0 })
	})
	t.Run("retries", func(t *testing.T) {
		r.flaky.Store(2)
		if resp, h := r.ask(t, client, "POST", "x", "/flaky", nil); resp.StatusCode != 200 || h.Backend != "web" {
			t.Errorf("with two failures: %s", resp.Status)
		}
		r.flaky.Store(3)
		if resp, _ := r.ask(t, client, "POST", "x", "/flaky", nil); resp.StatusCode != 503 {
			t.Errorf("with three failures: %s", resp.Status)
		}
		if left := r.flaky.Load(); left != 0 {
			t.Errorf("%d failures are left: the limit is not kept", left)
		}
	})
}

func TestGRPCRoutesDecideWhereACallGoes(t *testing.T) {
	n := network(t, "10.244.0.11", "10.244.0.12")
	rpc := grpcBackend(t, n, "rpc", "10.244.0.11:9000", 0)
	next := grpcBackend(t, n, "next", "10.244.0.12:9000", 0)
	w := meshed(t, n, kube(t, "routes"))
	client := testgrpc.NewTestServiceClient(w.grpc(t, addr("10.96.2.3:90")))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for range 10 {
		_, err := client.EmptyCall(ctx, &testgrpc.Empty{})
		must(t, err)
		_, err = client.UnaryCall(ctx, &testgrpc.SimpleRequest{ResponseSize: 1000})
		must(t, err)
	}
	if a, b := rpc.got.Load(), next.got.Load(); a != 10 || b != 10 {
		t.Errorf("the backends got %d and %d calls, want 10 each", a, b)
	}
	stream, err := client.FullDuplexCall(ctx)
	must(t, err)
	if _, err := stream.Recv(); status.Code(err) != codes.NotFound && status.Code(err) != codes.Unimplemented {
		t.Errorf("a call without a route: %v", err)
	}
}

func TestRoutesThatCannotApplyAreCountedAndLogged(t *testing.T) {
	r := newRouted(t, "--detect-timeout", "500ms")
	for _, c := range []struct{ name, sent, reason string }{
		{"bytes that are no HTTP", "\x00\x01\x02\x03 binary\n", "not_http"},
		{"a client that says nothing", "", "timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := r.dial(t, addr("10.96.2.1:80"))
			if _, err := io.WriteString(conn, c.sent); err != nil {
				t.Fatal(err)
			}
			await(t, "the bypass is counted", func() bool {
				return r.proxy.Sample(t).Sum("meshctl_route_bypass_total", `reason="`+c.reason+`"`) == 1
			})
			if log := r.proxy.Logged(t); !strings.Contains(log, "routes do not apply") || !strings.Contains(log, "Service shop/web") {
				t.Errorf("nothing is logged about it:\n%s", log)
			}
		})
	}
	if _, h := r.ask(t, r.client(t, 1), "GET", "x", "/exact", nil); h.Backend != "next" {
		t.Errorf("an HTTP connection after it went to %q", h.Backend)
	}
	if n := r.proxy.Sample(t).Sum("meshctl_route_bypass_total"); n != 2 {
		t.Errorf("%v bypasses are counted, want 2", n)
	}
	files := kube(t, "routes")
	for name, text := range files { // web is declared opaque from now on
		files[name] = strings.Replace(text, "  name: web\n  namespace: shop\nspec:\n  clusterIP",
			"  name: web\n  namespace: shop\n  annotations: {config.linkerd.io/opaque-ports: \"80\"}\nspec:\n  clusterIP", 1)
	}
	r.volume.write(t, files)
	await(t, "a port that is declared opaque is counted", func() bool {
		conn := r.dial(t, addr("10.96.2.1:80"))
		defer conn.Close()
		return r.proxy.Sample(t).Sum("meshctl_route_bypass_total", `reason="declared"`, `dst_service="web"`) > 0
	})
}
