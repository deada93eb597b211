package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestControllerSaysWhatIsWrongWithItsArguments(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	if err := os.WriteFile(broken, []byte("kind: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	local := []string{"--insecure", "--listen", "127.0.0.1:1", "--admin-listen", ""}
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--insecure"}, exitUsage, "one of --resources, --kubernetes and --kubeconfig"},
		{[]string{"--insecure", "--resources", dir, "--kubernetes"}, exitUsage, "one of --resources, --kubernetes and --kubeconfig"},
		{[]string{"--resources", dir}, exitUsage, "no identity to serve with"},
		{[]string{"--resources", dir, "--insecure"}, exitUsage, "not on loopback"},
		{[]string{"--resources", dir, "--insecure", "--identity-dir", dir}, exitUsage, "choose one"},
		{append([]string{"--resources", broken}, local...), exitInput, "broken.yaml"},
		{append([]string{"--resources", dir, "--opaque-ports", "x"}, local...), exitUsage, "--opaque-ports"},
		{append([]string{"--resources", dir, "--default-inbound-policy", "maybe"}, local...), exitUsage, "--default-inbound-policy"},
		{append([]string{"--resources", dir, "--webhook-listen", "nowhere"}, local...), exitUsage, "--webhook-listen"},
		{append([]string{"--resources", dir, "--webhook-listen", "127.0.0.1:2", "--webhook-identity-csi", "other"}, local...), exitUsage, "CSI driver"},
		{append([]string{"--kubeconfig", filepath.Join(dir, "none")}, local...), exitInput, "none"},
	} {
		cmd := newRootCommand()
		cmd.SetArgs(append([]string{"controller"}, tt.args...))
		cmd.SetOut(&bytes.Buffer{})
		cmd.SetErr(&bytes.Buffer{})
		err := cmd.Execute()
		if err == nil || codeOf(err) != tt.code || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q: %v, want exit %d and %q", tt.args, err, tt.code, tt.says)
		}
	}
}

func TestProxyIsCarefulWhomItAsks(t *testing.T) {
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"--destination", "meshctl.meshctl.svc:8086"}, "by mTLS unless it is on loopback"},
		{[]string{"--destination", "127.0.0.1:8086", "--destination-name", "a.b"}, "needs an identity to show"},
		{[]string{"--destination", "127.0.0.1:8086", "--resources", "."}, "choose one"},
	} {
		cmd := newRootCommand()
		cmd.SetArgs(append([]string{"proxy"}, tt.args...))
		cmd.SetOut(&bytes.Buffer{})
		cmd.SetErr(&bytes.Buffer{})
		if err := cmd.Execute(); err == nil || codeOf(err) != exitUsage || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.says)
		}
	}
}

// As a program, for it listens for signals: the test runs itself.
func TestControllerServesUntilItIsToldToEnd(t *testing.T) {
	if os.Getenv("MESHCTL_TEST_CONTROLLER") != "" {
		cmd := newRootCommand()
		cmd.SetArgs([]string{"controller", "--resources", os.Getenv("MESHCTL_TEST_CONTROLLER"), "--insecure", "--listen", freeAddress(t), "--admin-listen", "",
			"--webhook-listen", freeAddress(t)})
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestControllerServesUntilItIsToldToEnd$")
	run.Env = append(os.Environ(), "MESHCTL_TEST_CONTROLLER="+exampleCluster)
	var out written
	run.Stdout, run.Stderr = &out, &out
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(out.String(), "controller ready") || !strings.Contains(out.String(), "BEGIN CERTIFICATE") {
		if ctx.Err() != nil || strings.Contains(out.String(), "FAIL") {
			t.Fatal(out.String())
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := run.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := run.Wait(); err != nil {
		exit, _ := errors.AsType[*exec.ExitError](err)
		t.Errorf("%v, %v:\n%s", err, exit, out.String())
	}
}

// freeAddress is one that nobody listens on at the moment.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// written is what a program has said so far.
type written struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *written) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}
