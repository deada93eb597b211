package hpack

// entry is a field of the dynamic table; its text lies at off in the stream of
// all text ever added, the value behind the name.
type entry struct {
	off              uint32
	nameN, valN      uint16
	id               Name
	badName, badText bool
}

func (e *entry) cost() int { return int(e.nameN) + int(e.valN) + fieldCost }

// table is a dynamic table (RFC 7541, 2.3.2). Fields leave in the order they
// came, so that their text is one window that moves through a buffer.
type table struct {
	ring   []entry // its length is a power of two, or 0
	newest int     // in ring
	count  int
	size   int // as RFC 7541 counts
	max    int // of size, as the encoder said last
	text   []byte
	base   uint32 // where text begins in the stream of all text
}

// at returns the i-th newest field, or false.
func (t *table) at(i int, f *Field) bool {
	if i >= t.count {
		return false
	}
	e := &t.ring[(t.newest-i)&(len(t.ring)-1)]
	text := t.text[e.off-t.base:][:int(e.nameN)+int(e.valN)]
	*f = Field{Name: text[:e.nameN:e.nameN], Value: text[e.nameN:], Size: e.cost(),
		ID: e.id, BadName: e.badName, BadValue: e.badText}
	return true
}

// insert adds a field. One larger than the table empties it (RFC 7541, 4.4). The
// text of f may not lie in the table.
func (t *table) insert(f *Field) {
	t.evict(t.max - f.Size)
	if f.Size > t.max {
		return
	}
	if t.count == len(t.ring) {
		t.growRing()
	}
	t.makeRoom(len(f.Name) + len(f.Value))
	t.newest = (t.newest + 1) & (len(t.ring) - 1)
	t.ring[t.newest] = entry{off: t.base + uint32(len(t.text)), nameN: uint16(len(f.Name)), valN: uint16(len(f.Value)),
		id: f.ID, badName: f.BadName, badText: f.BadValue}
	t.text = append(append(t.text, f.Name...), f.Value...)
	t.count++
	t.size += f.Size
}

// evict drops the oldest fields until the table is no larger than room.
func (t *table) evict(room int) {
	for t.count > 0 && t.size > room {
		t.count--
		t.size -= t.ring[(t.newest-t.count)&(len(t.ring)-1)].cost()
	}
}

// makeRoom sees to it that n bytes can be appended to text: by moving what is
// still needed to the front, or to a buffer twice as large when that would
// not free half of it.
func (t *table) makeRoom(n int) {
	if len(t.text)+n <= cap(t.text) {
		return
	}
	live := t.text[:0]
	if t.count > 0 {
		live = t.text[t.ring[(t.newest-t.count+1)&(len(t.ring)-1)].off-t.base:]
	}
	t.base += uint32(len(t.text) - len(live))
	to := t.text[:0]
	if 2*(len(live)+n) > cap(t.text) {
		to = make([]byte, 0, max(256, 2*(len(live)+n)))
	}
	t.text = append(to, live...)
}

// growRing doubles the ring. It ends at max/fieldCost fields.
func (t *table) growRing() {
	ring := make([]entry, max(8, 2*len(t.ring)))
	for i := range t.count {
		ring[t.count-1-i] = t.ring[(t.newest-i)&(len(t.ring)-1)]
	}
	t.ring, t.newest = ring, t.count-1
}
