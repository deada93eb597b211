package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is one run of the program.
type process struct {
	cmd   *exec.Cmd
	pidfd *os.File
	said  transcript
	ended chan struct{} // closed when it and all it left behind have ended
	err   error         // of the process, once ended is closed
	guard *exec.Cmd
	leash io.Closer // its end tells the guard that this program is no more
}

// start runs the program with args, in a process group of its own: a
// terminal's Ctrl-C is for this program alone, which then ends the other. The
// caller has to kill it in the end.
func start(program string, args ...string) (*process, error) {
	p := &process{ended: make(chan struct{})}
	pidfd := -1
	p.cmd = command(program, args...)
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, PidFD: &pidfd}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting meshctl: %w", err)
	}
	p.pidfd = os.NewFile(uintptr(pidfd), "pidfd") // nil where the kernel has none (before 5.2)
	go p.wait()
	return p, nil
}

// command is the program without this one's settings: MESHCTL_NETNS of a test
// run, say, would mean --netns.
func command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Args[0] = "meshctl" // what it calls itself when it executes itself
	for _, item := range os.Environ() {
		if !strings.HasPrefix(item, "MESHCTL_") {
			cmd.Env = append(cmd.Env, item)
		}
	}
	return cmd
}

// wait returns when the process and its watcher have let go of their output.
func (p *process) wait() {
	defer close(p.ended)
	p.err = p.cmd.Wait()
}

// guarded leaves a process behind that ends this one should the demo be killed.
// A signal at the parent's death (PR_SET_PDEATHSIG) would not do: the kernel
// forgets it when the proxy becomes another user.
func (p *process) guarded(program string) error {
	if p.pidfd == nil {
		return nil
	}
	held, leash, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("starting a guard: %w", err)
	}
	defer held.Close()
	guard := command(program, "demo", "guard")
	guard.Stdin, guard.ExtraFiles = held, []*os.File{p.pidfd}
	guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := guard.Start(); err != nil {
		leash.Close()
		return fmt.Errorf("starting a guard: %w", err)
	}
	p.guard, p.leash = guard, leash
	return nil
}

// end waits for the end, for a while, and returns how the process ended.
func (p *process) end(ctx context.Context) error {
	select {
	case <-p.ended:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(2 * patience):
		return errors.New("it does not end")
	}
}

// interrupt is Ctrl-C.
func (p *process) interrupt() error { return p.cmd.Process.Signal(os.Interrupt) }

// kill ends the process if it still runs, and its guard, and waits for both.
func (p *process) kill() {
	if p == nil {
		return
	}
	_ = p.interrupt() // fails when the process is gone
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
	if p.guard != nil {
		p.leash.Close()
		_ = p.guard.Wait() // it finds nothing left to end
	}
	p.pidfd.Close()
}

// transcript keeps what a process prints.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write keeps b.
func (t *transcript) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(b)
}

// String is all that was printed so far.
func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
