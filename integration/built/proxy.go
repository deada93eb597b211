package built

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/integration/servers"
)

// readyWithin bounds the start of a proxy on a busy machine.
const readyWithin = 15 * time.Second

// Proxy is a running `meshctl proxy` whose every connection goes to one target.
type Proxy struct {
	*servers.Process
	In    netip.AddrPort // takes connections as if redirected from the network
	Out   netip.AddrPort // takes connections as if redirected from the application
	Admin netip.AddrPort

	log  string
	http *http.Client
}

// started numbers the proxies of this process, so that each has an address of
// its own: ports of 127.0.0.1 are also what the kernel gives to clients.
var started atomic.Uint32

// Start runs program as a proxy in front of target, with further flags of
// `meshctl proxy`, and returns once it is ready. It ends with the test.
func Start(t testing.TB, program string, target netip.AddrPort, flags ...string) *Proxy {
	t.Helper()
	host := address()
	p := &Proxy{
		In: netip.AddrPortFrom(host, 4143), Out: netip.AddrPortFrom(host, 4140), Admin: netip.AddrPortFrom(host, 4191),
		log: filepath.Join(t.TempDir(), "proxy.log"), http: &http.Client{
			Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial},
			Timeout:   10 * time.Second,
		},
	}
	// The shell gives way to the program at once; it only opens the log.
	cmd := exec.Command("/bin/sh", append([]string{"-c", `log=$1; shift; exec "$@" 2>"$log"`, "sh", p.log, program, "proxy",
		"--inbound-listen", p.In.String(), "--outbound-listen", p.Out.String(), "--admin-listen", p.Admin.String(),
		"--fixed-target", target.String()}, flags...)...)
	cmd.Env = lab.Environ()
	p.Process = servers.Start(t, cmd)
	p.awaitReady(t)
	return p
}

// address is a loopback address that no other proxy of this machine's tests has,
// but for an unlucky process number 16384 away.
func address() netip.Addr {
	pid, n := os.Getpid(), started.Add(1)
	return netip.AddrFrom4([4]byte{127, byte(64 + pid>>8&63), byte(pid), byte(1 + n%250)})
}

// dial keeps the proxies of the environment out of it.
func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, network, addr)
}

func (p *Proxy) awaitReady(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(readyWithin); ; time.Sleep(5 * time.Millisecond) {
		status, _, err := p.get("/ready")
		if err == nil && status == http.StatusOK {
			return
		}
		select {
		case <-p.Gone():
			t.Fatalf("the proxy ended: %v\n%s", p.State(), p.Logged(t))
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("the proxy is not ready after %s: status %d, %v\n%s", readyWithin, status, err, p.Logged(t))
		}
	}
}

func (p *Proxy) get(path string) (status int, body []byte, err error) {
	resp, err := p.http.Get("http://" + p.Admin.String() + path)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// Logged is all that the proxy has logged so far.
func (p *Proxy) Logged(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile(p.log)
	if errors.Is(err, os.ErrNotExist) {
		return "" // the shell has not got as far
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Ended waits for the proxy's end, for at most within, and returns its exit code.
func (p *Proxy) Ended(within time.Duration) (code int, err error) {
	select {
	case <-p.Gone():
		return p.State().ExitCode(), nil
	case <-time.After(within):
		return 0, fmt.Errorf("still running after %s", within)
	}
}
