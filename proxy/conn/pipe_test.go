package conn

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestPipesAreLentCountedAndKept(t *testing.T) {
	before := openFDs(t)
	l, err := NewLoop()
	if err != nil {
		t.Fatal(err)
	}
	idle := openFDs(t)
	var lent []*Pipe
	for range maxPipes {
		p := l.TakePipe()
		if p == nil {
			t.Fatalf("no pipe after %d", len(lent))
		}
		lent = append(lent, p)
	}
	if l.TakePipe() != nil {
		t.Errorf("more than %d pipes", maxPipes)
	}
	for _, p := range lent {
		l.GivePipe(p)
	}
	if n := openFDs(t) - idle; n != 2*keepIdle {
		t.Errorf("%d descriptors of idle pipes, want %d", n, 2*keepIdle)
	}
	if p := l.TakePipe(); p == nil || p.r == 0 {
		t.Errorf("a kept pipe: %+v", p)
	}
	l.Stop()
	if err := l.Run(); err != nil {
		t.Fatal(err)
	}
	if n := openFDs(t); n != before {
		t.Errorf("%d descriptors before, %d after", before, n)
	}
}

func TestAPipeGivenBackWithBytesIsNotLentAgain(t *testing.T) {
	a, b := pair(t)
	c, d := pair(t)
	defer unix.Close(b)
	defer unix.Close(d)
	l := newLoop(t)
	var from, to Socket
	if l.Attach(&from, a, &probe{}) != nil || l.Attach(&to, c, &probe{}) != nil {
		t.Fatal("attaching")
	}
	p := l.TakePipe()
	if n, e := p.Fill(&from); n != 0 || e != unix.EAGAIN {
		t.Errorf("filling from a silent socket: %d, %v", n, e)
	}
	if _, err := unix.Write(b, []byte("secret")); err != nil {
		t.Fatal(err)
	}
	if n, e := p.Fill(&from); n != 6 || e != 0 || p.N != 6 {
		t.Fatalf("filling: %d, %v, holds %d", n, e, p.N)
	}
	l.GivePipe(p)
	q := l.TakePipe()
	if q == p {
		t.Fatal("lent again with another connection's bytes in it")
	}
	if _, err := unix.Write(b, []byte("next")); err != nil {
		t.Fatal(err)
	}
	if n, e := q.Fill(&from); n != 4 || e != 0 {
		t.Fatalf("filling: %d, %v", n, e)
	}
	if n, e := q.Drain(&to); n != 4 || e != 0 || q.N != 0 {
		t.Fatalf("draining: %d, %v, holds %d", n, e, q.N)
	}
	buf := make([]byte, 16)
	if n, err := unix.Read(d, buf); err != nil || string(buf[:n]) != "next" {
		t.Errorf("read %q, %v", buf[:max(n, 0)], err)
	}
	unix.Close(b)
	eventually(t, "the FIN through a pipe", func() bool { n, e := q.Fill(&from); return n == 0 && e == 0 })
	l.GivePipe(q)
}
