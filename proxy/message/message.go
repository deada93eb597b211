// Package message holds one HTTP message head and the contract between the
// ends of an exchange, the same for every version of HTTP: what an HTTP/1 or
// HTTP/2 connection hands to the middle, and what the middle hands back.
//
// It parses and serializes nothing and owns no socket.
package message

import "strings"

// Version is the version a message came in, or is to go out in. The zero value
// means "not said".
type Version uint8

// The versions.
const (
	HTTP10 Version = iota + 1
	HTTP11
	HTTP2
)

// Field is one header or trailer field as it was received: the name in its own
// case for HTTP/1, in lower case for HTTP/2. Both lie in their Head's buffer.
type Field struct {
	Name, Value []byte
	Secret      bool // came as never indexed and leaves so (RFC 7541, 7.1.3); HTTP/2 only
}

// Unknown is the Length of a body whose end is told by chunks, END_STREAM or
// the end of the connection.
const Unknown = -1

// Head is the head of a request or a response, or a block of trailers. Its
// slices lie in one buffer that belongs to it and are valid until Reset. A Head
// is reused; keep a Clone to keep one.
type Head struct {
	Version Version

	// Of a request.
	Method    []byte // as received: methods are case-sensitive (RFC 9110, 9.1)
	Scheme    []byte // :scheme, or that of an absolute-form target; empty in HTTP/1 origin-form
	Authority []byte // :authority or an absolute or authority form; else the Host field's value
	Path      []byte // with query, as received; "*" for OPTIONS *; empty for CONNECT
	Absolute  bool   // the HTTP/1 target was in absolute-form

	// Of a response.
	Status int    // 100 to 599
	Phrase []byte // reason phrase of HTTP/1, passed on to HTTP/1 only

	// Fields, in order of arrival, without pseudo-headers, Host, and the framing
	// fields Content-Length and Transfer-Encoding, which Length stands for, and
	// without hop-by-hop fields (RFC 9110, 7.6.1): Connection and what it names,
	// Keep-Alive, Proxy-Connection, Upgrade, TE (but "trailers" is kept as the
	// field te: trailers).
	Fields []Field
	Length int64 // of the body in bytes; Unknown; 0 with end set: no body

	// Upgrade is the protocol of a request or 101 that asks to leave HTTP (RFC
	// 9110, 7.8), empty otherwise. h2c is never among them (RFC 9113, 3.1).
	Upgrade []byte
	Expect  bool // Expect: 100-continue was sent (the field itself is in Fields)

	buf []byte
}

// Reset empties h and keeps its memory.
func (h *Head) Reset() {
	*h = Head{Fields: h.Fields[:0], buf: h.buf[:0]}
}

// Hold copies b into h's buffer and returns the copy, valid until Reset.
// Growing the buffer leaves earlier copies valid where they were.
func (h *Head) Hold(b []byte) []byte {
	if cap(h.buf)-len(h.buf) < len(b) {
		h.buf = make([]byte, 0, max(2*cap(h.buf), len(b), 1024))
	}
	n := len(h.buf)
	h.buf = append(h.buf, b...)
	return h.buf[n:len(h.buf):len(h.buf)]
}

// HoldString is Hold for a string.
func (h *Head) HoldString(s string) []byte {
	if cap(h.buf)-len(h.buf) < len(s) {
		h.buf = make([]byte, 0, max(2*cap(h.buf), len(s), 1024))
	}
	n := len(h.buf)
	h.buf = append(h.buf, s...)
	return h.buf[n:len(h.buf):len(h.buf)]
}

// Add appends a field, copying both parts.
func (h *Head) Add(name, value string) {
	h.Fields = append(h.Fields, Field{Name: h.HoldString(name), Value: h.HoldString(value)})
}

// Get returns the value of the first field of that name (any case), nil if
// there is none.
func (h *Head) Get(name string) []byte {
	for i := range h.Fields {
		if f := &h.Fields[i]; len(f.Name) == len(name) && strings.EqualFold(string(f.Name), name) {
			return f.Value
		}
	}
	return nil
}

// Del removes all fields of that name (any case) and keeps the order of the rest.
func (h *Head) Del(name string) {
	kept := h.Fields[:0]
	for _, f := range h.Fields {
		if len(f.Name) != len(name) || !strings.EqualFold(string(f.Name), name) {
			kept = append(kept, f)
		}
	}
	h.Fields = kept
}

// CopyFrom makes h an independent copy of o.
func (h *Head) CopyFrom(o *Head) {
	fields, buf := h.Fields[:0], h.buf[:0]
	*h = *o
	h.Fields, h.buf = fields, buf
	for _, p := range []*[]byte{&h.Method, &h.Scheme, &h.Authority, &h.Path, &h.Phrase, &h.Upgrade} {
		if *p != nil {
			*p = h.Hold(*p)
		}
	}
	for _, f := range o.Fields {
		h.Fields = append(h.Fields, Field{Name: h.Hold(f.Name), Value: h.Hold(f.Value), Secret: f.Secret})
	}
}

// Interim reports whether h is a 1xx response, which another one follows (101
// is final: it ends HTTP).
func (h *Head) Interim() bool { return h.Status >= 100 && h.Status < 200 && h.Status != 101 }
