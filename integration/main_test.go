// Package integration tests the meshctl binary from outside: real namespaces,
// real servers, real clients.
package integration

import (
	"fmt"
	"os"
	"testing"

	"github.com/meshctl/meshctl/integration/built"
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

func runAll(m *testing.M) (int, error) {
	program, remove, err := built.Compile()
	if err != nil {
		return 0, err
	}
	defer remove()
	store, err := servers.NewTemplates()
	if err != nil {
		return 0, err
	}
	defer store.Close()
	meshctl, templates = program, store
	return m.Run(), nil
}
