package redirect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The descriptors that Leave gives the watcher.
const (
	watchProcess = 3 // a pidfd of the process to wait for
	watchReady   = 4 // a pipe that gets one byte when the watcher is in place
)

// watcherStart is how long a watcher may take to be in place.
const watcherStart = 5 * time.Second

// Leave starts a watcher: a small process that stays behind this one, also
// through Exec, and runs Watch inside ns. Program and args are what it runs;
// when Leave returns it is in place and an older watcher has been retired.
//
// It has its own session, so that a terminal's Ctrl-C ends the proxy and not
// the one who cleans up after it.
func Leave(ns *Namespace, program string, args []string) error {
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return &Error{Step: "starting the watcher", Err: fmt.Errorf("pidfd_open: %w", err)}
	}
	process := os.NewFile(uintptr(self), "pidfd")
	defer process.Close()
	ready, inPlace, err := os.Pipe()
	if err != nil {
		return &Error{Step: "starting the watcher", Err: err}
	}
	defer ready.Close()
	err = ns.doAndEnd(func() error { return startWatcher(program, args, process, inPlace) })
	inPlace.Close()
	if err != nil {
		return &Error{Step: "starting the watcher", Err: err}
	}
	ready.SetReadDeadline(time.Now().Add(watcherStart))
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		return &Error{Step: "waiting for the watcher", Err: err}
	}
	return nil
}

// startWatcher leaves the calling thread with a bounding set of what a watcher
// needs: root has no more than that after an exec.
func startWatcher(program string, args []string, process, inPlace *os.File) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	if err := dropBounding(unix.CAP_NET_ADMIN, unix.CAP_NET_RAW); err != nil {
		return err
	}
	child, err := os.StartProcess(program, args, &os.ProcAttr{
		Dir:   "/",
		Files: []*os.File{null, null, os.Stderr, process, inPlace},
		Sys: &syscall.SysProcAttr{
			Setsid:      true,
			AmbientCaps: ambientFor(unix.CAP_NET_ADMIN, unix.CAP_NET_RAW),
		},
	})
	if err != nil {
		return err
	}
	return child.Release()
}

// Watch waits for the process of descriptor 3 and then calls remove, in the
// namespace that it was started in. A newer run may retire it: it then waits on
// (a child that ended before its parent, the proxy, would stay a zombie) and
// removes nothing. Only Leave starts programs that call it.
func Watch(log *slog.Logger, remove func(context.Context) error) error {
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGPIPE)
	retireOlder()
	post, err := openPost()
	if err != nil {
		// The name may be an application's; the rules are still ours to remove.
		log.Warn("cannot be retired by a newer run", "err", err)
	}
	if _, err := unix.Write(watchReady, []byte{1}); err != nil {
		return &Error{Step: "watching", Err: err}
	}
	unix.Close(watchReady)
	debug.FreeOSMemory()
	retired, err := waitForEnd(post)
	if err != nil || retired {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return remove(ctx)
}

// waitForEnd blocks until the process is gone and tells whether a newer run has
// come in the meantime.
func waitForEnd(post int) (retired bool, err error) {
	for {
		events := []unix.PollFd{{Fd: watchProcess, Events: unix.POLLIN}, {Fd: int32(post), Events: unix.POLLIN}}
		_, err := unix.Poll(events, -1) // a negative descriptor is ignored
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return false, &Error{Step: "watching", Err: err}
		case events[0].Revents != 0:
			return retired, nil
		case events[1].Revents != 0 && answerPost(post):
			retired, post = true, -1
		}
	}
}
