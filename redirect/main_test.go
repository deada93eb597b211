package redirect

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// roleEnv makes the test binary play a part in a test: the process that execs,
// the proxy, the watcher. They are real processes; nothing stands in for them.
const roleEnv = "REDIRECT_TEST_ROLE"

func TestMain(m *testing.M) {
	play, ok := map[string]func() error{
		"become": playBecome,
		"proxy":  playProxy,
		"leave":  playLeave,
		"watch":  playWatch,
	}[os.Getenv(roleEnv)]
	if ok {
		if err := play(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// as is the environment of a process that plays a role.
func as(role string, extra ...string) []string {
	return append(append(os.Environ(), roleEnv+"="+role), extra...)
}
