package mesh

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/integration/servers"
)

// server is a Server for a port of db; more are further lines of its spec or
// annotations.
func server(name string, port uint16, protocol, access, annotations string) string {
	return fmt.Sprintf(`apiVersion: policy.linkerd.io/v1beta3
kind: Server
metadata: {name: %s, namespace: shop, annotations: {%s}}
spec:
  podSelector: {matchLabels: {app: db}}
  port: %d
  proxyProtocol: %s
  accessPolicy: %s
---
`, name, annotations, port, protocol, access)
}

// lets is an AuthorizationPolicy for a Server: it lets an identity in.
func lets(server, id string) string {
	return fmt.Sprintf(`apiVersion: policy.linkerd.io/v1alpha1
kind: AuthorizationPolicy
metadata: {name: %[1]s, namespace: shop}
spec:
  targetRef: {group: policy.linkerd.io, kind: Server, name: %[1]s}
  requiredAuthenticationRefs: [{group: policy.linkerd.io, kind: MeshTLSAuthentication, name: %[1]s}]
---
apiVersion: policy.linkerd.io/v1alpha1
kind: MeshTLSAuthentication
metadata: {name: %[1]s, namespace: shop}
spec: {identities: ["%[2]s"]}
---
`, server, id)
}

// Denied by default, one identity is let in; taken away again, open connections
// end and requests are refused, and no application is dialed for who may not.
func TestPoliciesCountForLiveConnections(t *testing.T) {
	t.Parallel()
	var tcp, web *application
	denied := podObjects("") + server("tcp", 5000, "unknown", "deny", "") + server("http", 8080, "HTTP/1", "deny", "") + server("grpc", 8083, "gRPC", "deny", "")
	allowed := denied + lets("tcp", webID) + lets("http", webID) + lets("grpc", webID)
	w := meshed(t, setup{objects: denied, dbFlags: []string{"--default-inbound-policy", "deny"}, before: func(w *world) {
		tcp, web = startApplication(t, w.Peer.Listen(t, at(5000))), startApplication(t, w.Peer.Listen(t, at(8080)))
		servers.GRPC(t, servers.At(w.Peer, lab.PeerV4, 8083))
	}})
	service := w.grpc(t, at(8083))
	call := func() codes.Code {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := service.EmptyCall(ctx, &testgrpc.Empty{})
		return status.Code(err)
	}
	no := func(t *testing.T) {
		t.Helper()
		seen := tcp.accepted.Load() + web.accepted.Load()
		if got := w.attempt(t, w.dial(t, at(5000)), rawWords); got != "closed" {
			t.Errorf("TCP: %s", got)
		}
		if got := w.attempt(t, w.dial(t, at(8080)), httpWords); got != "403" {
			t.Errorf("HTTP: %s", got)
		}
		if got := call(); got != codes.PermissionDenied {
			t.Errorf("gRPC: %s", got)
		}
		if got := w.attempt(t, w.dial(t, at(5009)), rawWords); got != "closed" { // no Server: the default
			t.Errorf("TCP without a Server: %s", got)
		}
		if n := tcp.accepted.Load() + web.accepted.Load() - seen; n != 0 {
			t.Errorf("the applications have seen %d connections of somebody who may not", n)
		}
	}
	no(t)
	w.objects(t, allowed)
	await(t, "the policy lets web in", func() bool { return w.asks(t, 5000) })
	if got := w.attempt(t, w.dial(t, at(8080)), httpWords); got != "yes" {
		t.Errorf("HTTP: %s", got)
	}
	if got := call(); got != codes.OK {
		t.Errorf("gRPC: %s", got)
	}
	live := w.dial(t, at(5000))
	converse(t, live, live, rawWords, "yes")
	converse(t, live, live, "more", "more")
	kept := w.dial(t, at(8080)) // its requests are decided one by one
	reader := bufio.NewReader(kept)
	if got := ask(t, kept, reader); got != http.StatusOK {
		t.Errorf("a request on a connection that is kept: %d", got)
	}
	w.objects(t, denied)
	if _, err := live.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("a connection that is not allowed any more ends with %v", err)
	}
	if got := ask(t, kept, reader); got != http.StatusForbidden {
		t.Errorf("a later request on the connection that is kept: %d", got)
	}
	no(t)
	in := w.db.Sample(t)
	for name, least := range map[string]float64{"inbound_tcp_authz_deny_total": 2, "inbound_tcp_authz_terminate_total": 1, "inbound_http_authz_deny_total": 4,
		"inbound_tcp_authz_allow_total": 2, "inbound_http_authz_allow_total": 3} {
		if n := in.Sum(name); n < least {
			t.Errorf("%s is %v, want %v at least", name, n, least)
		}
	}
	if n := in.Sum("inbound_tcp_authz_allow_total", `srv_name="tcp"`, `authz_name="tcp"`, `tls="true"`); n == 0 {
		t.Error("no metric names the Server and the policy")
	}
}

// ask makes a request on a connection that stays.
func ask(t testing.TB, conn io.Writer, r *bufio.Reader) int {
	t.Helper()
	_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: db\r\n\r\n")
	must(t, err)
	resp, err := http.ReadResponse(r, nil)
	must(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	must(t, err)
	return resp.StatusCode
}

// Audit lets everybody in, and tells.
func TestAuditLogs(t *testing.T) {
	t.Parallel()
	w := meshed(t, setup{objects: podObjects("") + server("tcp", 5000, "unknown", "audit", "") + server("http", 8080, "HTTP/1", "audit", "") + server("opaque", 5001, "opaque", "audit", ""),
		before: func(w *world) {
			for _, p := range []uint16{5000, 5001, 8080} {
				startApplication(t, w.Peer.Listen(t, at(p)))
			}
		}})
	if !w.asks(t, 5000) || !w.asks(t, 5001) || !w.asks(t, 8080) {
		t.Error("no answer")
	}
	for _, words := range []string{"connection allowed by audit", "request allowed by audit"} {
		await(t, words, func() bool {
			log := w.db.Logged(t)
			return strings.Contains(log, words) && strings.Contains(log, "client_id="+webID)
		})
	}
}

// Where only HTTP is let through, who waits, or says something else, does not
// become TCP; who says a request slowly is served as HTTP.
func TestStrictDetectionCannotBeWaitedOut(t *testing.T) {
	t.Parallel()
	var app *application
	w := meshed(t, setup{objects: podObjects("") + server("strict", 8091, "unknown", "all-unauthenticated", "config.meshctl.io/detect-timeout-action: close"),
		webFlags: []string{"--outbound-detect-timeout", "1s"}, dbFlags: []string{"--inbound-detect-timeout", "2s"}, before: func(w *world) { app = startApplication(t, w.Peer.Listen(t, at(8091))) }})
	for _, meshed := range []bool{false, true} {
		dial := w.around
		if meshed {
			dial = w.dial
		}
		for _, r := range []struct {
			name, first, rest, want string
			seen                    int64
		}{
			{"a silent client", "", "", "closed", 0},
			{"half a request line", "GET / HT", "", "closed", 0},
			{"no HTTP", rawWords, "", "closed", 0},
			{"TLS of the application's own", string(clientHello(t, servers.Name)), "", "closed", 0},
			{"a request", "GET / HTTP/1.1\r\nHost: db\r\nConnection: close\r\n\r\n", "", "yes", 1},
			{"a request in two parts", "G", "ET / HTTP/1.1\r\nHost: db\r\nConnection: close\r\n\r\n", "yes", 1},
		} {
			t.Run(fmt.Sprintf("%s, meshed %v", r.name, meshed), func(t *testing.T) {
				before := app.accepted.Load()
				conn := dial(t, at(8091))
				if r.rest != "" {
					_, err := io.WriteString(conn, r.first)
					must(t, err)
					time.Sleep(300 * time.Millisecond) // in a segment of its own
					r.first = r.rest
				}
				if got := w.attempt(t, conn, r.first); got != r.want {
					t.Errorf("%s, want %s", got, r.want)
				}
				if n := app.accepted.Load() - before; n != r.seen {
					t.Errorf("the application has seen %d connections, want %d", n, r.seen)
				}
			})
		}
	}
}

// A Server that declares HTTP is for HTTP, also for a client whose transport header
// leaves the protocol out to be taken for TCP.
func TestLeavingTheProtocolOutMakesNobodyTCP(t *testing.T) {
	t.Parallel()
	var app *application
	w := meshed(t, setup{objects: podObjects("") + server("http", 8080, "HTTP/1", "all-unauthenticated", "") +
		server("strict", 8091, "unknown", "all-unauthenticated", "config.meshctl.io/detect-timeout-action: close"),
		before: func(w *world) {
			app = startApplication(t, w.Peer.Listen(t, at(8080)))
			startApplication(t, w.Peer.Listen(t, at(8091)))
		}})
	for _, r := range []struct {
		port        uint16
		words, want string
	}{{8080, httpWords, "yes"}, {8080, rawWords, "400"}, {8091, httpWords, "yes"}, {8091, rawWords, "closed"}} {
		if got := w.attempt(t, w.direct(t, issued(t, w.ca, webID)), vector(r.port, "")+r.words); got != r.want {
			t.Errorf("%q to port %d: %s, want %s", r.words, r.port, got, r.want)
		}
	}
	if n := app.accepted.Load(); n != 1 {
		t.Errorf("the application has seen %d connections, want 1", n)
	}
	if n := w.db.Sample(t).Sum("request_total", `direction="inbound"`, portLabel(8080), `tls="true"`); n != 1 {
		t.Errorf("%v requests are counted", n)
	}
}
