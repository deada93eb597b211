package mesh

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/smtp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/integration/servers"
)

// spoken is a protocol with a real server of it: how an application talks it, in
// words that are found on a wire that is not encrypted.
type spoken struct {
	name     string
	port     uint16
	start    func(testing.TB, servers.Place)
	talk     func(*testing.T, *world, netip.AddrPort, string)
	first    string // what an application may begin with, to be answered
	words    string // on the wire, if it can be read; "": those that talk is given
	opaque   bool   // declared
	requests bool   // HTTP: taken one by one
	session  string // of the transport header: what it says of an exchange
	kind     string // what /connections calls it
}

// mark are the words of a protocol.
func (s spoken) mark() string {
	if s.words != "" {
		return s.words
	}
	return "mark-of-" + s.name + "-7f3a9c51"
}

func spokens() []spoken {
	db := func(start func(testing.TB, *servers.Templates, servers.Place)) func(testing.TB, servers.Place) {
		return func(t testing.TB, p servers.Place) { start(t, templates, p) }
	}
	const get = "GET / HTTP/1.1\r\nHost: db\r\n\r\n"
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	return []spoken{
		{name: "http1", port: 8080, start: servers.HTTP1, talk: talkHTTP("--http1.1"), first: get, requests: true, session: "http/2", kind: "http/1"},
		{name: "http2", port: 8081, start: servers.HTTP2, talk: talkHTTP2, words: "broken", first: preface, requests: true, session: "http/2", kind: "http/2"},
		{name: "websocket", port: 8082, start: servers.WebSocket, talk: talkWebSocket, first: get, requests: true, session: "http/1", kind: "http/1"},
		{name: "grpc", port: 8083, start: servers.GRPC, talk: talkGRPC, first: preface, requests: true, session: "http/2", kind: "http/2"},
		{name: "connect", port: 8084, start: startForwardProxy, talk: talkConnect, first: get, requests: true, session: "http/1", kind: "http/1"},
		{name: "mariadb", port: 3306, start: db(servers.MariaDB), talk: talkMariaDB, opaque: true, kind: "opaque"},
		{name: "postgres", port: 5433, start: db(func(t testing.TB, s *servers.Templates, p servers.Place) { servers.Postgres(t, s, p, false) }),
			talk: talkPostgres, first: "\x00\x00\x00\x08\x04\xd2\x16\x2f", kind: "opaque"},
		{name: "redis", port: 6380, start: servers.Redis, talk: talkRedis, first: "PING\r\n", kind: "opaque"},
		{name: "smtp", port: 2525, start: servers.SMTP, talk: talkSMTP, kind: "opaque"},
		{name: "https", port: 8443, start: func(t testing.TB, p servers.Place) { servers.HTTPS(t, p) }, talk: talkHTTPS, words: servers.Name, kind: "tls"},
	}
}

// startAll starts the servers of all protocols in db's namespace.
func startAll(t testing.TB) func(*world) {
	return func(w *world) {
		for _, s := range spokens() {
			s.start(t, servers.At(w.Peer, lab.PeerV4, s.port))
		}
	}
}

func talkHTTP(version string) func(*testing.T, *world, netip.AddrPort, string) {
	return func(t *testing.T, w *world, to netip.AddrPort, mark string) {
		url := "http://" + to.String() + "/"
		if got := w.run(t, "curl", "-sS", "-m", "15", version, "--data", mark, "-H", "x-mark: "+mark, url); got != "hello from nginx" {
			t.Errorf("curl: %q", got)
		}
	}
}

// talkHTTP2 only asks: nginx resets a stream whose body it does not read, which curl
// may take for an error.
func talkHTTP2(t *testing.T, w *world, to netip.AddrPort, mark string) {
	// One request a connection: this curl fails on the second by itself.
	if got := w.run(t, "curl", "-sS", "-m", "15", "--http2-prior-knowledge", "http://"+to.String()+"/500"); got != mark {
		t.Errorf("curl: %q", got)
	}
}

func talkWebSocket(t *testing.T, w *world, to netip.AddrPort, mark string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "ws://"+to.String()+"/echo", &websocket.DialOptions{HTTPClient: &http.Client{Transport: &http.Transport{DialContext: w.dialer()}}})
	must(t, err)
	defer ws.CloseNow()
	for _, msg := range [][]byte{[]byte(mark), bytes.Repeat([]byte("long "), 5000)} {
		must(t, ws.Write(ctx, websocket.MessageBinary, msg))
		if _, got, err := ws.Read(ctx); err != nil || !bytes.Equal(got, msg) {
			t.Fatalf("sent %d bytes, got %d, %v", len(msg), len(got), err)
		}
	}
	must(t, ws.Close(websocket.StatusNormalClosure, ""))
}

// grpc is one gRPC connection of web's application.
func (w *world) grpc(t testing.TB, to netip.AddrPort) testgrpc.TestServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+to.String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return w.dialer()(ctx, "tcp", addr) }))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return testgrpc.NewTestServiceClient(conn)
}

func talkGRPC(t *testing.T, w *world, to netip.AddrPort, mark string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	service := w.grpc(t, to)
	reply, err := service.UnaryCall(ctx, &testgrpc.SimpleRequest{ResponseSize: 100_000, Payload: &testgrpc.Payload{Body: []byte(mark)}})
	if err != nil || len(reply.GetPayload().GetBody()) != 100_000 {
		t.Errorf("unary call: %d bytes, %v", len(reply.GetPayload().GetBody()), err)
	}
	stream, err := service.FullDuplexCall(ctx)
	must(t, err)
	for _, size := range []int32{10, 20_000} {
		must(t, stream.Send(&testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: size}}}))
		if got, err := stream.Recv(); err != nil || len(got.GetPayload().GetBody()) != int(size) {
			t.Fatalf("a message of %d bytes, %v; want %d", len(got.GetPayload().GetBody()), err, size)
		}
	}
	must(t, stream.CloseSend())
	if _, err := stream.Recv(); err != io.EOF {
		t.Errorf("the stream ended with %v", err)
	}
}

// startForwardProxy starts an HTTP proxy that takes CONNECT to any name and says
// back whatever comes through the tunnel.
func startForwardProxy(t testing.TB, p servers.Place) {
	t.Helper()
	serveHTTP(t, p, func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(rw, "CONNECT only", http.StatusMethodNotAllowed)
			return
		}
		conn, buffered, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprintf(buffered, "HTTP/1.1 200 %s\r\n\r\n", r.Host)
		buffered.Flush()
		io.Copy(conn, buffered)
	})
}

// serveHTTP serves HTTP/1 and HTTP/2 with prior knowledge in a namespace.
func serveHTTP(t testing.TB, p servers.Place, h http.HandlerFunc) {
	t.Helper()
	serveOn(t, p.Net.Listen(t, p.Addr), h)
}

func serveOn(t testing.TB, l net.Listener, h http.HandlerFunc) {
	t.Helper()
	s := &http.Server{Handler: h, Protocols: &http.Protocols{}}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(l) }()
	t.Cleanup(func() { s.Close(); <-done })
}

func talkConnect(t *testing.T, w *world, to netip.AddrPort, mark string) {
	conn := w.dial(t, to)
	fmt.Fprintf(conn, "CONNECT mail.example:25 HTTP/1.1\r\nHost: mail.example:25\r\n\r\n")
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	must(t, err)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("CONNECT is answered %s", resp.Status)
	}
	converse(t, conn, r, mark+"\n", mark+"\n")
	must(t, conn.CloseWrite())
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Errorf("the tunnel ends with %q, %v", rest, err)
	}
}

// converse says something and waits for an answer.
func converse(t testing.TB, conn net.Conn, r io.Reader, say, answer string) {
	t.Helper()
	if _, err := io.WriteString(conn, say); err != nil {
		t.Fatalf("saying %q: %v", say, err)
	}
	got := make([]byte, len(answer))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != answer {
		t.Fatalf("%q is answered with %q, %v", say, got, err)
	}
}

func talkMariaDB(t *testing.T, w *world, to netip.AddrPort, mark string) {
	got := w.run(t, "mariadb", "--no-defaults", "--protocol=tcp", "--user=root", "--batch", "--skip-column-names", "--skip-ssl",
		"--host="+to.Addr().String(), "--port="+port(to), "--execute=select '"+mark+"', length(repeat('x', 1000000))")
	if got != mark+"\t1000000" {
		t.Errorf("the answer is %q", got)
	}
}

func talkPostgres(t *testing.T, w *world, to netip.AddrPort, mark string) {
	got := w.run(t, "psql", "host="+to.Addr().String()+" port="+port(to)+" user=postgres dbname=postgres connect_timeout=15 sslmode=disable",
		"-XAtc", "select '"+mark+"', length(repeat('x', 1000000))")
	if got != mark+"|1000000" {
		t.Errorf("the answer is %q", got)
	}
}

func talkRedis(t *testing.T, w *world, to netip.AddrPort, mark string) {
	if got := w.run(t, "redis-cli", "-h", to.Addr().String(), "-p", port(to), "echo", mark); got != mark {
		t.Errorf("the answer is %q", got)
	}
}

func talkSMTP(t *testing.T, w *world, to netip.AddrPort, mark string) {
	conn, err := smtp.NewClient(w.dial(t, to), "mail.example")
	must(t, err)
	defer conn.Close()
	for _, step := range []func() error{
		func() error { return conn.Hello("client.example") },
		func() error { return conn.Mail("a@client.example") },
		func() error { return conn.Rcpt("b@mail.example") },
		func() error {
			body, err := conn.Data()
			if err != nil {
				return err
			}
			if _, err := io.WriteString(body, "Subject: "+mark+"\r\n\r\n"+strings.Repeat("text\r\n", 1000)); err != nil {
				return err
			}
			return body.Close()
		},
		conn.Quit,
	} {
		must(t, step())
	}
}

func talkHTTPS(t *testing.T, w *world, to netip.AddrPort, _ string) {
	name := servers.Name + ":" + port(to)
	got := w.run(t, "curl", "-sS", "-k", "-m", "15", "--resolve", name+":"+to.Addr().String(), "https://"+name+"/")
	if got != "hello from nginx" {
		t.Errorf("curl: %q", got)
	}
}

func port(a netip.AddrPort) string { return strconv.Itoa(int(a.Port())) }

// within fails the test if something has taken too long.
func within(t testing.TB, what string, took, most time.Duration) {
	t.Helper()
	t.Logf("%s: %s", what, took.Round(100*time.Microsecond))
	if took > most {
		t.Errorf("%s took %s, want at most %s", what, took, most)
	}
}
