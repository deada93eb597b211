// Package accesslog writes one line for each HTTP exchange and each TCP
// connection. Whoever has a line appends it to a buffer of its own loop and goes
// on: full buffers are handed to one goroutine that writes them, and when that
// cannot keep up, lines are dropped and counted. No loop ever waits for a disk.
//
// What a client wrote stands in a line only escaped, and no longer than a
// bound: it can neither end a line nor begin a field.
package accesslog

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
)

// Format is how a line is written. The zero value means "not said".
type Format uint8

// The formats.
const (
	Apache Format = iota + 1 // Combined Log Format, and what it has no place for
	JSON                     // an object a line
)

// ParseFormat reads apache or json.
func ParseFormat(s string) (Format, error) {
	switch s {
	case "apache":
		return Apache, nil
	case "json":
		return JSON, nil
	default:
		return 0, fmt.Errorf("%q is no format of access logs: want apache or json", s)
	}
}

// String returns the word that ParseFormat reads.
func (f Format) String() string {
	switch f {
	case Apache:
		return "apache"
	case JSON:
		return "json"
	default:
		return ""
	}
}

const (
	batchSize = 32 << 10 // a buffer is handed over when it is longer than half of it
	batches   = 64       // that wait to be written, at most: 2 MiB
)

// batch is some lines.
type batch struct {
	text  []byte
	lines uint64
}

// Log is an access log. Its Lanes fill it.
type Log struct {
	format  Format
	out     io.Writer
	full    chan batch
	spare   chan []byte
	writing sync.WaitGroup
	written atomic.Uint64
	dropped atomic.Uint64
}

// New makes a Log that writes to out, which it does not close.
func New(f Format, out io.Writer) *Log {
	l := &Log{format: f, out: out, full: make(chan batch, batches), spare: make(chan []byte, batches)}
	l.writing.Go(l.write)
	return l
}

// Close writes what was handed over and ends the Log. No Lane may be used any more.
func (l *Log) Close() {
	close(l.full)
	l.writing.Wait()
}

// Counts is how many lines were written, and how many dropped because out did
// not take them.
func (l *Log) Counts() (written, dropped uint64) { return l.written.Load(), l.dropped.Load() }

// write is the one goroutine that touches out.
func (l *Log) write() {
	for b := range l.full {
		if _, err := l.out.Write(b.text); err != nil {
			l.dropped.Add(b.lines)
		} else {
			l.written.Add(b.lines)
		}
		select {
		case l.spare <- b.text[:0]:
		default:
		}
	}
}

// Lane is one loop's part of a Log; it is not safe for concurrent use.
type Lane struct {
	log   *Log
	batch batch
}

// Lane returns a new part.
func (l *Log) Lane() *Lane { return &Lane{log: l} }

// Flush hands over what there is. It never blocks. The owner calls it soon after
// a line was added.
func (ln *Lane) Flush() {
	if ln.batch.lines == 0 {
		return
	}
	select {
	case ln.log.full <- ln.batch:
		ln.batch = batch{}
		select {
		case ln.batch.text = <-ln.log.spare:
		default:
		}
	default:
		ln.log.dropped.Add(ln.batch.lines)
		ln.batch = batch{text: ln.batch.text[:0]}
	}
}

// added ends a line.
func (ln *Lane) added(text []byte) {
	ln.batch = batch{append(text, '\n'), ln.batch.lines + 1}
	if len(text) > batchSize/2 {
		ln.Flush()
	}
}

// begin returns the buffer that a line is appended to.
func (ln *Lane) begin() []byte {
	if ln.batch.text == nil {
		ln.batch.text = make([]byte, 0, batchSize)
	}
	return ln.batch.text
}
