package demo

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"sync"
	"time"
)

// The ports that servers listen on: in the peer, and the last one in the pod.
// None of those above 1024 is known to the proxy.
const (
	httpPort   = 80
	tlsPort    = 443
	smtpPort   = 2525
	mysqlPort  = 3306
	newPort    = 13306 // MySQL where nobody expects it
	redisPort  = 16379
	silentPort = 7000
	appPort    = 8080
)

// tlsName is the name that the TLS client asks for.
const tlsName = "a.example"

// servers are those of the demo, each on its port in both families.
type servers struct {
	roots *x509.CertPool // what the TLS client has to trust

	running sync.WaitGroup
	mu      sync.Mutex
	closers map[io.Closer]bool // listeners and connections
	closed  bool
}

func startServers(p *pair) (*servers, error) {
	s := &servers{closers: map[io.Closer]bool{}}
	cert, err := s.certificate()
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	web := func(l net.Listener) { serveHTTP(l) }
	for _, start := range []struct {
		where *side
		port  uint16
		serve func(net.Listener)
	}{
		{p.peer, httpPort, web},
		{p.peer, tlsPort, func(l net.Listener) {
			s.each(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}}), echo)
		}},
		{p.peer, mysqlPort, func(l net.Listener) { s.each(l, serveMySQL) }},
		{p.peer, newPort, func(l net.Listener) { s.each(l, serveMySQL) }},
		{p.peer, smtpPort, func(l net.Listener) { s.each(l, serveSMTP) }},
		{p.peer, redisPort, func(l net.Listener) { s.each(l, serveRedis) }},
		{p.peer, silentPort, func(l net.Listener) { s.each(l, echo) }},
		{p.pod, appPort, web},
	} {
		l, err := start.where.listen(start.port)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("starting a server on port %d: %w", start.port, err)
		}
		s.own(l)
		s.running.Go(func() { start.serve(l) })
	}
	return s, nil
}

// own makes close close c; false if that is over already.
func (s *servers) own(c io.Closer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.Close()
		return false
	}
	s.closers[c] = true
	return true
}

func (s *servers) disown(c io.Closer) {
	c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.closers, c)
}

// close ends all servers and waits for them.
func (s *servers) close() {
	s.mu.Lock()
	s.closed = true
	for c := range s.closers {
		c.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
}

// each serves every connection until the listener is closed.
func (s *servers) each(l net.Listener, serve func(net.Conn)) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		if !s.own(conn) {
			return
		}
		s.running.Go(func() {
			defer s.disown(conn)
			serve(conn)
		})
	}
}

// serveHTTP speaks HTTP/1 and, to who begins with its preface, HTTP/2.
func serveHTTP(l net.Listener) {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Protocols:         protocols,
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, webAnswer) // the client checks it
		}),
	}
	_ = server.Serve(l) // ends when the listener is closed
	_ = server.Close()
}

const webAnswer = "hello from the other side\n"

func echo(c net.Conn) {
	_, _ = io.Copy(c, c) // until the client has enough
}

// certificate makes a key pair that lives as long as the demo.
func (s *servers) certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{tlsName},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, err
	}
	s.roots = x509.NewCertPool()
	s.roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// mysqlGreeting is the packet a MySQL server opens with: Protocol::HandshakeV10
// of the MySQL client/server protocol.
func mysqlGreeting() []byte {
	body := []byte{10} // the protocol's version
	body = append(body, "8.4.0-demo\x00"...)
	body = append(body, 7, 0, 0, 0)                // connection id
	body = append(body, "saltsalt\x00"...)         // first part of the challenge
	body = append(body, 0xff, 0xf7, 8, 2, 0, 8, 0) // capabilities, charset, status
	body = append(body, 21)                        // length of the challenge
	body = append(body, make([]byte, 10)...)
	body = append(body, "saltsaltsalt\x00mysql_native_password\x00"...)
	return mysqlPacket(0, body)
}

// mysqlLogin is a HandshakeResponse41 of user "demo" without a password, and
// mysqlOK the server's answer.
func mysqlLogin() []byte {
	body := []byte{0x00, 0x82, 0x08, 0, 0, 0, 0, 1, 8} // capabilities, largest packet, charset
	body = append(body, make([]byte, 23)...)
	return mysqlPacket(1, append(body, "demo\x00\x00"...))
}

func mysqlOK() []byte { return mysqlPacket(2, []byte{0, 0, 0, 2, 0, 0, 0}) }

func mysqlPacket(sequence byte, body []byte) []byte {
	n := len(body)
	return append([]byte{byte(n), byte(n >> 8), byte(n >> 16), sequence}, body...)
}

// serveMySQL greets first and lets everybody in.
func serveMySQL(c net.Conn) {
	if _, err := c.Write(mysqlGreeting()); err != nil {
		return
	}
	if _, err := io.ReadFull(c, make([]byte, len(mysqlLogin()))); err != nil {
		return
	}
	if _, err := c.Write(mysqlOK()); err == nil {
		echo(c)
	}
}

// What an SMTP server says first, hears and answers (RFC 5321).
const (
	smtpGreeting = "220 mail.example ESMTP demo\r\n"
	smtpHello    = "EHLO pod.example\r\n"
	smtpAnswer   = "250 mail.example\r\n"
)

func serveSMTP(c net.Conn) {
	if _, err := io.WriteString(c, smtpGreeting); err == nil {
		answerLines(c, smtpAnswer)
	}
}

// What a Redis client says and hears.
const (
	redisPing = "*1\r\n$4\r\nPING\r\n"
	redisPong = "+PONG\r\n"
)

func serveRedis(c net.Conn) {
	for ping := make([]byte, len(redisPing)); ; {
		if _, err := io.ReadFull(c, ping); err != nil {
			return
		}
		if _, err := io.WriteString(c, redisPong); err != nil {
			return
		}
	}
}

func answerLines(c net.Conn, answer string) {
	for lines := bufio.NewScanner(c); lines.Scan(); {
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}
