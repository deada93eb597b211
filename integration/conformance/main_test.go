// Package conformance holds the meshctl program to the meaning of the protocols it
// lets pass, from outside: a real proxy process, real sockets on loopback, and
// this project's own vectors. Each test plays both ends of what it sends through.
package conformance

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/meshctl/meshctl/integration/built"
)

// program is meshctl, compiled by TestMain and only read after it.
var program string

func TestMain(m *testing.M) {
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		code = 1
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	var remove func()
	if program, remove, err = built.Compile(); err != nil {
		return 0, err
	}
	defer remove()
	if code = m.Run(); code == 0 {
		err = leaks()
	}
	return code, err
}

// leaks looks for goroutines that outlive the tests. An HTTP/2 server of net/http
// takes a second to give up a connection it has said goodbye to.
func leaks() (err error) {
	for range 5 {
		if err = goleak.Find(); err == nil {
			return nil
		}
		time.Sleep(500 * time.Millisecond)
	}
	return err
}
