package lab

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Alone runs f in a new network namespace in which nothing is up, not even
// loopback. f has a thread of its own, which ends with the namespace.
func Alone(t testing.TB, f func()) {
	t.Helper()
	Require(t)
	errs := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is thrown away
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			f()
		}
		errs <- err
	}()
	if err := <-errs; err != nil {
		t.Fatalf("a network namespace: %v", err)
	}
}
