package l7

// maxKeep is how much of the start of a line is looked at. The fields that
// matter are far shorter; what stands beyond is counted, not kept.
const maxKeep = 512

// line is a line without its LF, as far as it matters.
type line struct {
	start []byte // its first bytes, at most maxKeep
	end   []byte // its last bytes, at least endKeep if there are as many
	n     int    // its length
}

// endKeep is enough for what ends a request line: " HTTP/1.1" and a CR.
const endKeep = 16

// wholeLine is a line that lies in one piece.
func wholeLine(b []byte) line {
	return line{start: b[:min(len(b), maxKeep)], end: b, n: len(b)}
}

// cutLine gathers a line that comes in pieces. Its memory is taken with the
// first piece and bounded by maxKeep.
type cutLine struct {
	start []byte
	end   [endKeep]byte
	n     int
}

// add appends a piece.
func (c *cutLine) add(b []byte) {
	c.n += len(b)
	c.start = append(c.start, b[:min(len(b), maxKeep-len(c.start))]...)
	if len(b) >= endKeep {
		copy(c.end[:], b[len(b)-endKeep:])
		return
	}
	copy(c.end[:], c.end[len(b):])
	copy(c.end[endKeep-len(b):], b)
}

// take returns what was gathered, valid until the next add, and starts over.
func (c *cutLine) take() line {
	l := line{start: c.start, end: c.end[max(0, endKeep-c.n):], n: c.n}
	c.start, c.n = c.start[:0], 0
	return l
}

// blank reports that nothing stands on the line but the CR of its end.
func (l *line) blank() bool { return l.n == 0 || l.n == 1 && l.start[0] == '\r' }

// hasCR reports that the line ended in CRLF, not in a bare LF.
func (l *line) hasCR() bool { return l.n > 0 && l.end[len(l.end)-1] == '\r' }

// trim cuts blanks and a CR from both ends.
func trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t' || b[len(b)-1] == '\r') {
		b = b[:len(b)-1]
	}
	return b
}
