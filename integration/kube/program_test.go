package kube

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/built"
	"github.com/meshctl/meshctl/integration/lab"
)

const misspelt = `
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: odd, annotations: {config.linkerd.io/opaque-port: "1"}}
spec: {clusterIP: 10.0.1.9, ports: [{name: main, port: 80}]}
`

// program is the commands as a user gives them.
func program(t *testing.T, api *API) {
	api.Apply(shop)
	api.Apply(misspelt)
	meshctl, remove, err := built.Compile()
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	run := func(args ...string) (string, int) {
		t.Helper()
		cmd := exec.Command(meshctl, args...)
		cmd.Env = lab.Environ()
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	has := func(out string, code int, wantCode int, want ...string) {
		t.Helper()
		if code != wantCode {
			t.Errorf("exit code %d, want %d", code, wantCode)
		}
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("no %q in:\n%s", w, out)
			}
		}
	}
	config := "--kubeconfig=" + api.Kubeconfig(Admin)
	out, code := run("explain", config, "--namespace=shop", "10.0.1.1:80")
	has(out, code, 0, "target   Service shop/web port 80 (main)\n", "one of   10.244.0.")
	out, code = run("check", config)
	has(out, code, 2, "warning: Service shop/odd: metadata.annotations", "config.linkerd.io/opaque-ports?")
	out, code = run("check", "--kubeconfig=/nonexistent")
	has(out, code, 65, "/nonexistent")
	out, code = run("explain", config, "--context=none", "10.0.1.1:80")
	has(out, code, 65, `"none"`)
	out, code = run("explain", config, "--resources=x.yaml", "10.0.1.1:80")
	has(out, code, 64, "choose one")

	p := built.Start(t, meshctl, netip.MustParseAddrPort("10.0.1.1:81"), config, "--namespace=shop")
	eventually(t, func() (string, bool) {
		return p.Logged(t), p.Sample(t).Sum("meshctl_kubernetes_synced") == 1
	}, "the proxy has no picture")
	if n := p.Sample(t).Sum("meshctl_kubernetes_objects"); n < 3 {
		t.Errorf("%v objects", n)
	}
	c, err := net.DialTimeout("tcp", p.Out.String(), 10*time.Second)
	switch {
	case errors.Is(err, syscall.ECONNRESET): // it is refused before anybody looks
	case err != nil:
		t.Fatal(err)
	default:
		defer c.Close() //nolint:errcheck // the proxy has closed it
		if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err) // an end or a reset is what is wanted
		}
	}
	eventually(t, func() (string, bool) {
		return p.Logged(t), p.Sample(t).Sum("meshctl_refused_total", `reason="no_such_port"`) == 1
	}, "a port that the Service does not have is not refused")
}
