package mesh

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/built"
	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/proxy/identity/authority"
)

// attack is a row of the table in docs/mesh.md: somebody in web's pod, or past its
// proxy, tries to reach db.
type attack struct {
	who  string // which certificate: a key of attackers; "": no TLS
	uid  string // app or proxy
	to   uint16 // port of db
	say  string // in words; the table's
	want string // "yes": the application answers; "closed", or the status of the proxy's answer

	sni   string // of TLS; "": db's
	alpn  bool
	max   uint16 // version of TLS; 0: 1.3
	words string // sent inside of TLS, or as they are
	h2    bool   // a request of HTTP/2 behind words
	slow  bool   // it says no more, and is held until the time-out
}

// attackers are the certificates that there are.
func attackers(t testing.TB, w *world) map[string]*tls.Certificate {
	t.Helper()
	as := func(ca *authority.Authority, r authority.Request) *tls.Certificate {
		leaf, err := ca.Issue(r, time.Now())
		must(t, err)
		c := leaf.TLS()
		return &c
	}
	own := authority.Request{Names: []string{webID}, Life: time.Hour}
	past, future, other := own, own, own
	past.NotBefore, past.Life = time.Now().Add(-time.Hour), time.Minute
	future.NotBefore = time.Now().Add(time.Hour)
	other.Names = []string{otherID}
	return map[string]*tls.Certificate{
		"none": nil, "web's": as(w.ca, own), "another account's": as(w.ca, other), "web's, of another root": as(newCA(t), own),
		"web's, expired": as(w.ca, past), "web's, not valid yet": as(w.ca, future),
		"web's, self-signed": signedBy(t, nil), "web's, signed by another account's": signedBy(t, as(w.ca, other)),
	}
}

// signedBy is a certificate for web that somebody has made who is no CA; nil: with
// its own key.
func signedBy(t testing.TB, by *tls.Certificate) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{webID}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	parent, signer := template, any(key)
	chain := [][]byte{nil}
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
		chain = append(chain, by.Certificate[0])
	}
	chain[0], err = x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	must(t, err)
	return &tls.Certificate{Certificate: chain, PrivateKey: key}
}

const (
	tcpApp, httpApp, anyApp = 5000, 8080, 5002
	forged                  = "GET / HTTP/1.1\r\nHost: db\r\nl5d-client-id: " + webID + "\r\nConnection: close\r\n\r\n"
)

func attacks() []attack {
	header := func(port uint16) string { return vector(port, "") }
	mine := func(port uint16) string { return vector(port, "") + rawWords }
	return []attack{
		// The proxy's own port.
		{who: "web's", uid: "proxy", to: 4143, say: "a header for 5000, TCP", want: "yes", alpn: true, words: mine(tcpApp)},
		{who: "web's", uid: "proxy", to: 4143, say: "a header for 8080, HTTP/2", want: "yes", alpn: true, words: vector(httpApp, "http/2"), h2: true},
		{who: "another account's", uid: "proxy", to: 4143, say: "a header for 5000, TCP", want: "closed", alpn: true, words: mine(tcpApp)},
		{who: "another account's", uid: "proxy", to: 4143, say: "a header for 8080, HTTP/2", want: "403", alpn: true, words: vector(httpApp, "http/2"), h2: true},
		{who: "another account's", uid: "proxy", to: 4143, say: "a header for 8080 without a protocol, HTTP with a forged l5d-client-id", want: "closed", alpn: true, words: header(httpApp) + forged},
		{who: "another account's", uid: "proxy", to: 4143, say: "a header for 5002, TCP", want: "yes", alpn: true, words: mine(anyApp)},
		{who: "web's, of another root", uid: "proxy", to: 4143, say: "a header for 5000, TCP", want: "closed", alpn: true, words: mine(tcpApp)},
		{who: "web's, expired", uid: "proxy", to: 4143, say: "a header for 5000, TCP", want: "closed", alpn: true, words: mine(tcpApp)},
		{who: "web's, not valid yet", uid: "proxy", to: 4143, say: "a header for 5000, TCP", want: "closed", alpn: true, words: mine(tcpApp)},
		{who: "web's, self-signed", uid: "proxy", to: 4143, say: "a header for 5000, TCP", want: "closed", alpn: true, words: mine(tcpApp)},
		{who: "web's, signed by another account's", uid: "proxy", to: 4143, say: "a header for 5000, TCP", want: "closed", alpn: true, words: mine(tcpApp)},
		{who: "none", uid: "proxy", to: 4143, say: "a header for 5002, TCP", want: "closed", alpn: true, words: mine(anyApp)},
		{who: "web's", uid: "proxy", to: 4143, say: "a header for 5000, without its ALPN", want: "closed", words: mine(tcpApp)},
		{who: "web's", uid: "proxy", to: 4143, say: "TLS 1.2", want: "closed", alpn: true, max: tls.VersionTLS12, words: mine(tcpApp)},
		{who: "", uid: "proxy", to: 4143, say: "a header for 5000, in plaintext", want: "closed", words: mine(tcpApp)},
		{who: "", uid: "proxy", to: 4143, say: "HTTP, in plaintext", want: "closed", words: forged},
		{who: "web's", uid: "proxy", to: 4143, say: "a wrong preface", want: "closed", alpn: true, words: "transport.l5d.io/v2" + mine(tcpApp)[19:]},
		{who: "web's", uid: "proxy", to: 4143, say: "a header for port 0", want: "closed", alpn: true, words: mine(0)},
		{who: "web's", uid: "proxy", to: 4143, say: "a header for port 70536, which is 5000 in 16 bits", want: "closed", alpn: true,
			words: framed(binary.AppendUvarint([]byte{8}, 65536+tcpApp)) + rawWords},
		{who: "web's", uid: "proxy", to: 4143, say: "a header for 4143, the proxy's own", want: "closed", alpn: true, words: mine(4143)},
		{who: "web's", uid: "proxy", to: 4143, say: "a header for 4140, the way out", want: "closed", alpn: true, words: mine(4140)},
		{who: "web's", uid: "proxy", to: 4143, say: "a header for 4191, HTTP: POST /shutdown", want: "closed", alpn: true, words: vector(4191, "http/1") + "POST /shutdown HTTP/1.1\r\nHost: db\r\nContent-Length: 0\r\n\r\n"},
		{who: "web's", uid: "proxy", to: 4143, say: "a header with a name, for a gateway", want: "closed", alpn: true,
			words: framed(append([]byte{8, 0x88, 0x27, 2<<3 | 2, 8}, "db.other"...)) + rawWords},
		{who: "web's", uid: "proxy", to: 4143, say: "a header of a gigabyte", want: "closed", alpn: true, words: "transport.l5d.io/v1\r\n\r\n\x40\x00\x00\x00" + rawWords},
		{who: "web's", uid: "proxy", to: 4143, say: "half a header, then nothing", want: "closed", alpn: true, words: mine(tcpApp)[:25], slow: true},
		// The applications' ports.
		{who: "web's", uid: "proxy", to: tcpApp, say: "TCP in mesh TLS, without a header", want: "yes", words: rawWords},
		{who: "another account's", uid: "proxy", to: tcpApp, say: "TCP in mesh TLS, without a header", want: "closed", words: rawWords},
		{who: "none", uid: "proxy", to: httpApp, say: "HTTP in mesh TLS, a forged l5d-client-id", want: "403", words: forged},
		{who: "web's", uid: "proxy", to: tcpApp, say: "TLS for another name, which is not the mesh's", want: "closed", sni: "server.example", words: rawWords},
		{who: "", uid: "proxy", to: httpApp, say: "HTTP, a forged l5d-client-id", want: "403", words: forged},
		{who: "", uid: "proxy", to: tcpApp, say: "a header for 5000, in plaintext", want: "closed", words: mine(tcpApp)},
		// The proxy's other ports.
		{who: "", uid: "proxy", to: 4191, say: "POST /shutdown", want: "403", words: "POST /shutdown HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"},
		{who: "", uid: "proxy", to: 4140, say: "HTTP", want: "closed", words: httpWords},
		// An application in web's pod has web's identity, whatever it brings along.
		{who: "", uid: "app", to: tcpApp, say: "TCP, by its own proxy", want: "yes", words: rawWords},
		{who: "another account's", uid: "app", to: 4143, say: "a header for 5000, past its own proxy", want: "closed", alpn: true, words: mine(tcpApp)},
	}
}

func TestWhoReachesWhat(t *testing.T) {
	t.Parallel()
	apps := map[uint16]*application{}
	w := meshed(t, setup{
		objects: podObjects("") + server("tcp", tcpApp, "unknown", "deny", "") + lets("tcp", webID) + server("http", httpApp, "unknown", "deny", "") + lets("http", webID),
		dbFlags: []string{"--default-inbound-policy", "all-authenticated", "--inbound-detect-timeout", "2s"},
		before: func(w *world) {
			for _, p := range []uint16{tcpApp, httpApp, anyApp} {
				l := w.Peer.Listen(t, at(p))
				if p == httpApp {
					apps[p] = &application{}
					l = counting{l, apps[p]}
					serveOn(t, l, func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, "yes") })
					continue
				}
				apps[p] = startApplication(t, l)
			}
		},
	})
	certs := attackers(t, w)
	rows := attacks()
	if len(rows) != 35 {
		t.Errorf("there are %d rows, want 35", len(rows))
	}
	good := 0
	for i, a := range rows {
		ok := t.Run(fmt.Sprintf("%d %s, %s", i+1, a.who, a.say), func(t *testing.T) {
			before := total(apps)
			if got := a.try(t, w, certs); got != a.want {
				t.Errorf("%s, want %s", got, a.want)
			}
			seen := total(apps) - before
			// Over HTTP a connection of an earlier request may carry this one.
			if (a.want != "yes" && seen != 0) || (a.want == "yes" && seen == 0 && !a.h2) {
				t.Errorf("the applications have seen %d connections", seen)
			}
		})
		if ok {
			good++
		}
	}
	t.Logf("%d of %d", good, len(rows))
	// Whoever may is still served: nothing of this has done harm.
	if !w.asks(t, tcpApp) {
		t.Error("nobody is served any more")
	}
	if n := w.db.Sample(t).Sum("meshctl_panics_total"); n != 0 {
		t.Errorf("%v panics", n)
	}
}

func total(apps map[uint16]*application) (n int64) {
	for _, a := range apps {
		n += a.accepted.Load()
	}
	return n
}

// counting counts who is accepted.
type counting struct {
	net.Listener
	app *application
}

// Accept counts.
func (c counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.app.accepted.Add(1)
	}
	return conn, err
}

// try is what comes of it.
func (a attack) try(t testing.TB, w *world, certs map[string]*tls.Certificate) string {
	t.Helper()
	owner := built.App
	if a.uid == "proxy" {
		owner = lab.Owner{UID: built.UID(), GID: built.UID()}
	}
	raw, err := w.Pod.Dial(owner, netip.AddrPort{}, at(a.to), 5*time.Second)
	if err != nil {
		return "closed" // a reset may come before connect has returned
	}
	var conn net.Conn = raw
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(patience)))
	if a.who != "" {
		cfg := &tls.Config{ServerName: dbID, InsecureSkipVerify: true, MaxVersion: a.max}
		if a.sni != "" {
			cfg.ServerName = a.sni
		}
		if a.alpn {
			cfg.NextProtos = []string{alpn}
		}
		cert, known := certs[a.who]
		if !known {
			t.Fatalf("there is no certificate %q", a.who)
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if cert == nil {
				return &tls.Certificate{}, nil
			}
			return cert, nil
		}
		c := tls.Client(conn, cfg)
		if err := c.Handshake(); err != nil {
			if isTimeout(err) {
				return "held"
			}
			return "closed"
		}
		conn = c
	}
	if a.h2 {
		return h2Attempt(t, conn, a.words)
	}
	return w.attempt(t, conn, a.words)
}

// h2Attempt is attempt for a request of HTTP/2.
func h2Attempt(t testing.TB, conn net.Conn, header string) string {
	t.Helper()
	if _, err := io.WriteString(conn, header); err != nil {
		return "closed"
	}
	req, err := http.NewRequest(http.MethodGet, "http://db/", nil)
	must(t, err)
	resp, err := h2Over(conn).RoundTrip(req)
	if err != nil {
		return "closed"
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); string(b) == "yes" {
		return "yes"
	}
	return fmt.Sprint(resp.StatusCode)
}

// The table of docs/mesh.md is the one that is tested.
func TestTheDocumentedMatrixIsTheTestedOne(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/mesh.md")
	must(t, err)
	var want strings.Builder
	for i, a := range attacks() {
		who := a.who
		if who == "" {
			who = "no TLS"
		}
		fmt.Fprintf(&want, "| %d | %s | %s | %d | %s | %s |\n", i+1, who, a.uid, a.to, a.say, a.want)
	}
	got := strings.Join(regexp.MustCompile(`(?m)^\| \d+ \|.*\n`).FindAllString(string(page), -1), "")
	if got != want.String() {
		t.Errorf("docs/mesh.md has\n%s\nwant\n%s", got, want.String())
	}
}
