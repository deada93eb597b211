package servers

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/lab"
)

// startWithin bounds a server's start; MariaDB on a busy machine is the slowest.
const startWithin = 30 * time.Second

// process is a server's program, running.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string        // file with all it prints
	gone chan struct{} // closed when it has ended
}

// start runs a program inside p's namespace and returns once p answers. The test
// fails if that takes too long or the program ends first.
func start(t testing.TB, p Place, name string, args ...string) {
	t.Helper()
	s := launch(t, p, name, args...)
	if err := s.wait(p); err != nil {
		t.Fatalf("starting %s on %s: %v\n%s", name, p.Addr, err, tail(s.log))
	}
}

// launch runs a program in a PID namespace of its own: when its first process
// dies the kernel ends all the others (pid_namespaces(7)), whatever sessions and
// users they have gone to.
func launch(t testing.TB, p Place, name string, args ...string) *process {
	t.Helper()
	log := filepath.Join(folder(t), "log")
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	s := &process{name: name, log: log, gone: make(chan struct{})}
	s.cmd = p.Net.Command(context.Background(), name, args...)
	s.cmd.Stdout, s.cmd.Stderr = out, out
	s.cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
	}
	end := reaper(t)
	if err := s.cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", name, err)
	}
	go s.join()
	end.watch(s.cmd.Process.Pid)
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		<-s.gone
		end.dismiss(t)
	})
	return s
}

// join waits for the program's end; launch's cleanup waits for it in turn.
func (s *process) join() {
	s.cmd.Wait()
	close(s.gone)
}

// wait returns when p accepts a connection.
func (s *process) wait(p Place) error {
	deadline := time.After(startWithin)
	for {
		conn, err := p.Net.Dial(lab.Owner{}, netip.AddrPort{}, p.Addr, time.Second)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-s.gone:
			return fmt.Errorf("%s ended: %v", s.name, s.cmd.ProcessState)
		case <-deadline:
			return fmt.Errorf("no answer within %s: %w", startWithin, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// watcher is a shell that kills a process when this one ends without saying so.
type watcher struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func reaper(t testing.TB) *watcher {
	t.Helper()
	w := &watcher{cmd: exec.Command("/bin/sh", "-c", `read pid && { read done || kill -9 "$pid"; }`)}
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C does not reach it
	in, err := w.cmd.StdinPipe()
	if err == nil {
		err = w.cmd.Start()
	}
	if err != nil {
		t.Fatalf("starting the watcher: %v", err)
	}
	w.in = in
	return w
}

func (w *watcher) watch(pid int) { fmt.Fprintln(w.in, pid) }

// dismiss tells the shell that the process is gone already: its number may be
// another's by now.
func (w *watcher) dismiss(t testing.TB) {
	fmt.Fprintln(w.in, "done")
	w.in.Close()
	if err := w.cmd.Wait(); err != nil {
		t.Errorf("ending the watcher: %v", err)
	}
}

// tail is the end of a log, for a message.
func tail(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// listen opens a listener at p for a server that is part of the test binary.
func listen(t testing.TB, p Place) net.Listener {
	t.Helper()
	return p.Net.Listen(t, p.Addr)
}
