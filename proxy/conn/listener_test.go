package conn

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// taken is an Acceptor that holds what it gets.
type taken struct {
	by     map[*Loop][]Accepted
	failed []error
	panics bool
}

func (a *taken) Accept(l *Loop, c Accepted) {
	if a.panics {
		panic("boom")
	}
	if a.by == nil {
		a.by = map[*Loop][]Accepted{}
	}
	a.by[l] = append(a.by[l], c)
}

func (a *taken) AcceptFailed(err error) { a.failed = append(a.failed, err) }

func (a *taken) close() {
	for _, list := range a.by {
		for _, c := range list {
			unix.Close(c.FD)
		}
	}
}

func TestAListenerTakesAllThatWaitAndTellsWhoTheyAre(t *testing.T) {
	lfd, at := rawListen(t, "127.0.0.1", 512)
	l := newLoop(t)
	to := &taken{}
	defer to.close()
	if _, err := l.Listen(lfd, []*Loop{l}, to); err != nil {
		t.Fatal(err)
	}
	clients := map[netip.AddrPort]bool{}
	for range 3*acceptBatch + 1 {
		fd := rawDial(t, at)
		defer unix.Close(fd)
		local, err := LocalAddr(fd)
		if err != nil {
			t.Fatal(err)
		}
		clients[local] = true
	}
	l.Step()
	got := map[netip.AddrPort]bool{}
	for _, c := range to.by[l] {
		got[c.Client] = true
		if flags, err := unix.FcntlInt(uintptr(c.FD), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
			t.Errorf("an accepted descriptor blocks: %x, %v", flags, err)
		}
	}
	if d := cmp.Diff(fmt.Sprint(clients), fmt.Sprint(got)); d != "" {
		t.Error(d)
	}
	if l.Load() != int64(len(clients)) {
		t.Errorf("load %d for %d connections", l.Load(), len(clients))
	}
	c := to.by[l][0]
	for name, opt := range map[string][2]int{"TCP_NODELAY": {unix.IPPROTO_TCP, unix.TCP_NODELAY}, "SO_KEEPALIVE": {unix.SOL_SOCKET, unix.SO_KEEPALIVE}} {
		if v, err := unix.GetsockoptInt(c.FD, opt[0], opt[1]); err != nil || v == 0 {
			t.Errorf("%s is not inherited: %d, %v", name, v, err)
		}
	}
}

func TestConnectionsGoToTheLeastLoadedLoop(t *testing.T) {
	lfd, at := rawListen(t, "127.0.0.1", 64)
	own, idle, busy := newLoop(t), newLoop(t), newLoop(t)
	to := &taken{}
	defer to.close()
	own.AddLoad(10)
	busy.AddLoad(50)
	if _, err := own.Listen(lfd, []*Loop{own, idle, busy}, to); err != nil {
		t.Fatal(err)
	}
	for range 12 {
		fd := rawDial(t, at)
		defer unix.Close(fd)
	}
	for range 3 {
		own.Step()
		idle.Step()
		busy.Step()
	}
	// The idle one catches up to within two; handing over for less is not worth it.
	got := []int64{own.Load(), idle.Load(), busy.Load()}
	if d := cmp.Diff([]int64{12, 10, 50}, got); d != "" {
		t.Error(d)
	}
	if len(to.by[idle]) != 10 || len(to.by[own]) != 2 || len(to.by[busy]) != 0 {
		t.Errorf("accepted: own %d, idle %d, busy %d", len(to.by[own]), len(to.by[idle]), len(to.by[busy]))
	}
}

func TestAConnectionForALoopThatHasEndedIsClosed(t *testing.T) {
	lfd, at := rawListen(t, "127.0.0.1", 64)
	own, ended := newLoop(t), newLoop(t)
	ended.Stop()
	own.AddLoad(10)
	to := &taken{}
	if _, err := own.Listen(lfd, []*Loop{own, ended}, to); err != nil {
		t.Fatal(err)
	}
	fd := rawDial(t, at)
	defer unix.Close(fd)
	own.Step()
	eventually(t, "the end", func() bool { n, err := unix.Read(fd, make([]byte, 1)); return n == 0 && err == nil })
	if len(to.by) != 0 || ended.Load() != 0 {
		t.Errorf("accepted %v, load %d", to.by, ended.Load())
	}
}

func TestClosingAListenerTakesTheWholeBacklogFirst(t *testing.T) {
	lfd, at := rawListen(t, "127.0.0.1", 512)
	l := newLoop(t)
	to := &taken{}
	defer to.close()
	ln, err := l.Listen(lfd, []*Loop{l}, to)
	if err != nil {
		t.Fatal(err)
	}
	const n = 2*acceptBatch + 7
	for range n {
		fd := rawDial(t, at)
		defer unix.Close(fd)
	}
	ln.Close()
	ln.Close() // twice is once
	if len(to.by[l]) != n {
		t.Errorf("%d of %d in the backlog were taken", len(to.by[l]), n)
	}
	l.Step()
	fd := rawDial(t, at)
	defer unix.Close(fd)
	eventually(t, "a refusal", func() bool { _, err := unix.Read(fd, make([]byte, 1)); return err == unix.ECONNREFUSED })
}

func TestAListenerThatWasShutDownDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lfd, _ := rawListen(t, "127.0.0.1", 8)
		l := newLoop(t)
		to := &taken{}
		if _, err := l.Listen(lfd, []*Loop{l}, to); err != nil {
			t.Fatal(err)
		}
		if err := unix.Shutdown(lfd, unix.SHUT_RD); err != nil { // as another process that holds it could
			t.Fatal(err)
		}
		for range 100 {
			l.Step()
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(to.failed); n < 2 || n > 6 {
			t.Errorf("told of %d failures within a second: %v", n, to.failed)
		}
	})
}

func TestAPanicOfTheAcceptorIsNotSwallowed(t *testing.T) {
	lfd, at := rawListen(t, "127.0.0.1", 8)
	l := newLoop(t)
	if _, err := l.Listen(lfd, []*Loop{l}, &taken{panics: true}); err != nil {
		t.Fatal(err)
	}
	fd := rawDial(t, at)
	defer unix.Close(fd)
	defer func() {
		if v := recover(); v == nil {
			t.Error("swallowed")
		}
	}()
	l.Step()
}

// TestRunningOutOfDescriptors runs a copy of the test binary for each case,
// because the limit is the process's.
func TestRunningOutOfDescriptors(t *testing.T) {
	for _, run := range []string{"accept", "loop", "dial", "pipe"} {
		t.Run(run, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), "CONN_TEST_CHILD="+run)
			out, err := cmd.CombinedOutput()
			if err != nil || !bytes.HasPrefix(out, []byte("fine\n")) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
