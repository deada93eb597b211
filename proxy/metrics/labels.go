package metrics

import (
	"strings"
	"unicode/utf8"
)

// Direction is the side of the proxy a connection comes from, as seen from the
// application. The zero value means "not said".
type Direction uint8

// The directions.
const (
	Inbound  Direction = iota + 1 // from the network to the local application
	Outbound                      // from the local application to the network
)

// String returns the value of the label direction.
func (d Direction) String() string {
	switch d {
	case Inbound:
		return "inbound"
	case Outbound:
		return "outbound"
	default:
		return "unknown"
	}
}

// slot is where numbers kept by direction live; "not said" counts as outbound.
func (d Direction) slot() int {
	if d == Inbound {
		return 0
	}
	return 1
}

// Peer is the end of a proxied connection a number is about. The zero value
// means "not said".
type Peer uint8

// The peers. One proxied connection has both.
const (
	Src Peer = iota + 1 // the connection that was accepted
	Dst                 // the connection that was dialed
)

// String returns the value of the label peer.
func (p Peer) String() string {
	switch p {
	case Src:
		return "src"
	case Dst:
		return "dst"
	default:
		return "unknown"
	}
}

func (p Peer) slot() int {
	if p == Src {
		return 0
	}
	return 1
}

// TLSLabels says what is known of TLS on a connection. Empty fields are left out
// of the exposition. TLS and NoTLSReason are words of the program; the
// identities are names that were verified; SNI is what a client wrote and is
// bounded here (Config.MaxSNI).
type TLSLabels struct {
	TLS         string // true, no_identity, opaque, disabled
	NoTLSReason string // no_tls_from_remote, port_skipped, loopback, not_provided_by_service_discovery ...
	ClientID    string
	ServerID    string
	SNI         string
}

// other is the value a label takes when it, or the family, is over its bound.
const other = "other"

// longest is how many bytes of a label value are kept; a DNS name has at most
// 253 (RFC 1035, 2.3.4).
const longest = 256

// clean returns s as a label value: valid UTF-8 and no longer than longest.
// Quotes, backslashes and line ends stay: the text format escapes them.
func clean(s string) string {
	if len(s) <= longest && utf8.ValidString(s) {
		return s
	}
	if len(s) > longest {
		s = s[:longest]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func (t TLSLabels) clean() TLSLabels {
	return TLSLabels{
		TLS:         clean(t.TLS),
		NoTLSReason: clean(t.NoTLSReason),
		ClientID:    clean(t.ClientID),
		ServerID:    clean(t.ServerID),
		SNI:         clean(t.SNI),
	}
}

// folded is what remains of t when its series is over the cap: only the word
// for TLS, and only if it is one of the known ones.
func (t TLSLabels) folded() TLSLabels {
	switch t.TLS {
	case "", "true", "no_identity", "opaque", "disabled":
		return TLSLabels{TLS: t.TLS}
	}
	return TLSLabels{TLS: other}
}

func (t TLSLabels) appendTo(l labels) labels {
	l = l.known("tls", t.TLS)
	l = l.known("no_tls_reason", t.NoTLSReason)
	l = l.known("client_id", t.ClientID)
	l = l.known("server_id", t.ServerID)
	return l.known("sni", t.SNI)
}
