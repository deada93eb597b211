package route

import "time"

// Policy is how a request is sent, apart from where.
type Policy struct {
	Timeouts Timeouts
	Retry    Retry
}

// Timeouts bound an exchange; 0 is no bound. What runs out ends it with 504.
type Timeouts struct {
	Request  time.Duration // from the request's head to the response's end, retries included
	Backend  time.Duration // the same of one try
	Response time.Duration // from the end of the request to the response's end
	Idle     time.Duration // with nothing coming either way
}

// Retry is when a request is sent again: at most Limit times, after a response
// that Statuses or Codes has, a Timeout, or a failure without a response. The
// zero value is never.
type Retry struct {
	Limit    uint16
	Statuses Statuses
	Codes    Codes
	Timeout  time.Duration // from the end of the request to the response's head; 0: none
	Backoff  time.Duration // least wait before a retry; 0: the default
}

// Breaker is when an endpoint is left alone: after MaxFailures failures in a
// row, for MinPenalty, twice as long after every probe that fails, up to
// MaxPenalty, and up to Jitter times that more. The zero value is never.
type Breaker struct {
	MaxFailures            uint32
	MinPenalty, MaxPenalty time.Duration
	Jitter                 float64
}

// defaultJitter is Linkerd's.
const defaultJitter = 0.5

// withDefaults fills in Linkerd's for what is 0: 7 failures, 1 s, 1 m.
func (b Breaker) withDefaults() Breaker {
	if b.MaxFailures == 0 {
		b.MaxFailures = 7
	}
	if b.MinPenalty == 0 {
		b.MinPenalty = time.Second
	}
	if b.MaxPenalty == 0 {
		b.MaxPenalty = time.Minute
	}
	return b
}

// Penalty is the latency that an endpoint is taken to have shown when it
// answered 429, 5xx or a gRPC status that says the same: such answers come fast,
// and would draw more requests. A Retry-After takes the place of Latency, up to
// MaxRetryAfter. The zero value is none.
type Penalty struct{ Latency, MaxRetryAfter time.Duration }

// withDefaults fills in Linkerd's: 5 s, 300 s.
func (p Penalty) withDefaults() Penalty {
	if p.Latency == 0 {
		p.Latency = 5 * time.Second
	}
	if p.MaxRetryAfter == 0 {
		p.MaxRetryAfter = 300 * time.Second
	}
	return p
}

// Statuses is a set of HTTP statuses, 100 to 599.
type Statuses [8]uint64

// Add puts status into s; one that is out of range is left out.
func (s *Statuses) Add(status int) {
	if status >= 100 && status < 600 {
		s[(status-100)/64] |= 1 << ((status - 100) % 64)
	}
}

// Has reports whether status is in s.
func (s *Statuses) Has(status int) bool {
	return status >= 100 && status < 600 && s[(status-100)/64]>>((status-100)%64)&1 == 1
}

// Codes is a set of gRPC status codes, 0 to 16.
type Codes uint32

// Add puts code into c.
func (c *Codes) Add(code int) {
	if code >= 0 && code <= 16 {
		*c |= 1 << code
	}
}

// Has reports whether code is in c.
func (c Codes) Has(code int) bool { return code >= 0 && code <= 16 && c>>code&1 == 1 }
