package conn

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// This file is the part of the tests that lowers its own limits: see
// TestRunningOutOfDescriptors.

func child(run string) int {
	cases := map[string]func() error{"accept": childAccept, "loop": childLoop, "dial": childDial, "pipe": childPipe}
	if err := cases[run](); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("fine")
	return 0
}

// exhaust takes all descriptors but spare; the caller closes what it gets.
func exhaust(spare int) ([]*os.File, error) {
	// syscall, not unix: only that tells os/exec and the runtime what it did.
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 64, Max: 64}); err != nil {
		return nil, err
	}
	var held []*os.File
	for {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == unix.EMFILE {
			break
		}
		if err != nil {
			return nil, err
		}
		held = append(held, os.NewFile(uintptr(fd), "null"))
	}
	return release(held, spare), nil
}

func release(held []*os.File, n int) []*os.File {
	for _, f := range held[len(held)-n:] {
		f.Close()
	}
	return held[:len(held)-n]
}

// childLoop: NewLoop needs two descriptors and gives none away on failure.
func childLoop() error {
	// The first also starts the runtime's poller, which does not survive EMFILE.
	if _, err := NewLoop(); err != nil {
		return err
	}
	held, err := exhaust(0)
	if err != nil {
		return err
	}
	for spare := range 2 {
		if _, err := NewLoop(); !errors.Is(err, unix.EMFILE) {
			return fmt.Errorf("with %d descriptors: %v", spare, err)
		}
		held = release(held, 1)
	}
	_, err = NewLoop()
	return err
}

// childDial: the error is told, and nothing is left open.
func childDial() error {
	l, err := NewLoop()
	if err != nil {
		return err
	}
	if _, err := exhaust(0); err != nil {
		return err
	}
	var s Socket
	if done, e := l.Dial(&s, netip.MustParseAddrPort("127.0.0.1:1"), &probe{}); done || e != unix.EMFILE || s.Open() {
		return fmt.Errorf("dial: %v, %v", done, e)
	}
	return nil
}

// childPipe: the relay copies when there is no pipe.
func childPipe() error {
	l, err := NewLoop()
	if err != nil {
		return err
	}
	held, err := exhaust(1)
	if err != nil {
		return err
	}
	if l.TakePipe() != nil {
		return errors.New("a pipe out of one descriptor")
	}
	release(held, 1)
	if l.TakePipe() == nil {
		return errors.New("no pipe although there are descriptors again")
	}
	return nil
}

// childAccept: clients wait in the backlog while there are no descriptors; the
// listener asks again after growing waits, is quiet about it, and recovers.
func childAccept() error {
	lfd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(unix.Bind(lfd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(lfd, 64)); err != nil {
		return err
	}
	at, err := LocalAddr(lfd)
	if err != nil {
		return err
	}
	l, err := NewLoop()
	if err != nil {
		return err
	}
	to := &taken{}
	ln, err := l.Listen(lfd, []*Loop{l}, to)
	if err != nil {
		return err
	}
	const clients = 10
	for range clients {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		if e := connect(fd, at); e != 0 && e != unix.EINPROGRESS {
			return e
		}
	}
	held, err := exhaust(3)
	if err != nil {
		return err
	}
	for began := realNow(); realNow()-began < time.Second; nap() {
		l.Step()
	}
	// 50, 100, 200, 400 ms: five failures in the first second.
	if n := len(to.failed); len(to.by[l]) != 3 || n < 3 || n > 5 || !errors.Is(to.failed[0], unix.EMFILE) {
		return fmt.Errorf("after a second: %d taken, %d failures: %v", len(to.by[l]), n, to.failed)
	}
	release(held, clients)
	for began := realNow(); len(to.by[l]) < clients; nap() {
		l.Step()
		if realNow()-began > acceptPatient+time.Second {
			return fmt.Errorf("%d of %d taken after descriptors came back", len(to.by[l]), clients)
		}
	}
	if ln.wait != 0 {
		return fmt.Errorf("the next wait would begin at %s", 2*ln.wait)
	}
	return nil
}
