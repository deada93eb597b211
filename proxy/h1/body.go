package h1

import "math"

// coding is how a body's end is told.
type coding uint8

const (
	noBody coding = iota
	byLength
	byChunks
	byClose // the end of the connection, or of a tunnel's direction
)

// body reads a message body (RFC 9112, 6 and 7). Chunks go
//
//	size --CR--> sizeLF --LF--> inChunk --> dataCR --> dataLF --> size
//	  \--;--> ext --CR--^ \--LF, size 0--> trailers
type body struct {
	coding coding
	at     chunkState
	left   int64 // of the body, or of the chunk
	digits uint8 // of the chunk size so far
	ext    uint16
}

type chunkState uint8

const (
	atSize chunkState = iota
	atExt
	atSizeLF
	inChunk
	atDataCR
	atDataLF
	atTrailers // the last chunk's size line has been read
)

const (
	maxSizeDigits = 16 // what fits int64 in 15, and a leading zero or more
	// maxExt is the most that chunk extensions of one chunk may take: signed
	// uploads to object stores need about 90 bytes, and a sender of nothing but
	// extensions costs work without end.
	maxExt = 256
)

// next takes what it can of b. data is a part of b (of chunks, those that b holds
// are moved together), n how much was taken. end: the body, without trailers, is
// over.
func (d *body) next(b []byte) (data []byte, n int, end bool, r *Refusal) {
	switch d.coding {
	case byLength:
		n = int(min(d.left, int64(len(b))))
		d.left -= int64(n)
		return b[:n], n, d.left == 0, nil
	case byChunks:
		return d.chunks(b)
	case byClose:
		return b, len(b), false, nil
	}
	return nil, 0, true, nil
}

// chunks decodes in place: the bytes of a second chunk are moved to the end of
// the first's, so that many small chunks become one piece.
func (d *body) chunks(b []byte) (data []byte, i int, end bool, r *Refusal) {
	for i < len(b) {
		if d.at == inChunk {
			n := int(min(d.left, int64(len(b)-i)))
			if len(data) == 0 {
				data = b[i : i+n]
			} else {
				data = append(data, b[i:i+n]...) // within b: what it overwrites has been read
			}
			i += n
			if d.left -= int64(n); d.left == 0 {
				d.at = atDataCR
			}
			continue
		}
		if r = d.mark(b[i]); r != nil {
			return data, i, false, r
		}
		i++
		if d.at == atTrailers {
			return data, i, true, nil
		}
	}
	return data, i, false, nil
}

// mark reads one byte between the data of chunks.
func (d *body) mark(c byte) *Refusal {
	switch d.at {
	case atSize:
		return d.size(c)
	case atExt:
		if c == '\r' {
			d.at = atSizeLF
			return nil
		}
		if d.ext++; d.ext > maxExt || class[c]&valueChar == 0 {
			return bad("bad chunk extension")
		}
	case atSizeLF:
		if c != '\n' {
			return bad("chunk size line not ended by CRLF")
		}
		d.at, d.digits, d.ext = inChunk, 0, 0
		if d.left == 0 {
			d.at = atTrailers
		}
	case atDataCR:
		if c != '\r' {
			return bad("chunk longer than its size")
		}
		d.at = atDataLF
	case atDataLF:
		if c != '\n' {
			return bad("chunk not ended by CRLF")
		}
		d.at = atSize
	}
	return nil
}

// size reads a byte of a chunk size: hexadecimal digits, no sign, no space.
func (d *body) size(c byte) *Refusal {
	switch {
	case class[c]&hexChar != 0:
		if d.digits++; d.digits > maxSizeDigits || d.left > math.MaxInt64>>4 {
			return bad("chunk size too large")
		}
		d.left = d.left<<4 | hexValue(c)
	case d.digits == 0:
		return bad("bad chunk size")
	case c == ';':
		d.at = atExt
	case c == '\r':
		d.at = atSizeLF
	default:
		return bad("bad chunk size")
	}
	return nil
}

func hexValue(c byte) int64 {
	if c <= '9' {
		return int64(c - '0')
	}
	return int64(c|0x20-'a') + 10
}

// piece is next, and ends a chunked body that has no trailers at once. A body
// that has ended without end being told is at its trailers.
func (d *body) piece(b []byte) (data []byte, n int, end bool, r *Refusal) {
	data, n, end, r = d.next(b)
	if end && d.coding == byChunks {
		end = len(b) >= n+2 && b[n] == '\r' && b[n+1] == '\n'
		if end {
			n += 2
		}
	}
	return data, n, end, r
}

// trailing reports whether only trailers are missing.
func (d *body) trailing() bool { return d.coding == byChunks && d.at == atTrailers }
