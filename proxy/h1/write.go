package h1

import (
	"bytes"
	"math/bits"
	"strconv"

	"github.com/meshctl/meshctl/proxy/message"
)

// headWriter serializes a head. lines counts what it meant to write, so that one
// pass over the result shows any CR or LF that came in with a name or a value.
type headWriter struct {
	b     []byte
	start int
	lines int
	bad   bool
}

func (w *headWriter) begin(b []byte) { *w = headWriter{b: b, start: len(b)} }

func (w *headWriter) field(name string, value []byte) {
	w.b = append(w.b, name...)
	w.b = append(w.b, ": "...)
	w.b = append(w.b, value...)
	w.end()
}

func (w *headWriter) end() {
	w.b = append(w.b, '\r', '\n')
	w.lines++
}

// fields writes those that are not for the codec to say. It reports whether te
// was among them, and whether Connection asks for the connection's end.
func (w *headWriter) fields(fields []message.Field) (te, closes bool) {
	for i := range fields {
		f := &fields[i]
		switch k := kindOf(f.Name); k {
		case plain, expect, kindTE, framingTwin:
			te = te || k == kindTE
			w.bad = w.bad || k == framingTwin || !isToken(f.Name)
			w.b = append(w.b, f.Name...)
			w.b = append(w.b, ": "...)
			w.b = append(w.b, f.Value...)
			w.end()
		case connection:
			closes = closes || is(f.Value, "close")
		}
	}
	return te, closes
}

// close ends the head and reports whether it can be read in one way only.
func (w *headWriter) close() bool {
	w.end()
	head := w.b[w.start:]
	return !w.bad && bytes.Count(head, []byte{'\n'}) == w.lines && bytes.Count(head, []byte{'\r'}) == w.lines &&
		bytes.IndexByte(head, 0) < 0
}

// request writes a request's head. version is what it is written in.
func (w *headWriter) request(h *message.Head, o *outgoing, version message.Version) {
	w.bad = !isToken(h.Method) || len(h.Path)+len(h.Authority) == 0 ||
		!all(h.Path, targetChar) || !all(h.Scheme, schemeChar) || !validAuthority(h.Authority, false)
	w.b = append(w.b, h.Method...)
	w.b = append(w.b, ' ')
	switch {
	case string(h.Method) == "CONNECT":
		w.b = append(w.b, h.Authority...)
	case h.Absolute && len(h.Scheme) > 0:
		w.b = append(w.b, h.Scheme...)
		w.b = append(w.b, "://"...)
		w.b = append(w.b, h.Authority...)
		if string(h.Path) != "*" {
			w.b = append(w.b, h.Path...)
		}
	default:
		w.bad = w.bad || len(h.Path) == 0
		w.b = append(w.b, h.Path...)
	}
	if version == message.HTTP10 {
		w.b = append(w.b, " HTTP/1.0"...)
	} else {
		w.b = append(w.b, " HTTP/1.1"...)
	}
	w.end()
	if version != message.HTTP10 {
		w.field("Host", h.Authority)
	}
	te, _ := w.fields(h.Fields)
	w.framing(o)
	switch {
	case len(h.Upgrade) > 0 && version != message.HTTP10:
		w.field("Connection", connectionOf(te))
		w.field("Upgrade", h.Upgrade)
	case te:
		w.field("Connection", []byte("te"))
	}
}

func connectionOf(te bool) []byte {
	if te {
		return []byte("te, Upgrade")
	}
	return []byte("Upgrade")
}

// status writes a status line.
func (w *headWriter) status(h *message.Head) {
	w.bad = h.Status < 100 || h.Status > 599
	w.b = append(w.b, "HTTP/1.1 "...)
	w.b = strconv.AppendInt(w.b, int64(h.Status), 10)
	w.b = append(w.b, ' ')
	if len(h.Phrase) > 0 {
		w.b = append(w.b, h.Phrase...)
	} else {
		w.b = append(w.b, phrase(h.Status)...)
	}
	w.end()
}

// framing writes how the body ends.
func (w *headWriter) framing(o *outgoing) {
	switch {
	case o.coding == byChunks:
		w.b = append(w.b, "Transfer-Encoding: chunked"...)
		w.end()
	case o.said >= 0:
		w.b = append(w.b, "Content-Length: "...)
		w.b = strconv.AppendInt(w.b, o.said, 10)
		w.end()
	}
}

// phrase is for responses that bring none, as those of HTTP/2 (RFC 9110, 15).
func phrase(status int) string {
	switch status {
	case 100:
		return "Continue"
	case 101:
		return "Switching Protocols"
	case 103:
		return "Early Hints"
	case 200:
		return "OK"
	case 201:
		return "Created"
	case 202:
		return "Accepted"
	case 204:
		return "No Content"
	case 206:
		return "Partial Content"
	case 301:
		return "Moved Permanently"
	case 302:
		return "Found"
	case 303:
		return "See Other"
	case 304:
		return "Not Modified"
	case 307:
		return "Temporary Redirect"
	case 308:
		return "Permanent Redirect"
	case 400:
		return "Bad Request"
	case 401:
		return "Unauthorized"
	case 403:
		return "Forbidden"
	case 404:
		return "Not Found"
	case 405:
		return "Method Not Allowed"
	case 408:
		return "Request Timeout"
	case 413:
		return "Content Too Large"
	case 414:
		return "URI Too Long"
	case 429:
		return "Too Many Requests"
	case 431:
		return "Request Header Fields Too Large"
	case 500:
		return "Internal Server Error"
	case 501:
		return "Not Implemented"
	case 502:
		return "Bad Gateway"
	case 503:
		return "Service Unavailable"
	case 504:
		return "Gateway Timeout"
	case 505:
		return "HTTP Version Not Supported"
	}
	return ""
}

// appendChunk writes a chunk's size line.
func appendChunk(b []byte, n int) []byte {
	const hex = "0123456789abcdef"
	for i := (bits.Len(uint(n))+3)/4 - 1; i >= 0; i-- {
		b = append(b, hex[n>>(4*i)&15])
	}
	return append(b, '\r', '\n')
}
