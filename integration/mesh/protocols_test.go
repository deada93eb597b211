package mesh

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/built"
	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/integration/servers"
)

// Whatever an application speaks goes over mTLS between two meshed pods, both
// sides say so and with whom, and who listens on the wire reads none of it.
func TestEveryProtocolGoesOverMTLS(t *testing.T) {
	t.Parallel()
	w := meshed(t, setup{before: func(w *world) { startAll(t)(w) }})
	wire := listen(t, w.Pod)
	for _, s := range spokens() {
		t.Run(s.name, func(t *testing.T) {
			to := at(s.port)
			s.held(t, w)
			s.talk(t, w, to, s.mark())
			s.counted(t, w)
			s.logged(t, w)
		})
	}
	wire.settle(t)
	if wire.size() < 100<<10 {
		t.Errorf("%d bytes were captured: the protocols have carried more", wire.size())
	}
	for _, s := range spokens() {
		if wire.has(s.mark()) {
			t.Errorf("%q of %s is on the wire", s.mark(), s.name)
		}
	}
	for _, p := range []*pod{w.web, w.db} {
		if n := p.Sample(t).Sum("meshctl_panics_total"); n != 0 {
			t.Errorf("%v panics", n)
		}
	}
}

// The same without identities: the listener reads everything. So a capture in
// which nothing is found means something.
func TestWithoutAnIdentityTheWireCanBeRead(t *testing.T) {
	t.Parallel()
	w := meshed(t, setup{plain: true, before: startAll(t)})
	wire := listen(t, w.Pod)
	for _, s := range spokens() {
		s.talk(t, w, at(s.port), s.mark())
	}
	wire.settle(t)
	for _, s := range spokens() {
		if !wire.has(s.mark()) {
			t.Errorf("%q of %s is not on the wire", s.mark(), s.name)
		}
	}
	if n := w.web.Sample(t).Sum("tcp_open_total", `direction="outbound"`, `peer="dst"`, `tls="disabled"`); n == 0 {
		t.Error(`no connection counts as tls="disabled"`)
	}
}

// held opens a connection, says the first words, and looks at what both proxies
// tell of it while it is open.
func (s spoken) held(t *testing.T, w *world) {
	t.Helper()
	conn := w.dial(t, at(s.port))
	defer conn.Close()
	if s.first != "" {
		_, err := io.WriteString(conn, s.first)
		must(t, err)
	}
	if s.kind == "tls" {
		_, err := conn.Write(clientHello(t, servers.Name))
		must(t, err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatalf("the server's first byte: %v", err)
	}
	out := w.web.To(t, at(s.port))
	if out.Direction != "outbound" || out.TLS != "true" || out.ServerID != dbID || out.Protocol != s.kind {
		t.Errorf("web's /connections: %+v", out)
	}
	await(t, "db's /connections shows who has connected", func() bool {
		for _, c := range w.db.Connections(t) {
			if c.Target == at(s.port).String() && c.Direction == "inbound" && c.TLS == "true" && c.ClientID == webID {
				return true
			}
		}
		return s.kind == "http/2" && s.first != "" // a preface alone opens nothing to the endpoint
	})
}

// counted looks at the metrics of both sides.
func (s spoken) counted(t *testing.T, w *world) {
	t.Helper()
	out, in := w.web.Sample(t), w.db.Sample(t)
	mine := portLabel(s.port)
	if n := out.Sum("tcp_open_total", `direction="outbound"`, `peer="dst"`, mine, `tls="true"`, label("server_id", dbID)); n == 0 {
		t.Error("web has counted no connection to db's identity")
	}
	if n := in.Sum("tcp_open_total", `direction="inbound"`, `peer="src"`, mine, `tls="true"`, label("client_id", webID)); n == 0 {
		t.Error("db has counted no connection of web's identity")
	}
	if a, b := in.Sum("tcp_open_total", `direction="inbound"`, `peer="src"`, mine), in.Sum("tcp_open_total", `direction="inbound"`, `peer="src"`, mine, `tls="true"`); a != b {
		t.Errorf("of %v connections %v were mTLS", a, b)
	}
	if n := in.Sum("inbound_tcp_transport_header_connections_total", mine, label("client_id", webID)); n == 0 {
		t.Error("db has counted no transport header")
	}
	if s.session != "" {
		if n := in.Sum("inbound_tcp_transport_header_connections_total", mine, label("session_protocol", s.session)); n == 0 {
			t.Errorf("no transport header said %s", s.session)
		}
	}
	if s.requests {
		if n := out.Sum("request_total", `direction="outbound"`, mine, `tls="true"`, label("server_id", dbID)); n == 0 {
			t.Error("web has counted no request to db's identity")
		}
		if n := in.Sum("request_total", `direction="inbound"`, mine, `tls="true"`, label("client_id", webID)); n == 0 {
			t.Error("db has counted no request of web's identity")
		}
	}
}

// line is what the access log says of the peer.
type line struct {
	Direction, Method, Path, Protocol, TLS string
	OrigDst                                string `json:"orig_dst"`
	ClientID                               string `json:"client_id"`
	ServerID                               string `json:"server_id"`
}

// lines is a proxy's access log.
func lines(t testing.TB, p *built.Proxy) (all []line) {
	t.Helper()
	for text := range strings.Lines(p.Printed()) {
		var l line
		if json.Unmarshal([]byte(text), &l) == nil && l.Direction != "" {
			all = append(all, l)
		}
	}
	return all
}

// logged looks for a line of the access log on both sides, which names the peer.
func (s spoken) logged(t *testing.T, w *world) {
	t.Helper()
	found := func(p *built.Proxy, ok func(line) bool) func() bool {
		return func() bool {
			for _, l := range lines(t, p) {
				if l.OrigDst == at(s.port).String() && l.TLS == "true" && ok(l) {
					return true
				}
			}
			return false
		}
	}
	await(t, "web's access log names db", found(w.web.Proxy, func(l line) bool { return l.Direction == "outbound" && l.ServerID == dbID }))
	await(t, "db's access log names web", found(w.db.Proxy, func(l line) bool { return l.Direction == "inbound" && l.ClientID == webID }))
}

// The application learns who calls from the proxy, whatever the client says.
func TestTheApplicationLearnsWhoCalls(t *testing.T) {
	t.Parallel()
	w := meshed(t, setup{before: func(w *world) {
		serveHTTP(t, servers.At(w.Peer, lab.PeerV4, 8080), func(rw http.ResponseWriter, r *http.Request) {
			io.WriteString(rw, r.Proto+" "+strings.Join(r.Header.Values("l5d-client-id"), ",")+" "+r.Header.Get("l5d-orig-proto")+" "+r.Host+" "+r.RequestURI)
		})
	}})
	url := "http://" + at(8080).String() + "/a?b"
	forged := []string{"-H", "l5d-client-id: " + otherID, "-H", "L5D-Client-Id: root", "-H", "l5d-orig-proto: HTTP/1.0; absolute-form", "-H", "Host: app"}
	for _, c := range []struct {
		name   string
		args   []string
		around bool
		want   string
	}{
		{"HTTP/1.1", nil, false, "HTTP/1.1 " + webID + "  app /a?b"},
		{"HTTP/1.0", []string{"--http1.0"}, false, "HTTP/1.1 " + webID + "  app /a?b"},
		{"HTTP/2", []string{"--http2-prior-knowledge"}, false, "HTTP/2.0 " + webID + "  app /a?b"},
		{"an absolute target", []string{"--request-target", "http://app/a?b"}, false, "HTTP/1.1 " + webID + "  app http://app/a?b"},
		{"a client outside of the mesh", nil, true, "HTTP/1.1   app /a?b"},
		{"a client outside of the mesh, HTTP/2", []string{"--http2-prior-knowledge"}, true, "HTTP/2.0   app /a?b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append(append([]string{"-sS", "-m", "15"}, forged...), append(c.args, url)...)
			var got string
			if c.around {
				got = w.Pod.Run(t, "setpriv", append([]string{"--reuid", uid(), "--regid", uid(), "--clear-groups", "--", "curl"}, args...)...)
			} else {
				got = w.run(t, "curl", args...)
			}
			if got != c.want {
				t.Errorf("the application sees %q, want %q", got, c.want)
			}
		})
	}
}

// --mesh-wrap-tls=false leaves the application's own TLS as it is; everything else
// is wrapped as ever.
func TestApplicationTLSMayGoAsItIs(t *testing.T) {
	t.Parallel()
	w := meshed(t, setup{webFlags: []string{"--mesh-wrap-tls=false"}, before: func(w *world) {
		servers.HTTPS(t, servers.At(w.Peer, lab.PeerV4, 8443))
		servers.HTTP1(t, servers.At(w.Peer, lab.PeerV4, 8080))
	}})
	wire := listen(t, w.Pod)
	talkHTTPS(t, w, at(8443), "")
	talkHTTP("--http1.1")(t, w, at(8080), "mark-of-http1")
	wire.settle(t)
	if !wire.has(servers.Name) || wire.has("mark-of-http1") {
		t.Errorf("on the wire: the name in the application's TLS %v, its plain HTTP %v", wire.has(servers.Name), wire.has("mark-of-http1"))
	}
	in := w.db.Sample(t)
	if n := in.Sum("tcp_open_total", `direction="inbound"`, `peer="src"`, portLabel(8443), `tls="opaque"`, label("sni", servers.Name)); n != 1 {
		t.Errorf("db has counted %v connections of the application's own TLS", n)
	}
}

// A server that speaks first, on a port that nobody has declared, is heard through
// two proxies: the first time after the early dial of the client's proxy, later at
// once.
func TestAServerThatSpeaksFirstIsHeardThroughTwoProxies(t *testing.T) {
	w := meshed(t, setup{before: func(w *world) { greet(t, w.Peer.Listen(t, at(2600))) }})
	greeting := func() time.Duration {
		began := time.Now()
		conn := w.dial(t, at(2600))
		defer conn.Close()
		converse(t, conn, conn, "", "220 hello\r\n")
		return time.Since(began)
	}
	within(t, "the first greeting", greeting(), 1500*time.Millisecond)
	best := time.Hour
	for range 10 {
		took := greeting()
		within(t, "a later greeting", took, time.Second)
		best = min(best, took)
	}
	within(t, "the fastest of ten", best, 240*time.Millisecond) // less than an early dial waits
	in := w.db.Settled(t)
	if n := in.Sum("tcp_open_total", `direction="inbound"`, `peer="src"`, portLabel(2600), `tls="true"`, label("client_id", webID)); n != 11 {
		t.Errorf("%v connections were mTLS, want 11", n)
	}
}

// An application may say whom it wants to reach; anybody else is not asked.
func TestARequiredIdentityIsRequired(t *testing.T) {
	t.Parallel()
	var app *application
	w := meshed(t, setup{before: func(w *world) { app = startApplication(t, w.Peer.Listen(t, at(8080))) }})
	for id, want := range map[string]string{dbID: "yes", otherID: "502"} {
		before := app.accepted.Load()
		if got := w.attempt(t, w.dial(t, at(8080)), "GET / HTTP/1.1\r\nHost: db\r\nl5d-require-id: "+id+"\r\nConnection: close\r\n\r\n"); got != want {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
		if n := app.accepted.Load() - before; (n != 0) != (want == "yes") {
			t.Errorf("%s: the application has seen %d connections", id, n)
		}
	}
}
