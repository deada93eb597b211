// Package hpack compresses and decompresses HTTP/2 header fields (RFC 7541) for
// an intermediary: what it decodes is known by a small number where HTTP/2 has
// rules about the name, and comes checked for the bytes that a field may have;
// what an indexed field says about that is remembered with it. The encoder
// keeps no table, so that header blocks can be made in any order.
//
// It knows nothing of frames, messages or sockets.
package hpack

import "errors"

// ErrCompression means that a header block, and so every later one, cannot be
// decoded (RFC 9113, 4.3: COMPRESSION_ERROR).
var ErrCompression = errors.New("header block does not decode")

// fieldCost is the bytes a field costs beside its text (RFC 7541, 4.1).
const fieldCost = 32

// Field is one decoded field. Its slices are valid until the next call of
// Decoder.Next, and must not be changed.
type Field struct {
	Name, Value []byte
	Size        int  // with the 32 bytes of RFC 7541, 4.1
	ID          Name // what the name is, 0 if it is none of those known
	Secret      bool // literal never indexed (RFC 7541, 6.2.3)
	BadName     bool // a byte that no HTTP/2 field name has (RFC 9113, 8.2.1); upper case too
	BadValue    bool // a control byte (RFC 9113, 8.2.1); blanks around it are the reader's business
	Long        bool // longer than the decoder's scratch: the text is not all there
}

// Integer reads an integer with a prefix of so many bits (RFC 7541, 5.1). None
// that is right has more than 28 bits beyond the prefix here.
func Integer(b []byte, bits uint8) (n int, rest []byte, ok bool) {
	mask := byte(1)<<bits - 1
	if n = int(b[0] & mask); n < int(mask) {
		return n, b[1:], true
	}
	for i, c := range b[1:min(len(b), 10)] {
		if i > 3 && c&0x7f != 0 {
			return 0, nil, false
		}
		n += int(c&0x7f) << (7 * min(i, 4))
		if c&0x80 == 0 {
			return n, b[i+2:], true
		}
	}
	return 0, nil, false
}

// appendInteger writes n after the high bits of first (RFC 7541, 5.1).
func appendInteger(dst []byte, first byte, bits uint8, n int) []byte {
	mask := 1<<bits - 1
	if n < mask {
		return append(dst, first|byte(n))
	}
	dst = append(dst, first|byte(mask))
	for n -= mask; n >= 0x80; n >>= 7 {
		dst = append(dst, byte(n)|0x80)
	}
	return append(dst, byte(n))
}
