package servers

import (
	"context"
	"fmt"
	"io"
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

// Process is a program of a test, running. It ends with the test.
type Process struct {
	cmd  *exec.Cmd
	log  string        // file with all it prints
	gone chan struct{} // closed when it has ended
}

// Start starts cmd in a session of its own, with its output in a log. The process
// is killed when the test ends or when the test binary is.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{cmd: cmd, log: filepath.Join(folder(t), "log"), gone: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	w := newWatcher(t)
	if err := cmd.Start(); err != nil {
		w.dismiss(t)
		t.Fatalf("starting %s: %v", cmd, err)
	}
	go p.join()
	w.watch(cmd.Process.Pid)
	t.Cleanup(func() {
		p.Signal(syscall.SIGKILL)
		<-p.gone
		w.dismiss(t)
	})
	return p
}

// join waits for the program's end; the cleanup of Start waits for it in turn.
func (p *Process) join() {
	p.cmd.Wait()
	close(p.gone)
}

// PID is the number of the process, for /proc.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process, if it is still there.
func (p *Process) Signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// Gone is closed when the process has ended.
func (p *Process) Gone() <-chan struct{} { return p.gone }

// State is how the process ended, once it has.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Log is the end of what the process has printed, and how it
// ended if it has.
func (p *Process) Log() string {
	lines := strings.Split(strings.TrimSpace(p.Printed()), "\n")
	select {
	case <-p.gone:
		lines = append(lines, "ended: "+p.State().String())
	default:
	}
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// Printed is all that the process has printed so far.
func (p *Process) Printed() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// launch runs a program inside the namespace of at, and inside a PID and a mount
// namespace of its own: when its first process dies the kernel ends all the others
// (pid_namespaces(7)), whatever sessions and users they have gone to.
func launch(t testing.TB, at Place, name string, args ...string) *Process {
	t.Helper()
	cmd := at.Net.Command(context.Background(), name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	return Start(t, cmd)
}

// serve launches a program and returns once it answers. The test fails if that
// takes too long or the program ends first.
func serve(t testing.TB, at Place, name string, args ...string) {
	t.Helper()
	p := launch(t, at, name, args...)
	if err := p.answers(at); err != nil {
		t.Fatalf("starting %s on %s: %v\n%s", name, at.Addr, err, p.Log())
	}
}

// answers returns when a connection to at is accepted.
func (p *Process) answers(at Place) error {
	deadline := time.After(startWithin)
	for {
		conn, err := at.Net.Dial(lab.Owner{}, netip.AddrPort{}, at.Addr, time.Second)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.gone:
			return fmt.Errorf("ended: %v", p.State())
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

func newWatcher(t testing.TB) *watcher {
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
	fmt.Fprint(w.in, "none\ndone\n")
	w.in.Close()
	if err := w.cmd.Wait(); err != nil {
		t.Errorf("ending the watcher: %v", err)
	}
}
