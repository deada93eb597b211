// Package header holds the transport header: what a proxy writes first on a
// connection to another proxy, right after the TLS handshake, to say where the
// bytes behind it are to go and what they are. The bytes are linkerd2-proxy's.
//
//	"transport.l5d.io/v1\r\n\r\n"   23 bytes
//	length                          4 bytes, big endian
//	Header                          protobuf, length bytes
//
// It reads and writes bytes only: no sockets, no clocks. Nobody answers a header,
// and what follows it belongs to the payload.
package header

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
)

// ALPN is the protocol that a client offers if it will write a header, and that a
// server selects if it wants one.
const ALPN = "transport.l5d.io/v1"

// Preface is how every header begins.
const Preface = ALPN + "\r\n\r\n"

// MaxSize is how long a header may be, in bytes, preface and length included:
// 64 KiB. A reader never needs more room.
const MaxSize = 64 << 10

// start is the size of what stands before the protobuf message.
const start = len(Preface) + 4

// Session is the protocol of the bytes behind a header. The zero value, None,
// says nothing: they are relayed as they are.
type Session uint8

// The sessions.
const (
	None  Session = iota
	HTTP1         // HTTP/1.0 or HTTP/1.1
	HTTP2         // HTTP/2 with prior knowledge; HTTP/1 carried over it too
)

// String returns the word for metrics and logs; "" for None.
func (s Session) String() string {
	switch s {
	case HTTP1:
		return "http/1"
	case HTTP2:
		return "http/2"
	default:
		return ""
	}
}

// Header says where a connection is to go.
type Header struct {
	Port uint16 // of the receiving application, 1 to 65535
	// Name is set for a gateway between clusters only: the DNS name of the target,
	// in ASCII. Most headers have none.
	Name    string
	Session Session
	// Detect asks the receiver to find out for itself what the bytes are, because
	// the sender could not wait: the client was silent. It is meshctl's own field,
	// which linkerd2-proxy skips.
	Detect bool
}

// Numbers of the protobuf fields. fieldDetect is our own, far from theirs.
const (
	fieldPort    = 1 // int32
	fieldName    = 2 // string
	fieldSession = 3 // message with one of the two empty messages below
	fieldDetect  = 14905

	sessionHTTP1 = 1
	sessionHTTP2 = 2
)

// Append appends h, preface and length included. It allocates only if b has no
// room: a header without a name takes at most 39 bytes.
func (h Header) Append(b []byte) []byte {
	b = append(b, Preface...)
	at := len(b)
	b = append(b, 0, 0, 0, 0)
	if h.Port != 0 { // proto3 leaves zeros out
		b = protowire.AppendTag(b, fieldPort, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(h.Port))
	}
	if h.Name != "" {
		b = protowire.AppendTag(b, fieldName, protowire.BytesType)
		b = protowire.AppendString(b, h.Name)
	}
	switch h.Session {
	case HTTP1:
		b = appendSession(b, sessionHTTP1)
	case HTTP2:
		b = appendSession(b, sessionHTTP2)
	}
	if h.Detect {
		b = protowire.AppendTag(b, fieldDetect, protowire.VarintType)
		b = protowire.AppendVarint(b, 1)
	}
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

// appendSession appends the session's message: one field that is an empty message.
func appendSession(b []byte, kind protowire.Number) []byte {
	b = protowire.AppendTag(b, fieldSession, protowire.BytesType)
	b = protowire.AppendVarint(b, 2)
	b = protowire.AppendTag(b, kind, protowire.BytesType)
	return protowire.AppendVarint(b, 0)
}
