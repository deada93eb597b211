package l7

import (
	"math/bits"
	"time"
)

// maxStreams is how many streams of one connection are followed at once.
const maxStreams = 10000

// stream is an HTTP/2 stream that is not closed in both directions.
type stream struct {
	id         uint32
	method     Method
	clientDone bool // END_STREAM from the client, or a promise
	answered   bool // the response was counted
	begun      bool // a byte of its body has passed; latency is set
	verdict
	start   time.Duration
	latency time.Duration
	detail  *Detail
}

// streamTable finds streams by their number: open addressing with linear
// probing and no tombstones. Memory is kept while streams come and go and given
// back when a large table falls empty.
type streamTable struct {
	slots []stream // its length is a power of two, or 0; id 0 is a free slot
	shift uint8    // 32 - log2(len(slots))
	n     int
}

const (
	smallTable = 64 // slots that are kept for good

	// maxProbe bounds a search. No numbers that a client counts up come near
	// it in a table that is half full; those chosen to collide do.
	maxProbe = 128
)

// home is the slot where the search for a stream begins (Fibonacci hashing).
func (t *streamTable) home(id uint32) int { return int(id * 0x9e3779b1 >> t.shift) }

// get returns the stream, or nil. It is valid until the next add or remove.
func (t *streamTable) get(id uint32) *stream {
	if t.n == 0 || id == 0 {
		return nil
	}
	for i := t.home(id); t.slots[i].id != 0; i = (i + 1) & (len(t.slots) - 1) {
		if t.slots[i].id == id {
			return &t.slots[i]
		}
	}
	return nil
}

// add adds a stream that is not there, unless that would pass a limit.
func (t *streamTable) add(s stream) bool {
	if t.n == maxStreams || t.n >= len(t.slots)/2 && !t.grow() {
		return false
	}
	t.n++
	return t.place(s)
}

// grow doubles the table.
func (t *streamTable) grow() bool {
	old := t.slots
	t.slots = make([]stream, max(8, 2*len(old)))
	t.shift = uint8(33 - bits.Len(uint(len(t.slots))))
	for _, o := range old {
		if o.id != 0 && !t.place(o) {
			return false
		}
	}
	return true
}

// place puts a stream into the free slot that get will find first.
func (t *streamTable) place(s stream) bool {
	i := t.home(s.id)
	for range maxProbe {
		if t.slots[i].id == 0 {
			t.slots[i] = s
			return true
		}
		i = (i + 1) & (len(t.slots) - 1)
	}
	return false
}

// remove removes a stream that get returned, and moves those behind it up whose
// search would else end at the gap.
func (t *streamTable) remove(s *stream) {
	if t.n--; t.n == 0 && len(t.slots) > smallTable {
		t.slots = nil
		return
	}
	mask := len(t.slots) - 1
	gap := t.home(s.id)
	for &t.slots[gap] != s {
		gap = (gap + 1) & mask
	}
	for i := (gap + 1) & mask; t.slots[i].id != 0; i = (i + 1) & mask {
		if home := t.home(t.slots[i].id); (i-home)&mask >= (i-gap)&mask {
			t.slots[gap] = t.slots[i]
			gap = i
		}
	}
	t.slots[gap] = stream{}
}

// all calls f for every stream there is; f may not change the table.
func (t *streamTable) all(f func(*stream)) {
	for i := range t.slots {
		if t.slots[i].id != 0 {
			f(&t.slots[i])
		}
	}
}
