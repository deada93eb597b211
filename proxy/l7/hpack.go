package l7

import "github.com/meshctl/meshctl/proxy/hpack"

const (
	defaultTable = 4096     // SETTINGS_HEADER_TABLE_SIZE unless said (RFC 9113, 6.5.2)
	maxTable     = 64 << 10 // the largest dynamic table that is followed
	fieldCost    = 32       // bytes a field costs in the table beside its text (RFC 7541, 4.1)
)

// header is what a header block says that matters.
type header struct {
	status     int16 // 0: not said
	grpcStatus int16 // -1: not said
	content    content
	method     Method
	detail     *Detail // nil: not wanted, or not known
}

// add notes a field.
func (h *header) add(f fact) {
	switch f.kind {
	case statusKind:
		h.status = f.value
	case methodKind:
		h.method = Method(f.value)
	case contentKind:
		h.content = content(f.value)
	case grpcStatusKind:
		h.grpcStatus = f.value
	}
}

// hpackDecoder decodes header blocks (RFC 7541) of one direction. It keeps no
// text: a dynamic table of facts, 8 bytes a field, is enough, and a field that
// is neither kept nor of interest is stepped over undecoded. It refuses less
// than an endpoint would: what an endpoint accepts it decodes alike.
type hpackDecoder struct {
	ring    []fact // the dynamic table; its length is a power of two, or 0
	newest  int    // in ring
	count   int
	size    int // of the table, as RFC 7541 counts
	max     int // of size, as the encoder said last
	allowed int // of max, as the peer of the encoder allows
	scratch [longestValue]byte
}

func newHPACKDecoder() hpackDecoder {
	return hpackDecoder{max: defaultTable, allowed: defaultTable}
}

// allow is called for SETTINGS_HEADER_TABLE_SIZE of the encoder's peer. A lower
// value binds the encoder only later, so the highest one counts.
func (d *hpackDecoder) allow(n uint32) { d.allowed = max(d.allowed, int(min(n, maxTable))) }

// decode reads a whole header block. False means that the block, and every
// later one, cannot be decoded.
func (d *hpackDecoder) decode(b []byte) (h header, ok bool) {
	h.grpcStatus = -1
	for len(b) > 0 {
		var n int
		switch c := b[0]; {
		case c&0x80 != 0: // indexed field
			if n, b, ok = hpack.Integer(b, 7); !ok {
				return h, false
			}
			f, ok := d.at(n)
			if !ok {
				return h, false
			}
			h.add(f)
		case c&0xe0 == 0x20: // table size update
			if n, b, ok = hpack.Integer(b, 5); !ok || n > d.allowed {
				return h, false
			}
			d.max = n
			d.evict(n)
		default:
			if b, ok = d.literal(b, &h); !ok {
				return h, false
			}
		}
	}
	return h, true
}

// literal reads a literal field and what follows it.
func (d *hpackDecoder) literal(b []byte, h *header) (rest []byte, ok bool) {
	keep, bits := b[0]&0x40 != 0, uint8(4)
	if keep {
		bits = 6
	}
	n, b, ok := hpack.Integer(b, bits)
	if !ok {
		return nil, false
	}
	var f fact
	var nameN, valN int
	if n != 0 {
		f, ok = d.at(n)
		nameN = int(f.nameN)
	} else if nameN, b, ok = d.text(b, true); ok && nameN <= longestName {
		f.kind = kindOf(d.scratch[:nameN])
	}
	if !ok {
		return nil, false
	}
	if valN, b, ok = d.text(b, keep || f.kind != otherKind); !ok {
		return nil, false
	}
	if f.kind != otherKind {
		f.value = f.kind.meaning(d.scratch[:min(valN, longestValue)])
		h.add(f)
	}
	if keep {
		d.insert(f, nameN, valN)
	}
	return b, true
}

// text reads a string: its start into scratch, its length, and what follows. A
// string that is not wanted is stepped over, and its length not told.
func (d *hpackDecoder) text(b []byte, wanted bool) (n int, rest []byte, ok bool) {
	if len(b) == 0 {
		return 0, nil, false
	}
	coded := b[0]&0x80 != 0
	n, b, ok = hpack.Integer(b, 7)
	if !ok || n > len(b) {
		return 0, nil, false
	}
	s, rest := b[:n], b[n:]
	switch {
	case !wanted:
		return 0, rest, true
	case coded:
		n, ok = hpack.DecodeHuffman(d.scratch[:], s)
		return n, rest, ok
	default:
		copy(d.scratch[:], s)
		return n, rest, true
	}
}

// at returns the field of an index (RFC 7541, 2.3.3).
func (d *hpackDecoder) at(i int) (fact, bool) {
	if i < len(staticFacts) {
		return staticFacts[i], i > 0
	}
	if i -= len(staticFacts); i >= d.count {
		return fact{}, false
	}
	return d.ring[(d.newest-i)&(len(d.ring)-1)], true
}

// insert adds a field to the table. One larger than the table empties it
// (RFC 7541, 4.4).
func (d *hpackDecoder) insert(f fact, nameN, valN int) {
	cost := nameN + valN + fieldCost
	d.evict(d.max - cost)
	if cost > d.max {
		return
	}
	if d.count == len(d.ring) {
		d.grow()
	}
	f.nameN, f.valN = uint16(nameN), uint16(valN)
	d.newest = (d.newest + 1) & (len(d.ring) - 1)
	d.ring[d.newest] = f
	d.count++
	d.size += cost
}

// evict drops the oldest fields until the table is no larger than room.
func (d *hpackDecoder) evict(room int) {
	for d.count > 0 && d.size > room {
		d.count--
		f := d.ring[(d.newest-d.count)&(len(d.ring)-1)]
		d.size -= int(f.nameN) + int(f.valN) + fieldCost
	}
}

// grow doubles the ring. It ends at maxTable/fieldCost fields.
func (d *hpackDecoder) grow() {
	ring := make([]fact, max(16, 2*len(d.ring)))
	for i := range d.count {
		ring[d.count-1-i] = d.ring[(d.newest-i)&(len(d.ring)-1)]
	}
	d.ring, d.newest = ring, d.count-1
}
