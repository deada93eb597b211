package h2

import (
	"bytes"

	"github.com/meshctl/meshctl/proxy/hpack"
	"github.com/meshctl/meshctl/proxy/message"
)

// blockKind is what a header block is.
type blockKind uint8

const (
	requestBlock blockKind = iota
	responseBlock
	trailersBlock
)

// finding is what decoding a block says of it.
type finding uint8

const (
	wellFormed  finding = iota
	malformed           // RFC 9113, 8.1.1: a stream error
	oversized           // larger than MaxHead
	undecodable         // RFC 9113, 4.3: a connection error
)

// reading is the state of a header block being read.
type reading struct {
	what    blockKind
	seen    uint8 // pseudo-headers, by the bits below
	regular bool  // a field was seen: no more pseudo-headers (RFC 9113, 8.3)
	sized   bool  // content-length was seen
	hosted  bool  // host was seen
	bad     bool
	cookies int
	host    []byte
}

const (
	seenMethod = 1 << iota
	seenScheme
	seenPath
	seenAuthority
	seenStatus
)

// decode reads a block into h, checking it (RFC 9113, 8.2 and 8.3). A block that
// is too large or malformed is read to its end, but not kept.
func (l *link) decode(h *message.Head, block []byte, what blockKind) finding {
	h.Reset()
	h.Version, h.Length = message.HTTP2, message.Unknown
	r := reading{what: what}
	size, large := 0, false
	l.dec.Begin(l.pool.scratch)
	var f hpack.Field
	for {
		rest, found, err := l.dec.Next(block, &f)
		if err != nil {
			return undecodable
		}
		if !found {
			break
		}
		block = rest
		size += f.Size
		if large = large || size > l.cfg.MaxHead || f.Long; !large && !r.bad {
			r.field(h, &f)
		}
	}
	switch {
	case large:
		return oversized
	case r.bad || !r.complete(h):
		return malformed
	}
	if r.cookies > 1 {
		l.joinCookies(h)
	}
	return wellFormed
}

// field takes one field.
func (r *reading) field(h *message.Head, f *hpack.Field) {
	if f.BadName || f.BadValue {
		r.bad = true
		return
	}
	f.Value = trimmed(f.Value)
	switch f.ID {
	case hpack.Method:
		h.Method = r.pseudo(h, f, seenMethod, requestBlock)
	case hpack.Scheme:
		h.Scheme = r.pseudo(h, f, seenScheme, requestBlock)
	case hpack.Path:
		h.Path = r.pseudo(h, f, seenPath, requestBlock)
	case hpack.Authority:
		h.Authority = r.pseudo(h, f, seenAuthority, requestBlock)
	case hpack.Status:
		h.Status = status(r.pseudo(h, f, seenStatus, responseBlock))
	case hpack.Pseudo:
		r.bad = true
	case hpack.Connection, hpack.KeepAlive, hpack.ProxyConnection, hpack.Upgrade, hpack.TransferEncoding:
		r.bad = true // RFC 9113, 8.2.2
	default:
		r.regular = true
		r.plain(h, f)
	}
}

// pseudo takes a pseudo-header, which comes once, before all fields, and in one
// kind of block.
func (r *reading) pseudo(h *message.Head, f *hpack.Field, bit uint8, in blockKind) []byte {
	r.bad = r.bad || r.what != in || r.regular || r.seen&bit != 0
	r.seen |= bit
	return h.Hold(f.Value)
}

// plain takes a field that is none of HTTP/2's own.
func (r *reading) plain(h *message.Head, f *hpack.Field) {
	switch f.ID {
	case hpack.TE:
		r.bad = r.bad || !bytes.EqualFold(f.Value, trailers)
	case hpack.ContentLength:
		n, ok := length(f.Value)
		r.bad = r.bad || !ok || r.sized || r.what == trailersBlock
		h.Length, r.sized = n, true
		return
	case hpack.Host:
		if r.what == requestBlock {
			r.bad = r.bad || r.hosted
			r.host, r.hosted = h.Hold(f.Value), true
			return
		}
		r.bad = r.bad || r.what == trailersBlock
	case hpack.Cookie:
		r.cookies++
	case hpack.Expect:
		h.Expect = bytes.EqualFold(f.Value, expectation)
	}
	name := hpack.Text(f.ID)
	if name == nil {
		name = h.Hold(f.Name)
	}
	h.Fields = append(h.Fields, message.Field{Name: name, Value: h.Hold(f.Value), Secret: f.Secret})
}

var (
	trailers    = []byte("trailers")
	expectation = []byte("100-continue")
)

// joinCookies makes one field of several (RFC 9113, 8.2.3), since they may go on
// in HTTP/1.
func (l *link) joinCookies(h *message.Head) {
	joined, first, kept := l.pool.joined[:0], -1, h.Fields[:0]
	for _, f := range h.Fields {
		if string(f.Name) != "cookie" {
			kept = append(kept, f)
			continue
		}
		if first < 0 {
			first, kept = len(kept), append(kept, f)
		} else {
			joined = append(joined, "; "...)
			kept[first].Secret = kept[first].Secret || f.Secret
		}
		joined = append(joined, f.Value...)
	}
	kept[first].Value = h.Hold(joined)
	h.Fields, l.pool.joined = kept, joined
}
