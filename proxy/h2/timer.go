package h2

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/message"
)

// errIdle is why a connection without streams was ended.
var errIdle = errors.New("connection was idle")

// arm sees to it that the timer runs out by then. It is never moved back: when it
// runs out too early, Expired finds out what is due next. So nothing is paid
// for timeouts while a connection is busy.
func (l *link) arm(when time.Duration) {
	if l.phase == dead || l.timer.Active() && l.due <= when {
		return
	}
	l.due = when
	l.loop.StartAt(&l.timer, when, l)
}

// ping has the silence of the peer watched from now on: there are streams.
func (l *link) ping() {
	l.heard = l.now()
	if l.cfg.PingAfter > 0 {
		l.arm(l.heard + l.cfg.PingAfter)
	}
}

// pong notes the answer to our PING. While draining, it tells that the peer has
// read our warning.
func (l *link) pong() {
	l.pinged = 0
	if l.phase == warned {
		l.lastGoAway()
	}
}

// Expired looks at every deadline there is.
func (l *link) Expired(*conn.Timer) {
	now := l.now()
	if l.phase == lingering {
		l.dueAt(l.until, now, l.close)
	}
	if l.phase == warned {
		l.dueAt(l.until, now, l.lastGoAway)
	}
	if l.phase < lingering && l.since != 0 {
		l.dueAt(l.since+l.cfg.HeadTimeout, now, l.tooSlow)
	}
	if l.phase < lingering && l.blocked && l.cfg.StallTimeout > 0 {
		l.dueAt(l.stuck+l.cfg.StallTimeout, now, l.unread)
	}
	switch {
	case l.phase >= lingering:
	case l.streams.n > 0:
		l.watch(now)
	case l.cfg.IdleTimeout > 0:
		l.dueAt(l.idle+l.cfg.IdleTimeout, now, l.tooIdle)
	}
}

// dueAt calls f if when has come, else sees to it that the timer runs out then.
func (l *link) dueAt(when, now time.Duration, f func()) {
	if when > now {
		l.arm(when)
	} else {
		f()
	}
}

func (l *link) tooSlow() { l.fail(enhanceYourCalm, "header block took too long") }

func (l *link) tooIdle() {
	l.writeGoAway(l.newest, noError)
	l.finish(errIdle)
}

// unread ends a connection whose peer reads nothing.
func (l *link) unread() { l.lose(unix.ETIMEDOUT) }

// watch looks after the streams: is the peer there, do bodies move.
func (l *link) watch(now time.Duration) {
	if l.pend > 0 && l.cfg.StallTimeout > 0 {
		l.streams.each(func(s *stream) { l.stalled(s, now) })
	}
	switch {
	case l.cfg.PingAfter <= 0 || l.streams.n == 0:
	case now < l.heard+l.cfg.PingAfter:
		l.pinged = 0
		l.arm(l.heard + l.cfg.PingAfter)
	case l.pinged == 0:
		l.writePing()
		l.pinged = now
		l.arm(now + l.cfg.PingTimeout)
	case now < l.pinged+l.cfg.PingTimeout:
		l.arm(l.pinged + l.cfg.PingTimeout)
	default:
		l.unread()
	}
}

// stalled resets a stream whose body waits for too long.
func (l *link) stalled(s *stream, now time.Duration) {
	switch {
	case s.pend == 0:
	case now < s.moved+l.cfg.StallTimeout:
		l.arm(s.moved + l.cfg.StallTimeout)
	default:
		told := s.over
		s.over = true
		l.writeReset(s.id, cancelled)
		l.remove(s, byUs)
		if !told {
			s.recv.Aborted(s, message.Cancel)
		}
	}
}

// writePing asks the peer for a sign of life.
func (l *link) writePing() {
	l.roomFor(frameHead + 8)
	l.out = append(appendHeader(l.out, header{kind: pingFrame, size: 8}), "meshctl?"...)
	l.flushSoon()
}

// lastGoAway ends the time for streams under way: what comes now is not taken.
func (l *link) lastGoAway() {
	l.phase, l.refuseAt = draining, l.newest
	l.writeGoAway(l.newest, noError)
	if l.streams.n == 0 {
		l.finish(nil)
	}
}
