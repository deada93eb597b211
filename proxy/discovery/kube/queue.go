package kube

import (
	"sync"

	"github.com/meshctl/meshctl/proxy/discovery/cluster"
)

// queue holds what has been read and is not in the picture yet, of each object
// only the last state: it is bounded by the number of objects.
type queue struct {
	some chan struct{} // has an element when there is something

	mu      sync.Mutex
	pending map[cluster.Key]cluster.Item
	// whole are kinds of which pending is all that there is, and the objects of them
	// that are there and broken: those stay as they were.
	whole map[string]map[cluster.Key]bool
}

func newQueue() *queue {
	return &queue{some: make(chan struct{}, 1), pending: map[cluster.Key]cluster.Item{}, whole: map[string]map[cluster.Key]bool{}}
}

// put adds one object.
func (q *queue) put(it cluster.Item) {
	q.mu.Lock()
	q.pending[it.Key] = it
	q.mu.Unlock()
	q.wake()
}

// replace says that these are all objects of a kind, but for those that are broken.
func (q *queue) replace(kind string, items []cluster.Item, broken map[cluster.Key]bool) {
	q.mu.Lock()
	for k := range q.pending {
		if k.Kind == kind {
			delete(q.pending, k)
		}
	}
	for _, it := range items {
		q.pending[it.Key] = it
	}
	q.whole[kind] = broken
	q.mu.Unlock()
	q.wake()
}

func (q *queue) wake() {
	select {
	case q.some <- struct{}{}:
	default:
	}
}

// take empties the queue. known are the objects that the picture has.
func (q *queue) take(known func(kind string) []cluster.Key) []cluster.Item {
	q.mu.Lock()
	pending, whole := q.pending, q.whole
	q.pending, q.whole = map[cluster.Key]cluster.Item{}, map[string]map[cluster.Key]bool{}
	q.mu.Unlock()
	out := make([]cluster.Item, 0, len(pending))
	for kind, broken := range whole {
		for _, k := range known(kind) {
			if _, there := pending[k]; !there && !broken[k] {
				out = append(out, cluster.Item{Key: k})
			}
		}
	}
	for _, it := range pending {
		out = append(out, it)
	}
	return out
}
