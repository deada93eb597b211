package conn

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// clockwork writes down which timer expired when.
type clockwork struct {
	l     *Loop
	name  map[*Timer]string
	fired []string
	on    func(*Timer)
	died  []any
}

func (c *clockwork) Expired(t *Timer) {
	c.fired = append(c.fired, fmt.Sprintf("%s@%s", c.name[t], c.l.Now()))
	if c.on != nil {
		c.on(t)
	}
}

func (c *clockwork) Panicked(v any, _ []byte) { c.died = append(c.died, v) }

func TestTimersExpireInOrderAtTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(t)
		var a, b, c Timer
		w := &clockwork{l: l, name: map[*Timer]string{&a: "a", &b: "b", &c: "c"}}
		l.Start(&c, 3*time.Second, w)
		l.Start(&a, time.Second, w)
		l.StartAt(&b, 2*time.Second, w)
		for range 7 {
			time.Sleep(500 * time.Millisecond)
			l.Step()
		}
		if d := cmp.Diff([]string{"a@1s", "b@2s", "c@3s"}, w.fired); d != "" {
			t.Error(d)
		}
		if a.Active() || b.Active() || c.Active() {
			t.Error("an expired timer is still active")
		}
	})
}

func TestATimerDoesNotExpireBeforeItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(t)
		var a Timer
		w := &clockwork{l: l, name: map[*Timer]string{&a: "a"}}
		l.Start(&a, 10*time.Second, w)
		time.Sleep(10*time.Second - 1)
		if l.Step(); len(w.fired) != 0 {
			t.Fatalf("expired a nanosecond early: %v", w.fired)
		}
		time.Sleep(time.Nanosecond)
		l.Step()
		if d := cmp.Diff([]string{"a@10s"}, w.fired); d != "" {
			t.Error(d)
		}
	})
}

func TestStartingATimerAgainMovesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(t)
		var a Timer
		w := &clockwork{l: l, name: map[*Timer]string{&a: "a"}}
		l.Start(&a, time.Second, w)
		l.Start(&a, 5*time.Second, w)
		time.Sleep(2 * time.Second)
		l.Step()
		l.Start(&a, time.Second, w) // and back
		time.Sleep(10 * time.Second)
		l.Step()
		if d := cmp.Diff([]string{"a@12s"}, w.fired); d != "" {
			t.Error(d)
		}
	})
}

func TestACancelledTimerStaysSilentEvenIfItIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(t)
		var a, b Timer
		w := &clockwork{l: l, name: map[*Timer]string{&a: "a", &b: "b"}}
		w.on = func(*Timer) { l.Cancel(&b) } // the first to expire cancels the second, due in the same round
		l.Start(&a, time.Second, w)
		l.Start(&b, time.Second, w)
		l.Cancel(&b)
		l.Cancel(&b) // twice is once
		l.Start(&b, time.Second, w)
		time.Sleep(2 * time.Second)
		l.Step()
		if d := cmp.Diff([]string{"a@2s"}, w.fired); d != "" {
			t.Error(d)
		}
	})
}

func TestATimerMayStartItselfAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(t)
		var a Timer
		w := &clockwork{l: l, name: map[*Timer]string{&a: "a"}}
		w.on = func(*Timer) { l.Start(&a, time.Second, w) }
		l.Start(&a, time.Second, w)
		for range 3 {
			time.Sleep(time.Second)
			l.Step()
		}
		if d := cmp.Diff([]string{"a@1s", "a@2s", "a@3s"}, w.fired); d != "" {
			t.Error(d)
		}
	})
}

func TestAPanicOfATimerStaysWithItsOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(t)
		var a, b Timer
		bad, good := &clockwork{l: l, on: func(*Timer) { panic("boom") }}, &clockwork{l: l, name: map[*Timer]string{&b: "b"}}
		l.Start(&a, time.Second, bad)
		l.Start(&b, time.Second, good)
		time.Sleep(time.Second)
		l.Step()
		if d := cmp.Diff([]any{"boom"}, bad.died); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff([]string{"b@1s"}, good.fired); d != "" {
			t.Error(d)
		}
	})
}

// TestTimersAgreeWithAModel starts, moves and cancels timers at random and
// compares what expires with a plain map of deadlines.
func TestTimersAgreeWithAModel(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) { timersAgainstModel(t, seed) })
	}
}

func timersAgainstModel(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	l := newLoop(t)
	timers := make([]Timer, 50)
	model := map[*Timer]time.Duration{}
	w := &clockwork{l: l}
	var last time.Duration
	w.on = func(tm *Timer) {
		when, running := model[tm]
		if !running || when > l.Now() {
			t.Errorf("seed %d: a timer that is not due expired", seed)
		}
		if when < last {
			t.Errorf("seed %d: %s expired after %s", seed, when, last)
		}
		last = when
		delete(model, tm)
	}
	for range 400 {
		tm := &timers[r.IntN(len(timers))]
		switch r.IntN(4) {
		case 0:
			l.Cancel(tm)
			delete(model, tm)
		case 1:
			time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
			last = 0
			l.Step()
			for _, when := range model {
				if when <= l.Now() {
					t.Fatalf("seed %d: a due timer did not expire", seed)
				}
			}
		default:
			when := l.Now() + time.Duration(r.IntN(1000))*time.Millisecond
			l.StartAt(tm, when, w)
			model[tm] = when
		}
		if len(l.timers) != len(model) {
			t.Fatalf("seed %d: %d timers run, the model has %d", seed, len(l.timers), len(model))
		}
	}
}
