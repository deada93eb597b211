package h2

import (
	"fmt"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/message"
)

const (
	smallBuffer = 4 << 10
	bigBuffer   = 68 << 10 // outMax and the headers of its frames

	// What a loop keeps for the next burst; more is left to the collector.
	keepStreams = 2048
	keepChunks  = 128 // 2 MiB
	keepSmall   = 256 // 1 MiB
	keepBig     = 16  // 1 MiB
)

// chunk is a piece of a body that waits for its window.
type chunk struct {
	next *chunk
	r, w int // bytes b[r:w] are waiting
	b    [16 << 10]byte
}

// pool is what the connections of one loop share: free lists, and room to work
// in that is lost with each call.
type pool struct {
	loop    *conn.Loop
	free    *stream // first to be reused, the longest unused
	last    *stream
	nfree   int
	over    *stream // streams that may still be called until the round ends
	queued  bool
	chunks  *chunk
	nchunks int
	small   [][]byte
	big     [][]byte

	head    message.Head // of the header block at hand
	scratch []byte       // texts of it
	joined  []byte       // cookies of it
	drained []*stream    // of the flush at hand
}

// poolOf returns the loop's pool with room for heads of maxHead bytes.
func poolOf(l *conn.Loop, maxHead int) *pool {
	p := conn.Local[pool](l)
	p.loop = l
	if len(p.scratch) < maxHead {
		p.scratch = make([]byte, max(maxHead, 16<<10))
	}
	return p
}

// stream returns a fresh stream.
func (p *pool) stream() *stream {
	s := p.free
	if s == nil {
		return new(stream)
	}
	if p.free = s.next; p.free == nil {
		p.last = nil
	}
	p.nfree--
	*s = stream{}
	return s
}

// bury takes a stream that is over. Its owner may still call it in this round.
func (p *pool) bury(s *stream) {
	s.next, p.over = p.over, s
	if !p.queued {
		p.queued = true
		p.loop.FlushSoon(p)
	}
}

// Flush makes the streams that ended in this round free for use.
func (p *pool) Flush() {
	p.queued = false
	for s := p.over; s != nil; {
		next := s.next
		*s = stream{over: true}
		if p.nfree < keepStreams {
			p.nfree++
			if p.last == nil {
				p.free = s
			} else {
				p.last.next = s
			}
			p.last = s
		}
		s = next
	}
	p.over = nil
}

// Panicked passes a panic on: Flush calls nobody.
func (p *pool) Panicked(v any, stack []byte) { panic(fmt.Sprintf("%v\n%s", v, stack)) }

// chunk returns an empty chunk.
func (p *pool) chunk() *chunk {
	c := p.chunks
	if c == nil {
		return new(chunk)
	}
	p.chunks = c.next
	p.nchunks--
	c.next, c.r, c.w = nil, 0, 0
	return c
}

func (p *pool) giveChunk(c *chunk) {
	if p.nchunks < keepChunks {
		p.nchunks++
		c.next, p.chunks = p.chunks, c
	}
}

// buffer returns an empty buffer of at least n bytes.
func (p *pool) buffer(n int) []byte {
	list, size := &p.small, smallBuffer
	if n > smallBuffer {
		list, size = &p.big, bigBuffer
	}
	if k := len(*list); k > 0 && n <= size {
		b := (*list)[k-1]
		*list = (*list)[:k-1]
		return b
	}
	return make([]byte, 0, max(n, size))
}

// give takes a buffer back.
func (p *pool) give(b []byte) {
	switch {
	case cap(b) == smallBuffer && len(p.small) < keepSmall:
		p.small = append(p.small, b[:0])
	case cap(b) == bigBuffer && len(p.big) < keepBig:
		p.big = append(p.big, b[:0])
	}
}

// grow returns b with room for n more bytes.
func (p *pool) grow(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b
	}
	bigger := p.buffer(max(len(b)+n, min(2*cap(b), 1<<20)))
	bigger = append(bigger, b...)
	if cap(b) > 0 {
		p.give(b)
	}
	return bigger
}
