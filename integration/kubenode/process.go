package kubenode

import (
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
)

// process is a program that ends with the test, also when that is killed.
type process struct {
	cmd  *exec.Cmd
	once sync.Once
	done chan struct{}
}

func start(t testing.TB, log string, how *syscall.SysProcAttr, program string, args ...string) *process {
	t.Helper()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(program, args...), done: make(chan struct{})} //nolint:gosec // programs of Require
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = how
	how.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	go p.run(out, started)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	return p
}

// run keeps to one thread: the signal at the parent's death is that at the death of
// the thread that started the program (prctl(2), PR_SET_PDEATHSIG).
func (p *process) run(out *os.File, started chan<- error) {
	runtime.LockOSThread()
	defer close(p.done)
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait() // it is killed
	}
	_ = out.Close()
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends the program and waits for it.
func (p *process) kill() {
	p.once.Do(func() {
		if !p.ended() {
			_ = p.cmd.Process.Kill() // it may have ended just now
		}
	})
	<-p.done
}
