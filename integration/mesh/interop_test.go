package mesh

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/integration/servers"
)

// These tests play linkerd2-proxy by the description of its wire format, with
// crypto/tls and x/net/http2, on either side of ours.

// bytesOf are the bytes of a header in testdata/mesh/header.txt.
func bytesOf(t testing.TB, says string) []byte {
	t.Helper()
	text, err := os.ReadFile("../../testdata/mesh/header.txt")
	must(t, err)
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, "= "+says+": ")
		if !ok {
			continue
		}
		var out []byte
		for _, part := range regexp.MustCompile(`"[^"]*"|[0-9a-f]{2}`).FindAllString(rest, -1) {
			if part[0] == '"' {
				s, err := strconv.Unquote(part)
				must(t, err)
				out = append(out, s...)
				continue
			}
			n, err := strconv.ParseUint(part, 16, 8)
			must(t, err)
			out = append(out, byte(n))
		}
		return out
	}
	t.Fatalf("testdata/mesh/header.txt has no %q", says)
	return nil
}

func TestAClientThatBehavesAsLinkerdsIsServed(t *testing.T) {
	t.Parallel()
	w := meshed(t, setup{before: func(w *world) {
		serveHTTP(t, servers.At(w.Peer, lab.PeerV4, 8080), func(rw http.ResponseWriter, r *http.Request) {
			fmt.Fprint(rw, r.Proto, " ", r.Header.Get("l5d-client-id"), " ", r.Header.Get("l5d-orig-proto"), " ", r.Host, " ", r.RequestURI)
		})
		halfClosing(t, w.Peer.Listen(t, at(5000)))
	}})
	as := issued(t, w.ca, webID)
	for _, r := range []struct{ name, header, proto, want, back string }{
		{"HTTP/1 over HTTP/2", "port=8080 session=http/2", "HTTP/1.1", "HTTP/1.1 " + webID + "  db /a?b", "HTTP/1.1"},
		{"an absolute target", "port=8080 session=http/2", "HTTP/1.1; absolute-form", "HTTP/1.1 " + webID + "  db http://db/a?b", "HTTP/1.1"},
		{"HTTP/2 that is HTTP/2", "port=8080 session=http/2", "", "HTTP/2.0 " + webID + "  db /a?b", ""},
	} {
		t.Run(r.name, func(t *testing.T) {
			fields := http.Header{}
			if r.proto != "" {
				fields.Set("l5d-orig-proto", r.proto)
			}
			status, body, got := h2Get(t, w.direct(t, as), string(bytesOf(t, r.header)), fields)
			if status != http.StatusOK || body != r.want || got.Get("l5d-orig-proto") != r.back {
				t.Errorf("%d, %q, l5d-orig-proto %q; want 200, %q, %q", status, body, got.Get("l5d-orig-proto"), r.want, r.back)
			}
		})
	}
	t.Run("HTTP/1 as it is", func(t *testing.T) {
		conn := w.direct(t, as)
		_, err := conn.Write(append(bytesOf(t, "port=8080 session=http/1"), "GET /a?b HTTP/1.1\r\nHost: db\r\nConnection: close\r\n\r\n"...))
		must(t, err)
		b, err := io.ReadAll(conn)
		if want := "HTTP/1.1 " + webID + "  db /a?b"; err != nil || !bytes.HasSuffix(b, []byte(want)) {
			t.Errorf("%q, %v", b, err)
		}
	})
	t.Run("a client without a certificate is not believed", func(t *testing.T) {
		status, body, _ := h2Get(t, tls.Client(w.around(t, at(8080)), proxyTLS(w.pool())), "", http.Header{"L5d-Orig-Proto": {"HTTP/1.1; absolute-form"}, "L5d-Client-Id": {webID}})
		if want := "HTTP/2.0   db /a?b"; status != http.StatusOK || body != want {
			t.Errorf("%d, %q, want %q", status, body, want)
		}
	})
	// The header in one record with what follows it, and byte by byte; then the end
	// of the stream by close_notify, after which the other side still speaks.
	for _, chunk := range []int{1 << 10, 1} {
		t.Run(fmt.Sprintf("TCP, half-closed, %d bytes at a time", chunk), func(t *testing.T) {
			conn := w.direct(t, as)
			all := vector(5000, "") + "\x01hello"
			for len(all) > 0 {
				n := min(chunk, len(all))
				_, err := io.WriteString(conn, all[:n])
				must(t, err)
				all = all[n:]
			}
			must(t, conn.CloseWrite())
			if b, err := io.ReadAll(conn); err != nil || string(b) != "\x01hello, and bye" {
				t.Errorf("%q, %v", b, err) // without close_notify: io.ErrUnexpectedEOF
			}
		})
	}
	t.Run("without a header on the application's port", func(t *testing.T) {
		cfg := proxyTLS(w.pool())
		cfg.Certificates = []tls.Certificate{as.TLS()}
		conn := tls.Client(w.around(t, at(8080)), cfg)
		status, body, _ := h2Get(t, conn, "", http.Header{"L5d-Orig-Proto": {"HTTP/1.1"}})
		if want := "HTTP/1.1 " + webID + "  db /a?b"; status != http.StatusOK || body != want {
			t.Errorf("%d, %q, want %q", status, body, want)
		}
	})
}

// halfClosing is a server that answers at the end of what is said.
func halfClosing(t testing.TB, l net.Listener) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				b, err := io.ReadAll(conn)
				if err == nil {
					fmt.Fprintf(conn, "%s, and bye", b)
				}
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
}

// receiver is the inbound side of linkerd2-proxy: it wants a certificate and the
// ALPN, reads a header, and sends no tickets.
type receiver struct {
	t      testing.TB
	config *tls.Config
	serve  func(net.Conn, []byte) // with the header's bytes

	mu      sync.Mutex
	headers [][]byte
}

func receive(t testing.TB, w *world, serve func(net.Conn, []byte)) *receiver {
	t.Helper()
	r := &receiver{t: t, serve: serve}
	leaf := issued(t, w.ca, dbID)
	r.config = &tls.Config{
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true, NextProtos: []string{alpn},
		Certificates: []tls.Certificate{leaf.TLS()}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: w.pool(),
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			if h.ServerName != dbID || fmt.Sprint(h.SupportedProtos) != "["+alpn+"]" || fmt.Sprint(h.SupportedVersions) != fmt.Sprint([]uint16{tls.VersionTLS13}) {
				return nil, fmt.Errorf("a ClientHello for %q, ALPN %v, versions %x", h.ServerName, h.SupportedProtos, h.SupportedVersions)
			}
			return nil, nil
		},
		VerifyConnection: func(cs tls.ConnectionState) error {
			if _, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: w.pool(), DNSName: webID, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
				return err
			}
			return nil
		},
	}
	l := w.Peer.Listen(t, at(4143))
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { r.one(conn) })
		}
	})
	t.Cleanup(func() { l.Close() })
	return r
}

func (r *receiver) one(raw net.Conn) {
	defer raw.Close()
	raw.SetDeadline(time.Now().Add(patience))
	conn := tls.Server(raw, r.config)
	if err := conn.Handshake(); err != nil {
		r.t.Errorf("the handshake: %v", err)
		return
	}
	head := make([]byte, 23+4)
	if _, err := io.ReadFull(conn, head); err != nil {
		r.t.Errorf("reading the header: %v", err)
		return
	}
	rest := make([]byte, int(head[23])<<24|int(head[24])<<16|int(head[25])<<8|int(head[26]))
	if _, err := io.ReadFull(conn, rest); err != nil {
		r.t.Errorf("reading the header's message: %v", err)
		return
	}
	head = append(head, rest...)
	r.mu.Lock()
	r.headers = append(r.headers, head)
	r.mu.Unlock()
	r.serve(conn, head)
}

func TestAServerThatBehavesAsLinkerdsIsReached(t *testing.T) {
	t.Parallel()
	type seen struct {
		proto, te string
		fields    http.Header
	}
	requests := make(chan seen, 10)
	w := &world{Net: lab.Pair(t), resources: open(t), ca: newCA(t)}
	w.web, w.db = &pod{ns: w.Pod, dir: identityDir(t)}, &pod{ns: w.Peer}
	w.objects(t, podObjects(`config.linkerd.io/opaque-ports: "128"`))
	issue(t, w.ca, w.web.dir, webID)
	r := receive(t, w, func(conn net.Conn, header []byte) {
		if bytes.Contains(header, []byte{0x1a, 2, 0x12, 0}) {
			serveH2On(conn, func(rw http.ResponseWriter, r *http.Request) {
				requests <- seen{r.Header.Get("l5d-orig-proto"), r.Header.Get("transfer-encoding"), r.Header}
				if p := r.Header.Get("l5d-orig-proto"); p != "" {
					rw.Header().Set("l5d-orig-proto", "HTTP/1.1")
				}
				io.WriteString(rw, "hello")
			})
			return
		}
		if bytes.HasSuffix(header, []byte{0xc8, 0xa3, 0x07, 1}) { // the own field: linkerd2-proxy does not know it
			io.WriteString(conn, "220 hello\r\n")
		}
		b, err := io.ReadAll(conn) // until close_notify
		if err != nil {
			t.Errorf("reading what comes behind %x: %v", header, err)
		}
		fmt.Fprintf(conn, "%s, and bye", b)
		conn.(*tls.Conn).CloseWrite()
	})
	w.web.Proxy = redirectedWeb(t, w)
	t.Run("HTTP/1 over HTTP/2", func(t *testing.T) {
		got := w.run(t, "curl", "-sS", "-i", "-m", "15", "-H", "Transfer-Encoding: chunked", "--data", "some", "http://"+at(8080).String()+"/")
		if !strings.HasPrefix(got, "HTTP/1.1 200 ") || strings.Contains(strings.ToLower(got), "l5d-orig-proto") || !strings.HasSuffix(got, "hello") {
			t.Errorf("curl: %q", got)
		}
		if s := <-requests; s.proto != "HTTP/1.1" || s.te != "" || s.fields.Get("connection") != "" {
			t.Errorf("the request: %+v", s)
		}
	})
	t.Run("HTTP/2", func(t *testing.T) {
		if got := w.run(t, "curl", "-sS", "-m", "15", "--http2-prior-knowledge", "http://"+at(8080).String()+"/"); got != "hello" {
			t.Errorf("curl: %q", got)
		}
		if s := <-requests; s.proto != "" {
			t.Errorf("the request: %+v", s)
		}
	})
	tcp := func(port uint16, greeting string) {
		conn := w.dial(t, at(port))
		converse(t, conn, conn, "", greeting)
		_, err := io.WriteString(conn, "\x01hello")
		must(t, err)
		must(t, conn.CloseWrite())
		if b, err := io.ReadAll(conn); err != nil || string(b) != "\x01hello, and bye" {
			t.Errorf("port %d: %q, %v", port, b, err)
		}
	}
	tcp(127, "")               // nobody has declared it, and the client speaks
	tcp(128, "")               // declared opaque
	tcp(3306, "220 hello\r\n") // in a list that this pod does not have: the server speaks
	r.mu.Lock()
	defer r.mu.Unlock()
	known := 0
	for _, says := range []string{"port=8080 session=http/2", "port=127", "port=128", "port=3306 detect"} {
		want, found := bytesOf(t, says), 0
		for _, h := range r.headers {
			if bytes.Equal(h, want) {
				found++
			}
		}
		// HTTP of either version shares connections, one a loop.
		if http := strings.Contains(says, "http"); found == 0 || !http && found > 1 {
			t.Errorf("%s: %d headers of these bytes; all: %x", says, found, r.headers)
		}
		known += found
	}
	if known != len(r.headers) {
		t.Errorf("headers that are not in testdata among %x", r.headers)
	}
}
