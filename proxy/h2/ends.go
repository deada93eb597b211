package h2

// ended is called when the end of the outgoing message is written.
func (l *link) ended(s *stream) {
	s.outEnded = true
	if !l.server {
		return // its response is still to come, or it would have been removed
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

// answered is called when the response to a client's stream has ended.
func (l *link) answered(s *stream) {
	if l.streams.get(s.id) != s {
		return // the receiver's call led to its end
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
