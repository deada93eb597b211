// Package servers starts real servers (MariaDB, PostgreSQL, Redis, memcached,
// NATS, OpenSMTPD, OpenSSH, nginx, gRPC, WebSocket) on an address inside a
// namespace of a test, with data of their own, and ends them with the test, also
// when the test binary is killed. None of it touches the machine's own services.
// It knows nothing of proxies: what answers here answers without one too.
package servers

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/meshctl/meshctl/integration/lab"
)

// Place is where a server listens: an address of a namespace and a port.
type Place struct {
	Net  *lab.Namespace
	Addr netip.AddrPort
}

// At is the place at a port of the namespace's address addr.
func At(n *lab.Namespace, addr netip.Addr, port uint16) Place {
	return Place{Net: n, Addr: netip.AddrPortFrom(addr, port)}
}

// host is the address without the port, as servers' flags want it.
func (p Place) host() string { return p.Addr.Addr().String() }

// port is the port in digits.
func (p Place) port() string { return fmt.Sprint(p.Addr.Port()) }

// folder makes a folder that goes with the test and that a server's own user may
// reach: t.TempDir is closed to all but root.
func folder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil {
		t.Fatalf("opening the way to %s: %v", dir, err)
	}
	return dir
}

// write puts a server's configuration into dir and returns its path.
func write(t testing.TB, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}
