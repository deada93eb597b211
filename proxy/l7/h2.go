package l7

import "time"

// H2 observes an HTTP/2 connection.
type H2 struct {
	rec   Recorder
	state State
}

// NewH2 returns an observer of a connection that begins with the HTTP/2 preface.
func NewH2(rec Recorder) *H2                              { return &H2{rec: rec} }
func (h *H2) Feed(from Side, b []byte, now time.Duration) {}
func (h *H2) End(from Side, now time.Duration)            {}
func (h *H2) Abort(now time.Duration)                     {}
func (h *H2) Idle() bool                                  { return false }
func (h *H2) Passive() bool                               { return true }
func (h *H2) State() State                                { return h.state }
func (h *H2) adopt(start time.Duration, m Method)         {}
