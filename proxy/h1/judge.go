package h1

import "github.com/meshctl/meshctl/proxy/message"

// kind is what a field name means to a connection.
type kind uint8

const (
	plain kind = iota
	host
	contentLength
	transferEncoding
	framingTwin // content_length: servers that make variables of names mix them up
	connection
	kindUpgrade
	kindTE
	expect
	hop // Keep-Alive, Proxy-Connection, HTTP2-Settings: this connection's, and of no use
)

// kindOf looks at the length first: most names end there.
func kindOf(name []byte) kind {
	switch len(name) {
	case 2:
		return when(is(name, "te"), kindTE)
	case 4:
		return when(is(name, "host"), host)
	case 6:
		return when(is(name, "expect"), expect)
	case 7:
		return when(is(name, "upgrade"), kindUpgrade)
	case 10:
		if is(name, "connection") {
			return connection
		}
		return when(is(name, "keep-alive"), hop)
	case 14:
		switch {
		case is(name, "content-length"):
			return contentLength
		case is(name, "http2-settings"):
			return hop
		}
		return when(is(name, "content_length"), framingTwin)
	case 16:
		return when(is(name, "proxy-connection"), hop)
	case 17:
		if is(name, "transfer-encoding") {
			return transferEncoding
		}
		return when(is(name, "transfer_encoding"), framingTwin)
	}
	return plain
}

func when(yes bool, k kind) kind {
	if yes {
		return k
	}
	return plain
}

// judgeRequest decides where the body ends (RFC 9112, 6.3) and what is left of
// the hop's own fields.
func (p *parser) judgeRequest(h *message.Head) *Refusal {
	connect := string(h.Method) == "CONNECT"
	switch {
	case p.te && p.version == message.HTTP10:
		return bad("Transfer-Encoding in HTTP/1.0")
	case p.te && p.length != message.Unknown:
		return bad("both Transfer-Encoding and Content-Length")
	case p.te && !p.chunked:
		return refuse(501, "Transfer-Encoding other than chunked")
	case connect && (p.te || p.length > 0):
		return bad("CONNECT with a body")
	case p.hosts == 0 && p.version == message.HTTP11:
		return bad("no Host field")
	}
	switch {
	case p.chunked:
		h.Length = message.Unknown
	case p.length > 0:
		h.Length = p.length
	}
	if p.asksUpgrade(h) && !connect {
		h.Upgrade = p.upgrade
	}
	p.hopByHop(h)
	return nil
}

// asksUpgrade reports whether the request's Upgrade is to be passed on. A server
// may ignore the field (RFC 9110, 7.8), so what is doubtful is dropped: h2c,
// which RFC 9113 has taken back, and a body in front of the new protocol, of
// which client, proxy and server may have different views. Container engines'
// raw streams (Upgrade: tcp) do send a body, of a told length.
func (p *parser) asksUpgrade(h *message.Head) bool {
	if !p.wants || p.upgrades != 1 || p.version != message.HTTP11 || p.chunked {
		return false
	}
	if h.Length > 0 && !is(p.upgrade, "tcp") {
		return false
	}
	for list := p.upgrade; len(list) > 0; {
		var e []byte
		if e, list = element(list); is(e, "h2c") {
			return false
		}
	}
	return len(p.upgrade) > 0
}

// judgeResponse says what can be said without knowing the request.
func (p *parser) judgeResponse(h *message.Head) *Refusal {
	switch {
	case p.te && p.version == message.HTTP10:
		return bad("Transfer-Encoding in HTTP/1.0")
	case p.te && p.length != message.Unknown:
		return bad("both Transfer-Encoding and Content-Length")
	case p.te && !p.chunked:
		return bad("Transfer-Encoding other than chunked")
	}
	h.Length = p.length
	if h.Status == 101 && p.wants && p.upgrades == 1 {
		h.Upgrade = p.upgrade
	}
	p.hopByHop(h)
	return nil
}

// hopByHop removes what Connection names and adds the te that may travel on.
func (p *parser) hopByHop(h *message.Head) {
	for _, name := range p.named[:p.nameds] {
		h.Fields = without(h.Fields, name)
	}
	if p.trailers && !p.response {
		h.Add("te", "trailers")
	}
}

func without(fields []message.Field, name []byte) []message.Field {
	kept := fields[:0]
	for _, f := range fields {
		if !same(f.Name, name) {
			kept = append(kept, f)
		}
	}
	return kept
}

func same(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := a[i], b[i]
		if x >= 'A' && x <= 'Z' {
			x |= 0x20
		}
		if y >= 'A' && y <= 'Z' {
			y |= 0x20
		}
		if x != y {
			return false
		}
	}
	return true
}

// keeps reports whether the message's sender will keep the connection (RFC
// 9112, 9.3).
func (p *parser) keeps() bool {
	return !p.close && (p.version == message.HTTP11 || p.keepAlive)
}
