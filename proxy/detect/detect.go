// Package detect tells what a connection speaks from its first bytes.
//
// It is pure: no sockets, no clocks, no goroutines. The loop that reads feeds
// Sniff with everything read so far until it no longer asks for more, AtEnd
// when the client has closed its side, and replays all bytes afterwards. A
// verdict does not depend on how the network cut the stream: everything is
// decided in the order of the bytes, as early as possible. One exception is
// meant: a request line with a method nobody registered is HTTP/1 only if it
// is whole at first sight, because waiting for it would hang every text
// protocol whose first line comes in pieces.
//
// Name puts a word on opaque payloads for people; it never decides anything.
// Memory remembers the targets whose server spoke first.
package detect

import "github.com/meshctl/meshctl/proxy/protocol"

// MaxHead is the number of bytes, 64 KiB, after which an undecided connection
// is opaque. Neither Sniff nor AtEnd looks at any byte behind it.
const MaxHead = 64 << 10

// minAtEnd is how many bytes of a request line or of the HTTP/2 preface make
// it believable when no more will follow. It is the length of "PRI * HTTP/2.0".
const minAtEnd = 14

// Result is what a client's first bytes say.
type Result struct {
	Kind   protocol.Kind // Unknown while More
	More   bool          // the bytes are a proper prefix of something known: read on
	SNI    string        // TLS only: the name asked for, "" if none or no valid DNS name
	ALPN   string        // TLS only: comma-joined protocols, at most maxALPN bytes
	Reason Reason        // how it was decided; ReasonUnknown while More
}

// Sniff judges the first bytes of a client when more may come. An empty b asks
// for more. It allocates for TLS only, and never asks for more once b holds
// MaxHead bytes.
func Sniff(b []byte) Result {
	full := len(b) >= MaxHead
	if full {
		b = b[:MaxHead]
	}
	r := sniff(b)
	if r.More && full {
		return Result{Kind: protocol.Opaque, Reason: ReasonTooLong}
	}
	return r
}

// AtEnd judges the bytes of a client that has closed its side: no more will
// come, so it never asks for more. What Sniff leaves open is HTTP if at least
// 14 bytes of a well-formed request line with a known method, or of the HTTP/2
// preface, are there; everything else is opaque.
func AtEnd(b []byte) Result {
	r := Sniff(b)
	switch {
	case !r.More:
		return r
	case len(b) == 0:
		return Result{Kind: protocol.Opaque, Reason: ReasonEOF}
	case len(b) >= minAtEnd && preface(b) == part:
		return Result{Kind: protocol.HTTP2, Reason: ReasonPrefixAtEOF}
	case believable(b):
		return Result{Kind: protocol.HTTP1, Reason: ReasonPrefixAtEOF}
	default:
		return Result{Kind: protocol.Opaque, Reason: ReasonCutAtEOF}
	}
}

// recordHandshake is the first byte of a TLS connection: the content type of
// the record that carries the ClientHello (RFC 8446, 5.1).
const recordHandshake = 22

func sniff(b []byte) Result {
	if len(b) == 0 {
		return Result{More: true}
	}
	if b[0] == recordHandshake {
		return sniffTLS(b)
	}
	if b[0] == clientPreface[0] {
		if p := preface(b); p != never {
			return verdict(p, protocol.HTTP2)
		}
	}
	return verdict(request(b), protocol.HTTP1)
}

func sniffTLS(b []byte) Result {
	p, h := clientHello(b)
	r := verdict(p, protocol.TLS)
	r.SNI, r.ALPN = h.sni, h.alpn
	return r
}

// verdict turns how far a stream has come on its way to kind into a Result.
func verdict(p progress, kind protocol.Kind) Result {
	switch p {
	case whole:
		return Result{Kind: kind, Reason: ReasonBytes}
	case part:
		return Result{More: true}
	default:
		return Result{Kind: protocol.Opaque, Reason: ReasonBytes}
	}
}

// progress is how far bytes have come on the way to something known.
type progress uint8

const (
	never progress = iota // they cannot become it, whatever follows
	part                  // a proper prefix of it
	whole                 // it is there
)

// follow reports how far b has come in spelling s.
func follow(b []byte, s string) progress {
	n := min(len(b), len(s))
	switch {
	case string(b[:n]) != s[:n]:
		return never
	case n < len(s):
		return part
	default:
		return whole
	}
}

// clientPreface starts every HTTP/2 connection with prior knowledge (RFC 9113,
// 3.4).
const clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

func preface(b []byte) progress { return follow(b, clientPreface) }
