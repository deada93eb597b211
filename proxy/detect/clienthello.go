package detect

// Sizes of RFC 8446, 4 and 5.1.
const (
	recordHeader    = 5 // content type, version, length
	maxFragment     = 1 << 14
	handshakeHeader = 4 // message type, 24-bit length
	typeClientHello = 1
)

// clientHello reports how far b has come towards a whole ClientHello, and what
// stands in it once it is whole.
func clientHello(b []byte) (progress, hello) {
	size, p := helloSize(b)
	if p != whole {
		return p, hello{}
	}
	h, ok := parseHello(assemble(b, size)[handshakeHeader:])
	if !ok {
		return never, hello{}
	}
	return whole, h
}

// helloSize walks the records at the start of b, each a header and a fragment
// of 1 to 2^14 bytes (a client may cut its message anywhere), and returns the
// size of the handshake message in them, its own header included. It is whole
// when the message is; never as soon as it cannot become a ClientHello that
// ends where a record ends.
func helloSize(b []byte) (size int, p progress) {
	var head [handshakeHeader + 2]byte // and the legacy_version
	for known, got := 0, 0; len(b) > 0; {
		n, p := fragmentSize(b)
		if p != whole {
			return 0, p
		}
		b = b[recordHeader:]
		if known < len(head) {
			known += copy(head[known:], b[:min(n, len(b))])
			if !startsHello(head[:known]) {
				return 0, never
			}
			if known >= handshakeHeader {
				size = handshakeHeader + int(head[2])<<8 + int(head[3])
			}
		}
		got += n
		switch {
		case size > 0 && got > size:
			return 0, never
		case len(b) < n:
			return 0, part
		case got == size:
			return size, whole
		}
		b = b[n:]
	}
	return 0, part
}

// fragmentSize reads a record's header: handshake, SSL 3.0 to TLS 1.3, and the
// number of bytes that follow it.
func fragmentSize(b []byte) (n int, p progress) {
	if b[0] != recordHandshake || len(b) > 1 && b[1] != 3 || len(b) > 2 && b[2] > 4 {
		return 0, never
	}
	if len(b) < recordHeader {
		return 0, part
	}
	n = int(b[3])<<8 | int(b[4])
	if n == 0 || n > maxFragment {
		return 0, never
	}
	return n, whole
}

// startsHello reports whether head, the first six bytes of a handshake message
// or fewer, can start a ClientHello: a message under 64 KiB whose
// legacy_version is 0x0303, as in TLS 1.2 and 1.3 (RFC 8446, 4.1.2).
func startsHello(head []byte) bool {
	for i, c := range head {
		switch {
		case i == 0 && c != typeClientHello, i == 1 && c != 0, i >= handshakeHeader && c != 3:
			return false
		}
	}
	return true
}

// assemble returns the first size bytes of handshake message in b, whose
// records are known to hold them. It copies only if they are more than one.
func assemble(b []byte, size int) []byte {
	if n, _ := fragmentSize(b); n == size {
		return b[recordHeader : recordHeader+n]
	}
	message := make([]byte, 0, size)
	for len(message) < size {
		n, _ := fragmentSize(b)
		message = append(message, b[recordHeader:recordHeader+n]...)
		b = b[recordHeader+n:]
	}
	return message
}
