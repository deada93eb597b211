package targets

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/net/http2"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/meshctl/meshctl/integration/built"
	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/integration/servers"
)

// row is one way to say what a port speaks, with what has to come of it.
type row struct {
	name     string
	to       string
	talk     func(*testing.T, *world, netip.AddrPort)
	protocol string
	reason   string
	declared string // the beginning of it
}

func protocolRows() []row {
	const detect = "detect: not in the default list"
	return []row{
		{"appProtocol http", "10.96.0.1:80", talkHTTP1, "http/1", "declared", `http/1: appProtocol "http" of Service shop/declared (`},
		{"appProtocol kubernetes.io/h2c", "10.96.0.1:81", talkHTTP2, "http/2", "declared", `http/2: appProtocol "kubernetes.io/h2c" of Service shop/declared (`},
		{"appProtocol kubernetes.io/ws", "10.96.0.1:82", talkWebSocket, "http/1", "declared", `http/1: appProtocol "kubernetes.io/ws" of Service shop/declared (`},
		{"appProtocol linkerd.io/opaque", "10.96.0.1:4001", talkMariaDB, "opaque", "declared", `opaque: appProtocol "linkerd.io/opaque" of Service shop/declared (`},
		{"appProtocol linkerd.io/tcp", "10.96.0.1:4002", talkMariaDB, "opaque", "declared", `opaque: appProtocol "linkerd.io/tcp" of Service shop/declared (`},
		{"an appProtocol that nobody knows", "10.96.0.1:83", talkHTTP1, "opaque", "declared", `opaque: appProtocol "example.com/odd" of Service shop/declared (`},
		{"a number in the Service's list", "10.96.0.2:4003", talkMariaDB, "opaque", "declared", `opaque: opaque-ports "4003,sql" of Service shop/listed (`},
		{"a name in the Service's list", "10.96.0.2:4004", talkMariaDB, "opaque", "declared", `opaque: opaque-ports "4003,sql" of Service shop/listed (`},
		{"not in the Service's list", "10.96.0.2:80", talkHTTP1, "http/1", "bytes", `detect: not in opaque-ports "4003,sql" of Service shop/listed (`},
		{"a default port that a Service's list leaves out", "10.96.0.2:3306", talkMariaDB, "opaque", "server_first", "detect: not in opaque-ports"},
		{"the default list", "10.96.0.3:3306", talkMariaDB, "opaque", "declared", "opaque: in the default list"},
		{"nothing, and HTTP/1 is spoken", "10.96.0.3:80", talkHTTP1, "http/1", "bytes", detect},
		{"nothing, and HTTP/2 is spoken", "10.96.0.3:81", talkHTTP2, "http/2", "bytes", detect},
		{"nothing, and gRPC is spoken", "10.96.0.3:90", talkGRPC, "http/2", "bytes", detect},
		{"nothing, and the server speaks first", "10.96.0.3:4005", talkMariaDB, "opaque", "server_first", detect},
		{"the receiving pod's list", "10.96.0.4:4006", talkMariaDB, "opaque", "declared", `opaque: opaque-ports "3307" of Pod shop/db-0 (`},
		{"not in the receiving pod's list", "10.96.0.4:80", talkHTTP1, "http/1", "bytes", detect},
		{"the namespace's list", "10.96.0.5:4008", talkMariaDB, "opaque", "declared", `opaque: opaque-ports "4007-4009" of Namespace old (`},
		{"a default port that a namespace's list leaves out", "10.96.0.5:3306", talkMariaDB, "opaque", "server_first", `detect: not in opaque-ports "4007-4009" of Namespace old (`},
		{"a headless Service's pod, by a name in its list", "10.244.0.3:3307", talkMariaDB, "opaque", "declared", `opaque: opaque-ports "sql" of Pod shop/peer-0 (`},
		{"another port of it", "10.244.0.3:8080", talkHTTP1, "http/1", "bytes", `detect: not in opaque-ports "sql" of Pod shop/peer-0 (`},
		{"a pod's address", "10.244.0.2:3307", talkMariaDB, "opaque", "declared", `opaque: opaque-ports "3307" of Pod shop/db-0 (`},
		{"an EgressNetwork's list", "203.0.113.5:3307", talkMariaDB, "opaque", "declared", `opaque: opaque-ports "3307" of EgressNetwork shop/partners (`},
		{"not in an EgressNetwork's list", "203.0.113.5:8080", talkHTTP1, "http/1", "bytes", `detect: not in opaque-ports "3307" of EgressNetwork shop/partners (`},
		{"an address that nobody knows", lab.AltV4.String() + ":8080", talkHTTP1, "http/1", "bytes", detect},
	}
}

// protocolWorld has nginx, MariaDB, gRPC and WebSocket servers on all pods.
func protocolWorld(t *testing.T) *world {
	t.Helper()
	n := network(t, "10.244.0.1", "10.244.0.2", "10.244.0.3", "203.0.113.5", "203.0.113.70")
	all := netip.IPv4Unspecified()
	servers.MariaDB(t, templates, servers.At(n.Peer, all, 3307))
	servers.HTTP1(t, servers.At(n.Peer, all, 8080))
	servers.HTTP2(t, servers.At(n.Peer, all, 8081))
	servers.WebSocket(t, servers.At(n.Peer, all, 8082))
	servers.GRPC(t, servers.At(n.Peer, all, 8083))
	return meshed(t, n, kube(t, "targets"))
}

func TestWhatIsDeclaredDecidesAboutAProtocol(t *testing.T) {
	w := protocolWorld(t)
	for _, r := range protocolRows() {
		t.Run(r.name, func(t *testing.T) {
			to := addr(r.to)
			seen := held(t, w, r, to)
			if seen.Protocol != r.protocol || seen.Reason != r.reason || !strings.HasPrefix(seen.Declared, r.declared) {
				t.Errorf("/connections says %s, %s, %q; want %s, %s, %q...", seen.Protocol, seen.Reason, seen.Declared, r.protocol, r.reason, r.declared)
			}
			if strings.Contains(r.declared, "(") && !strings.Contains(seen.Declared, ".yaml:") {
				t.Errorf("%q names no line of a file", seen.Declared)
			}
			if out := explained(t, w, to); !strings.Contains(out, "decided  "+seen.Declared+"\n") {
				t.Errorf("meshctl explain does not say %q:\n%s", seen.Declared, out)
			}
			r.talk(t, w, to)
		})
	}
	if log := w.proxy.Logged(t); !strings.Contains(log, "example.com/odd") {
		t.Errorf("no warning names the appProtocol that nobody knows:\n%s", log)
	}
	if n := w.proxy.Sample(t).Sum("meshctl_panics_total"); n != 0 {
		t.Errorf("%v panics\n%s", n, w.proxy.Logged(t))
	}
}

// held opens a connection, says the first words of the row's protocol, and
// returns what the proxy says of it while it is open.
func held(t *testing.T, w *world, r row, to netip.AddrPort) (seen built.Connection) {
	t.Helper()
	conn := w.dial(t, to)
	defer conn.Close()
	switch r.protocol {
	case "http/2":
		_, err := conn.Write([]byte(http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00")) // and empty SETTINGS
		must(t, err)
	case "http/1":
		_, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
		must(t, err)
	}
	if r.protocol != "opaque" || r.reason == "server_first" {
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatalf("reading the server's first byte: %v\n%s", err, w.proxy.Logged(t))
		}
	}
	return w.proxy.To(t, to)
}

func TestADestinationThatIsRefusedIsResetAndCounted(t *testing.T) {
	n := network(t, "203.0.113.70")
	servers.HTTP1(t, servers.At(n.Peer, netip.IPv4Unspecified(), 8080))
	w := meshed(t, n, kube(t, "targets"))
	for _, r := range []struct{ name, to, reason string }{
		{"a port that a Service does not have", "10.96.0.1:99", "no_such_port"},
		{"an EgressNetwork that denies", "203.0.113.70:8080", "egress_denied"},
	} {
		t.Run(r.name, func(t *testing.T) {
			err := asked(w, addr(r.to))
			if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				t.Errorf("the connection ends with %v", err)
			}
			await(t, "the refusal is counted", func() bool {
				return w.proxy.Sample(t).Sum("meshctl_refused_total", `direction="outbound"`, `reason="`+r.reason+`"`) == 1
			})
		})
	}
}

// asked is the error of a connection on which a request was sent: the reset may
// come at any time.
func asked(w *world, to netip.AddrPort) error {
	conn, err := w.Pod.Dial(built.App, netip.AddrPort{}, to, 5*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

func talkHTTP1(t *testing.T, w *world, to netip.AddrPort) {
	url := "http://" + to.String() + "/"
	if got := w.run(t, "curl", "-sS", "-m", "15", "--http1.1", url, url); got != "hello from nginx\nhello from nginx" {
		t.Errorf("curl: %q", got)
	}
}

func talkHTTP2(t *testing.T, w *world, to netip.AddrPort) {
	url := "http://" + to.String() + "/"
	if got := w.run(t, "curl", "-sS", "-m", "15", "--http2-prior-knowledge", url); got != "hello from nginx" {
		t.Errorf("curl: %q", got)
	}
	if out := w.run(t, "h2load", "-n", "200", "-c", "2", "-m", "10", url); !strings.Contains(out, "200 succeeded, 0 failed, 0 errored, 0 timeout") {
		t.Errorf("h2load: %s", out)
	}
}

func talkMariaDB(t *testing.T, w *world, to netip.AddrPort) {
	got := w.run(t, "mariadb", "--no-defaults", "--protocol=tcp", "--user=root", "--batch", "--skip-column-names",
		"--host="+to.Addr().String(), "--port="+port(to), "--execute=select 40+2, length(repeat('x', 1000000))")
	if got != "42\t1000000" {
		t.Errorf("the answer is %q", got)
	}
}

func talkWebSocket(t *testing.T, w *world, to netip.AddrPort) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	hc := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, n, _ string) (net.Conn, error) {
		return w.dialer()(ctx, n, to.String())
	}}}
	ws, _, err := websocket.Dial(ctx, "ws://"+to.String()+"/echo", &websocket.DialOptions{HTTPClient: hc})
	must(t, err)
	defer ws.CloseNow()
	for _, msg := range [][]byte{[]byte("a"), bytes.Repeat([]byte("long "), 5000)} {
		must(t, ws.Write(ctx, websocket.MessageBinary, msg))
		if _, got, err := ws.Read(ctx); err != nil || !bytes.Equal(got, msg) {
			t.Fatalf("sent %d bytes, got %d, %v", len(msg), len(got), err)
		}
	}
	must(t, ws.Close(websocket.StatusNormalClosure, ""))
}

func talkGRPC(t *testing.T, w *world, to netip.AddrPort) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	service := testgrpc.NewTestServiceClient(w.grpc(t, to))
	reply, err := service.UnaryCall(ctx, &testgrpc.SimpleRequest{ResponseSize: 100_000})
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
