// Package mesh tests mTLS between proxies from outside: two namespaces with a veth
// between them, rules and a proxy in each, real servers, real certificates, and
// somebody who listens on the wire.
package mesh

import (
	"fmt"
	"os"
	"testing"

	"github.com/meshctl/meshctl/integration/built"
	"github.com/meshctl/meshctl/integration/servers"
)

// What all tests of this binary share; set by TestMain, only read after it.
var (
	program   string // meshctl
	templates *servers.Templates
)

func TestMain(m *testing.M) {
	if os.Getenv(pingerVariable) != "" {
		if err := ping(); err != nil {
			fmt.Fprintln(os.Stderr, "pinging:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mesh:", err)
		code = 1
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	store, err := servers.NewTemplates()
	if err != nil {
		return 0, err
	}
	defer store.Close()
	compiled, remove, err := built.Compile()
	if err != nil {
		return 0, err
	}
	defer remove()
	program, templates = compiled, store
	return m.Run(), nil
}
