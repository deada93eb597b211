package header

import (
	"encoding/binary"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrPreface is Parse's answer to bytes that are no header at all.
var ErrPreface = errors.New("the connection did not include a transport header")

var (
	errName    = errors.New("reading a transport header: the name is no DNS name")
	errMessage = errors.New("reading a transport header: malformed protobuf message")
)

// Parse reads the header at the start of b. n is how many bytes it takes; what
// follows belongs to the payload. With n == 0 and no error b is the start of a
// header and more bytes are needed. An error is final and comes as early as the
// bytes allow: ErrPreface at the first byte that differs; a length above MaxSize;
// a malformed message; a port outside 1 to 65535. Fields that are not known are
// skipped, and a session of an unknown kind is None.
//
// Nothing of b is kept. It allocates for a name only.
func Parse(b []byte) (h Header, n int, err error) {
	if known := min(len(b), len(Preface)); string(b[:known]) != Preface[:known] {
		return Header{}, 0, ErrPreface
	}
	if len(b) < start {
		return Header{}, 0, nil
	}
	size := binary.BigEndian.Uint32(b[len(Preface):])
	if size > uint32(MaxSize-start) {
		return Header{}, 0, fmt.Errorf("reading a transport header: %d bytes, more than %d", size, MaxSize-start)
	}
	n = start + int(size)
	if len(b) < n {
		return Header{}, 0, nil
	}
	if h, err = message(b[start:n]); err != nil {
		return Header{}, 0, err
	}
	return h, n, nil
}

// message reads the protobuf message. Of a field that comes twice the last counts.
func message(b []byte) (h Header, err error) {
	var port int32
	var name []byte
	for len(b) > 0 {
		f, ok := nextField(&b)
		if !ok {
			return Header{}, errMessage
		}
		switch f.number {
		case fieldPort:
			port, ok = int32(f.varint), f.kind == protowire.VarintType // int32 is cut from 64 bits
		case fieldName:
			name, ok = f.bytes, f.kind == protowire.BytesType
		case fieldSession:
			ok = f.kind == protowire.BytesType && h.Session.read(f.bytes)
		case fieldDetect:
			h.Detect, ok = f.varint != 0, f.kind == protowire.VarintType
		}
		if !ok {
			return Header{}, errMessage
		}
	}
	if port < 1 || port > 65535 {
		return Header{}, fmt.Errorf("reading a transport header: port %d is outside 1 to 65535", port)
	}
	if !dnsName(name) {
		return Header{}, errName
	}
	h.Port, h.Name = uint16(port), string(name)
	return h, nil
}

// read reads a session's message; several of them are merged.
func (s *Session) read(b []byte) bool {
	for len(b) > 0 {
		f, ok := nextField(&b)
		if !ok {
			return false
		}
		kind := None
		switch f.number {
		case sessionHTTP1:
			kind = HTTP1
		case sessionHTTP2:
			kind = HTTP2
		default:
			continue
		}
		if f.kind != protowire.BytesType || !empty(f.bytes) {
			return false
		}
		*s = kind
	}
	return true
}

// empty reports whether b is a message that may have fields we do not know.
func empty(b []byte) bool {
	for len(b) > 0 {
		if _, ok := nextField(&b); !ok {
			return false
		}
	}
	return true
}

// field is one field of a message.
type field struct {
	number protowire.Number
	kind   protowire.Type
	varint uint64 // of a VarintType
	bytes  []byte // of a BytesType
}

// nextField takes the first field off b.
func nextField(b *[]byte) (f field, ok bool) {
	number, kind, n := protowire.ConsumeTag(*b)
	if n < 0 {
		return field{}, false
	}
	f = field{number: number, kind: kind}
	rest := (*b)[n:]
	switch kind {
	case protowire.VarintType:
		f.varint, n = protowire.ConsumeVarint(rest)
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(rest)
	default:
		n = protowire.ConsumeFieldValue(number, kind, rest)
	}
	if n < 0 {
		return field{}, false
	}
	*b = rest[n:]
	return f, true
}

// dnsName reports whether b may be a DNS name, or is none. A name goes into logs
// and labels, so nothing else passes.
func dnsName(b []byte) bool {
	if len(b) > 253 {
		return false
	}
	for _, c := range b {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}
