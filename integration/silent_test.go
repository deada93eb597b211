package integration

import (
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/integration/servers"
)

// Without the early dial a server that speaks first is what it is to other meshes: a
// wait for the end of detection, and then it works.
func TestWithoutEarlyDialAServerThatSpeaksFirstWaitsForTheTimeout(t *testing.T) {
	n := lab.Pair(t)
	at := servers.At(n.Peer, lab.PeerV4, 7006)
	servers.NATS(t, at)
	p := mesh(t, n, "--opaque-ports", "", "--early-dial-after", "0", "--detect-timeout", "2s")

	conn := client{n.Pod}.dial(t, at.Addr)
	defer conn.Close()
	began := time.Now()
	converse(t, conn, "", "INFO {", "CONNECT {}\r\nPING\r\n", "PONG")
	took := time.Since(began)
	t.Logf("first byte after %s", took.Round(time.Millisecond))
	if took < 1900*time.Millisecond || took > 2*time.Second+atAll {
		t.Errorf("the conversation took %s, want a little over 2s", took)
	}
	want := seen{Direction: "outbound", Target: at.Addr.String(), Protocol: "opaque", Detected: "nats", Reason: "timeout"}
	got := p.connection(t, at.Addr)
	if want.Client = got.Client; got != want {
		t.Errorf("the proxy says %+v, want %+v", got, want)
	}
}
