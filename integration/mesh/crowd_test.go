package mesh

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/built"
	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/integration/servers"
)

// A thousand handshakes at once do not hold up a connection that is there, and
// leave nothing behind.
func TestAThousandHandshakesAtOnce(t *testing.T) {
	w := meshed(t, setup{before: func(w *world) {
		startApplication(t, w.Peer.Listen(t, at(5000)))
		servers.Redis(t, servers.At(w.Peer, lab.PeerV4, 6380)) // not in this process, which the crowd keeps busy
	}})
	live := w.dial(t, at(6380))
	must(t, live.SetDeadline(time.Now().Add(2*time.Minute)))
	converse(t, live, live, "PING\r\n", "+PONG\r\n")
	settled := func() (fds int, goroutines float64) {
		return built.Descriptors(t, w.db.PID()), w.db.Sample(t).Sum("go_goroutines")
	}
	w.asks(t, 5000) // what is made once
	await(t, "the first is gone", func() bool {
		return w.db.Sample(t).Sum("tcp_open_connections", `direction="inbound"`, `peer="src"`) == 1
	})
	fds, goroutines := settled()

	cert := issued(t, w.ca, webID).TLS()
	cfg := proxyTLS(w.pool(), alpn)
	const crowd = 1000
	var served, failed atomic.Int64
	var first atomic.Value
	var all sync.WaitGroup
	start := make(chan struct{})
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	for range crowd {
		conn := w.around(t, at(4143)) // connected before, so that all begin at once
		must(t, conn.SetDeadline(time.Now().Add(2*time.Minute)))
		all.Go(func() {
			defer conn.Close()
			<-start
			c := tls.Client(conn, cfg)
			_, err := io.WriteString(c, vector(5000, "")+rawWords)
			if err == nil {
				_, err = io.ReadFull(c, make([]byte, 3))
			}
			if err != nil {
				failed.Add(1)
				first.CompareAndSwap(nil, err.Error())
				return
			}
			served.Add(1)
		})
	}
	pings := pinging(t, live)
	began := time.Now()
	close(start)
	all.Wait()
	crowdTook := time.Since(began)
	list := pings()
	if served.Load() != crowd {
		t.Errorf("%d of %d were served; the first that was not: %v", served.Load(), crowd, first.Load())
	}
	if len(list) < 10 {
		t.Fatalf("%d exchanges on the connection that was there", len(list))
	}
	p99 := list[len(list)*99/100]
	t.Logf("%d handshakes in %s; meanwhile %d exchanges: p50 %s, p99 %s, most %s", crowd, crowdTook.Round(time.Millisecond), len(list), list[len(list)/2], p99, list[len(list)-1])
	within(t, "p99 of the connection that was there", p99, 250*time.Millisecond)
	await(t, "descriptors and goroutines are as before", func() bool {
		f, g := settled()
		return f <= fds+2 && g <= goroutines+4
	})
	if f, g := settled(); f > fds+2 || g > goroutines+4 {
		t.Errorf("descriptors %d, before %d; goroutines %v, before %v", f, fds, g, goroutines)
	}
}

// pingerVariable, set, makes this program a pinger.
const pingerVariable = "MESH_TEST_PINGER"

// pinging measures exchanges on a connection that is there, in a process of its own:
// here they would wait for the clients of the crowd. stop ends it and returns how
// long they took, sorted.
func pinging(t testing.TB, conn *net.TCPConn) (stop func() []time.Duration) {
	t.Helper()
	file, err := conn.File()
	must(t, err)
	defer file.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), pingerVariable+"=1")
	cmd.ExtraFiles, cmd.Stderr = []*os.File{file}, os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	var out bytes.Buffer
	cmd.Stdout = &out
	must(t, cmd.Start())
	t.Cleanup(func() { in.Close() }) // also if the test ends early
	return func() (all []time.Duration) {
		in.Close()
		must(t, cmd.Wait())
		for _, text := range strings.Fields(out.String()) {
			d, err := time.ParseDuration(text)
			must(t, err)
			all = append(all, d)
		}
		slices.Sort(all)
		return all
	}
}

// ping is the pinger: until its input ends.
func ping() error {
	conn, err := net.FileConn(os.NewFile(3, "connection"))
	if err != nil {
		return err
	}
	var over atomic.Bool
	go func() {
		io.Copy(io.Discard, os.Stdin)
		over.Store(true)
	}()
	b := make([]byte, len("+PONG\r\n"))
	for !over.Load() {
		began := time.Now()
		if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, b); err != nil {
			return err
		}
		fmt.Println(time.Since(began))
		time.Sleep(time.Millisecond)
	}
	return nil
}

// Who begins handshakes and does not go on is bounded as other silent clients are.
func TestHandshakesThatDoNotGoOnAreBounded(t *testing.T) {
	t.Parallel()
	w := meshed(t, setup{dbFlags: []string{"--max-detecting", "50"}, before: func(w *world) { startApplication(t, w.Peer.Listen(t, at(5000))) }})
	hello := clientHello(t, dbID, alpn)
	var all []*net.TCPConn
	for range 60 {
		conn := w.around(t, at(4143))
		_, err := conn.Write(hello)
		must(t, err)
		all = append(all, conn)
	}
	await(t, "ten too many are turned away", func() bool {
		s := w.db.Sample(t)
		return s.Sum("meshctl_detecting_connections") == 50 && s.Sum("inbound_tcp_errors_total", `error="tls handshake"`) == 10
	})
	for _, c := range all {
		c.Close()
	}
	await(t, "others are served again", func() bool { return w.db.Sample(t).Sum("meshctl_detecting_connections") == 0 })
	if !w.asks(t, 5000) {
		t.Error("no answer")
	}
}

// inTwo writes its first bytes in two segments.
type inTwo struct {
	net.Conn
	once sync.Once
}

// Write waits between the two.
func (c *inTwo) Write(b []byte) (n int, err error) {
	c.once.Do(func() {
		if n, err = c.Conn.Write(b[:len(b)/2]); err == nil {
			time.Sleep(100 * time.Millisecond)
		}
	})
	if err != nil {
		return n, err
	}
	m, err := c.Conn.Write(b[n:])
	return n + m, err
}

// A ClientHello with today's keys has more than one segment. A server that speaks
// first is heard behind it all the same.
func TestAServerThatSpeaksFirstIsHeardBehindAHelloInTwoParts(t *testing.T) {
	t.Parallel()
	w := meshed(t, setup{before: func(w *world) { greet(t, w.Peer.Listen(t, at(2600))) }})
	cfg := proxyTLS(w.pool())
	cfg.Certificates = []tls.Certificate{issued(t, w.ca, webID).TLS()}
	conn := tls.Client(&inTwo{Conn: w.around(t, at(2600))}, cfg)
	began := time.Now()
	converse(t, conn, conn, "", "220 hello\r\n")
	within(t, "the greeting", time.Since(began), 6*time.Second) // the time-out of detection is 10 s
}
