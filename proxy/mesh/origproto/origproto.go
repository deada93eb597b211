// Package origproto carries HTTP/1 over HTTP/2 between two proxies, so that they
// need one connection: the field l5d-orig-proto says what a message was before,
// with linkerd2-proxy's words, and the other proxy makes it that again.
//
//	client          outbound proxy           inbound proxy            server
//	  | HTTP/1.1 ---> | Upgrade --- HTTP/2 --> | Restore --- HTTP/1.1 -> |
//	  | <-- HTTP/1.1  | Unmark <--- HTTP/2 --- | Mark <------ HTTP/1.1   |
//
// Only a proxy may be believed: what anybody else sends has to go through Strip.
// It edits heads, and sends nothing.
package origproto

import (
	"bytes"

	"github.com/meshctl/meshctl/proxy/message"
)

// Field says what a message was before it was carried over HTTP/2:
// "HTTP/1.1" or "HTTP/1.0"; in a request that named its target by an absolute URI
// followed by "; absolute-form".
const Field = "l5d-orig-proto"

// Possible reports whether a request of HTTP/1 can be carried: not one that leaves
// HTTP, by an upgrade or CONNECT, and not one that HTTP/2 has no form for, without
// a host or with "*" for anything but OPTIONS (RFC 9113, 8.3.1). Those need a
// connection of their own.
func Possible(h *message.Head) bool {
	if h.Version != message.HTTP11 && h.Version != message.HTTP10 {
		return false
	}
	if len(h.Upgrade) > 0 || string(h.Method) == "CONNECT" || len(h.Authority) == 0 || len(h.Path) == 0 {
		return false
	}
	return h.Path[0] == '/' || string(h.Path) == "*" && string(h.Method) == "OPTIONS"
}

// Upgrade makes a request of HTTP/1, for which Possible is true, one of HTTP/2. What
// the client itself put into Field goes.
func Upgrade(h *message.Head) {
	Strip(h)
	h.Add(Field, text(h.Version, h.Absolute))
	h.Version, h.Absolute = message.HTTP2, false
	dropConnection(h)
}

// Restore makes a request that another proxy has upgraded what it was, and takes
// Field away. It reports the version that it was in, and whether it was upgraded at
// all; if not, only Field goes. The peer has to be a proxy, see Strip.
func Restore(h *message.Head) (was message.Version, ok bool) {
	value := h.Get(Field)
	Strip(h) // the value lies in the head's buffer, and stays
	was, absolute, ok := parse(value)
	if !ok || h.Version != message.HTTP2 {
		return 0, false
	}
	h.Version, h.Absolute = was, absolute
	if !absolute {
		h.Scheme = nil // as in origin-form
	}
	return was, true
}

// Mark makes the response to a request that was restored one of HTTP/2, and says
// what the server's version was. Interim responses (1xx) have it too.
func Mark(h *message.Head) {
	Strip(h)
	if h.Version != message.HTTP2 {
		h.Add(Field, text(h.Version, false))
	}
	h.Version = message.HTTP2
	dropConnection(h)
}

// Unmark makes the response to a request that was upgraded what the server had
// sent, and takes Field away. One that has no mark, because the other proxy answered
// itself, is HTTP/1.1, as the client asked.
func Unmark(h *message.Head) {
	value := h.Get(Field)
	Strip(h)
	was, _, ok := parse(value)
	if !ok {
		was = message.HTTP11
	}
	h.Version = was
}

// Strip takes Field away, of a request from a client that is no proxy, or a
// response from a server that is none.
func Strip(h *message.Head) { h.Del(Field) }

// dropConnection removes what has no place in HTTP/2 (RFC 9113, 8.2.2). A head that
// was read has none of it; one that was made by hand may.
func dropConnection(h *message.Head) {
	for _, name := range [...]string{"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"} {
		h.Del(name)
	}
}

// text is the value of Field.
func text(v message.Version, absolute bool) string {
	switch {
	case v == message.HTTP10 && absolute:
		return "HTTP/1.0; absolute-form"
	case v == message.HTTP10:
		return "HTTP/1.0"
	case absolute:
		return "HTTP/1.1; absolute-form"
	default:
		return "HTTP/1.1"
	}
}

// parse reads the value of Field.
func parse(value []byte) (v message.Version, absolute, ok bool) {
	version, form, _ := bytes.Cut(value, []byte{';'})
	switch string(bytes.TrimSpace(version)) {
	case "HTTP/1.0":
		v = message.HTTP10
	case "HTTP/1.1":
		v = message.HTTP11
	default:
		return 0, false, false
	}
	return v, string(bytes.TrimSpace(form)) == "absolute-form", true
}
