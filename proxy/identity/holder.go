package identity

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// warnAt is the part of a certificate's life that is left when somebody should
// look why there is no new one: they are due long before.
const warnAt = 0.3

// lookAtLeast is how often the clock is looked at: a timer does not run while a
// machine sleeps.
const lookAtLeast = 10 * time.Minute

// holder is what all Sources have in common: what is in force.
type holder struct {
	log       *slog.Logger
	current   atomic.Pointer[Snapshot]
	waiting   atomic.Pointer[error] // what Current says before the first certificate
	refreshed atomic.Int64          // Unix, nanoseconds
	ok        atomic.Uint64
	failed    atomic.Uint64
	renewed   chan struct{} // for watchLife

	mu         sync.Mutex
	told       []func()
	generation uint64
}

func newHolder(log *slog.Logger, waitingFor string) *holder {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	h := &holder{log: log, renewed: make(chan struct{}, 1)}
	h.wait(waitingFor)
	return h
}

// wait says what is missing.
func (h *holder) wait(reason string) {
	err := fmt.Errorf("%w: %s", ErrWaiting, reason)
	h.waiting.Store(&err)
}

// Current implements Source.
func (h *holder) Current() (*Snapshot, error) {
	s := h.current.Load()
	if s == nil {
		return nil, *h.waiting.Load()
	}
	if time.Now().After(s.until) {
		return nil, s.expired
	}
	return s, nil
}

// Changed implements Source.
func (h *holder) Changed(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, f)
}

// Stats implements Source.
func (h *holder) Stats() Stats {
	st := Stats{OK: h.ok.Load(), Failed: h.failed.Load()}
	if s := h.current.Load(); s != nil {
		st.NotAfter, st.Refreshed = s.NotAfter(), time.Unix(0, h.refreshed.Load())
	}
	return st
}

// take puts a Snapshot in force, if it is another one. Only one goroutine calls it.
func (h *holder) take(s *Snapshot) {
	if before := h.current.Load(); before != nil {
		if before.same(s) {
			return
		}
		if before.anchors.sum == s.anchors.sum {
			s.anchors = before.anchors // with whom they have verified
		}
	}
	h.generation++
	s.generation = h.generation
	h.refreshed.Store(time.Now().UnixNano())
	h.current.Store(s)
	h.ok.Add(1)
	h.log.Info("identity", "id", s.ID(), "not_after", stamp(s.NotAfter()), "anchors", len(s.anchors.all), "generation", s.generation)
	select {
	case h.renewed <- struct{}{}:
	default: // it will look at the newest
	}
	h.mu.Lock()
	told := h.told[:len(h.told):len(h.told)]
	h.mu.Unlock()
	for _, f := range told {
		f()
	}
}

// watchLife says once for each certificate that it is old, and once that it is
// over, until ctx ends.
func (h *holder) watchLife(ctx context.Context) {
	var warned, over uint64 // generations
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.renewed:
		case <-timer.C:
		}
		s := h.current.Load()
		if s == nil {
			timer.Reset(lookAtLeast)
			continue
		}
		now, old := time.Now(), s.old()
		next := old
		switch {
		case now.After(s.until):
			if over != s.generation {
				over = s.generation
				h.log.Error("the own certificate has expired: mesh connections are refused", "id", s.ID(), "not_after", stamp(s.until))
			}
			next = now.Add(lookAtLeast)
		case !now.Before(old):
			if warned != s.generation {
				warned = s.generation
				h.log.Warn("the own certificate is about to expire and nothing has renewed it", "id", s.ID(),
					"not_after", stamp(s.until), "left", s.until.Sub(now).Round(time.Second))
			}
			next = s.until.Add(time.Millisecond)
		}
		timer.Reset(min(next.Sub(now), lookAtLeast))
	}
}

// old is when the last part of the certificate's life begins.
func (s *Snapshot) old() time.Time {
	life := s.until.Sub(s.cert.Leaf.NotBefore)
	return s.until.Add(-time.Duration(warnAt * float64(life)))
}
