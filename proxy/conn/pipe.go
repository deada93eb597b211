package conn

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// pipeSize is how much one splice moves at most. A process that is not
	// root gets 64 MiB of pipe buffers in all (fs.pipe-user-pages-soft); a pipe
	// above that shrinks to 8 KiB, so that pipes are pooled and counted.
	pipeSize = 256 << 10
	maxPipes = 64 // a loop
	keepIdle = 4  // pipes kept for the next bulk stream
)

// Pipe is a kernel buffer that bytes are spliced through (splice(2)).
type Pipe struct {
	r, w int
	at   int // in pipePool.lent
	// N is the number of bytes in the pipe.
	N int
}

type pipePool struct {
	idle []*Pipe
	lent []*Pipe // in no order: to be closed with the loop
}

func (p *pipePool) lend(pipe *Pipe) *Pipe {
	pipe.at = len(p.lent)
	p.lent = append(p.lent, pipe)
	return pipe
}

// TakePipe lends an empty pipe, nil when there is none to be had: the caller
// then copies through a buffer.
func (l *Loop) TakePipe() *Pipe {
	p := &l.pipes
	if n := len(p.idle); n > 0 {
		pipe := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return p.lend(pipe)
	}
	if len(p.lent) >= maxPipes {
		return nil
	}
	var fds [2]int
	if unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC) != nil {
		return nil
	}
	if n, err := unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeSize); err != nil || n < pipeSize/4 {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil
	}
	return p.lend(&Pipe{r: fds[0], w: fds[1]})
}

// GivePipe takes a lent pipe back. Bytes left in it are thrown away.
func (l *Loop) GivePipe(pipe *Pipe) {
	p := &l.pipes
	last := len(p.lent) - 1
	p.lent[pipe.at] = p.lent[last]
	p.lent[pipe.at].at = pipe.at
	p.lent[last] = nil
	p.lent = p.lent[:last]
	if pipe.N == 0 && len(p.idle) < keepIdle {
		p.idle = append(p.idle, pipe)
		return
	}
	pipe.close()
}

// Fill moves bytes from s into the pipe: what one splice takes. 0, 0 is the
// peer's FIN.
func (p *Pipe) Fill(s *Socket) (int, syscall.Errno) {
	n, e := splice(int(s.fd), p.w, pipeSize)
	if e == 0 {
		p.N += n
	}
	return n, e
}

// Drain moves bytes from the pipe to s.
func (p *Pipe) Drain(s *Socket) (int, syscall.Errno) {
	n, e := splice(p.r, int(s.fd), p.N)
	if e == 0 {
		p.N -= n
	}
	return n, e
}

func splice(from, to, n int) (int, syscall.Errno) {
	for {
		m, _, e := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(n),
			unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		if e == 0 {
			return int(m), 0
		}
		if e != unix.EINTR {
			return 0, e
		}
	}
}

func (p *Pipe) close() {
	unix.Close(p.r)
	unix.Close(p.w)
}

func (p *pipePool) close() {
	for _, pipe := range append(p.idle, p.lent...) {
		pipe.close()
	}
	p.idle, p.lent = nil, nil
}
