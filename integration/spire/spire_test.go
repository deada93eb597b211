// Package spire tests the identity against a real SPIRE server and agent. `make
// spire` builds them from their Go modules, and says where; elsewhere the
// test is skipped.
package spire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/built"
	"github.com/meshctl/meshctl/integration/servers"
	"github.com/meshctl/meshctl/proxy/identity"
)

// programs is the variable with the directory of spire-server and spire-agent.
const programs = "MESHCTL_SPIRE"

const (
	web  = "spiffe://mesh.test/ns/default/sa/web"
	life = 30 // of certificates, in seconds
)

// world is a running SPIRE.
type world struct {
	dir, programs string // of sockets and data; of the programs
	agent         *servers.Process
}

// up starts a server and an agent of the trust domain mesh.test on loopback.
func up(t *testing.T) *world {
	t.Helper()
	w := &world{programs: os.Getenv(programs)}
	if w.programs == "" {
		t.Skipf("needs SPIRE: run make spire (%s is not set)", programs)
	}
	// Not the test's own directory: a Unix socket's path has 107 bytes at most.
	dir, err := os.MkdirTemp("", "spire")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w.dir = dir
	port := freePort(t)
	w.put(t, "server.conf", fmt.Sprintf(`
server { bind_address = "127.0.0.1" bind_port = "%[1]d" socket_path = "%[2]s/server.sock" trust_domain = "mesh.test" data_dir = "%[2]s" log_level = "WARN" ca_ttl = "24h" }
plugins {
  DataStore "sql" { plugin_data { database_type = "sqlite3" connection_string = "%[2]s/d.sqlite3" } }
  KeyManager "memory" { plugin_data {} }
  NodeAttestor "join_token" { plugin_data {} }
}`, port, dir))
	w.put(t, "agent.conf", fmt.Sprintf(`
agent { data_dir = "%[2]s" log_level = "WARN" server_address = "127.0.0.1" server_port = "%[1]d" socket_path = "%[2]s/agent.sock" trust_domain = "mesh.test" insecure_bootstrap = true }
plugins {
  KeyManager "disk" { plugin_data { directory = "%[2]s" } }
  NodeAttestor "join_token" { plugin_data {} }
  WorkloadAttestor "unix" { plugin_data {} }
}`, port, dir))
	server := servers.Start(t, exec.Command(w.program("server"), "run", "-config", w.file("server.conf")))
	w.healthy(t, "server", server)
	said := w.ask(t, "token", "generate", "-spiffeID", "spiffe://mesh.test/node")
	_, token, _ := strings.Cut(strings.TrimSpace(said), "Token: ")
	w.startAgent(t, "-joinToken", strings.Fields(token)[0])
	return w
}

func (w *world) startAgent(t *testing.T, args ...string) {
	t.Helper()
	w.agent = servers.Start(t, exec.Command(w.program("agent"), append([]string{"run", "-config", w.file("agent.conf")}, args...)...))
	w.healthy(t, "agent", w.agent)
}

func (w *world) program(role string) string { return filepath.Join(w.programs, "spire-"+role) }
func (w *world) file(name string) string    { return filepath.Join(w.dir, name) }
func (w *world) socket() string             { return "unix://" + w.file("agent.sock") }

func (w *world) put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(w.file(name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// ask runs a command of the server.
func (w *world) ask(t *testing.T, command, sub string, args ...string) string {
	t.Helper()
	args = append([]string{command, sub, "-socketPath", w.file("server.sock")}, args...)
	out, err := exec.Command(w.program("server"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("spire-server %q: %v\n%s", args, err, out)
	}
	return string(out)
}

func (w *world) healthy(t *testing.T, role string, p *servers.Process) {
	t.Helper()
	await(t, "a healthy "+role, func() error {
		select {
		case <-p.Gone():
			t.Fatalf("the %s ended: %v\n%s", role, p.State(), p.Log())
		default:
		}
		return exec.Command(w.program(role), "healthcheck", "-socketPath", w.file(role+".sock")).Run()
	})
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// await asks until there is no error, for as long as a loaded machine may need.
func await(t *testing.T, what string, ask func() error) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within two minutes: %s: %v", what, err)
		}
	}
}

// workload opens a Source of its own.
func (w *world) workload(t *testing.T) identity.Source {
	t.Helper()
	s, err := identity.Workload(context.Background(), identity.WorkloadConfig{Socket: w.socket(), Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestACertificateComesFromSPIREAndIsRenewed(t *testing.T) {
	w := up(t)
	program, remove, err := built.Compile()
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	client, server := w.workload(t), w.workload(t)
	if _, err := client.Current(); !errors.Is(err, identity.ErrWaiting) {
		t.Fatalf("before there is an entry: %v", err)
	}
	w.ask(t, "entry", "create", "-parentID", "spiffe://mesh.test/node", "-spiffeID", web, "-selector", fmt.Sprintf("unix:uid:%d", os.Getuid()),
		"-x509SVIDTTL", fmt.Sprint(life), "-dns", "web.example")
	for _, s := range []identity.Source{client, server} {
		await(t, "the first certificate", func() error { _, err := s.Current(); return err })
	}
	now, err := client.Current()
	if err != nil {
		t.Fatal(err)
	}
	if now.SPIFFE() != web || now.Name() != "web.example" || len(now.Anchors()) == 0 {
		t.Errorf("the certificate is of %s, %s, with %d anchors", now.SPIFFE(), now.Name(), len(now.Anchors()))
	}
	t.Run("another workload verifies it", func(t *testing.T) { handshake(t, client, server) })
	t.Run("renewed", func(t *testing.T) { renewed(t, client, server) })
	t.Run("without the agent, and again with it", func(sub *testing.T) {
		w.agent.Signal(syscall.SIGTERM)
		<-w.agent.Gone()
		handshake(sub, client, server) // with what there is
		w.startAgent(t)                // which outlives the subtest
		renewed(sub, client, server)
	})
	t.Run("a proxy has it", func(t *testing.T) { w.proxy(t, program) })
}

// renewed waits for the next certificate of both.
func renewed(t *testing.T, client, server identity.Source) {
	t.Helper()
	for _, s := range []identity.Source{client, server} {
		before := s.Stats()
		await(t, "the next certificate", func() error {
			if st := s.Stats(); st.OK == before.OK || !st.NotAfter.After(before.NotAfter) {
				return fmt.Errorf("%+v", st)
			}
			return nil
		})
	}
	handshake(t, client, server)
}

// handshake is TLS 1.3 between two workloads, both of which verify the other.
func handshake(t *testing.T, client, server identity.Source) {
	t.Helper()
	config := func(s identity.Source, peerIsServer bool) *tls.Config {
		now, err := s.Current()
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*now.Certificate()}, ClientAuth: tls.RequireAnyClientCert,
			InsecureSkipVerify: true, // the Snapshot verifies
			VerifyConnection: func(cs tls.ConnectionState) error {
				_, err := now.VerifyPeer(cs.PeerCertificates, web, peerIsServer, time.Now())
				return err
			},
		}
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	accepted := make(chan error, 1)
	go accept(tls.Server(b, config(server, false)), accepted)
	c := tls.Client(a, config(client, true))
	if err := c.Handshake(); err != nil {
		t.Fatal("the client:", err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal("the client:", err)
	}
	if err := <-accepted; err != nil {
		t.Fatal("the server:", err)
	}
	own, err := server.Current()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := own.VerifyPeer([]*x509.Certificate{own.Certificate().Leaf}, "spiffe://mesh.test/other", true, time.Now()); err == nil {
		t.Error("another name is accepted")
	}
}

// accept writes a byte, which the client gets only if its certificate was taken.
func accept(c *tls.Conn, done chan<- error) {
	err := c.Handshake()
	if err == nil {
		_, err = c.Write([]byte{1})
	}
	done <- err
}

// proxy starts the program; it is ready only with a certificate.
func (w *world) proxy(t *testing.T, program string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := built.Start(t, program, l.Addr().(*net.TCPAddr).AddrPort(), "--spiffe-socket", w.socket())
	if log := p.Logged(t); !strings.Contains(log, "id=web.example") {
		t.Errorf("the proxy does not say who it is:\n%s", log)
	}
}
