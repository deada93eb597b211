package demo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// ward is the descriptor that a guard is given: a pidfd.
const ward = 3

// Guard waits for the end of its standard input, which only the demo's end
// brings, and then ends the process that descriptor 3, a pidfd, stands for. Run
// starts programs that call it; nobody else should.
func Guard() error {
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return fmt.Errorf("waiting for the demo's end: %w", err)
	}
	err := unix.PidfdSendSignal(ward, unix.SIGTERM, nil, 0)
	if err != nil && !errors.Is(err, unix.ESRCH) { // ESRCH: it has ended, as it should
		return fmt.Errorf("ending the proxy: %w", err)
	}
	return nil
}
