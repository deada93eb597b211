package conformance

import (
	"crypto/tls"
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"
)

// opening is how a client begins, and what the proxy has to say of it.
type opening struct {
	name  string
	parts []string // sent with a pause between them
	want  string   // protocol of /connections
	sni   string
}

const gap = 10 * time.Millisecond

// single cuts the first n bytes of s into bytes.
func single(n int, s string) []string {
	var parts []string
	for i := range n {
		parts = append(parts, s[i:i+1])
	}
	return append(parts, s[n:])
}

// at cuts s in two or more.
func at(s string, cuts ...int) []string {
	var parts []string
	from := 0
	for _, to := range append(cuts, len(s)) {
		parts = append(parts, s[from:to])
		from = to
	}
	return parts
}

func one(s string) []string { return []string{s} }

const (
	simple  = "GET /stock/7?unit=kg HTTP/1.1\r\nHost: shop.example\r\n\r\n"
	preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
)

// hello is a ClientHello as crypto/tls writes it.
func hello(t *testing.T, config *tls.Config) string {
	t.Helper()
	config.ServerName = "till.shop.example"
	here, there := net.Pipe()
	done := make(chan error, 1)
	go func() { done <- tls.Client(here, config).Handshake() }()
	b := make([]byte, 64<<10)
	there.SetReadDeadline(time.Now().Add(patience))
	n, err := there.Read(b)
	there.Close()
	if <-done == nil || err != nil {
		t.Fatalf("making a ClientHello: %v", err)
	}
	here.Close()
	return string(b[:n])
}

// rerecorded cuts a handshake message into records of at most size bytes (RFC
// 8446, 5.1 allows it).
func rerecorded(hello string, size int) string {
	var b strings.Builder
	for body := hello[5:]; body != ""; {
		n := min(size, len(body))
		b.WriteString(hello[:3])
		b.Write(binary.BigEndian.AppendUint16(nil, uint16(n)))
		b.WriteString(body[:n])
		body = body[n:]
	}
	return b.String()
}

func httpOpenings() []opening {
	return []opening{
		{name: "a whole request", parts: one(simple)},
		{name: "a request byte by byte", parts: single(len(simple)-1, simple)},
		{name: "a request cut in its method", parts: at(simple, 2)},
		{name: "a request cut behind its method", parts: at(simple, 3)},
		{name: "a request cut in its target", parts: at(simple, 9)},
		{name: "a request cut in its version", parts: at(simple, 26)},
		{name: "a request cut before the line ends", parts: at(simple, 29)},
		{name: "a request cut in three", parts: at(simple, 1, 12)},
		{name: "a method that begins like the preface", parts: at("PATCH /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx", 1)},
		{name: "a method of WebDAV cut in two", parts: at("MKCALENDAR /c/ HTTP/1.1\r\nHost: a\r\n\r\n", 4)},
		{name: "a private method", parts: one("RESTOCK /shelf/4 HTTP/1.1\r\nHost: a\r\n\r\n")},
		{name: "a method with signs in it", parts: one("!#$%&'*+-.^_`|~9 /x HTTP/1.1\r\nHost: a\r\n\r\n")},
		{name: "HTTP/1.0 without Host", parts: one("HEAD /old HTTP/1.0\r\n\r\n")},
		{name: "a target of 9000 bytes", parts: one("GET /" + strings.Repeat("k", 9000) + " HTTP/1.1\r\nHost: a\r\n\r\n")},
		{name: "a target of 9000 bytes in three pieces", parts: at("GET /"+strings.Repeat("k", 9000)+" HTTP/1.1\r\nHost: a\r\n\r\n", 100, 8000)},
		{name: "an empty line before the request", parts: one("\r\n" + simple)},
		{name: "an empty line and the request apart", parts: at("\r\n"+simple, 1, 2)},
		{name: "bare line feeds", parts: one("GET /lf HTTP/1.1\nHost: a\n\n")},
		{name: "an absolute target", parts: one("GET http://shop.example/x HTTP/1.1\r\nHost: shop.example\r\n\r\n")},
		{name: "CONNECT", parts: one("CONNECT db.example:5432 HTTP/1.1\r\nHost: db.example:5432\r\n\r\n")},
		{name: "OPTIONS for the server as a whole", parts: one("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")},
	}
}

func http2Openings() []opening {
	return []opening{
		{name: "a preface with its settings", parts: one(preface)},
		{name: "a preface byte by byte", parts: single(24, preface)},
		{name: "a preface cut behind PRI", parts: at(preface, 3)},
		{name: "a preface cut behind its first line", parts: at(preface, 16)},
		{name: "a preface cut before its last byte", parts: at(preface, 23)},
		{name: "a preface and its settings apart", parts: at(preface, 24)},
	}
}

func tlsOpenings(t *testing.T) []opening {
	classic := hello(t, &tls.Config{CurvePreferences: []tls.CurveID{tls.X25519}})
	hybrid := hello(t, &tls.Config{NextProtos: []string{"h2"}})
	if len(hybrid) < 1449 {
		t.Fatalf("the ClientHello with a post-quantum share has only %d bytes", len(hybrid))
	}
	return []opening{
		{name: "a ClientHello", parts: one(classic)},
		{name: "a ClientHello whose first bytes come one by one", parts: single(60, classic)},
		{name: "a ClientHello cut in its record header", parts: at(classic, 1, 4)},
		{name: "a ClientHello of two segments", parts: at(hybrid, 1448)},
		{name: "a ClientHello of three records", parts: one(rerecorded(classic, 100))},
		{name: "a ClientHello of many records and segments", parts: at(rerecorded(hybrid, 64), 33, 700)},
	}
}

func opaqueOpenings() []opening {
	return []opening{
		{name: "a redis command inline", parts: one("GET stock:7\r\n")},
		{name: "a redis command in RESP", parts: one("*2\r\n$3\r\nGET\r\n$7\r\nstock:7\r\n")},
		{name: "memcached text", parts: one("set stock 0 60 2\r\n42\r\n")},
		{name: "memcached text without its end", parts: one("gets a-rather-long-key")},
		{name: "memcached binary", parts: one("\x80\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00key")},
		{name: "a PostgreSQL request for TLS", parts: one("\x00\x00\x00\x08\x04\xd2\x16\x2f")},
		{name: "a PostgreSQL start-up", parts: one("\x00\x00\x00\x17\x00\x03\x00\x00user\x00clerk\x00\x00\x00")},
		{name: "an SMTP greeting of a client", parts: one("EHLO till.shop.example\r\n")},
		{name: "an SSH version", parts: one("SSH-2.0-till_1.0\r\n")},
		{name: "an SSH version without its end", parts: one("SSH-2.0-till_1.0")},
		{name: "NATS", parts: one("CONNECT {\"lang\":\"go\",\"tls_required\":false}\r\n")},
		{name: "STOMP", parts: one("STOMP\naccept-version:1.2\nhost:shop\n\n\x00")},
		{name: "MQTT", parts: one("\x10\x10\x00\x04MQTT\x04\x02\x00\x0a\x00\x04till")},
		{name: "AMQP", parts: one("AMQP\x00\x00\x09\x01")},
		{name: "Kafka", parts: one("\x00\x00\x00\x10\x00\x12\x00\x01\x00\x00\x00\x07\x00\x04till\x00\x00")},
		{name: "MongoDB", parts: one("\x1a\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\xdd\x07\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00")},
		{name: "Cassandra", parts: one("\x04\x00\x00\x01\x05\x00\x00\x00\x00")},
		{name: "LDAP", parts: one("\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\x00\x80\x00")},
		{name: "RTSP", parts: one("DESCRIBE rtsp://cam.shop.example/1 RTSP/1.0\r\nCSeq: 2\r\n\r\n")},
		{name: "SIP with a method of HTTP", parts: one("OPTIONS sip:till@shop.example SIP/2.0\r\n\r\n")},
		{name: "IRC", parts: one("NICK clerk\r\nUSER clerk 0 * :Clerk\r\n")},
		{name: "FTP", parts: one("USER clerk\r\n")},
		{name: "graphite", parts: one("shop.till.open 3 1790000000\n")},
		{name: "a JSON line", parts: one("{\"op\":\"sale\"}\n")},
		{name: "PROXY protocol in text", parts: one("PROXY TCP4 192.0.2.1 192.0.2.2 4000 80\r\n" + simple)},
		{name: "PROXY protocol in binary", parts: one("\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x01\xc0\x00\x02\x02\x0f\xa0\x00\x50")},
		{name: "a request of HTTP/0.9", parts: one("GET /nine\r\n")},
		{name: "a version that does not exist", parts: one("GET / HTTP/1.7\r\n\r\n")},
		{name: "a version in small letters", parts: one("GET / http/1.1\r\n\r\n")},
		{name: "a tab in the request line", parts: one("GET\t/ HTTP/1.1\r\n\r\n")},
		{name: "two spaces in the request line", parts: one("GET  / HTTP/1.1\r\n\r\n")},
		{name: "a preface that goes wrong", parts: one("PRI * HTTP/2.0\r\n\r\nSN\r\n\r\n")},
		{name: "a preface that goes wrong later", parts: at("PRI * HTTP/2.0\r\n\r\nSM\r\n\rX", 10)},
		{name: "a request that goes wrong later", parts: at("GET stock and more\r\n", 2)},
		{name: "line ends only", parts: one("\n\n\n\n\n\n\n")},
		{name: "one byte", parts: one("\xfe")},
		{name: "zeros", parts: one(strings.Repeat("\x00", 20))},
		{name: "letters only", parts: one(strings.Repeat("Q", 20))},
		{name: "an SSLv2 hello", parts: one("\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10\x01\x00\x80")},
		{name: "a TLS alert", parts: one("\x15\x03\x01\x00\x02\x01\x00")},
		{name: "a record that is no ClientHello", parts: one("\x16\x03\x03\x00\x04\x02\x00\x00\x00")},
	}
}

// undecided are openings that may still become something known.
func undecided(t *testing.T) []opening {
	tlsHello := hello(t, &tls.Config{})
	return []opening{
		{name: "G", parts: one("G")},
		{name: "a method", parts: one("DELETE")},
		{name: "a method and half a target", parts: one("DELETE /sta")},
		{name: "a line without its end", parts: one("GET /x HTTP/1.1")},
		{name: "an empty line", parts: one("\r\n")},
		{name: "half a preface", parts: one("PRI * HTTP/2.0\r\n\r\nS")},
		{name: "one byte of a record", parts: one(tlsHello[:1])},
		{name: "half a ClientHello", parts: one(tlsHello[:200])},
	}
}

// all are the openings that can be decided from their bytes.
func all(t *testing.T) []opening {
	var list []opening
	add := func(want, sni string, openings []opening) {
		for _, o := range openings {
			o.want, o.sni = want, sni
			list = append(list, o)
		}
	}
	add("http/1", "", httpOpenings())
	add("http/2", "", http2Openings())
	add("tls", "till.shop.example", tlsOpenings(t))
	add("opaque", "", opaqueOpenings())
	return list
}
