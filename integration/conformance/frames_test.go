package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// framed is one end of an HTTP/2 connection, written frame by frame.
type framed struct {
	*http2.Framer
	conn net.Conn
	mu   sync.Mutex // of writing, and of the encoder's table
	enc  *hpack.Encoder
	buf  bytes.Buffer
}

func newFramed(c net.Conn) *framed {
	f := &framed{Framer: http2.NewFramer(c, c), conn: c}
	f.enc = hpack.NewEncoder(&f.buf)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	return f
}

// clientEnd connects to a proxy or a server and sends the preface.
func clientEnd(t testing.TB, c net.Conn) *framed {
	t.Helper()
	c.SetDeadline(time.Now().Add(3 * patience))
	send(t, c, http2.ClientPreface)
	c.SetDeadline(time.Now().Add(3 * patience))
	f := newFramed(c)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return f
}

// serverEnd takes the preface and answers with settings.
func serverEnd(c net.Conn) (*framed, error) {
	c.SetDeadline(time.Now().Add(3 * patience))
	b := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != http2.ClientPreface {
		return nil, fmt.Errorf("the preface is %q, %v", b, err)
	}
	f := newFramed(c)
	return f, f.WriteSettings()
}

// headers writes a header block of name, value pairs.
func (f *framed) headers(stream uint32, end bool, pairs ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.buf.Reset()
	for i := 0; i < len(pairs); i += 2 {
		f.enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: f.buf.Bytes(), EndStream: end, EndHeaders: true})
}

// data writes a DATA frame.
func (f *framed) data(stream uint32, end bool, b string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.WriteData(stream, end, []byte(b))
}

// request writes the head of a request.
func (f *framed) request(stream uint32, end bool, path string, more ...string) error {
	return f.headers(stream, end, append([]string{":method", "POST", ":scheme", "http", ":authority", "till.example", ":path", path}, more...)...)
}

// reply writes what a server answers on one stream.
type reply func(f *framed, stream uint32) error

// answering serves HTTP/2 connections: each request gets the reply of its path as
// soon as its head is in.
func answering(t testing.TB, replies map[string]reply) *origin {
	t.Helper()
	o := listen(t)
	o.serve(t, func(c *net.TCPConn) {
		f, err := serverEnd(c)
		for err == nil {
			err = f.serveFrame(replies)
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !isReset(err) {
			t.Errorf("the server's end: %v", err)
		}
	})
	return o
}

func (f *framed) serveFrame(replies map[string]reply) error {
	frame, err := f.ReadFrame()
	if err != nil {
		return err
	}
	switch fr := frame.(type) {
	case *http2.SettingsFrame:
		if !fr.IsAck() {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.WriteSettingsAck()
		}
	case *http2.MetaHeadersFrame:
		if r := replies[fr.PseudoValue("path")]; r != nil {
			return r(f, fr.StreamID)
		}
		return f.headers(fr.StreamID, true, ":status", "404")
	}
	return nil
}

// outcome is what a client sees of one stream.
type outcome struct {
	Fields map[string]string // of all header blocks
	Bytes  int
	Reset  string // code, if it was reset
	Ended  bool
}

// outcomes reads until n streams have ended.
func (f *framed) outcomes(n int) (map[uint32]*outcome, error) {
	all := map[uint32]*outcome{}
	for done := 0; done < n; {
		frame, err := f.ReadFrame()
		if err != nil {
			return all, err
		}
		id := frame.Header().StreamID
		if id == 0 {
			continue
		}
		o := all[id]
		if o == nil {
			o = &outcome{Fields: map[string]string{}}
			all[id] = o
		}
		was := o.Ended || o.Reset != ""
		o.add(frame)
		if !was && (o.Ended || o.Reset != "") {
			done++
		}
	}
	return all, nil
}

func (o *outcome) add(frame http2.Frame) {
	switch fr := frame.(type) {
	case *http2.MetaHeadersFrame:
		for _, field := range fr.Fields {
			o.Fields[field.Name] = field.Value
		}
		o.Ended = o.Ended || fr.StreamEnded()
	case *http2.DataFrame:
		o.Bytes += len(fr.Data())
		o.Ended = o.Ended || fr.StreamEnded()
	case *http2.RSTStreamFrame:
		o.Reset = fr.ErrCode.String()
	}
}
