package h2

import "encoding/binary"

// takeSettings applies the peer's SETTINGS and acknowledges them (RFC 9113, 6.5).
func (l *link) takeSettings(h header, p []byte) {
	switch {
	case h.flags&flagAck != 0 && len(p) != 0, len(p)%6 != 0:
		l.fail(frameSizeError, "SETTINGS of a wrong size")
		return
	case h.flags&flagAck != 0:
		l.bother(costFrame)
		return
	case l.settled && !l.bother(costSettings):
		return
	}
	l.settled = true
	window := l.peer.window
	for ; len(p) > 0; p = p[6:] {
		id, v := binary.BigEndian.Uint16(p), binary.BigEndian.Uint32(p[2:])
		if id == settingWindow {
			window = int64(v)
		}
		if code, why := l.setting(id, v); code != noError {
			l.fail(code, why)
			return
		}
	}
	l.roomFor(frameHead)
	l.out = appendHeader(l.out, header{kind: settingsFrame, flags: flagAck})
	l.flushSoon()
	// Streams' windows change once a frame, by the last value it has: those
	// before it could at most have passed the limit on the way.
	if window != l.peer.window {
		l.resize(window)
	}
}

// setting applies one of them, other than to open streams.
func (l *link) setting(id uint16, v uint32) (errorCode, string) {
	switch id {
	case settingTableSize:
		l.enc.Limit(v)
	case settingPush:
		if v > 1 || v == 1 && !l.server {
			return protocolError, "SETTINGS_ENABLE_PUSH is neither 0 nor 1" // RFC 9113, 6.5.2: nor 1 from a server
		}
	case settingMaxStreams:
		l.peer.maxStreams = v
		l.roomy = true
	case settingWindow:
		if v > maxWindow {
			return flowControlError, "SETTINGS_INITIAL_WINDOW_SIZE is too large"
		}
	case settingFrameSize:
		if v < ownFrame || v > 1<<24-1 {
			return protocolError, "SETTINGS_MAX_FRAME_SIZE is out of bounds"
		}
		l.peer.frame = int(min(v, ownFrame)) // larger frames would only hold up others
	}
	return noError, ""
}

// resize moves every stream's window with the initial one; it may fall below
// zero (RFC 9113, 6.9.2).
func (l *link) resize(window int64) {
	by := window - l.peer.window
	l.peer.window = window
	over := false
	l.streams.each(func(s *stream) {
		s.sendLeft += by
		over = over || s.sendLeft > maxWindow
		l.list(s)
	})
	if over {
		l.fail(flowControlError, "SETTINGS_INITIAL_WINDOW_SIZE overflows a window")
	}
}

// writeSettings writes our own, and the connection's larger window.
func (l *link) writeSettings() {
	const size = 3 * 6
	l.roomFor(2*frameHead + size + 4)
	out := appendHeader(l.out, header{kind: settingsFrame, size: size})
	if l.server {
		out = appendSetting(out, settingMaxStreams, l.cfg.MaxStreams)
	} else {
		out = appendSetting(out, settingPush, 0)
	}
	out = appendSetting(out, settingWindow, l.cfg.StreamWindow)
	out = appendSetting(out, settingHeadSize, uint32(l.cfg.MaxHead))
	if more := l.cfg.ConnWindow - defaultWindow; more > 0 {
		out = appendWord(out, windowFrame, 0, more)
	}
	l.out = out
	l.flushSoon()
}
