package integration

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/integration/servers"
)

// What somebody types who wants one port left alone, from the first line to Ctrl-C.
func TestRedirectByHandWithASkippedPort(t *testing.T) {
	n := lab.Pair(t)
	mysql, nats := servers.At(n.Peer, lab.PeerV4, 3306), servers.At(n.Peer, lab.PeerV4, 4222)
	servers.MariaDB(t, templates, mysql)
	servers.NATS(t, nats)
	p := redirected(t, n, "--skip-outbound-ports", "3306")
	c := client{n.Pod}

	hasNoRights(t, p.proxy.PID())
	t.Run("the skipped port", func(t *testing.T) { talkMariaDB(t, c, mysql.Addr) })
	if got := p.counter(t, "tcp_open_total", map[string]string{"target_addr": mysql.Addr.String()}); got != 0 {
		t.Errorf("%v connections to the skipped port went through the proxy", got)
	}
	t.Run("another port", func(t *testing.T) { talkNATS(t, c, nats.Addr) })
	p.awaitCounter(t, "tcp_open_total", map[string]string{"target_addr": nats.Addr.String(), "peer": "src"}, 0, 1)

	t.Run("Ctrl-C drains and removes the rules", func(t *testing.T) { ctrlC(t, p, c, nats) })
}

// hasNoRights compares what the kernel says of the proxy's process (proc(5), status).
func hasNoRights(t *testing.T, pid int) {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"Uid": strings.TrimSpace(strings.Repeat(proxyUID+" ", 4)), "Groups": "",
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
		"NoNewPrivs": "1", "Seccomp": "2",
	}
	got := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(line, ":")
		if _, ok := want[name]; ok {
			got[name] = strings.Join(strings.Fields(value), " ")
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the proxy's process (-want +got):\n%s", diff)
	}
}

// none is an empty set of capabilities as /proc shows it.
const none = "0000000000000000"

// ctrlC ends the proxy while a connection is open: the connection may finish, nothing
// new is taken, and afterwards there is no rule left and the application goes direct.
func ctrlC(t *testing.T, p *pod, c client, nats servers.Place) {
	conn := c.dial(t, nats.Addr)
	converse(t, conn, "", "INFO {", "CONNECT {}\r\nPING\r\n", "PONG")
	p.proxy.Signal(syscall.SIGINT)
	time.Sleep(100 * time.Millisecond) // the signal is under way; nothing tells when it has come
	converse(t, conn, "PING\r\n", "PONG")
	select {
	case <-p.proxy.Gone():
		t.Fatalf("the proxy did not wait for its connection\n%s", p.proxy.Log())
	default:
	}
	conn.Close()
	select {
	case <-p.proxy.Gone():
	case <-time.After(5 * time.Second):
		t.Fatalf("the proxy is still there\n%s", p.proxy.Log())
	}
	if code := p.proxy.State().ExitCode(); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.proxy.Log())
	}
	left := ""
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if left = p.Pod.Run(t, "nft", "list", "ruleset"); left == "" {
			break
		}
	}
	equal(t, "rules left", left, "")
	talkNATS(t, c, nats.Addr)
}
