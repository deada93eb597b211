package integration

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/integration/servers"
)

// How long the first byte may take on a loaded machine. For a server that speaks first
// on an undeclared port it is 250 ms (--early-dial-after) and a bit on a quiet one; the
// second time, and when the port is declared, a few milliseconds. The test prints what
// it was.
const (
	atAll  = 1500 * time.Millisecond
	atOnce = 200 * time.Millisecond // less than the early dial's wait; the best of a few tries
)

// service is a real server, and what the proxy must find out about it.
type service struct {
	name  string
	port  uint16 // no port of any default list: nothing is known beforehand
	start func(t testing.TB, p servers.Place)
	// hello is what a client says first; "" when it waits for the server.
	hello    string
	answer   string // part of what the server says first
	protocol string // with nothing declared
	detected string
	talk     func(t *testing.T, c client, to netip.AddrPort)
	answers  answers // HTTP responses that talk gets, by status
	failures float64 // those of them that are failures: 5xx, or by gRPC status
}

// speaksFirst reports whether the server does.
func (s service) speaksFirst() bool { return s.hello == "" }

const (
	sslRequest = "\x00\x00\x00\x08\x04\xd2\x16\x2f"                                     // PostgreSQL, protocol 3, SSLRequest
	h2Hello    = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00" // RFC 9113, 3.4: preface, empty SETTINGS
)

func services() []service {
	return []service{
		{name: "mariadb", port: 7001, answer: "MariaDB", protocol: "opaque", detected: "mysql", talk: talkMariaDB,
			start: func(t testing.TB, p servers.Place) { servers.MariaDB(t, templates, p) }},
		{name: "postgres", port: 7002, hello: sslRequest, answer: "N", protocol: "opaque", detected: "postgres", talk: talkPostgres("disable"),
			start: func(t testing.TB, p servers.Place) { servers.Postgres(t, templates, p, false) }},
		{name: "postgres with TLS", port: 7003, hello: sslRequest, answer: "S", protocol: "opaque", detected: "postgres", talk: talkPostgres("require"),
			start: func(t testing.TB, p servers.Place) { servers.Postgres(t, templates, p, true) }},
		{name: "redis", port: 7004, hello: "*1\r\n$4\r\nPING\r\n", answer: "+PONG", protocol: "opaque", detected: "redis", talk: talkRedis,
			start: servers.Redis},
		{name: "memcached", port: 7005, hello: "version\r\n", answer: "VERSION ", protocol: "opaque", detected: "memcached", talk: talkMemcached,
			start: servers.Memcached},
		{name: "nats", port: 7006, answer: "INFO {", protocol: "opaque", detected: "nats", talk: talkNATS,
			start: servers.NATS},
		{name: "smtp", port: 7007, answer: "220 mail.example", protocol: "opaque", detected: "smtp", talk: talkSMTP,
			start: servers.SMTP},
		{name: "ssh", port: 7008, answer: "SSH-2.0-", protocol: "opaque", detected: "ssh", talk: talkSSH,
			start: func(t testing.TB, p servers.Place) { servers.SSH(t, p) }},
		{name: "http1", port: 7009, hello: "GET / HTTP/1.1\r\nHost: a\r\n\r\n", answer: "HTTP/1.1 200", protocol: "http/1",
			talk: talkHTTP("--http1.1"), answers: http1Answers, failures: 1, start: servers.HTTP1},
		{name: "http2", port: 7010, hello: h2Hello, answer: "\x00\x00", protocol: "http/2",
			talk: talkHTTP("--http2-prior-knowledge"), answers: http2Answers, failures: 1, start: servers.HTTP2},
		{name: "https", port: 7011, hello: clientHello(), answer: "\x16\x03", protocol: "tls", talk: talkHTTPS,
			start: func(t testing.TB, p servers.Place) { servers.HTTPS(t, p) }},
		{name: "grpc", port: 7012, hello: h2Hello, answer: "\x00\x00", protocol: "http/2", talk: talkGRPC,
			answers: answers{"200": 3}, failures: 1, start: servers.GRPC},
		{name: "websocket", port: 7013, hello: "GET /none HTTP/1.1\r\nHost: a\r\n\r\n", answer: "404 Not Found", protocol: "http/1",
			talk: talkWebSocket, answers: answers{"101": 1}, start: servers.WebSocket},
	}
}

func TestRealServersBehindTheProxy(t *testing.T) {
	for _, direction := range []string{"outbound", "inbound"} {
		t.Run(direction, func(t *testing.T) {
			behind(t, direction, lab.PodV4, lab.PeerV4, services())
		})
	}
}

func TestRealServersBehindTheProxyOverIPv6(t *testing.T) {
	some := slices.DeleteFunc(services(), func(s service) bool {
		return !slices.Contains([]string{"nats", "redis", "http1", "http2", "grpc"}, s.name)
	})
	for _, direction := range []string{"outbound", "inbound"} {
		t.Run(direction, func(t *testing.T) {
			behind(t, direction, lab.PodV6, lab.PeerV6, some)
		})
	}
}

// behind starts the services in the pod (inbound) or in the peer (outbound), and has
// clients on the other side talk to them through the proxy.
func behind(t *testing.T, direction string, podAddr, peerAddr netip.Addr, all []service) {
	n := lab.Pair(t)
	server, addr, caller := n.Peer, peerAddr, client{n.Pod}
	if direction == "inbound" {
		server, addr, caller = n.Pod, podAddr, client{n.Peer}
	}
	at := func(s service) servers.Place { return servers.At(server, addr, s.port) }
	for _, s := range all {
		s.start(t, at(s))
	}
	t.Run("undeclared", func(t *testing.T) {
		p := mesh(t, n, "--opaque-ports", "")
		for _, s := range all {
			t.Run(s.name, func(t *testing.T) { undeclared(t, p, caller, direction, s, at(s).Addr) })
		}
	})
	t.Run("opaque", func(t *testing.T) {
		p := mesh(t, n, "--opaque-ports", "7000-7999")
		for _, s := range all {
			t.Run(s.name, func(t *testing.T) { declared(t, p, caller, direction, s, at(s).Addr) })
		}
	})
}

// undeclared: nothing is known of the port. A server that speaks first is found out
// within the early dial's time, and remembered.
func undeclared(t *testing.T, p *pod, c client, direction string, s service, to netip.AddrPort) {
	want := seen{Direction: direction, Target: to.String(), Protocol: s.protocol, Detected: s.detected, Reason: "bytes"}
	if s.speaksFirst() {
		want.Reason = "server_first"
	}
	if s.protocol == "tls" {
		want.SNI = servers.Name
	}
	greet(t, p, c, s, to, want)
	greetAtOnce(t, p, c, s, to, want)

	before := map[string]float64{}
	for code := range s.answers {
		before[code] = p.counter(t, "response_total", answered(direction, to, code))
	}
	failed := map[string]string{"direction": direction, "target_addr": to.String(), "classification": "failure"}
	failedBefore := p.counter(t, "response_total", failed)
	s.talk(t, c, to)
	for code, n := range s.answers {
		p.awaitCounter(t, "response_total", answered(direction, to, code), before[code], n)
	}
	p.awaitCounter(t, "response_total", failed, failedBefore, s.failures)
}

// declared: the port is opaque, and so is whatever it speaks.
func declared(t *testing.T, p *pod, c client, direction string, s service, to netip.AddrPort) {
	want := seen{Direction: direction, Target: to.String(), Protocol: "opaque", Detected: s.detected, Reason: "declared"}
	greetAtOnce(t, p, c, s, to, want)
	s.talk(t, c, to)
	if n := p.counter(t, "response_total", map[string]string{"target_addr": to.String()}); n != 0 {
		t.Errorf("%v responses were counted on an opaque port", n)
	}
}

// greetAtOnce is greet without a wait for anything but the machine.
func greetAtOnce(t *testing.T, p *pod, c client, s service, to netip.AddrPort, want seen) {
	t.Helper()
	best := atAll
	for range 5 {
		if best = min(best, greet(t, p, c, s, to, want)); best <= atOnce {
			return
		}
	}
	t.Errorf("the first byte took %s at best, more than %s", best, atOnce)
}

// greet opens one connection, waits for the server's first bytes, and compares what
// the proxy says of the connection. It returns how long those bytes took.
func greet(t *testing.T, p *pod, c client, s service, to netip.AddrPort, want seen) time.Duration {
	t.Helper()
	began := time.Now()
	conn := c.dial(t, to)
	defer conn.Close()
	fmt.Fprint(conn, s.hello)
	b := make([]byte, 4096)
	n, err := conn.Read(b)
	took := time.Since(began)
	if err != nil || !strings.Contains(string(b[:n]), s.answer) {
		t.Fatalf("the server's first words are %q, %v; want %q\n%s", b[:n], err, s.answer, p.proxy.Log())
	}
	t.Logf("%-18s %-12s first byte after %s", s.name, want.Reason, took.Round(100*time.Microsecond))
	if took > atAll {
		t.Errorf("the first byte took %s, more than %s", took, atAll)
	}
	got := p.connection(t, to)
	want.Client = got.Client
	if s.protocol != "opaque" && want.Protocol == "opaque" {
		want.Detected = got.Detected // HTTP on an opaque port may have a name or none
	}
	if got != want {
		t.Errorf("the proxy says %+v, want %+v", got, want)
	}
	return took
}

// answered are the labels of one kind of response.
func answered(direction string, to netip.AddrPort, code string) map[string]string {
	return map[string]string{"direction": direction, "target_addr": to.String(), "status_code": code}
}

// clientHello is a real one, as crypto/tls sends it.
func clientHello() string {
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		tls.Client(theirs, &tls.Config{ServerName: servers.Name}).Handshake() // fails when ours is closed
	}()
	b := make([]byte, 16<<10)
	n, _ := ours.Read(b)
	return string(b[:n])
}
