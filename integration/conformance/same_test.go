package conformance

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/meshctl/meshctl/integration/built"
)

// Odd exchanges with a real server (Go's) have to come out the same with a proxy
// in between and without: it observes, it does not judge.

var dates = regexp.MustCompile(`(?m)^Date: [^\r\n]*`)

func TestOddHTTP1ComesOutAsWithoutAProxy(t *testing.T) {
	server := shop(t)
	p := built.Start(t, program, server.addr)
	for _, v := range []struct{ name, sent string }{
		{"no Host", "GET / HTTP/1.1\r\n\r\n"},
		{"two Hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"},
		{"a Host with a blank", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"},
		{"HTTP/1.0", "GET /x HTTP/1.0\r\n\r\n"},
		{"HTTP/1.0 that stays", "GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /y HTTP/1.0\r\n\r\n"},
		{"bare line feeds", "GET /x HTTP/1.1\nHost: a\n\n"},
		{"a folded field", "GET /x HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n"},
		{"a blank before the colon", "GET /x HTTP/1.1\r\nHost : a\r\n\r\n"},
		{"a field without a colon", "GET /x HTTP/1.1\r\nHost: a\r\nnonsense\r\n\r\n"},
		{"a NUL in a field", "GET /x HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n"},
		{"an absolute target", "GET http://b/x HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"an asterisk", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"an empty line first", "\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"length and chunks", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
		{"two lengths that differ", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"},
		{"two lengths that do not", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc"},
		{"a length with a sign", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc"},
		{"a coding that is not chunked", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\nabc"},
		{"a chunk size that is none", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n"},
		{"a chunk with an extension", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;a=\"b\"\r\nabc\r\n0\r\nT: 1\r\n\r\n"},
		{"a chunk without its line end", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n"},
		{"a body that breaks off", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\n\r\nabc"},
		{"a head that breaks off", "GET /x HTTP/1.1\r\nHost: a\r\nX-"},
		{"a pipeline of three", "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhiHEAD /3 HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"a pipeline behind a close", "GET /1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"an upgrade to HTTP/2", "GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"},
		{"an upgrade to nothing known", "GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: till/2\r\n\r\n"},
		{"CONNECT", "CONNECT db.example:5432 HTTP/1.1\r\nHost: db.example:5432\r\n\r\n"},
		{"an expectation that nobody has", "PUT /x HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\nContent-Length: 1\r\n\r\nx"},
		{"a field of 20 kB", "GET /x HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 20_000) + "\r\n\r\n"},
		{"two thousand fields", "GET /x HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: y\r\n", 2000) + "\r\n"},
		{"a field of 2 MB", "GET /x HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 2<<20) + "\r\n\r\n"},
		{"a preface of HTTP/2 behind a request", "GET /x HTTP/1.1\r\nHost: a\r\n\r\n" + preface},
		{"a version that does not exist", "GET /x HTTP/1.9\r\nHost: a\r\n\r\n"},
	} {
		t.Run(v.name, func(t *testing.T) {
			// A server that refuses sends its answer and then a RST, which overtakes
			// the answer at times, with and without a proxy.
			diff := ""
			for range 6 {
				want := exchange(t, server.addr, v.sent)
				if want == "" {
					t.Fatal("nothing comes back without a proxy: this looks at nothing")
				}
				if diff = cmp.Diff(want, exchange(t, p.In, v.sent)); diff == "" {
					return
				}
			}
			t.Errorf("(-without +with the proxy)\n%s", diff)
		})
	}
	if n := p.Settled(t).Sum("meshctl_panics_total"); n != 0 {
		t.Errorf("%v panics", n)
	}
}

// exchange sends all of a client's bytes and its FIN, and returns what comes back.
// A server that has refused resets what it has not read (RFC 2525, 2.17), and that
// may take bytes of its answer along: with such an end only the first line counts.
func exchange(t *testing.T, to netip.AddrPort, sent string) string {
	t.Helper()
	c := dial(t, to)
	go func() { // the server may stop reading
		c.SetWriteDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(c, sent); err == nil {
			c.CloseWrite()
		}
	}()
	c.SetReadDeadline(time.Now().Add(patience))
	b, err := io.ReadAll(c)
	got := dates.ReplaceAllString(string(b), "Date: then")
	switch {
	case isReset(err):
		line, _, _ := strings.Cut(got, "\r\n")
		return line + " and a reset"
	case err != nil:
		t.Fatalf("reading the answer: %v", err)
	}
	return got
}

// oddity is what a client does after its preface and settings.
type oddity struct {
	name string
	do   func(f *framed)
}

func raw(kind http2.FrameType, flags http2.Flags, stream uint32, payload string) func(f *framed) {
	return func(f *framed) { f.WriteRawFrame(kind, flags, stream, []byte(payload)) }
}

// ask sends a request and then does more.
func ask(end bool, then ...func(f *framed)) func(f *framed) {
	return func(f *framed) {
		f.request(1, end, "/x")
		for _, do := range then {
			do(f)
		}
	}
}

func oddities() []oddity {
	const (
		data     = http2.FrameData
		headers  = http2.FrameHeaders
		settings = http2.FrameSettings
	)
	field := func(pairs ...string) func(f *framed) {
		return func(f *framed) { f.headers(1, true, pairs...) }
	}
	return []oddity{
		{"a request", ask(true)},
		{"a request with a body", ask(false, raw(data, 0, 1, "abc"), raw(data, 1, 1, ""))},
		{"a padded body", ask(false, raw(data, 0x9, 1, "\x04abc\x00\x00\x00\x00"))},
		{"more padding than frame", ask(false, raw(data, 0x9, 1, "\x09abc"))},
		{"trailers", ask(false, raw(data, 0, 1, "abc"), func(f *framed) { f.headers(1, true, "check", "1") })},
		{"trailers that do not end the stream", ask(false, raw(data, 0, 1, "abc"), func(f *framed) { f.headers(1, false, "check", "1") })},
		{"a frame of an unknown kind", func(f *framed) { raw(0xee, 0xff, 0, "what")(f); ask(true)(f) }},
		{"a ping", func(f *framed) { f.WritePing(false, [8]byte{1, 2, 3}); ask(true)(f) }},
		{"a ping of seven bytes", raw(http2.FramePing, 0, 0, "1234567")},
		{"a ping on a stream", raw(http2.FramePing, 0, 1, "12345678")},
		{"an unknown setting", func(f *framed) { raw(settings, 0, 0, "\x99\x99\x00\x00\x00\x01")(f); ask(true)(f) }},
		{"an acknowledgement with a payload", raw(settings, 1, 0, "\x00\x03\x00\x00\x00\x01")},
		{"settings of five bytes", raw(settings, 0, 0, "12345")},
		{"settings on a stream", raw(settings, 0, 1, "")},
		{"push neither on nor off", raw(settings, 0, 0, "\x00\x02\x00\x00\x00\x02")},
		{"a window that is too large", raw(settings, 0, 0, "\x00\x04\x80\x00\x00\x00")},
		{"a frame size that is too small", raw(settings, 0, 0, "\x00\x05\x00\x00\x01\x00")},
		{"a window update of nothing", raw(http2.FrameWindowUpdate, 0, 0, "\x00\x00\x00\x00")},
		{"a window update of nothing on a stream", ask(false, raw(http2.FrameWindowUpdate, 0, 1, "\x00\x00\x00\x00"))},
		{"a window that overflows", func(f *framed) { f.WriteWindowUpdate(0, 1<<31-1); f.WriteWindowUpdate(0, 1<<31-1) }},
		{"data on an idle stream", raw(data, 1, 5, "abc")},
		{"data on no stream", raw(data, 1, 0, "abc")},
		{"data after the end", ask(true, raw(data, 1, 1, "abc"))},
		{"a reset of an idle stream", raw(http2.FrameRSTStream, 0, 7, "\x00\x00\x00\x08")},
		{"a reset of no stream", raw(http2.FrameRSTStream, 0, 0, "\x00\x00\x00\x08")},
		{"a stream with an even number", func(f *framed) { f.request(2, true, "/x") }},
		{"a stream with a lower number", func(f *framed) { f.request(5, true, "/x"); f.request(3, true, "/x") }},
		{"a continuation of nothing", raw(http2.FrameContinuation, 4, 1, "\x82")},
		{"a head in three frames", func(f *framed) {
			raw(headers, 1, 1, "\x83\x86")(f)
			raw(http2.FrameContinuation, 0, 1, "\x41\x04till")(f)
			raw(http2.FrameContinuation, 4, 1, "\x84")(f)
		}},
		{"a head with a ping in it", func(f *framed) {
			raw(headers, 1, 1, "\x83\x86")(f)
			f.WritePing(false, [8]byte{})
		}},
		{"a head of an index that is not there", raw(headers, 5, 1, "\x83\x86\x84\xff\xff\xff\x0f")},
		{"a head of index zero", raw(headers, 5, 1, "\x80")},
		{"a head that breaks off in a string", raw(headers, 5, 1, "\x83\x86\x84\x41\x09till")},
		{"a table size update late in a head", raw(headers, 5, 1, "\x83\x86\x84\x20")},
		{"a table size that is too large", raw(headers, 5, 1, "\x3f\xff\xff\x7f\x83\x86\x84")},
		{"a name in capitals", field(":method", "GET", ":scheme", "http", ":path", "/x", "X-Big", "1")},
		{"no path", field(":method", "GET", ":scheme", "http")},
		{"an empty path", field(":method", "GET", ":scheme", "http", ":path", "")},
		{"two methods", field(":method", "GET", ":method", "PUT", ":scheme", "http", ":path", "/x")},
		{"a pseudo field that nobody knows", field(":method", "GET", ":scheme", "http", ":path", "/x", ":till", "1")},
		{"a pseudo field behind others", field(":method", "GET", ":scheme", "http", "a", "b", ":path", "/x")},
		{"a connection field", field(":method", "GET", ":scheme", "http", ":path", "/x", "connection", "keep-alive")},
		{"te: gzip", field(":method", "GET", ":scheme", "http", ":path", "/x", "te", "gzip")},
		{"a status in a request", field(":method", "GET", ":scheme", "http", ":path", "/x", ":status", "200")},
		{"less body than said", func(f *framed) {
			f.request(1, false, "/x", "content-length", "9")
			raw(data, 1, 1, "abc")(f)
		}},
		{"more body than said", func(f *framed) {
			f.request(1, false, "/x", "content-length", "1")
			raw(data, 1, 1, "abc")(f)
		}},
		{"a promise of a client", raw(http2.FramePushPromise, 4, 1, "\x00\x00\x00\x02\x82")},
		{"a priority of itself", raw(http2.FramePriority, 0, 3, "\x00\x00\x00\x03\x10")},
		{"a priority of four bytes", raw(http2.FramePriority, 0, 3, "1234")},
		{"a head that depends on itself", raw(headers, 0x25, 1, "\x00\x00\x00\x01\x10\x83\x86\x84")},
		{"a frame that is too large", func(f *framed) { f.request(1, false, "/x"); raw(data, 1, 1, strings.Repeat("x", 16385))(f) }},
		{"a goodbye and then a request", func(f *framed) { f.WriteGoAway(0, http2.ErrCodeNo, nil); ask(true)(f) }},
		{"extended CONNECT", field(":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":path", "/x", ":authority", "till")},
	}
}

func TestOddHTTP2ComesOutAsWithoutAProxy(t *testing.T) {
	server := shop(t)
	p := built.Start(t, program, server.addr)
	var answered atomic.Int64
	t.Cleanup(func() { // after the parallel ones
		if n := answered.Load(); n < 45 {
			t.Errorf("the server says something in %d cases only", n)
		}
	})
	for _, v := range oddities() {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			// A server that answers one stream while it refuses another does so in
			// either order, with and without a proxy.
			diff := ""
			for range 6 {
				want, got := v.seen(t, server.addr), v.seen(t, p.In)
				if diff = cmp.Diff(want, got); diff == "" {
					answered.Add(int64(min(1, len(want))))
					return
				}
			}
			t.Errorf("(-without +with the proxy)\n%s", diff)
		})
	}
}

// seen does the odd thing and returns what the server sends until nothing has come
// for a while, sorted, since streams are independent.
func (v oddity) seen(t *testing.T, to netip.AddrPort) []string {
	t.Helper()
	c := dial(t, to)
	c.SetDeadline(time.Now().Add(patience))
	// All in one write: how frames are cut into segments is not what is compared.
	out := bufio.NewWriterSize(c, 64<<10)
	f := newFramed(c)
	f.Framer = http2.NewFramer(out, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	io.WriteString(out, http2.ClientPreface)
	f.WriteSettings()
	v.do(f)
	out.Flush() // an error: the server has closed already
	var got []string
	for {
		c.SetReadDeadline(time.Now().Add(150 * time.Millisecond))
		frame, err := f.ReadFrame()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			slices.Sort(got)
			return got
		}
		if line := tell(t, frame, err); line != "" {
			got = append(got, line)
		}
		if err != nil {
			slices.Sort(got)
			return got
		}
	}
}

// tell puts what was read into words; "" for what depends on timing.
func tell(t *testing.T, frame http2.Frame, err error) string {
	t.Helper()
	switch {
	case errors.Is(err, io.EOF), isReset(err):
		return "the connection ends"
	case err != nil:
		t.Fatalf("reading frames: %v", err)
	}
	id := frame.Header().StreamID
	switch fr := frame.(type) {
	case *http2.MetaHeadersFrame:
		var fields []string
		for _, field := range fr.Fields {
			if field.Name != "date" {
				fields = append(fields, field.Name+": "+field.Value)
			}
		}
		return fmt.Sprintf("stream %d: head %q, end %v", id, fields, fr.StreamEnded())
	case *http2.DataFrame:
		return fmt.Sprintf("stream %d: data %q, end %v", id, fr.Data(), fr.StreamEnded())
	case *http2.RSTStreamFrame:
		return fmt.Sprintf("stream %d: reset, %v", id, fr.ErrCode)
	case *http2.GoAwayFrame:
		return fmt.Sprintf("goaway: %v, last stream %d, %q", fr.ErrCode, fr.LastStreamID, fr.DebugData())
	case *http2.PingFrame:
		return fmt.Sprintf("ping, answer %v: %x", fr.IsAck(), fr.Data)
	default:
		return "" // settings, window updates
	}
}
