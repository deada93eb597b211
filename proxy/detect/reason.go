package detect

// Reason is why a connection was held to be of its kind. It is a closed set,
// safe as the value of a metric's label.
type Reason uint8

// The reasons. Sniff and AtEnd give those down to ReasonEOF; the others belong to the
// loop around them, and stand here so that all are on one page.
const (
	ReasonUnknown     Reason = iota // not said: nothing is decided yet
	ReasonBytes                     // the client's bytes say it
	ReasonPrefixAtEOF               // the client closed its side; what is there is long enough to be HTTP
	ReasonCutAtEOF                  // the client closed its side amid something known: opaque
	ReasonTooLong                   // MaxHead bytes and still undecided: opaque
	ReasonEOF                       // the client closed its side without a byte
	ReasonTimeout                   // nothing decided by the deadline: opaque
	ReasonServerFirst               // the server spoke before the client did: opaque
	ReasonDeclared                  // configured; no byte was looked at
	ReasonServerEnded               // the server closed before either side had spoken: opaque
	ReasonCrowded                   // too many connections were waiting for their first bytes: opaque
)

// String returns the word used in metrics, logs and /connections.
func (r Reason) String() string {
	switch r {
	case ReasonBytes:
		return "bytes"
	case ReasonPrefixAtEOF:
		return "prefix_at_eof"
	case ReasonCutAtEOF:
		return "cut_at_eof"
	case ReasonTooLong:
		return "too_long"
	case ReasonEOF:
		return "eof"
	case ReasonTimeout:
		return "timeout"
	case ReasonServerFirst:
		return "server_first"
	case ReasonDeclared:
		return "declared"
	case ReasonServerEnded:
		return "server_ended"
	case ReasonCrowded:
		return "crowded"
	default:
		return "unknown"
	}
}
