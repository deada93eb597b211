package conn

import "runtime/debug"

// Flusher has collected output that is to go out in one write.
type Flusher interface {
	Flush()
	Panicked(value any, stack []byte)
}

// FlushSoon has f.Flush called once the loop has handled the events it was
// woken for, so that whatever they add to one connection leaves in one write.
// f sees to it that it is not queued twice.
func (l *Loop) FlushSoon(f Flusher) { l.flushers = append(l.flushers, f) }

// flushAll calls every Flush that was asked for, also by another Flush.
func (l *Loop) flushAll() {
	for i := 0; i < len(l.flushers); i++ {
		f := l.flushers[i]
		l.flushers[i] = nil
		l.flushOne(f)
	}
	l.flushers = l.flushers[:0]
}

// flushOne contains a panic in the connection that caused it.
func (l *Loop) flushOne(f Flusher) {
	defer func() {
		if v := recover(); v != nil {
			f.Panicked(v, debug.Stack())
		}
	}()
	f.Flush()
}
