package admin

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// seats bounds the connections of the server. When all are taken, a new one
// takes the place of the one that has waited longest without a request, so that
// somebody who collects idle connections does not keep a probe out. It is the
// server's ConnState hook and not a listener around the listener, because
// net/http needs to see the *net.TCPConn to close it gracefully.
type seats struct {
	max int

	mu      sync.Mutex
	open    int
	waiting *list.List                 // of net.Conn, longest first
	place   map[net.Conn]*list.Element // in waiting
}

func newSeats(limit int) *seats {
	return &seats{max: limit, waiting: list.New(), place: make(map[net.Conn]*list.Element)}
}

// changed is told of every state a connection goes through.
func (s *seats) changed(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave(c)
	switch state {
	case http.StateNew:
		s.place[c] = s.waiting.PushBack(c)
		if s.open++; s.open > s.max {
			s.dismiss()
		}
	case http.StateIdle:
		s.place[c] = s.waiting.PushBack(c)
	case http.StateClosed, http.StateHijacked:
		s.open--
	}
}

// leave takes c out of the queue, if it is there.
func (s *seats) leave(c net.Conn) {
	if e, ok := s.place[c]; ok {
		s.waiting.Remove(e)
		delete(s.place, c)
	}
}

// dismiss closes the first of the queue: the new one itself if all others are
// being answered. The server then reports it as closed.
func (s *seats) dismiss() {
	c := s.waiting.Front().Value.(net.Conn)
	s.leave(c)
	c.Close()
}
