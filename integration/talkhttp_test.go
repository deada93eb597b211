package integration

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/meshctl/meshctl/integration/servers"
)

// answers is how many responses of each status a talk has got.
type answers map[string]float64

func talkHTTP(version string) func(*testing.T, client, netip.AddrPort) {
	return func(t *testing.T, c client, to netip.AddrPort) {
		url := "http://" + to.String()
		equal(t, "a page", c.run(t, "curl", "-sS", "-m", "15", version, url+"/"), "hello from nginx")
		equal(t, "no body", c.run(t, "curl", "-sS", "-m", "15", version, "-w", "%{http_code}", url+"/204"), "204")
		equal(t, "an error", c.run(t, "curl", "-sS", "-m", "15", version, "-o", "/dev/null", "-w", "%{http_code}", url+"/500"), "500")
		args := []string{"-n", "500", "-c", "5", "-m", "10", url + "/"}
		if version == "--http1.1" { // curl 7.88 cannot reuse an HTTP/2 connection of prior knowledge, proxy or not
			equal(t, "two on one connection", c.run(t, "curl", "-sS", "-m", "15", version, url+"/", url+"/"), "hello from nginx\nhello from nginx")
			args = append([]string{"--h1"}, args...)
		}
		if out := c.run(t, "h2load", args...); !strings.Contains(out, "500 succeeded, 0 failed, 0 errored, 0 timeout") {
			t.Errorf("h2load: %s", out)
		}
	}
}

// What talkHTTP gets in all.
var (
	http1Answers = answers{"200": 503, "204": 1, "500": 1}
	http2Answers = answers{"200": 501, "204": 1, "500": 1}
)

func talkHTTPS(t *testing.T, c client, to netip.AddrPort) {
	args := []string{"-sSk", "-m", "15", "--resolve", servers.Name + ":" + port(to) + ":" + to.Addr().String(),
		"https://" + servers.Name + ":" + port(to) + "/"}
	equal(t, "h2 over TLS", c.run(t, "curl", append([]string{"--http2"}, args...)...), "hello from nginx")
	equal(t, "h1 over TLS", c.run(t, "curl", append([]string{"--http1.1"}, args...)...), "hello from nginx")
}

func talkGRPC(t *testing.T, c client, to netip.AddrPort) {
	conn, err := grpc.NewClient("passthrough:///"+to.String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			return c.ns.Dial(app, netip.AddrPort{}, to, 5*time.Second)
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	service := testgrpc.NewTestServiceClient(conn)

	payload := &testgrpc.Payload{Body: make([]byte, 100_000)}
	reply, err := service.UnaryCall(ctx, &testgrpc.SimpleRequest{ResponseSize: 200_000, Payload: payload})
	if err != nil || len(reply.GetPayload().GetBody()) != 200_000 {
		t.Errorf("unary call: %d bytes, %v", len(reply.GetPayload().GetBody()), err)
	}
	_, err = service.UnaryCall(ctx, &testgrpc.SimpleRequest{
		ResponseStatus: &testgrpc.EchoStatus{Code: int32(codes.Internal), Message: "as asked"}})
	if status.Code(err) != codes.Internal {
		t.Errorf("a failing call gave %v", err)
	}
	streamGRPC(t, ctx, service)
}

// streamGRPC sends and gets three messages in turn on one stream.
func streamGRPC(t *testing.T, ctx context.Context, service testgrpc.TestServiceClient) {
	t.Helper()
	stream, err := service.FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int32{10, 20_000, 30} {
		err := stream.Send(&testgrpc.StreamingOutputCallRequest{
			ResponseParameters: []*testgrpc.ResponseParameters{{Size: size}}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := stream.Recv()
		if err != nil || len(got.GetPayload().GetBody()) != int(size) {
			t.Fatalf("a message of %d bytes, %v; want %d", len(got.GetPayload().GetBody()), err, size)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != io.EOF {
		t.Errorf("the stream ended with %v", err)
	}
}

func talkWebSocket(t *testing.T, c client, to netip.AddrPort) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	hc := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return c.ns.Dial(app, netip.AddrPort{}, to, 5*time.Second)
	}}}
	ws, _, err := websocket.Dial(ctx, "ws://"+to.String()+"/echo", &websocket.DialOptions{HTTPClient: hc})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	for _, msg := range [][]byte{[]byte("a"), bytes.Repeat([]byte("long "), 5000), {0, 1, 2}} {
		if err := ws.Write(ctx, websocket.MessageBinary, msg); err != nil {
			t.Fatal(err)
		}
		if _, got, err := ws.Read(ctx); err != nil || !bytes.Equal(got, msg) {
			t.Fatalf("sent %d bytes, got %d, %v", len(msg), len(got), err)
		}
	}
	if err := ws.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
}
