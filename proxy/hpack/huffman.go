package hpack

// huffmanLengths are the lengths in bits of the codes of RFC 7541, appendix B, by
// symbol. The code is canonical: codes of one length follow each other in the
// order of their symbols, so that lengths say everything. EOS (256) has 30 bits.
var huffmanLengths = [257]uint8{
	13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
	28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
	6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
	5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
	13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
	7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
	15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
	6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
	20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
	24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
	22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
	21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
	26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
	19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
	20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
	26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
	30,
}

const (
	huffmanEOS = 256
	huffmanMax = 30 // bits of the longest code
)

// huffmanCode decodes strings of RFC 7541, 5.2. Nothing changes it once made.
type huffmanCode struct {
	// short has, for every first byte, the symbol whose code it begins with,
	// or 0 bits if that code is longer than the byte.
	short [256]struct{ symbol, bits uint8 }
	// symbols stand in the order of their codes.
	symbols [257]uint16
	// limit is, for each length, the end of the codes of that length, moved to
	// the left of 32 bits; shift leads from such a code to its symbol.
	limit [huffmanMax + 1]uint64
	shift [huffmanMax + 1]int
}

var huffman = newHuffmanCode(&huffmanLengths)

// DecodeHuffman decodes src into dst as far as it has room and returns the length
// of the whole, or false if src is no code or its padding is wrong (RFC 7541, 5.2).
func DecodeHuffman(dst, src []byte) (n int, ok bool) { return huffman.decode(dst, src) }

// newHuffmanCode derives the code from its lengths.
func newHuffmanCode(lengths *[257]uint8) *huffmanCode {
	c := new(huffmanCode)
	next, n := uint64(0), 0 // the next code, moved to the left of 32 bits
	for bits := 1; bits <= huffmanMax; bits++ {
		c.shift[bits] = n - int(next>>(32-bits))
		for sym, l := range lengths {
			if int(l) != bits {
				continue
			}
			if bits <= 8 {
				for i := next >> 24; i < (next+1<<(32-bits))>>24; i++ {
					c.short[i].symbol, c.short[i].bits = uint8(sym), uint8(bits)
				}
			}
			c.symbols[n] = uint16(sym)
			next += 1 << (32 - bits)
			n++
		}
		c.limit[bits] = next
	}
	return c
}

// decode is DecodeHuffman.
func (c *huffmanCode) decode(dst, src []byte) (n int, ok bool) {
	var bits uint64 // what is to be decoded, from the left
	left := uint(0) // how many bits that are
	for {
		for left <= 56 && len(src) > 0 {
			bits |= uint64(src[0]) << (56 - left)
			left += 8
			src = src[1:]
		}
		e := c.short[bits>>56]
		symbol, length := e.symbol, uint(e.bits)
		if length == 0 {
			if symbol, length = c.long(bits >> 32); length == 0 {
				return 0, false
			}
		}
		if length > left { // padding: less than a byte of ones
			return n, left < 8 && bits>>(64-left) == 1<<left-1
		}
		if n < len(dst) {
			dst[n] = symbol
		}
		n++
		bits <<= length
		left -= length
	}
}

// long decodes a code of more than 8 bits at the left of 32; EOS is none.
func (c *huffmanCode) long(code uint64) (symbol uint8, bits uint) {
	for l := 9; l <= huffmanMax; l++ {
		if code >= c.limit[l] {
			continue
		}
		if s := c.symbols[int(code>>(32-l))+c.shift[l]]; s != huffmanEOS {
			return uint8(s), uint(l)
		}
	}
	return 0, 0
}
