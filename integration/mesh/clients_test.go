package mesh

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/meshctl/meshctl/integration/built"
	"github.com/meshctl/meshctl/proxy/identity/authority"
)

// uid is the user of the proxies, past whose connections the rules look.
func uid() string { return strconv.Itoa(built.UID()) }

// clientHello is what crypto/tls begins with for a server of that name.
func clientHello(t testing.TB, name string, protos ...string) []byte {
	t.Helper()
	a, b := net.Pipe()
	defer b.Close()
	go func() {
		tls.Client(a, &tls.Config{ServerName: name, InsecureSkipVerify: true, NextProtos: protos}).Handshake()
		a.Close()
	}()
	head := make([]byte, 5)
	_, err := io.ReadFull(b, head)
	must(t, err)
	body := make([]byte, int(head[3])<<8|int(head[4]))
	_, err = io.ReadFull(b, body)
	must(t, err)
	return append(head, body...)
}

// greet says hello to everybody who connects.
func greet(t testing.TB, l net.Listener) {
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
				io.WriteString(conn, "220 hello\r\n")
				io.Copy(io.Discard, conn)
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
}

// proxyTLS is how linkerd2-proxy begins TLS: version 1.3, no session tickets, the
// server's identity as its name, and the transport header as ALPN where it is
// going to send one.
func proxyTLS(ca *x509.CertPool, protos ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true, NextProtos: protos, ServerName: dbID, InsecureSkipVerify: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			_, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: ca, DNSName: dbID})
			return err
		},
	}
}

// alpn is what a client offers that sends a transport header.
const alpn = "transport.l5d.io/v1"

// direct is TLS with the own port of db's proxy, by a client of that certificate.
func (w *world) direct(t testing.TB, leaf authority.Leaf) *tls.Conn {
	t.Helper()
	cfg := proxyTLS(w.pool(), alpn)
	cfg.Certificates = []tls.Certificate{leaf.TLS()}
	conn := tls.Client(w.around(t, at(4143)), cfg)
	must(t, conn.Handshake())
	return conn
}

func (w *world) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(w.ca.Certificate())
	return pool
}

// vector is a transport header, made here from the description of the format:
// nothing of the program's own has a part in it. session: "", http/1, http/2.
func vector(port uint16, session string) string {
	message := binary.AppendUvarint([]byte{1 << 3}, uint64(port))
	switch session {
	case "http/1":
		message = append(message, 3<<3|2, 2, 1<<3|2, 0)
	case "http/2":
		message = append(message, 3<<3|2, 2, 2<<3|2, 0)
	}
	return framed(message)
}

// framed puts the preface and the length before a message.
func framed(message []byte) string {
	b := binary.BigEndian.AppendUint32([]byte("transport.l5d.io/v1\r\n\r\n"), uint32(len(message)))
	return string(append(b, message...))
}

// h2Get makes a request of HTTP/2 behind a transport header.
func h2Get(t testing.TB, conn net.Conn, header string, fields http.Header) (status int, body string, got http.Header) {
	t.Helper()
	_, err := io.WriteString(conn, header)
	must(t, err)
	req, err := http.NewRequest(http.MethodGet, "http://db/a?b", nil)
	must(t, err)
	req.Header = fields
	resp, err := h2Over(conn).RoundTrip(req)
	must(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(b), resp.Header
}

// bare hides that a connection is TLS: what is inside of it is HTTP/2 as if in
// plaintext.
type bare struct{ net.Conn }

// h2Over speaks HTTP/2 with prior knowledge on a connection, for one request.
func h2Over(conn net.Conn) *http.Transport {
	return &http.Transport{Protocols: onlyHTTP2(), DisableCompression: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return bare{conn}, nil }}
}

func onlyHTTP2() *http.Protocols {
	p := &http.Protocols{}
	p.SetUnencryptedHTTP2(true)
	return p
}

// single is a listener that has one connection.
type single struct {
	net.Listener
	conn chan net.Conn
	over chan struct{}
	once sync.Once
}

// Accept returns the connection, and waits for Close.
func (s *single) Accept() (net.Conn, error) {
	select {
	case c := <-s.conn:
		return c, nil
	case <-s.over:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (s *single) Close() error {
	s.once.Do(func() { close(s.over) })
	return nil
}

// Addr is nobody's.
func (s *single) Addr() net.Addr { return &net.TCPAddr{} }

// serveH2On serves HTTP/2 with prior knowledge on one connection, until its end.
func serveH2On(conn net.Conn, h http.HandlerFunc) {
	l := &single{conn: make(chan net.Conn, 1), over: make(chan struct{})}
	l.conn <- bare{conn}
	s := &http.Server{Handler: h, Protocols: onlyHTTP2(), ConnState: func(_ net.Conn, st http.ConnState) {
		if st == http.StateClosed {
			l.Close()
		}
	}}
	s.Serve(l)
}
