package targets

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/meshctl/meshctl/integration/built"
	"github.com/meshctl/meshctl/integration/lab"
)

// world is a pod with rules and a proxy that knows objects, and the rest of the
// world, which has the pods of the Services:
//
//	pod --veth-- peer: 10.244.0.1 10.244.0.2 ... on its loopback
//
// Cluster addresses, 10.96.0.0/16, are nobody's: only the proxy knows them.
type world struct {
	*lab.Net
	proxy  *built.Proxy
	volume *volume
}

// network makes the namespaces, with addresses of pods.
func network(t testing.TB, pods ...string) *lab.Net {
	t.Helper()
	n := lab.Pair(t)
	for _, p := range pods {
		n.Peer.Run(t, "ip", "addr", "add", p+"/32", "dev", "lo")
	}
	return n
}

// meshed starts the proxy of a pod in namespace shop with files of objects.
func meshed(t testing.TB, n *lab.Net, files map[string]string, flags ...string) *world {
	t.Helper()
	w := &world{Net: n, volume: newVolume(t, files)}
	w.proxy = built.Mesh(t, program, n, append([]string{"--resources", w.volume.dir, "--namespace", "shop"}, flags...)...)
	return w
}

// dial connects as the application; the connection ends with the test.
func (w *world) dial(t testing.TB, to netip.AddrPort) *net.TCPConn {
	t.Helper()
	conn, err := w.Pod.Dial(built.App, netip.AddrPort{}, to, 5*time.Second)
	if err != nil {
		t.Fatalf("dialling %s: %v", to, err)
	}
	t.Cleanup(func() { conn.Close() })
	must(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	return conn
}

// run runs a client program as the application and returns what it prints.
func (w *world) run(t testing.TB, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cmd := w.Pod.Command(ctx, "setpriv", append([]string{"--reuid=1000", "--regid=1000", "--clear-groups", "--", name}, args...)...)
	cmd.Dir, cmd.Env = os.TempDir(), append(cmd.Env, "HOME=/nonexistent")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s\n%s", name, strings.Join(args, " "), err, out, w.proxy.Logged(t))
	}
	return strings.TrimSuffix(string(out), "\n")
}

// client is an HTTP client of the application that keeps up to n connections.
func (w *world) client(t testing.TB, n int) *http.Client {
	t.Helper()
	tr := &http.Transport{MaxIdleConnsPerHost: n, DisableCompression: true, DialContext: w.dialer()}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (w *world) dialer() func(context.Context, string, string) (net.Conn, error) {
	return func(_ context.Context, _, addr string) (net.Conn, error) {
		to, err := netip.ParseAddrPort(addr)
		if err != nil {
			return nil, err
		}
		return w.Pod.Dial(built.App, netip.AddrPort{}, to, 5*time.Second)
	}
}

// grpc is one gRPC connection of the application.
func (w *world) grpc(t testing.TB, to netip.AddrPort) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+to.String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return w.dialer()(ctx, "tcp", addr) }))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// await waits until ok, which something that runs elsewhere brings about.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// addr is an address and port that is written in the test.
func addr(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func port(a netip.AddrPort) string { return strconv.Itoa(int(a.Port())) }

// clientOf is a connection's own address.
func clientOf(c *net.TCPConn) netip.AddrPort { return c.LocalAddr().(*net.TCPAddr).AddrPort() }

// checked runs `meshctl check` on a file.
func checked(t testing.TB, file string) (out string, code int) {
	t.Helper()
	return ran(t, "check", "--namespace", "shop", "--resources", file)
}

// explained is what `meshctl explain` says of a destination, by the files that
// the proxy has.
func explained(t testing.TB, w *world, to netip.AddrPort) string {
	t.Helper()
	out, code := ran(t, "explain", "--namespace", "shop", "--resources", w.volume.dir, to.String())
	if code != 0 {
		t.Errorf("meshctl explain ends with %d: %s", code, out)
	}
	return out
}

// ran runs the program to its end.
func ran(t testing.TB, args ...string) (out string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = lab.Environ()
	b, _ := cmd.CombinedOutput() // its code says it
	return string(b), cmd.ProcessState.ExitCode()
}
