package servers

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/lab"
)

func TestServersAnswerInsideTheirNamespace(t *testing.T) {
	net := lab.Pair(t)
	s, err := NewTemplates()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	at := func(port uint16) Place { return At(net.Peer, lab.PeerV4, port) }

	tests := []struct {
		name  string
		start func(t testing.TB, p Place)
		send  string // what a client says first, if anything
		want  string // part of the first answer
	}{
		{"mariadb", func(t testing.TB, p Place) { MariaDB(t, s, p) }, "", "MariaDB"},
		{"postgres", func(t testing.TB, p Place) { Postgres(t, s, p, false) }, "\x00\x00\x00\x08\x04\xd2\x16\x2f", "N"},
		{"postgres with TLS", func(t testing.TB, p Place) { Postgres(t, s, p, true) }, "\x00\x00\x00\x08\x04\xd2\x16\x2f", "S"},
		{"redis", Redis, "PING\r\n", "+PONG"},
		{"memcached", Memcached, "version\r\n", "VERSION "},
		{"nats", NATS, "", "INFO {"},
		{"smtp", SMTP, "", "220 mail.example"},
		{"ssh", func(t testing.TB, p Place) { SSH(t, p) }, "", "SSH-2.0-"},
		{"http/1", HTTP1, "GET / HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK"},
		{"http/2", HTTP2, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00"},
		{"websocket", WebSocket, "GET /none HTTP/1.0\r\n\r\n", "404 Not Found"},
		{"grpc", GRPC, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00"},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			began := time.Now()
			p := at(uint16(7000 + i))
			tt.start(t, p)
			t.Logf("ready after %s", time.Since(began).Round(time.Millisecond))
			conn, err := net.Pod.Dial(lab.Owner{UID: 1000, GID: 1000}, netip.AddrPort{}, p.Addr, 5*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(5 * time.Second))
			fmt.Fprint(conn, tt.send)
			b := make([]byte, 512)
			if n, err := conn.Read(b); err != nil || !strings.Contains(string(b[:n]), tt.want) {
				t.Errorf("answer %q, %v; want %q in it", b[:n], err, tt.want)
			}
		})
	}
}

func TestAServerGoesWithAKilledTest(t *testing.T) {
	lab.Require(t)
	if os.Getenv("SERVERS_HANG") != "" {
		net := lab.Pair(t)
		p := launch(t, At(net.Peer, lab.PeerV4, 7000), "sleep", "60")
		fmt.Println("PID", p.PID())
		time.Sleep(time.Minute)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestAServerGoesWithAKilledTest$")
	child.Env = append(os.Environ(), "SERVERS_HANG=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "PID ")))
	if err != nil {
		t.Fatalf("the child said %q", line)
	}
	if !alive(pid) {
		t.Fatalf("the server is not there")
	}
	child.Process.Kill()
	child.Wait()
	for deadline := time.Now().Add(5 * time.Second); alive(pid); {
		if time.Now().After(deadline) {
			t.Fatalf("process %d outlives its test", pid)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// alive is false for a process that nobody has waited for yet, too.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
