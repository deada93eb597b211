package route

import "github.com/meshctl/meshctl/proxy/message"

// Action is what a rule says.
type Action struct {
	Route  Ref
	Rule   int    // index of the rule in its route
	Name   string // of the rule, often empty
	Policy Policy

	shares   []Share
	total    uint32 // of the weights
	edits    edits
	edited   bool // by the rule or by a backend
	redirect *redirect
}

// Share is one of the backends of a rule.
type Share struct {
	Backend int // index in the Table's Backends

	upTo  uint32 // the sum of the weights up to here
	edits *edits // nil: none
}

// Pick chooses a backend by weight; random is 32 uniform random bits. It returns
// nil if there is none with a weight: the answer is 500.
func (a *Action) Pick(random uint32) *Share {
	n := uint32(uint64(random) * uint64(a.total) >> 32)
	for i := range a.shares {
		if n < a.shares[i].upTo {
			return &a.shares[i]
		}
	}
	return nil
}

// Shares are the backends of the rule that have a weight. They are not to be
// changed.
func (a *Action) Shares() []Share { return a.shares }

// Edited reports whether EditRequest or EditResponse may change anything: who
// may have to send a request once more, elsewhere, keeps the head as it came.
func (a *Action) Edited() bool { return a.edited }

// EditRequest changes a request, as it was matched, into what s is to get.
func (h Hit) EditRequest(head *message.Head, s *Share) {
	if !h.edited {
		return
	}
	h.edits.apply(head, h.prefix)
	if s.edits != nil {
		s.edits.apply(head, h.prefix)
	}
}

// EditResponse changes a response of s into what the client is to get.
func (h Hit) EditResponse(head *message.Head, s *Share) {
	if !h.edited {
		return
	}
	if s.edits != nil {
		s.edits.response.apply(head)
	}
	h.edits.response.apply(head)
}
