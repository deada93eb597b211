// Package l7 reads HTTP in passing. An Observer is fed the bytes of one
// connection, both directions, while somebody else passes them on unchanged; it
// tells a Recorder of each request and response it sees go by.
//
// An observer is pure: no sockets, no clock, no goroutines, no locks. It never
// changes, delays or judges traffic. Where it cannot be sure what the two ends
// make of the bytes it stops reading for good (Lost): not counting is right,
// miscounting is not. What it holds is bounded whatever the bytes are.
//
// It is not an HTTP server, client or intermediary.
package l7

import "time"

// Side is the end of a connection that bytes come from.
type Side uint8

// The two ends.
const (
	FromClient Side = iota // from the end that opened the connection
	FromServer             // from the end that was dialled
)

// String returns "client" or "server".
func (s Side) String() string {
	if s == FromServer {
		return "server"
	}
	return "client"
}

// other returns the opposite end.
func (s Side) other() Side { return s ^ 1 }

// Observer follows the HTTP exchanges of one connection. All calls come from
// one goroutine at a time. Bytes have to be fed in the order of each side, and
// a request's bytes before those of its response: feed before writing on.
//
// Times are monotonic, counted from any fixed start, never falling; one value
// for one event is enough.
type Observer interface {
	// Feed reads b, which is not kept and not changed.
	Feed(from Side, b []byte, now time.Duration)
	// End says that the side has sent its FIN.
	End(from Side, now time.Duration)
	// Abort says that the connection was cut: by a RST, an error, or the
	// proxy itself. Open exchanges end as failures.
	Abort(now time.Duration)
	// Idle reports that no exchange is open and none has begun, so that
	// closing now takes nothing from anybody. It is false once Passive.
	Idle() bool
	// Passive reports that feeding has no more effect, for good.
	Passive() bool
	// State tells what the observer is doing and why.
	State() State
	// Tell has each Response come with a Detail. It is called before Feed; without
	// it nothing of a request's text is kept.
	Tell()
}

// Detail is what a log tells of a request. Each text is cut at 512 bytes.
type Detail struct {
	Path        []byte // the request's target as it was written
	TraceParent []byte // the field traceparent; nil: none
}

// Phase is what an observer does with the bytes it is fed.
type Phase uint8

// The phases. Every observer starts by reading; the others are for good.
const (
	Reading Phase = iota // exchanges are counted
	Tunnel               // the ends speak something else now: after 101, or 2xx to CONNECT
	Lost                 // the bytes could not be followed
)

// String returns the word used in metrics and /connections.
func (p Phase) String() string {
	switch p {
	case Tunnel:
		return "tunnel"
	case Lost:
		return "lost"
	default:
		return "reading"
	}
}

// State is an observer's phase and, for Tunnel and Lost, the reason.
type State struct {
	Phase  Phase
	Reason Reason
}

// Reason says why an observer stopped reading. It is one of the constants
// below, so that it can be a metric label. The zero value means "not said".
type Reason string

// Why an observer became a tunnel.
const (
	ReasonUpgrade Reason = "upgrade" // 101 (RFC 9110, 15.2.2)
	ReasonConnect Reason = "connect" // 2xx to CONNECT (RFC 9110, 9.3.6)
)

// Why an observer lost its way.
const (
	ReasonMalformed   Reason = "malformed"   // not what the grammar allows
	ReasonFraming     Reason = "framing"     // the length of a message can be read in two ways
	ReasonLimit       Reason = "limit"       // more than an observer is willing to hold or count
	ReasonUnsolicited Reason = "unsolicited" // a response that no request asked for
	ReasonCompression Reason = "compression" // a header block that HPACK cannot decode
)

// Recorder takes what observers see, in the order in which it is seen. It is
// called from within Feed, End and Abort and must not call back.
type Recorder interface {
	// Request is called once the head of a request has passed.
	Request(Request)
	// Response is called once for each request, when its response has
	// ended, well or not. Requests open when the observer gets lost have none.
	Response(Response)
}

// Request is a request whose head has passed.
type Request struct {
	Method Method
}

// Response is a response that has ended.
type Response struct {
	Method     Method        // of the request
	Status     int           // HTTP status; 0: ended before one was seen
	GRPC       bool          // the response is gRPC by its content type
	GRPCStatus int           // 0 to 16, others read as 2 (UNKNOWN); -1: missing, or not gRPC
	Success    bool          // see Success; false if Err is set
	HasLatency bool          // Latency is said: some of the response was seen
	Latency    time.Duration // request head to first byte of the response body, or to the end if it has none
	Total      time.Duration // request head to the end of the response
	Detail     *Detail       // nil: nobody wants to know, or it is not known
	Err        string        // "" if the response ended well, else one of the Err constants
}

// How a response can fail to end. The values are metric labels.
const (
	ErrCancel  = "cancel"  // HTTP/2: the client reset the stream
	ErrReset   = "reset"   // HTTP/2: the server reset the stream
	ErrRefused = "refused" // HTTP/2: the server did not take the stream (REFUSED_STREAM, GOAWAY)
	ErrEOF     = "eof"     // the server sent FIN before the end
	ErrAborted = "aborted" // the connection was cut
)
