package forward

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// logBurst is how many lines a lane writes a second: what a peer can cause must
// not fill disks, nor hold the loop up.
const logBurst = 20

// budget counts log lines within a second of a lane.
type budget struct {
	since   time.Duration
	written int
	dropped int
}

// seldomEvery is the least time between two lines about a state that lasts.
const seldomEvery = 10 * time.Second

// seldom lets a line be written about a state that may last for hours and is
// noticed several times a second, on any loop. The zero value is ready.
type seldom struct {
	mu   sync.Mutex
	last time.Time
}

func (s *seldom) due() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.last.IsZero() || now.Sub(s.last) >= seldomEvery {
		s.last = now
		return true
	}
	return false
}

// log writes a line about a connection, unless the lane has written too many
// in this second; how many were left out is said with the next one.
func (ln *lane) log(level slog.Level, msg string, attrs ...slog.Attr) {
	log := ln.forwarder.log
	if !log.Enabled(context.Background(), level) {
		return
	}
	if now := ln.loop.Now(); now-ln.lines.since >= time.Second {
		ln.lines.since, ln.lines.written = now, 0
	}
	if ln.lines.written >= logBurst {
		ln.lines.dropped++
		return
	}
	ln.lines.written++
	if ln.lines.dropped > 0 {
		attrs = append(attrs, slog.Int("lines_left_out", ln.lines.dropped))
		ln.lines.dropped = 0
	}
	log.LogAttrs(context.Background(), level, msg, attrs...)
}

// about are the keys every line on a connection has.
func (fl *flow) about(more ...slog.Attr) []slog.Attr {
	return append([]slog.Attr{slog.String("client", fl.client.String()), slog.String("orig_dst", fl.route.Target.String())}, more...)
}
