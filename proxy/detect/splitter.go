package detect

import (
	"strings"

	"github.com/meshctl/meshctl/proxy/protocol"
)

// For reports whether r is TLS for the server name: a ClientHello that asks for
// it, in any case of letters (RFC 6066, 3). An inbound proxy terminates TLS for its
// own name, and leaves all other TLS to the application.
func (r Result) For(name string) bool {
	return r.Kind == protocol.TLS && name != "" && strings.EqualFold(r.SNI, name)
}

// Offers reports whether r is TLS that offers a protocol by ALPN. Of a list that is
// longer than Result.ALPN has room for it may say no; the handshake itself decides.
func (r Result) Offers(name string) bool {
	for p := range strings.SplitSeq(r.ALPN, ",") {
		if p == name && p != "" {
			return r.Kind == protocol.TLS
		}
	}
	return false
}
