// Package child runs programs that end with the test that started them, also when
// that is killed.
package child

import (
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
)

// Process is a running program.
type Process struct {
	cmd  *exec.Cmd
	once sync.Once
	done chan struct{}
}

// Start runs a program with what it prints appended to the file log. how says what
// else is special about it: its namespaces; nil: nothing. Pdeathsig is set
// here.
func Start(t testing.TB, log string, how *syscall.SysProcAttr, program string, args ...string) *Process {
	t.Helper()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{cmd: exec.Command(program, args...), done: make(chan struct{})} //nolint:gosec // programs of Require
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if how == nil {
		how = &syscall.SysProcAttr{}
	}
	how.Pdeathsig = syscall.SIGKILL
	p.cmd.SysProcAttr = how
	started := make(chan error)
	go p.run(out, started)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	return p
}

// run keeps to one thread: the signal at the parent's death is that at the death of
// the thread that started the program (prctl(2), PR_SET_PDEATHSIG).
func (p *Process) run(out *os.File, started chan<- error) {
	runtime.LockOSThread()
	defer close(p.done)
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait() // it is killed
	}
	_ = out.Close()
}

// PID is the program's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended reports whether the program has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Kill ends the program and waits for it.
func (p *Process) Kill() {
	p.once.Do(func() {
		if !p.Ended() {
			_ = p.cmd.Process.Kill() // it may have ended just now
		}
	})
	<-p.done
}
