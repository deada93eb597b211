package built

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/integration/servers"
)

// App is the user that applications of a Mesh run as: neither root nor the proxy.
var App = lab.Owner{UID: 1000, GID: 1000}

// UID is the user that proxies of a Mesh run as: one of this test run alone, so
// that nobody who ends proxies by their usual user ends these.
func UID() int { return 20000 + os.Getpid()%10000 }

// Mesh runs `meshctl redirect --netns POD -- FLAGS` with the rules for a whole
// pod and returns the proxy once it is ready. Its addresses are those of the
// pod's namespace. It ends with the test.
func Mesh(t testing.TB, program string, n *lab.Net, flags ...string) *Proxy {
	t.Helper()
	return Redirected(t, program, n.Pod, nil, flags...)
}

// Redirected is Mesh for any namespace, with flags of the redirect too.
func Redirected(t testing.TB, program string, pod *lab.Namespace, redirect []string, flags ...string) *Proxy {
	t.Helper()
	p := RedirectedSoon(t, program, pod, redirect, flags...)
	p.awaitReady(t)
	return p
}

// RedirectedSoon is Redirected without the wait: the proxy may have reasons not to
// get ready.
func RedirectedSoon(t testing.TB, program string, pod *lab.Namespace, redirect []string, flags ...string) *Proxy {
	t.Helper()
	local := netip.MustParseAddr("127.0.0.1")
	p := &Proxy{
		In: netip.AddrPortFrom(local, 4143), Out: netip.AddrPortFrom(local, 4140), Admin: netip.AddrPortFrom(local, 4191),
		log: filepath.Join(t.TempDir(), "proxy.log"),
	}
	p.http = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return pod.Dial(App, netip.AddrPort{}, p.Admin, time.Second)
		},
	}}
	args := append([]string{"-c", `log=$1; shift; exec "$@" 2>"$log"`, "sh", p.log, program,
		"redirect", "--netns", pod.Path(), "--proxy-uid", strconv.Itoa(UID())}, redirect...)
	cmd := exec.Command("/bin/sh", append(append(args, "--"), flags...)...)
	cmd.Env = lab.Environ()
	p.Process = servers.Start(t, cmd)
	return p
}

// To returns what the proxy says of the one connection that is open to target,
// once it has decided about it. The client's port is no key where rules redirect:
// the kernel may have given the connection another one.
func (p *Proxy) To(t testing.TB, target netip.AddrPort) Connection {
	t.Helper()
	var all []Connection
	for deadline := time.Now().Add(decidedWithin); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		all = p.Connections(t)
		var here []Connection
		for _, c := range all {
			if c.Target == target.String() {
				here = append(here, c)
			}
		}
		if len(here) == 1 && here[0].Reason != "" && here[0].Reason != "unknown" {
			return here[0]
		}
	}
	t.Fatalf("/connections has not one to %s: %+v\n%s", target, all, p.Logged(t))
	return Connection{}
}
