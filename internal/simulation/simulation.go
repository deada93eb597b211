// Package simulation lets requests queue at endpoints, in a time of its own, to
// see what a way of choosing endpoints does to shares and latencies. The same
// Config gives the same Result everywhere.
package simulation

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"
)

// Endpoint serves requests in the order of their arrival, Workers at a time.
type Endpoint struct {
	Mean    time.Duration // of the time a request takes
	Spread  Spread
	Workers int // 0: any number, nothing queues
}

// Spread is how service times spread about their mean. The zero value is
// Exponential.
type Spread uint8

// The spreads.
const (
	Exponential Spread = iota
	Steady             // within a tenth of the mean
)

// String names a spread.
func (s Spread) String() string {
	if s == Steady {
		return "steady"
	}
	return "exponential"
}

// Chooser is a way of choosing endpoints.
type Chooser interface {
	// Choose returns the index of an endpoint for a request that begins now, and
	// what is to be called when its response is there.
	Choose(now time.Duration, random *rand.Rand) (endpoint int, done func(now time.Duration))
}

// Config is one run.
type Config struct {
	Endpoints []Endpoint
	Rate      float64 // requests a second, at random moments
	Requests  int
	Warmup    int // requests at the beginning that do not count
	Seed      uint64
}

// Result is what came out.
type Result struct {
	Latency []time.Duration // of all requests that count, sorted
	Picks   []int           // by endpoint
}

// Percentile returns the latency that the fraction p of the requests did not exceed.
func (r *Result) Percentile(p float64) time.Duration {
	return r.Latency[min(int(p*float64(len(r.Latency))), len(r.Latency)-1)]
}

// Share returns the fraction of the requests that an endpoint got.
func (r *Result) Share(endpoint int) float64 {
	return float64(r.Picks[endpoint]) / float64(len(r.Latency))
}

// Run lets cfg.Requests requests through.
func Run(cfg Config, chooser Chooser) *Result {
	arrivals := rand.New(rand.NewPCG(cfg.Seed, 1))
	services := rand.New(rand.NewPCG(cfg.Seed, 2))
	choices := rand.New(rand.NewPCG(cfg.Seed, 3))
	queues := make([]queue, len(cfg.Endpoints))
	for i, e := range cfg.Endpoints {
		queues[i] = make(queue, e.Workers)
	}
	res := &Result{Picks: make([]int, len(cfg.Endpoints))}
	var under responses
	now := time.Duration(0)
	for i := range cfg.Requests {
		now += time.Duration(arrivals.ExpFloat64() / cfg.Rate * float64(time.Second))
		for len(under) > 0 && under[0].at <= now {
			r := heap.Pop(&under).(response)
			r.done(r.at)
		}
		e, done := chooser.Choose(now, choices)
		at := queues[e].serve(now, service(&cfg.Endpoints[e], services))
		heap.Push(&under, response{at, done})
		if i >= cfg.Warmup {
			res.Picks[e]++
			res.Latency = append(res.Latency, at-now)
		}
	}
	slices.Sort(res.Latency)
	return res
}

func service(e *Endpoint, r *rand.Rand) time.Duration {
	if e.Spread == Steady {
		return time.Duration((0.9 + 0.2*r.Float64()) * float64(e.Mean))
	}
	return time.Duration(r.ExpFloat64() * float64(e.Mean))
}

// queue is when each worker of an endpoint will be free.
type queue []time.Duration

// serve returns when a request that arrives now will have been served.
func (q queue) serve(now, took time.Duration) time.Duration {
	if len(q) == 0 {
		return now + took
	}
	first := 0
	for i := range q {
		if q[i] < q[first] {
			first = i
		}
	}
	q[first] = max(q[first], now) + took
	return q[first]
}

// responses are those on their way, the next one first.
type responses []response

type response struct {
	at   time.Duration
	done func(time.Duration)
}

func (r responses) Len() int           { return len(r) }
func (r responses) Less(i, j int) bool { return r[i].at < r[j].at }
func (r responses) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }

// Push is part of heap.Interface.
func (r *responses) Push(x any) { *r = append(*r, x.(response)) }

// Pop is part of heap.Interface.
func (r *responses) Pop() any {
	old := *r
	last := old[len(old)-1]
	*r = old[:len(old)-1]
	return last
}
