package detect

// cursor reads big-endian numbers and length-prefixed vectors (RFC 8446, 3.4)
// off the front of a message. Once something was missing it stays failed and
// gives zeros and nil.
type cursor struct{ rest []byte }

// failed reports whether a read went past the end.
func (c *cursor) failed() bool { return c.rest == nil }

// empty reports whether nothing is left.
func (c *cursor) empty() bool { return len(c.rest) == 0 }

// take returns the next n bytes, nil if they are not there; never nil if n is 0.
func (c *cursor) take(n int) []byte {
	if c.rest == nil || n > len(c.rest) {
		c.rest = nil
		return nil
	}
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b
}

func (c *cursor) uint8() int {
	if b := c.take(1); b != nil {
		return int(b[0])
	}
	return 0
}

func (c *cursor) uint16() int {
	if b := c.take(2); b != nil {
		return int(b[0])<<8 | int(b[1])
	}
	return 0
}

func (c *cursor) vector8() []byte  { return c.take(c.uint8()) }
func (c *cursor) vector16() []byte { return c.take(c.uint16()) }
