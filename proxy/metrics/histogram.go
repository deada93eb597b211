package metrics

import (
	"sync/atomic"
	"time"
)

// bounds are the upper edges of a histogram's buckets, ascending, without +Inf,
// in the unit the family is exported in.
type bounds struct {
	unit  time.Duration // of edges: Millisecond or Second
	edges []float64
	upper []time.Duration // edges as durations
}

func newBounds(unit time.Duration, edges ...float64) bounds {
	b := bounds{unit: unit, edges: edges, upper: make([]time.Duration, len(edges))}
	for i, e := range edges {
		b.upper[i] = time.Duration(e * float64(unit))
	}
	return b
}

// histogram counts durations. Observe is two atomic additions; count is the sum
// of the buckets, so that a scrape in between is never inconsistent.
type histogram struct {
	bounds *bounds
	counts []atomic.Uint64 // one a bucket, not cumulative; the last is +Inf
	// sum is in microseconds: nanoseconds of long connections would overflow
	// after 584 years of connection time, which 10,000 open ones reach in weeks.
	sum atomic.Uint64
}

func newHistogram(b *bounds) histogram {
	return histogram{bounds: b, counts: make([]atomic.Uint64, len(b.edges)+1)}
}

// observe counts d; a negative d counts as 0.
func (h *histogram) observe(d time.Duration) {
	d = max(d, 0)
	i, upper := 0, h.bounds.upper
	for i < len(upper) && d > upper[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(uint64(d / time.Microsecond))
}

// read returns the cumulative counts of the finite buckets, the total and the
// sum in the family's unit.
func (h *histogram) read() (cumulative []uint64, total uint64, sum float64) {
	cumulative = make([]uint64, len(h.bounds.edges))
	for i := range h.counts {
		total += h.counts[i].Load()
		if i < len(cumulative) {
			cumulative[i] = total
		}
	}
	return cumulative, total, float64(h.sum.Load()) / float64(h.bounds.unit/time.Microsecond)
}
