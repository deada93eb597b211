package integration

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/lab"
)

// client is an application that calls servers from inside a namespace.
type client struct{ ns *lab.Namespace }

// dial connects as the application's user; the connection ends with the test.
func (c client) dial(t *testing.T, to netip.AddrPort) *net.TCPConn {
	t.Helper()
	conn, err := c.ns.Dial(app, netip.AddrPort{}, to, 5*time.Second)
	if err != nil {
		t.Fatalf("dialling %s: %v", to, err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(15 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// run runs a client program as the application's user, for 20 s at most, and
// returns what it prints without the last line end.
func (c client) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := c.try(name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func (c client) try(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	as := []string{"--reuid=1000", "--regid=1000", "--clear-groups", "--", name}
	cmd := c.ns.Command(ctx, "setpriv", append(as, args...)...)
	cmd.Dir = os.TempDir()
	cmd.Env = append(cmd.Env, "HOME=/nonexistent")
	out, err := cmd.CombinedOutput()
	return strings.TrimSuffix(string(out), "\n"), err
}

// converse sends each line of the pairs and waits until its answer has come.
func converse(t *testing.T, conn net.Conn, pairs ...string) {
	t.Helper()
	b := make([]byte, 64<<10)
	for i := 0; i < len(pairs); i += 2 {
		if _, err := conn.Write([]byte(pairs[i])); err != nil {
			t.Fatalf("sending %q: %v", pairs[i], err)
		}
		got := ""
		for want := pairs[i+1]; !strings.Contains(got, want); {
			n, err := conn.Read(b)
			if err != nil {
				t.Fatalf("after %q: %q and then %v, want %q", pairs[i], got, err, want)
			}
			got += string(b[:n])
		}
	}
}

// equal fails the test unless a program's answer is the one expected.
func equal(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}
