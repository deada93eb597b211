package mesh

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/integration/servers"
)

// selfService is a Service whose only pod is web itself.
const selfService = `apiVersion: v1
kind: Service
metadata: {name: self, namespace: shop}
spec:
  clusterIP: 10.96.0.9
  ports: [{name: main, port: 80, targetPort: 5003}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: self-1
  namespace: shop
  labels: {kubernetes.io/service-name: self}
addressType: IPv4
ports: [{name: main, port: 5003}]
endpoints: [{addresses: [10.231.0.2], conditions: {ready: true}, targetRef: {kind: Pod, name: web, namespace: shop}}]
---
`

// Where there is a reason for plaintext, it works, and metrics have the reason.
func TestPlaintextHasAReason(t *testing.T) {
	t.Parallel()
	skipped := podObjects(`config.linkerd.io/skip-inbound-ports: "5001"`) + selfService
	var apps map[string]*application
	w := meshed(t, setup{objects: skipped, dbRedirect: []string{"--skip-inbound-ports", "5001"}, before: func(w *world) {
		apps = map[string]*application{
			"nobody's pod": startApplication(t, w.Peer.Listen(t, netip.AddrPortFrom(lab.AltV4, 5000))),
			"skipped":      startApplication(t, w.Peer.Listen(t, at(5001))),
			"itself":       startApplication(t, w.Pod.Listen(t, netip.AddrPortFrom(lab.PodV4, 5003))),
		}
	}})
	for _, r := range []struct {
		name, app, reason, counted string
		to                         netip.AddrPort
	}{
		{"an endpoint that is not meshed", "nobody's pod", "not_provided_by_service_discovery", "5000", netip.AddrPortFrom(lab.AltV4, 5000)},
		{"a port that the pod's rules skip", "skipped", "port_skipped", "5001", at(5001)},
		{"the pod itself", "itself", "loopback", "80", netip.MustParseAddrPort("10.96.0.9:80")},
	} {
		t.Run(r.name, func(t *testing.T) {
			conn := w.dial(t, r.to)
			converse(t, conn, conn, "\x01hello\n", "yes")
			await(t, "the reason is counted", func() bool {
				return w.web.Sample(t).Sum("tcp_open_total", `direction="outbound"`, `peer="dst"`, label("target_port", r.counted), `tls="no_identity"`, label("no_tls_reason", r.reason)) == 1
			})
			if c := w.web.To(t, r.to); c.TLS != "no_identity" || c.ServerID != "" {
				t.Errorf("/connections: %+v", c)
			}
			if n := apps[r.app].accepted.Load(); n != 1 {
				t.Errorf("the application has seen %d connections", n)
			}
		})
	}
}

// Who is not of the mesh is served as ever, unless the policy asks for an identity.
func TestAClientOutsideOfTheMesh(t *testing.T) {
	t.Parallel()
	for policy, works := range map[string]bool{"all-unauthenticated": true, "all-authenticated": false} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			var tcp, web *application
			w := meshed(t, setup{dbFlags: []string{"--default-inbound-policy", policy}, before: func(w *world) {
				tcp, web = startApplication(t, w.Peer.Listen(t, at(5000))), startApplication(t, w.Peer.Listen(t, at(8080)))
			}})
			if got := w.attempt(t, w.around(t, at(5000)), rawWords); (got == "yes") != works || !works && got != "closed" {
				t.Errorf("TCP: %s", got)
			}
			want := "403"
			if works {
				want = "yes"
			}
			if got := w.attempt(t, w.around(t, at(8080)), httpWords); got != want {
				t.Errorf("HTTP: %s, want %s", got, want)
			}
			if (tcp.accepted.Load() > 0) != works || (web.accepted.Load() > 0) != works {
				t.Errorf("the applications have seen %d and %d connections", tcp.accepted.Load(), web.accepted.Load())
			}
			await(t, "plaintext is counted", func() bool {
				return w.db.Sample(t).Sum("tcp_open_total", `direction="inbound"`, `peer="src"`, `tls="no_identity"`, `no_tls_reason="no_tls_from_remote"`) == 2
			})
			// Meshed clients are let in by both.
			if !w.asks(t, 5000) || !w.asks(t, 8080) {
				t.Error("a meshed client gets no answer")
			}
		})
	}
}

// Detection of TLS fails open: who does not get to the end of a ClientHello may be
// no TLS at all.
func TestDetectionFailsOpen(t *testing.T) {
	t.Parallel()
	var app *application
	w := meshed(t, setup{dbFlags: []string{"--inbound-detect-timeout", "1s"}, before: func(w *world) {
		app = startApplication(t, w.Peer.Listen(t, at(5000)))
	}})
	hello := clientHello(t, dbID)
	for _, r := range []struct {
		name  string
		first []byte
	}{{"a silent client", nil}, {"half a ClientHello", hello[:len(hello)/2]}, {"half a ClientHello in two parts", hello[:3]}} {
		t.Run(r.name, func(t *testing.T) {
			before := app.accepted.Load()
			conn := w.around(t, at(5000))
			if r.first != nil {
				_, err := conn.Write(r.first)
				must(t, err)
			} else {
				time.Sleep(1500 * time.Millisecond) // longer than the time-out
				_, err := io.WriteString(conn, "\x01hello\n")
				must(t, err)
			}
			converse(t, conn, conn, "", "yes")
			if n := app.accepted.Load() - before; n != 1 {
				t.Errorf("the application has seen %d connections", n)
			}
		})
	}
	if n := w.db.Sample(t).Sum("meshctl_detect_total", `direction="inbound"`, `reason="timeout"`); n != 3 {
		t.Errorf("%v detections have timed out, want 3", n)
	}
}

// TLS that is not for the proxy is the application's.
func TestTLSForSomebodyElsePassesThrough(t *testing.T) {
	t.Parallel()
	w := meshed(t, setup{before: func(w *world) { servers.HTTPS(t, servers.At(w.Peer, lab.PeerV4, 8443)) }})
	for _, name := range []string{servers.Name, webID, ""} {
		conn := tls.Client(w.around(t, at(8443)), &tls.Config{ServerName: name, InsecureSkipVerify: true})
		must(t, conn.Handshake())
		if got := conn.ConnectionState().PeerCertificates[0].Subject.CommonName; got != servers.Name {
			t.Errorf("%q: the certificate is that of %q", name, got)
		}
		await(t, "the connection is counted with its name", func() bool {
			labels := []string{`direction="inbound"`, `peer="src"`, `tls="opaque"`}
			if name != "" {
				labels = append(labels, label("sni", name))
			}
			return w.db.Sample(t).Sum("tcp_open_total", labels...) >= 1
		})
		conn.Close()
	}
}

// A port that the receiver declares opaque takes HTTP too: nobody gets a 404.
func TestHTTPOnAnOpaquePortIsForwarded(t *testing.T) {
	t.Parallel()
	w := meshed(t, setup{objects: podObjects(`config.linkerd.io/opaque-ports: "8090"`), before: func(w *world) {
		serveHTTP(t, servers.At(w.Peer, lab.PeerV4, 8090), func(rw http.ResponseWriter, r *http.Request) {
			io.WriteString(rw, r.Proto)
		})
	}})
	for _, version := range []string{"--http1.1", "--http2-prior-knowledge"} {
		want := map[string]string{"--http1.1": "HTTP/1.1", "--http2-prior-knowledge": "HTTP/2.0"}[version]
		if got := w.run(t, "curl", "-sS", "-m", "15", version, "http://"+at(8090).String()+"/"); got != want {
			t.Errorf("%s: the application sees %q", version, got)
		}
	}
	in := w.db.Sample(t)
	all := in.Sum("inbound_tcp_transport_header_connections_total", portLabel(8090))
	if n := in.Sum("inbound_tcp_transport_header_connections_total", portLabel(8090), `session_protocol="http/1"`) +
		in.Sum("inbound_tcp_transport_header_connections_total", portLabel(8090), `session_protocol="http/2"`); all == 0 || n != 0 {
		t.Errorf("of %v transport headers %v have told a protocol, though the port is opaque", all, n)
	}
	// A sender that does not know: the header says HTTP/2, and it carries HTTP/1.
	conn := w.direct(t, issued(t, w.ca, webID))
	status, body, _ := h2Get(t, conn, vector(8090, "http/2"), http.Header{"L5d-Orig-Proto": {"HTTP/1.1"}})
	if status != http.StatusOK || body != "HTTP/1.1" {
		t.Errorf("a header that says HTTP/2: %d, %q", status, body)
	}
	conn = w.direct(t, issued(t, w.ca, webID))
	_, err := io.WriteString(conn, vector(8090, "http/1")+"GET / HTTP/1.1\r\nHost: db\r\n\r\n")
	must(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || string(b) != "HTTP/1.1" {
		t.Errorf("a header that says HTTP/1: %s, %q", resp.Status, b)
	}
}

// rawWords and httpWords are what somebody tries.
const (
	rawWords  = "\x01hello\n"
	httpWords = "GET / HTTP/1.1\r\nHost: db\r\nConnection: close\r\n\r\n"
)

// attempt says something and tells what came of it: "yes" from the application,
// the status of a proxy's answer, or "closed".
func (w *world) attempt(t testing.TB, conn net.Conn, words string) string {
	t.Helper()
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(patience)))
	if _, err := io.WriteString(conn, words); err != nil {
		return "closed"
	}
	r := bufio.NewReader(conn)
	start, err := r.Peek(3)
	switch {
	case err != nil && isTimeout(err):
		return "held"
	case err != nil:
		return "closed"
	case string(start) == "yes":
		return "yes"
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return fmt.Sprintf("odd: %q, %v", start, err)
	}
	if b, _ := io.ReadAll(resp.Body); strings.HasSuffix(string(b), "yes") {
		return "yes"
	}
	return fmt.Sprint(resp.StatusCode)
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}
