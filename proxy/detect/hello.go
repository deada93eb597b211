package detect

import (
	"net/netip"
	"strings"
)

// maxALPN bounds Result.ALPN, in bytes. Browsers send 11, "h2,http/1.1".
const maxALPN = 128

// Extensions of a ClientHello (RFC 6066, 3; RFC 7301, 3.1).
const (
	extServerName = 0
	extALPN       = 16
	nameTypeHost  = 0
)

// hello is what a ClientHello says to anybody who listens.
type hello struct{ sni, alpn string }

// parseHello reads the body of a ClientHello (RFC 8446, 4.1.2; the extensions
// may be missing as in RFC 5246, 7.4.1.2). With encrypted ClientHello it sees
// the outer one, whose name is the front's.
func parseHello(b []byte) (h hello, ok bool) {
	c := cursor{b}
	c.take(2 + 32) // legacy_version, random
	c.vector8()    // legacy_session_id
	suites := c.vector16()
	c.vector8() // legacy_compression_methods
	if c.failed() || len(suites)%2 != 0 {
		return hello{}, false
	}
	if c.empty() {
		return hello{}, true
	}
	ext := cursor{c.vector16()}
	for !ext.empty() && !ext.failed() {
		if !h.extension(ext.uint16(), ext.vector16()) {
			return hello{}, false
		}
	}
	return h, !ext.failed() && !c.failed() && c.empty()
}

// extension reads one extension; false if it is one we know and malformed. A
// nil body, of a hello that is cut short, is left to the caller to notice.
func (h *hello) extension(kind int, body []byte) bool {
	switch {
	case body == nil:
		return true
	case kind == extServerName:
		return h.serverName(body)
	case kind == extALPN:
		return h.protocols(body)
	default:
		return true
	}
}

func (h *hello) serverName(body []byte) bool {
	c := cursor{body}
	names := cursor{c.vector16()}
	if c.failed() || !c.empty() || names.empty() {
		return false
	}
	for !names.empty() && !names.failed() {
		kind, name := names.uint8(), names.vector16()
		if kind == nameTypeHost && h.sni == "" && dnsName(name) {
			h.sni = string(name)
		}
	}
	return !names.failed()
}

func (h *hello) protocols(body []byte) bool {
	c := cursor{body}
	list := cursor{c.vector16()}
	if c.failed() || !c.empty() || list.empty() {
		return false
	}
	var joined []byte
	for !list.empty() {
		name := list.vector8()
		if len(name) == 0 {
			return false // empty, or longer than the list
		}
		joined = appendProtocol(joined, name)
	}
	h.alpn = string(joined)
	return true
}

// appendProtocol adds name to a comma-joined list unless it is too much or not
// printable, as the names of GREASE (RFC 8701) are not.
func appendProtocol(list, name []byte) []byte {
	for _, c := range name {
		if !visible(c) || c > 0x7f || c == ',' {
			return list
		}
	}
	if len(list)+1+len(name) > maxALPN {
		return list
	}
	if len(list) > 0 {
		list = append(list, ',')
	}
	return append(list, name...)
}

// dnsName reports whether b is a host name as RFC 6066, 3 wants it: ASCII, no
// trailing dot, no address. Underscores go, since people have them in names.
func dnsName(b []byte) bool {
	if len(b) == 0 || len(b) > 253 {
		return false
	}
	label := 0
	for i, c := range b {
		switch {
		case c == '.' && (label == 0 || i == len(b)-1):
			return false
		case c == '.':
			label = 0
		case !nameChars.has(c) || label == 63:
			return false
		default:
			label++
		}
	}
	return !isAddress(string(b))
}

var nameChars = setOf(alphanumeric + "-_")

func isAddress(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if strings.Trim(last, "0123456789") != "" {
		return false // no address ends in a letter, and the names that do are nearly all
	}
	_, err := netip.ParseAddr(name)
	return err == nil
}
