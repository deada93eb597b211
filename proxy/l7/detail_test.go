package l7

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const traceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// told keeps what Responses tell.
type told struct{ details []string }

func (t *told) Request(Request) {}

func (t *told) Response(r Response) {
	if r.Detail == nil {
		t.details = append(t.details, "none")
		return
	}
	t.details = append(t.details, string(r.Detail.Path)+" "+string(r.Detail.TraceParent))
}

func (t *told) is(tt *testing.T, want ...string) {
	tt.Helper()
	if strings.Join(t.details, "|") != strings.Join(want, "|") {
		tt.Errorf("told %q, want %q", t.details, want)
	}
}

func TestHTTP1ResponsesTellOfTheirRequestsIfAsked(t *testing.T) {
	long := "/" + strings.Repeat("x", 1000)
	talk := "GET /a?b=%20 HTTP/1.1\r\nHost: x\r\nTraceParent:  " + traceParent + " \r\nGrpc-Statu: 1\r\n\r\n" +
		"POST http://x/b HTTP/1.0\nContent-Length: 2\n\nhi" + "OPTIONS * HTTP/1.1\r\n\r\n" + "GET " + long + " HTTP/1.1\r\n\r\n"
	want := []string{"/a?b=%20 " + traceParent, "http://x/b ", "* ", long[:maxKeep-len("GET ")] + " "}
	for _, step := range []int{1, 7, len(talk)} {
		rec := &told{}
		h := NewH1(rec)
		h.Tell()
		for b := []byte(talk); len(b) > 0; b = b[min(step, len(b)):] {
			h.Feed(FromClient, bytes.Clone(b[:min(step, len(b))]), 0) // its bytes are somebody else's afterwards
		}
		for range want {
			h.Feed(FromServer, []byte("HTTP/1.1 204 No Content\r\n\r\n"), 0)
		}
		rec.is(t, want...)
	}
	rec := &told{}
	h := NewH1(rec)
	h.Feed(FromClient, []byte("GET / HTTP/1.1\r\n\r\n"), 0)
	h.Feed(FromServer, []byte("HTTP/1.1 204 No Content\r\n\r\n"), 0)
	rec.is(t, "none")
}

// h2Frames writes frames of one end.
type h2Frames struct {
	bytes.Buffer
	framer *http2.Framer
	block  bytes.Buffer
	enc    *hpack.Encoder
}

func newFrames(preface string) *h2Frames {
	f := &h2Frames{}
	f.WriteString(preface)
	f.framer = http2.NewFramer(f, nil)
	f.enc = hpack.NewEncoder(&f.block)
	_ = f.framer.WriteSettings() // into memory
	return f
}

func (f *h2Frames) headers(stream uint32, end bool, fields ...string) {
	f.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = f.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // into memory
	}
	_ = f.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndStream: end, EndHeaders: true, BlockFragment: f.block.Bytes()})
}

func TestHTTP2ResponsesTellOfTheirRequestsIfAsked(t *testing.T) {
	client, server := newFrames(clientPreface), newFrames("")
	for id := uint32(1); id <= 5; id += 2 { // from the third on they are indexed
		client.headers(id, false, ":method", "POST", ":scheme", "http", ":path", "/a", ":authority", "x", "traceparent", traceParent)
		client.headers(id, true, "trailer", "1")
		server.headers(id, true, ":status", "204")
	}
	client.headers(7, true, ":method", "GET", ":scheme", "http", ":path", "/", ":authority", "x")
	server.headers(7, true, ":status", "204")
	rec := &told{}
	h := NewH2(rec)
	h.Tell()
	h.Feed(FromClient, client.Bytes(), 0)
	h.Feed(FromServer, server.Bytes(), 0)
	one := "/a " + traceParent
	rec.is(t, one, one, one, "/ ")

	// A table that is larger than ours: nothing is told, and all is counted.
	client.Reset()
	server.Reset()
	_ = server.framer.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 65536})
	client.enc.SetMaxDynamicTableSizeLimit(65536)
	client.enc.SetMaxDynamicTableSize(65536)
	for id := uint32(9); id <= 11; id += 2 {
		client.headers(id, true, ":method", "GET", ":scheme", "http", ":path", "/b", ":authority", "x")
		server.headers(id, true, ":status", "204")
	}
	rec.details = nil
	h.Feed(FromServer, server.Next(15), 0) // the settings
	h.Feed(FromClient, client.Bytes(), 0)
	h.Feed(FromServer, server.Bytes(), 0)
	rec.is(t, "none", "none")
}
