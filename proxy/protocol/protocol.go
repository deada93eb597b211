// Package protocol names what a connection speaks, as far as the proxy has to
// tell protocols apart. It is not the place for finding that out: see detect.
package protocol

// Kind is the protocol of a connection. The zero value, Unknown, means "not
// said": nobody declared it and no byte was read yet.
type Kind uint8

// The kinds of connection.
const (
	Unknown Kind = iota // not said
	Opaque              // copied as TCP, never parsed
	TLS                 // a TLS ClientHello was seen; copied as TCP
	HTTP1               // HTTP/1.0 or HTTP/1.1
	HTTP2               // HTTP/2 with prior knowledge (RFC 9113, 3.3)
)

// String returns the word used in metrics, logs and /connections.
func (k Kind) String() string {
	switch k {
	case Opaque:
		return "opaque"
	case TLS:
		return "tls"
	case HTTP1:
		return "http/1"
	case HTTP2:
		return "http/2"
	default:
		return "unknown"
	}
}

// HTTP reports whether requests can be counted on a connection of kind k.
func (k Kind) HTTP() bool { return k == HTTP1 || k == HTTP2 }
