// Package built is the meshctl program as tests see it from outside: compiled
// once from this tree, started in front of one server without any rules, and
// asked over its admin port what it has seen. It uses loopback only and needs
// no root. It says nothing about what is right; its users do.
package built

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/meshctl/meshctl/integration/lab"
)

// Compile builds the program into a new folder that any user may reach, since
// meshctl executes itself after giving up root, and returns its path.
// MESHCTL_UNDER_TEST names a program to take instead, a release say. remove
// ends what Compile made.
func Compile() (program string, remove func(), err error) {
	if program = os.Getenv("MESHCTL_UNDER_TEST"); program != "" {
		return program, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "meshctl-built-")
	if err != nil {
		return "", nil, fmt.Errorf("making a folder for the program: %w", err)
	}
	remove = func() { _ = os.RemoveAll(dir) } // what is left is temporary anyway
	if err := os.Chmod(dir, 0o711); err != nil {
		remove()
		return "", nil, fmt.Errorf("opening the program's folder: %w", err)
	}
	program = filepath.Join(dir, "meshctl")
	build := exec.Command("go", "build", "-tags", "grpcnotrace", "-trimpath", "-buildvcs=false", "-o", program, "github.com/meshctl/meshctl/cmd/meshctl")
	build.Env = append(lab.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		remove()
		return "", nil, fmt.Errorf("building meshctl: %w\n%s", err, out)
	}
	return program, remove, nil
}
