package message

// Code is why a stream was aborted. The zero value means "not said".
type Code uint8

// The codes; HTTP/2's error codes (RFC 9113, 7) map to and from them.
const (
	Cancel    Code = iota + 1 // the receiver is no longer wanted
	Refused                   // nothing was processed: REFUSED_STREAM, GOAWAY before it; may be retried
	NoError                   // early end after a complete response (RFC 9113, 8.1)
	Protocol                  // the peer broke the protocol
	Internal                  // our fault, or a body that ended too early
	Closed                    // the connection ended (FIN or RST) before the message did
	Exhausted                 // ENHANCE_YOUR_CALM, limits
)

// Stream is one exchange on one connection, seen from the middle: a message can
// be sent on it, and its Receiver is told of the message that comes in. On a
// server connection the incoming message is a request, on a client connection
// a response. All calls, both ways, are made on the loop of the connection.
//
// A response that has ended ends the stream, even if its request has not: the
// Receiver hears nothing more and what is still sent is dropped (HTTP/1 then
// ends the connection, HTTP/2 sends RST_STREAM with NO_ERROR). No method of a
// Stream calls its Receiver before it returns.
//
// Calls on a stream that is over (its response has ended, it was aborted, or
// Abort was called) do nothing until the end of the loop's round; after it the
// Stream is reused for another exchange and must not be touched.
type Stream interface {
	// SendHead sends a head. end: no body and no trailers follow. A response may
	// be preceded by interim (1xx) heads. h is not kept. After a 101 on a stream
	// whose request asked for an upgrade, and after a 2xx to CONNECT, both sides
	// are tunnels: Data carries raw bytes, end a FIN. The head of a CONNECT request
	// never ends it; a request that asks for an upgrade ends as any other, and
	// Data begins anew after the 101.
	SendHead(h *Head, end bool)
	// SendData sends body bytes; what the connection does not take at once is
	// copied and counted in Pending. end: the message ends here.
	SendData(b []byte, end bool)
	// SendTrailers ends the message with trailer fields (HTTP/1: only if the body
	// is chunked, else they are dropped).
	SendTrailers(h *Head)
	// Abort gives the stream up: RST_STREAM, or for HTTP/1 the connection's end
	// (never a clean one within a message). The Receiver hears nothing more.
	Abort(code Code)
	// Pending is how many bytes were sent and not yet taken by the kernel, or not
	// yet allowed by the peer's window. A sender stops above HighWater.
	Pending() int
	// Hold stops (true) or restarts (false) the delivery of Data: HTTP/1 stops
	// reading, HTTP/2 gives no more window for this stream. At most one window
	// (or one read) may still come after Hold(true).
	Hold(bool)
	// Version is the version spoken on the connection.
	Version() Version
}

// HighWater is the Pending above which a sender has to stop, and below half of
// which it is told to go on.
const HighWater = 64 << 10

// Receiver is told of what comes in on a stream, in order: heads (interim ones,
// then one final), data, then an end either with the last head or data, or with
// trailers, or Aborted. Slices are valid during the call only.
type Receiver interface {
	Head(s Stream, h *Head, end bool)
	Data(s Stream, b []byte, end bool)
	Trailers(s Stream, h *Head)
	// Aborted ends the stream early, also after the incoming message has ended
	// while the outgoing one had not.
	Aborted(s Stream, code Code)
	// Drained says that Pending, which was above HighWater, has fallen below half
	// of it.
	Drained(s Stream)
}

// Opener gets a server connection's new streams; it returns who receives the
// request. It is called right before Receiver.Head.
type Opener interface{ Open(s Stream) Receiver }
