package hpack

// TableSize is the size of the dynamic table a Decoder allows its peer: what
// SETTINGS_HEADER_TABLE_SIZE says unless it is sent (RFC 9113, 6.5.2).
const TableSize = 4096

// Decoder decodes the header blocks of one direction of a connection, one
// field at a time. Make it with NewDecoder.
type Decoder struct {
	table   table
	scratch []byte // lent for the block
	used    int    // of scratch, by the field at hand
	begun   bool   // a field of the block was read: no more size updates
}

// NewDecoder returns a decoder. It takes memory as its table fills, 10 KiB at most.
func NewDecoder() Decoder { return Decoder{table: table{max: TableSize}} }

// Begin begins a header block. scratch is where texts are decoded; it is used
// until the block is done and bounds how long a field can be. It has at least
// TableSize bytes.
func (d *Decoder) Begin(scratch []byte) { d.scratch, d.begun = scratch, false }

// Next decodes the next field of the block b and returns what follows it. It
// reports false with no error when b ended without one.
func (d *Decoder) Next(b []byte, f *Field) (rest []byte, found bool, err error) {
	ok := true
	for len(b) > 0 && ok {
		switch c := b[0]; {
		case c&0x80 != 0:
			d.begun = true
			var i int
			if i, b, ok = Integer(b, 7); ok && d.at(i, f) {
				return b, true, nil
			}
			return nil, false, ErrCompression
		case c&0xe0 == 0x20:
			b, ok = d.resize(b)
		default:
			d.begun = true
			if b, ok = d.literal(b, f); ok {
				return b, true, nil
			}
		}
	}
	if !ok {
		return nil, false, ErrCompression
	}
	return nil, false, nil
}

// resize reads a table size update, which is only right before all fields (RFC
// 7541, 4.2).
func (d *Decoder) resize(b []byte) (rest []byte, ok bool) {
	n, b, ok := Integer(b, 5)
	if !ok || n > TableSize || d.begun {
		return nil, false
	}
	d.table.max = n
	d.table.evict(n)
	return b, true
}

// at returns the field of an index (RFC 7541, 2.3.3).
func (d *Decoder) at(i int, f *Field) bool {
	if i <= staticSize {
		*f = staticFields[i]
		return i > 0
	}
	return d.table.at(i-staticSize-1, f)
}

// literal reads a literal field and what follows it.
func (d *Decoder) literal(b []byte, f *Field) (rest []byte, ok bool) {
	keep, secret, bits := b[0]&0x40 != 0, b[0]&0xf0 == 0x10, uint8(4)
	if keep {
		bits = 6
	}
	n, b, ok := Integer(b, bits)
	if !ok {
		return nil, false
	}
	d.used = 0
	var nameN, valN int
	if n != 0 {
		if ok = d.at(n, f); ok && keep && n > staticSize {
			f.Name = d.copied(f.Name)
		}
		f.Long = false
		nameN = len(f.Name)
	} else {
		*f = Field{}
		if f.Name, nameN, b, ok = d.text(b); ok {
			f.Long = nameN > len(f.Name)
			f.ID, f.BadName = NameOf(f.Name), badName(f.Name)
		}
	}
	if !ok {
		return nil, false
	}
	if f.Value, valN, b, ok = d.text(b); !ok {
		return nil, false
	}
	f.Long = f.Long || valN > len(f.Value)
	f.Secret, f.BadValue = secret, badValue(f.Value)
	f.Size = nameN + valN + fieldCost
	if keep {
		d.table.insert(f)
	}
	return b, true
}

// copied moves a name out of the table that is about to change.
func (d *Decoder) copied(name []byte) []byte {
	d.used = copy(d.scratch, name)
	return d.scratch[:d.used:d.used]
}

// text reads a string: as much of it as there is scratch for, its length, and
// what follows it.
func (d *Decoder) text(b []byte) (s []byte, n int, rest []byte, ok bool) {
	if len(b) == 0 {
		return nil, 0, nil, false
	}
	coded := b[0]&0x80 != 0
	n, b, ok = Integer(b, 7)
	if !ok || n > len(b) {
		return nil, 0, nil, false
	}
	s, rest = b[:n:n], b[n:]
	if !coded {
		return s, n, rest, true
	}
	dst := d.scratch[d.used:]
	if n, ok = huffman.decode(dst, s); !ok {
		return nil, 0, nil, false
	}
	m := min(n, len(dst))
	d.used += m
	return dst[:m:m], n, rest, true
}
