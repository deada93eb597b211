package conn

import (
	"time"

	"golang.org/x/sys/unix"
)

// A busy loop that sleeps whenever it has nothing to do is woken for the next few
// bytes, and its peers then work in small pieces too: all of them pay for each
// piece. So it gives way to others (sched_yield(2)) once before it sleeps, and
// looks again: peers that share its processors get on meanwhile, and there is more
// to do at once. With little to do it sleeps at once, because there the wait for
// others would be nothing but a wait.
const (
	// window is the time in which events are counted.
	window = 10 * time.Millisecond
	// busyEvents in a window make a loop busy.
	busyEvents = 32
	// tookLong is longer than the scheduler lets one task run before the next
	// (3 ms by default): somebody computes all the time, and whoever gives way to that
	// loses its share.
	tookLong = 4 * time.Millisecond
	// restFor is how long a loop does not give way after that.
	restFor = 20 * time.Millisecond
)

// yielding is the state of a loop in this.
type yielding struct {
	until  time.Duration // the end of the window
	events int           // in it
	busy   bool          // in the last one
	rest   time.Duration // no giving way before
}

// count adds n events.
func (y *yielding) count(n int, now time.Duration) {
	if now >= y.until {
		y.busy = y.events >= busyEvents && now < y.until+window
		y.events, y.until = 0, now+window
	}
	y.events += n
}

// giveWay lets others have the processor; false: that is of no use now.
func (l *Loop) giveWay() bool {
	y := &l.yield
	if !y.busy && y.events < busyEvents || l.now < y.rest {
		return false
	}
	began := time.Since(l.start)
	unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	l.now = time.Since(l.start)
	if l.now-began > tookLong {
		y.rest = l.now + restFor
	}
	return true
}
