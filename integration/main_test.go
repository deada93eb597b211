// Package integration tests the meshctl binary from outside: real namespaces,
// real servers, real clients.
package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/meshctl/meshctl/integration/servers"
)

// What all tests of this binary share; set by TestMain, only read after it.
var (
	meshctl   string // the program under test
	templates *servers.Templates
)

func TestMain(m *testing.M) {
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		code = 1
	}
	os.Exit(code)
}

// runAll builds the program once, into a folder that the proxy's user can reach,
// because meshctl executes itself after it has given up root. MESHCTL_UNDER_TEST
// names a program to test instead, a release say.
func runAll(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "meshctl-integration-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil {
		return 0, err
	}
	if meshctl = os.Getenv("MESHCTL_UNDER_TEST"); meshctl == "" {
		meshctl = filepath.Join(dir, "meshctl")
		if err := build(meshctl); err != nil {
			return 0, err
		}
	}
	if templates, err = servers.NewTemplates(); err != nil {
		return 0, err
	}
	defer templates.Close()
	return m.Run(), nil
}

func build(to string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", to, "../cmd/meshctl")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building meshctl: %w\n%s", err, out)
	}
	return nil
}
