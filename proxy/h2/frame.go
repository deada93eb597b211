package h2

import "encoding/binary"

// preface is the first that a client says (RFC 9113, 3.4).
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

const (
	frameHead     = 9         // bytes of a frame's header
	ownFrame      = 16 << 10  // largest payload taken: SETTINGS_MAX_FRAME_SIZE unless sent
	defaultWindow = 65535     // of streams and connections unless said (RFC 9113, 6.9.2)
	maxWindow     = 1<<31 - 1 // RFC 9113, 6.9.1
	maxStreamID   = 1<<31 - 1
)

// kind is the type of a frame (RFC 9113, 6).
type kind uint8

const (
	dataFrame kind = iota
	headersFrame
	priorityFrame
	resetFrame
	settingsFrame
	pushFrame
	pingFrame
	goAwayFrame
	windowFrame
	continuationFrame
)

// Flags of frames (RFC 9113, 6). END_STREAM and ACK share a bit.
const (
	flagEnd        = 1
	flagAck        = 1
	flagEndHeaders = 4
	flagPadded     = 8
	flagPriority   = 0x20
)

// Settings (RFC 9113, 6.5.2).
const (
	settingTableSize = 1 + iota
	settingPush
	settingMaxStreams
	settingWindow
	settingFrameSize
	settingHeadSize
)

// header is a frame's header.
type header struct {
	kind  kind
	flags uint8
	id    uint32
	size  int
}

func (h header) end() bool { return h.flags&flagEnd != 0 }

// parseHeader reads a frame's header from at least frameHead bytes. The reserved
// bit of the stream's number is ignored (RFC 9113, 4.1).
func parseHeader(b []byte) header {
	_ = b[frameHead-1]
	return header{
		kind: kind(b[3]), flags: b[4],
		id:   binary.BigEndian.Uint32(b[5:]) & maxStreamID,
		size: int(b[0])<<16 | int(b[1])<<8 | int(b[2]),
	}
}

// putHeader writes a frame's header to the first frameHead bytes of b.
func putHeader(b []byte, h header) {
	_ = b[frameHead-1]
	b[0], b[1], b[2] = byte(h.size>>16), byte(h.size>>8), byte(h.size)
	b[3], b[4] = byte(h.kind), h.flags
	binary.BigEndian.PutUint32(b[5:], h.id)
}

// appendHeader writes a frame's header.
func appendHeader(dst []byte, h header) []byte {
	dst = append(dst, byte(h.size>>16), byte(h.size>>8), byte(h.size), byte(h.kind), h.flags)
	return binary.BigEndian.AppendUint32(dst, h.id)
}

// appendWord writes a frame whose payload is one number: RST_STREAM, WINDOW_UPDATE.
func appendWord(dst []byte, k kind, id, v uint32) []byte {
	return binary.BigEndian.AppendUint32(appendHeader(dst, header{kind: k, id: id, size: 4}), v)
}

// appendSetting writes one setting of a SETTINGS frame.
func appendSetting(dst []byte, id uint16, v uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(dst, id), v)
}
