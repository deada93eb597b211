package exchange

// Failure is why the middle answers instead of an endpoint. The zero value:
// it does not.
type Failure uint8

// The failures.
const (
	NoRoute          Failure = iota + 1 // 404
	NoBackend                           // a route without a backend that has a weight: 500
	ConnectFailed                       // refused, unreachable: 502
	ConnectTimeout                      // 504
	UpstreamBroken                      // reset or closed before a response: 502
	FailFast                            // no endpoint was ready in time: 504
	LoadShed                            // too many in flight: 503
	TimedOut                            // a timeout of the route: 504
	ClientGone                          // nobody is left to answer
	Broken                              // a panic: no answer
	Unauthorized                        // a policy: 403
	IdentityRequired                    // the endpoint is not who the client wants: 502
)

// String is the text of l5d-proxy-error, and a metric label.
func (f Failure) String() string {
	switch f {
	case NoRoute:
		return "no route found for request"
	case NoBackend:
		return "route has no backend"
	case ConnectFailed:
		return "connecting to the endpoint failed"
	case ConnectTimeout:
		return "connecting to the endpoint timed out"
	case UpstreamBroken:
		return "endpoint closed the connection"
	case FailFast:
		return "no endpoint is ready"
	case LoadShed:
		return "too many requests in flight"
	case TimedOut:
		return "timed out"
	case ClientGone:
		return "client went away"
	case Broken:
		return "internal error"
	case Unauthorized:
		return "unauthorized request"
	case IdentityRequired:
		return "the endpoint does not have the required identity"
	default:
		return ""
	}
}

// answer is what a client is told: HTTP status, gRPC status (for requests that
// are gRPC), and whether its connection ends with it.
func (f Failure) answer() (status, grpc int, fatal bool) {
	switch f {
	case NoRoute:
		return 404, 5, false
	case Unauthorized:
		return 403, 7, false
	case NoBackend:
		return 500, 13, false
	case ConnectFailed, UpstreamBroken:
		return 502, 14, true
	case IdentityRequired:
		return 502, 14, false
	case ConnectTimeout, FailFast:
		return 504, 4, true
	case LoadShed:
		return 503, 14, true
	case TimedOut:
		return 504, 4, false
	default:
		return 500, 13, true
	}
}
