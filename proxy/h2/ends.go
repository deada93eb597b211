package h2

// ended is called when the end of the outgoing message is written.
func (l *link) ended(s *stream) {
	s.outEnded = true
	switch {
	case s.tunnel && s.inEnded:
		l.remove(s, byPeer)
		return
	case s.tunnel || !l.server:
		return // what comes in is still to end
	}
	s.over = true
	l.resets.earn(1, resetBudget)
	how := byPeer
	if !s.inEnded { // the rest of the request is not wanted (RFC 9113, 8.1)
		l.writeReset(s.id, noError)
		how = byUs
	}
	l.remove(s, how)
}

// heardOut is called when the receiver was told of the end of what comes in: it
// ends a client's stream, and a tunnel whose other direction has ended.
func (l *link) heardOut(s *stream) {
	switch {
	case l.streams.get(s.id) != s: // the receiver's call led to its end
		return
	case s.tunnel && !s.outEnded, !s.tunnel && l.server:
		return // what goes out is still to end
	}
	if !s.outEnded {
		l.writeReset(s.id, noError)
	}
	l.remove(s, byUs)
}

// remove takes a stream out of the connection.
func (l *link) remove(s *stream, how ending) {
	s.over = true
	l.streams.remove(s)
	l.forget(s)
	l.gone.add(s.id, how)
	if l.body.s == s {
		l.body.s = nil
	}
	if l.streams.n > 0 {
		return
	}
	l.idle = l.now()
	if l.phase == draining || l.leaving && l.phase < draining {
		l.flushSoon()
		l.finish(l.cause)
	} else if l.cfg.IdleTimeout > 0 {
		l.arm(l.idle + l.cfg.IdleTimeout)
	}
}

// forget gives back what a stream holds.
func (l *link) forget(s *stream) {
	if s.listed {
		l.ready.remove(s)
	}
	l.pend -= s.drop(l.pool)
	l.pool.bury(s)
	if l.room != nil && !l.roomy {
		l.roomy = true
		l.flushSoon()
	}
}
