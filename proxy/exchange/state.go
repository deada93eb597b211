package exchange

// Counts is what a lane has under way.
type Counts struct {
	Idle, Busy, HTTP2 int // connections to endpoints: HTTP/1 unused, HTTP/1 in use, HTTP/2
	Waiting           int // exchanges for which no endpoint or no connection is ready
	Open              int // exchanges, those that wait among them
}

// Counts says what the lane has under way. It is called on the loop.
func (ln *Lane) Counts() Counts {
	c := Counts{Waiting: len(ln.queue), Open: ln.open}
	for _, p := range ln.pools {
		c.Idle += len(p.idle)
		c.Busy += len(p.socks) - len(p.idle)
		c.HTTP2 += len(p.live)
		c.Waiting += len(p.queue)
	}
	return c
}

// BackendState is how many endpoints of a backend may be chosen, and how many
// may not now.
type BackendState struct{ Ready, Pending int }

// State is that of each backend, in the order of Parent.Backends.
func (u *Upstream) State() []BackendState {
	backends := u.plan.Load().backends
	out := make([]BackendState, len(backends))
	for i, b := range backends {
		ready := b.balancer.Ready()
		out[i] = BackendState{ready, max(len(b.balancer.Endpoints())-ready, 0)}
	}
	return out
}

// RetryTokens is how many retries may be made now.
func (u *Upstream) RetryTokens() float64 {
	if len(u.lanes) == 0 {
		return 0
	}
	return u.budget.tokens(u.lanes[0].shared())
}
