package h2

import "math/bits"

// table finds the open streams of a connection by their numbers: open
// addressing with linear probing and no tombstones. MaxStreams bounds it on a
// server, the peer's limit on a client.
type table struct {
	slots []*stream // its length is a power of two, or 0
	shift uint8     // 32 - log2(len(slots))
	n     int
}

const smallTable = 128 // slots that are kept while there are no streams: 1 KiB

// home is the slot where the search for a stream begins (Fibonacci hashing).
// Bit 0 is the same in all numbers of one side.
func (t *table) home(id uint32) int { return int(id >> 1 * 0x9e3779b1 >> t.shift) }

// get returns the stream, or nil.
func (t *table) get(id uint32) *stream {
	if t.n == 0 {
		return nil
	}
	for i := t.home(id); t.slots[i] != nil; i = (i + 1) & (len(t.slots) - 1) {
		if t.slots[i].id == id {
			return t.slots[i]
		}
	}
	return nil
}

// add adds a stream that is not there.
func (t *table) add(s *stream) {
	if 2*t.n >= len(t.slots) {
		old := t.slots
		t.slots = make([]*stream, max(8, 2*len(old)))
		t.shift = uint8(33 - bits.Len(uint(len(t.slots))))
		for _, o := range old {
			if o != nil {
				t.place(o)
			}
		}
	}
	t.n++
	t.place(s)
}

func (t *table) place(s *stream) {
	i := t.home(s.id)
	for t.slots[i] != nil {
		i = (i + 1) & (len(t.slots) - 1)
	}
	t.slots[i] = s
}

// remove removes a stream that is there, and moves those behind it up whose
// search would else end at the gap.
func (t *table) remove(s *stream) {
	if t.n--; t.n == 0 && len(t.slots) > smallTable {
		t.slots = nil
		return
	}
	mask := len(t.slots) - 1
	gap := t.home(s.id)
	for t.slots[gap] != s {
		gap = (gap + 1) & mask
	}
	for i := (gap + 1) & mask; t.slots[i] != nil; i = (i + 1) & mask {
		if home := t.home(t.slots[i].id); (i-home)&mask >= (i-gap)&mask {
			t.slots[gap] = t.slots[i]
			gap = i
		}
	}
	t.slots[gap] = nil
}

// each calls f for every stream that is there when its turn comes; f may remove
// that stream, or others.
func (t *table) each(f func(*stream)) {
	for i := 0; i < len(t.slots); {
		s := t.slots[i]
		if s != nil {
			f(s)
		}
		if i < len(t.slots) && (s == nil || t.slots[i] == s) {
			i++
		}
	}
}
