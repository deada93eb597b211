package conn

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// running runs l in a goroutine of its own; stop ends and joins it.
func running(t *testing.T) (l *Loop, stop func()) {
	t.Helper()
	l, err := NewLoop()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go runLoop(l, done)
	var once sync.Once
	stop = func() {
		once.Do(func() {
			l.Stop()
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(5 * time.Second):
				t.Error("the loop does not end")
			}
		})
	}
	t.Cleanup(stop)
	return l, stop
}

func runLoop(l *Loop, done chan<- error) { done <- l.Run() }

func TestPostedFunctionsRunOnceEachAndInOrder(t *testing.T) {
	l, stop := running(t)
	const posters, each = 8, 500
	got := make([][]int, posters) // touched by the loop only
	var all sync.WaitGroup
	for p := range posters {
		all.Go(func() {
			for i := range each {
				if !l.Post(func() { got[p] = append(got[p], i) }) {
					t.Error("Post refused while the loop runs")
				}
			}
		})
	}
	all.Wait()
	seen := make(chan struct{})
	l.Post(func() { close(seen) })
	<-seen
	stop()
	for p := range got {
		for i := range each {
			if len(got[p]) != each || got[p][i] != i {
				t.Fatalf("poster %d: %d calls, out of order or not %d", p, len(got[p]), each)
			}
		}
	}
}

func TestPostIsRefusedAfterTheEnd(t *testing.T) {
	l, stop := running(t)
	stop()
	if l.Post(func() { t.Error("called after the end") }) {
		t.Error("Post reports true after the end")
	}
	l.Stop() // again changes nothing
}

func TestWhatWasPostedBeforeTheEndIsCalledAllTheSame(t *testing.T) {
	l, err := NewLoop()
	if err != nil {
		t.Fatal(err)
	}
	called := 0
	l.Post(func() { called++ })
	l.Post(func() {
		called++
		if l.Post(func() { called++ }) {
			t.Error("Post reports true after Stop")
		}
	})
	l.Stop()
	if err := l.Run(); err != nil {
		t.Fatal(err)
	}
	if called != 2 {
		t.Errorf("%d of 2 posted functions were called", called)
	}
}

func TestStopEndsALoopThatIsNeverIdle(t *testing.T) {
	a, b := pair(t)
	defer unix.Close(b)
	l, stop := running(t)
	var s Socket
	turns := 0
	h := &probe{on: func(s *Socket, _ Events) { turns++; s.Again() }}
	l.Post(func() {
		if err := l.Attach(&s, a, h); err != nil {
			t.Error(err)
		}
	})
	time.Sleep(20 * time.Millisecond)
	stop()
	if turns < 10 {
		t.Errorf("the busy handler had %d turns only", turns)
	}
}

func TestTheEndOfALoopResetsWhatIsOpenAndLeavesNoDescriptor(t *testing.T) {
	before := openFDs(t)
	a, b := pair(t)
	lfd, _ := rawListen(t, "127.0.0.1", 1)
	l, err := NewLoop()
	if err != nil {
		t.Fatal(err)
	}
	var s Socket
	if err := l.Attach(&s, a, &probe{}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Listen(lfd, nil, nil); err != nil {
		t.Fatal(err)
	}
	idle, lent := l.TakePipe(), l.TakePipe()
	if idle == nil || lent == nil {
		t.Fatal("no pipes")
	}
	l.GivePipe(idle)
	l.Stop()
	if err := l.Run(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a reset", func() bool {
		_, err := unix.Read(b, make([]byte, 1))
		return err == unix.ECONNRESET
	})
	unix.Close(b)
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestRunWakesForTimersStartedFromAnywhereInTime(t *testing.T) {
	l, stop := running(t)
	var late, early Timer
	at := make(chan string, 2)
	w := expirerFunc(func(tm *Timer) {
		name := "late"
		if tm == &early {
			name = "early"
		}
		at <- name
	})
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-at:
			if got != want {
				t.Errorf("%s expired, want %s", got, want)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("%s does not expire", want)
		}
	}
	l.Post(func() { l.Start(&late, time.Hour, w) })
	time.Sleep(5 * time.Millisecond) // the loop waits for late by now
	l.Post(func() { l.Start(&early, 10*time.Millisecond, w) })
	expect("early")
	l.Post(func() { l.Start(&late, 10*time.Millisecond, w) }) // moved forward
	expect("late")
	l.Post(func() { l.Start(&early, 10*time.Millisecond, w) }) // after a time without any
	expect("early")
	stop()
}

type expirerFunc func(*Timer)

func (f expirerFunc) Expired(t *Timer)         { f(t) }
func (f expirerFunc) Panicked(v any, _ []byte) { panic(v) }

func TestAPanicOfAHandlerStaysWithIt(t *testing.T) {
	a, b := pair(t)
	c, d := pair(t)
	defer unix.Close(b)
	defer unix.Close(d)
	l := newLoop(t)
	var bad, good Socket
	ph := &probe{on: func(*Socket, Events) { panic("boom") }}
	gh := &probe{}
	for _, x := range []struct {
		s  *Socket
		fd int
		h  *probe
	}{{&bad, a, ph}, {&good, c, gh}} {
		if err := l.Attach(x.s, x.fd, x.h); err != nil {
			t.Fatal(err)
		}
	}
	if !l.Step() {
		t.Error("the panic ended the loop")
	}
	if d := cmp.Diff([]any{"boom"}, ph.panicked); d != "" {
		t.Error(d)
	}
	if !gh.saw(&good, Writable) {
		t.Error("the other socket was not served")
	}
}

func TestAPanicOfAPostedFunctionIsTheProgramsOwn(t *testing.T) {
	l := newLoop(t)
	defer func() {
		if v := recover(); v == nil {
			t.Error("the panic was swallowed")
		}
	}()
	l.Post(func() { panic("boom") })
	l.Step()
}

// TestEventsOfAClosedSocketAreNotGivenToItsSuccessor: two sockets become ready in
// the same round, the handler of whichever comes first closes the other and
// attaches a new one, which gets the same descriptor number.
func TestEventsOfAClosedSocketAreNotGivenToItsSuccessor(t *testing.T) {
	a, b := pair(t)
	c, d := pair(t)
	e, f := pair(t)
	for _, fd := range []int{b, d, f} {
		defer unix.Close(fd)
	}
	l := newLoop(t)
	var s1, s2, next Socket
	successor := &probe{}
	h := &probe{}
	if l.Attach(&s1, a, h) != nil || l.Attach(&s2, c, h) != nil {
		t.Fatal("attaching")
	}
	l.Step() // both are writable; that is not the point
	h.calls = nil
	h.on = func(s *Socket, _ Events) {
		other := &s1
		if s == &s1 {
			other = &s2
		}
		old := other.FD()
		other.Close()
		if err := unix.Dup3(e, old, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		if err := l.Attach(&next, old, successor); err != nil {
			t.Fatal(err)
		}
		h.on = nil
	}
	for _, fd := range []int{b, d} {
		if _, err := unix.Write(fd, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	l.Step()
	unix.Close(e)
	if len(h.calls) != 1 {
		t.Errorf("%d calls for the two sockets, of which one was closed before its turn", len(h.calls))
	}
	if successor.saw(&next, Readable) {
		t.Error("the successor got the event of the socket it follows")
	}
	if !successor.saw(&next, Writable) {
		t.Error("the successor got no event of its own")
	}
}

func TestASocketThatAsksAgainIsCalledOnceMore(t *testing.T) {
	a, b := pair(t)
	defer unix.Close(b)
	l := newLoop(t)
	var s Socket
	h := &probe{}
	h.on = func(s *Socket, _ Events) {
		if len(h.calls) < 3 {
			s.Again()
			s.Again() // twice is once
		}
	}
	if err := l.Attach(&s, a, h); err != nil {
		t.Fatal(err)
	}
	l.Step()
	want := []call{{&s, Writable}, {&s, Readable}, {&s, Readable}}
	if d := cmp.Diff(fmt.Sprint(want), fmt.Sprint(h.calls)); d != "" {
		t.Error(d)
	}
	h.on = func(s *Socket, _ Events) { s.Again(); s.Close() }
	s.Again()
	l.Step()
	if len(h.calls) != 4 {
		t.Errorf("a closed socket was called: %v", h.calls)
	}
	s.Again() // of a closed socket: nothing
	l.Step()
	if len(h.calls) != 4 {
		t.Errorf("a closed socket was called: %v", h.calls)
	}
}

func TestALoadIsWhatItsOwnerSays(t *testing.T) {
	l := newLoop(t)
	l.AddLoad(3)
	l.AddLoad(-1)
	if l.Load() != 2 {
		t.Errorf("load %d, want 2", l.Load())
	}
}
