package h2

import (
	"fmt"

	"github.com/meshctl/meshctl/proxy/message"
)

// errorCode is an error code of RFC 9113, 7.
type errorCode uint32

const (
	noError errorCode = iota
	protocolError
	internalError
	flowControlError
	settingsTimeout
	streamClosed
	frameSizeError
	refusedStream
	cancelled
	compressionError
	connectError
	enhanceYourCalm
	inadequateSecurity
	http11Required
)

var codeNames = [...]string{"NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT",
	"STREAM_CLOSED", "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR",
	"ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED"}

// String returns the name of RFC 9113, 7.
func (c errorCode) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return fmt.Sprintf("error code %#x", uint32(c))
}

// Error is why a connection was ended by one side's GOAWAY.
type Error struct {
	Code   string // the name of RFC 9113, 7
	Reason string // what was wrong; empty if the peer said it
}

// Error says it in words.
func (e *Error) Error() string {
	if e.Reason == "" {
		return "peer ended the connection: " + e.Code
	}
	return e.Reason + ": " + e.Code
}

// meaning maps a code that came to the middle's.
func (c errorCode) meaning() message.Code {
	switch c {
	case noError:
		return message.NoError
	case refusedStream:
		return message.Refused
	case cancelled:
		return message.Cancel
	case connectError:
		return message.Closed
	case enhanceYourCalm:
		return message.Exhausted
	case protocolError, flowControlError, frameSizeError, streamClosed, compressionError, http11Required:
		return message.Protocol
	default:
		return message.Internal
	}
}

// codeOf maps the middle's code to the one that goes out. A tunnel whose other
// end broke says CONNECT_ERROR (RFC 9113, 8.5).
func codeOf(c message.Code, tunnel bool) errorCode {
	switch c {
	case message.Cancel:
		return cancelled
	case message.Refused:
		return refusedStream
	case message.NoError:
		return noError
	case message.Protocol:
		return protocolError
	case message.Exhausted:
		return enhanceYourCalm
	case message.Closed:
		if tunnel {
			return connectError
		}
	}
	return internalError
}
