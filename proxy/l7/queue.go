package l7

import "time"

// maxOpen is how many requests of one HTTP/1 connection may wait for their
// responses. Clients that pipeline more are not worth the memory.
const maxOpen = 64

// exchange is an HTTP/1 request that waits for its response.
type exchange struct {
	start   time.Duration // when its head was over
	method  Method
	upgrade bool // it asks for another protocol
	detail  *Detail
}

// queue holds exchanges in order. It keeps its memory, so that a connection in
// steady state allocates nothing.
type queue struct {
	items []exchange
	first int
}

func (q *queue) len() int { return len(q.items) - q.first }

// front returns the oldest exchange, which must be there.
func (q *queue) front() *exchange { return &q.items[q.first] }

// push appends an exchange unless maxOpen are waiting.
func (q *queue) push(e exchange) bool {
	if q.len() == maxOpen {
		return false
	}
	if q.first > 0 && len(q.items) == cap(q.items) {
		q.items = q.items[:copy(q.items, q.items[q.first:])]
		q.first = 0
	}
	q.items = append(q.items, e)
	return true
}

// pop takes the oldest exchange, which must be there.
func (q *queue) pop() exchange {
	e := q.items[q.first]
	if q.first++; q.first == len(q.items) {
		q.items, q.first = q.items[:0], 0
	}
	return e
}
