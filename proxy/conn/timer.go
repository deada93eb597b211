package conn

import "time"

// Timer calls a function of its owner once, on the loop's goroutine. The zero
// value is a stopped timer. A Timer lives inside the connection it belongs to,
// so that starting one allocates nothing.
type Timer struct {
	when  time.Duration
	owner Expirer
	pos   int32 // 1 + index in the heap; 0: stopped
}

// Expirer is what a timer wakes.
type Expirer interface {
	Expired(t *Timer)
	Panicked(value any, stack []byte)
}

// Start (re)starts t so that owner.Expired is called d from now.
func (l *Loop) Start(t *Timer, d time.Duration, owner Expirer) {
	l.StartAt(t, l.now+d, owner)
}

// StartAt (re)starts t for the loop time when (see Now).
func (l *Loop) StartAt(t *Timer, when time.Duration, owner Expirer) {
	if t.pos != 0 {
		l.Cancel(t)
	}
	t.when, t.owner = when, owner
	l.timers = append(l.timers, t)
	l.siftUp(len(l.timers)-1, t)
}

// Cancel stops t; a stopped timer stays stopped.
func (l *Loop) Cancel(t *Timer) {
	if t.pos == 0 {
		return
	}
	i, last := int(t.pos-1), len(l.timers)-1
	t.pos, t.owner = 0, nil
	moved := l.timers[last]
	l.timers[last] = nil
	l.timers = l.timers[:last]
	if i == last {
		return
	}
	l.siftUp(i, moved)
	if int(moved.pos-1) == i {
		l.siftDown(i, moved)
	}
}

// Active reports whether t is running.
func (t *Timer) Active() bool { return t.pos != 0 }

// The heap is binary; deadlines mostly come in rising order, so that siftUp
// ends at its first comparison.
func (l *Loop) siftUp(i int, t *Timer) {
	for i > 0 {
		up := (i - 1) / 2
		if l.timers[up].when <= t.when {
			break
		}
		l.put(i, l.timers[up])
		i = up
	}
	l.put(i, t)
}

func (l *Loop) siftDown(i int, t *Timer) {
	for {
		kid := 2*i + 1
		if kid >= len(l.timers) {
			break
		}
		if kid+1 < len(l.timers) && l.timers[kid+1].when < l.timers[kid].when {
			kid++
		}
		if t.when <= l.timers[kid].when {
			break
		}
		l.put(i, l.timers[kid])
		i = kid
	}
	l.put(i, t)
}

func (l *Loop) put(i int, t *Timer) {
	l.timers[i] = t
	t.pos = int32(i + 1)
}
