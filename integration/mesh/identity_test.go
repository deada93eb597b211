package mesh

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/built"
	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/proxy/identity/authority"
)

// application is a server of anything that counts who reaches it, and says "yes".
type application struct{ accepted atomic.Int64 }

func startApplication(t testing.TB, l net.Listener) *application {
	t.Helper()
	a := &application{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			a.accepted.Add(1)
			go answer(conn)
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return a
}

// answer says yes to the first words, in HTTP if they are that, and echoes what
// follows.
func answer(conn net.Conn) {
	defer conn.Close()
	b := make([]byte, 4096)
	n, err := conn.Read(b)
	if err != nil {
		return
	}
	if bytes.Contains(b[:n], []byte(" HTTP/1.1\r\n")) {
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nyes")
		return
	}
	io.WriteString(conn, "yes")
	io.Copy(conn, conn)
}

const secret = "words-that-nobody-may-read"

// asks is whether web's application gets an answer from db's, as TCP on port 5000
// and as HTTP on port 8080.
func (w *world) asks(t testing.TB, port uint16) (yes bool) {
	t.Helper()
	conn := w.dial(t, at(port))
	defer conn.Close()
	words := "\x01" + secret + "\n"
	if port == 8080 {
		words = "GET /" + secret + " HTTP/1.1\r\nHost: db\r\nConnection: close\r\n\r\n"
	}
	if _, err := io.WriteString(conn, words); err != nil {
		return false
	}
	b := make([]byte, 4096)
	n, err := conn.Read(b)
	return err == nil && (string(b[:n]) == "yes" || bytes.HasSuffix(b[:n], []byte("\r\n\r\nyes")))
}

// identityRow is a state of identities and what has to come of it.
type identityRow struct {
	name  string
	make  func(testing.TB, *world)
	works bool
	never bool // no proxy of that identity gets ready
}

func identityRows() []identityRow {
	reissue := func(side func(*world) *pod, ca func(testing.TB, *world) *authority.Authority, r authority.Request, also ...bool) func(testing.TB, *world) {
		return func(t testing.TB, w *world) {
			leaf, err := ca(t, w).Issue(r, time.Now())
			must(t, err)
			for range also { // trusts the common CA too
				leaf.Anchors = append(leaf.Anchors, w.ca.Certificate())
			}
			must(t, leaf.Write(side(w).dir))
		}
	}
	own := func(_ testing.TB, w *world) *authority.Authority { return w.ca }
	foreign := func(t testing.TB, _ *world) *authority.Authority { return newCA(t) }
	db := func(w *world) *pod { return w.db }
	web := func(w *world) *pod { return w.web }
	named := func(name string) authority.Request {
		return authority.Request{Names: []string{name}, Life: time.Hour}
	}
	edit := func(file string, change func([]byte) []byte) func(testing.TB, *world) {
		return func(t testing.TB, w *world) {
			name := filepath.Join(w.web.dir, file)
			b, err := os.ReadFile(name)
			must(t, err)
			real, err := filepath.EvalSymlinks(name)
			must(t, err)
			must(t, os.WriteFile(real, change(b), 0o600))
		}
	}
	crlf := func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n")) }
	return []identityRow{
		{name: "as it should be", make: func(testing.TB, *world) {}, works: true},
		{name: "db is of another root", make: reissue(db, foreign, named(dbID), true)},
		{name: "web is of another root", make: reissue(web, foreign, named(webID), true)},
		{name: "db has another name", make: reissue(db, own, named(otherID))},
		{name: "db has web's name", make: reissue(db, own, named(webID))},
		{name: "two anchors and a new root for db", make: func(t testing.TB, w *world) {
			next := newCA(t)
			leaf := issued(t, next, dbID)
			leaf.Anchors = append(leaf.Anchors, w.ca.Certificate())
			must(t, leaf.Write(w.db.dir))
			leaf = issued(t, w.ca, webID)
			leaf.Anchors = append(leaf.Anchors, next.Certificate())
			must(t, leaf.Write(w.web.dir))
		}, works: true},
		{name: "CRLF line ends", make: func(t testing.TB, w *world) {
			for _, f := range []string{"tls.crt", "tls.key", "ca.crt"} {
				edit(f, crlf)(t, w)
			}
		}, works: true},
		{name: "a certificate that has expired", never: true, make: reissue(web, own, authority.Request{Names: []string{webID}, Life: time.Minute, NotBefore: time.Now().Add(-time.Hour)})},
		{name: "a certificate that is not valid yet", never: true, make: reissue(web, own, authority.Request{Names: []string{webID}, Life: time.Hour, NotBefore: time.Now().Add(time.Hour)})},
		{name: "no key", never: true, make: func(t testing.TB, w *world) { must(t, os.Remove(filepath.Join(w.web.dir, "tls.key"))) }},
		{name: "a key that everybody can read", never: true, make: func(t testing.TB, w *world) { must(t, os.Chmod(filepath.Join(w.web.dir, "tls.key"), 0o644)) }},
		{name: "a bundle that is cut off", never: true, make: edit("ca.crt", func(b []byte) []byte { return b[:len(b)/2] })},
		{name: "a certificate that is cut off", never: true, make: edit("tls.crt", func(b []byte) []byte { return b[:len(b)-40] })},
		{name: "a key of another certificate", never: true, make: func(t testing.TB, w *world) {
			other := issued(t, w.ca, webID)
			der, err := x509.MarshalPKCS8PrivateKey(other.Key)
			must(t, err)
			edit("tls.key", func([]byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}) })(t, w)
		}},
		{name: "nothing yet", never: true, make: func(t testing.TB, w *world) {
			for _, f := range []string{"tls.crt", "tls.key", "ca.crt"} {
				must(t, os.Remove(filepath.Join(w.web.dir, f)))
			}
		}},
	}
}

// Whatever is wrong with an identity, no word of an application goes over the wire
// without mTLS, and the other application is not reached.
func TestAnIdentityThatIsNotInOrderIsNeverPlaintext(t *testing.T) {
	for _, r := range identityRows() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			if r.never {
				r.notStarted(t)
				return
			}
			var tcp, http *application
			w := meshed(t, setup{before: func(w *world) {
				tcp, http = startApplication(t, w.Peer.Listen(t, at(5000))), startApplication(t, w.Peer.Listen(t, at(8080)))
				r.make(t, w)
			}})
			wire := listen(t, w.Pod)
			for p, app := range map[uint16]*application{5000: tcp, 8080: http} {
				if got := w.asks(t, p); got != r.works {
					t.Errorf("an answer on port %d: %v, want %v", p, got, r.works)
				}
				if n := app.accepted.Load(); (n > 0) != r.works {
					t.Errorf("the application on port %d has seen %d connections", p, n)
				}
			}
			wire.settle(t)
			if wire.size() == 0 || wire.has(secret) {
				t.Errorf("%d bytes on the wire; the application's among them: %v", wire.size(), wire.has(secret))
			}
			n := w.web.Sample(t).Sum("outbound_tcp_errors_total", `error="tls handshake"`) + w.db.Sample(t).Sum("inbound_tcp_errors_total", `error="tls handshake"`)
			if (n == 0) != r.works {
				t.Errorf("%v handshakes have failed", n)
			}
		})
	}
}

// notStarted: what is wrong with its own files keeps a proxy from its work, and
// says so.
func (r identityRow) notStarted(t *testing.T) {
	t.Helper()
	w := &world{Net: lab.Pair(t), resources: open(t), ca: newCA(t)}
	w.web, w.db = &pod{ns: w.Pod, dir: identityDir(t)}, &pod{ns: w.Peer, dir: identityDir(t)}
	w.objects(t, podObjects(""))
	issue(t, w.ca, w.web.dir, webID)
	app := startApplication(t, w.Peer.Listen(t, at(5000)))
	r.make(t, w)
	wire := listen(t, w.Pod)
	w.web.Proxy = built.RedirectedSoon(t, program, w.web.ns, nil, "--resources", w.resources, "--namespace", "shop", "--pod", "web", "--identity-dir", w.web.dir)
	if r.name == "nothing yet" {
		r.waits(t, w)
	} else if code, err := w.web.Ended(patience); err != nil || code != 65 {
		t.Errorf("the proxy ends with %d, %v; want 65\n%s", code, err, w.web.Logged(t))
	} else {
		t.Log(lastLine(w.web.Logged(t)))
	}
	wire.settle(t)
	if wire.has(secret) || app.accepted.Load() != 0 {
		t.Errorf("the application's words are on the wire: %v; connections at db: %d", wire.has(secret), app.accepted.Load())
	}
}

// waits: files that are not there yet are waited for, not ready and closed.
func (r identityRow) waits(t *testing.T, w *world) {
	t.Helper()
	await(t, "the rules are there", func() bool { return bytes.Contains([]byte(w.web.Logged(t)), []byte("rules verified")) })
	await(t, "the proxy is not ready", func() bool {
		conn, err := w.Pod.Dial(built.App, netip.AddrPort{}, netip.MustParseAddrPort("127.0.0.1:4191"), time.Second)
		if err != nil {
			return false
		}
		return w.attempt(t, conn, "GET /ready HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n") == "503"
	})
	if w.asks(t, 5000) {
		t.Error("db has answered a proxy that has no identity")
	}
}

func lastLine(text string) string {
	lines := bytes.Split(bytes.TrimSpace([]byte(text)), []byte("\n"))
	return string(lines[len(lines)-1])
}

// A certificate that runs out while it is in use: nothing goes on without it, and
// what comes next makes everything go on.
func TestACertificateThatExpiresStopsWhatNeedsIt(t *testing.T) {
	t.Parallel()
	var app *application
	w := meshed(t, setup{before: func(w *world) {
		app = startApplication(t, w.Peer.Listen(t, at(5000)))
		leaf, err := w.ca.Issue(authority.Request{Names: []string{webID}, Life: 8 * time.Second}, time.Now())
		must(t, err)
		must(t, leaf.Write(w.web.dir))
	}})
	if !w.asks(t, 5000) {
		t.Fatal("no answer while the certificate is valid")
	}
	wire := listen(t, w.Pod)
	await(t, "the certificate expires", func() bool { return !w.asks(t, 5000) })
	n := app.accepted.Load()
	if w.asks(t, 5000) || app.accepted.Load() != n {
		t.Error("a connection without a certificate that is valid")
	}
	issue(t, w.ca, w.web.dir, webID)
	await(t, "the next certificate makes it work", func() bool { return w.asks(t, 5000) })
	wire.settle(t)
	if wire.has(secret) {
		t.Error("plaintext instead of mTLS")
	}
}
