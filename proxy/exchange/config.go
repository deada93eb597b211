// Package exchange is the middle of the HTTP intermediary: it takes a request
// from a stream of one connection, decides where it goes, and carries the
// exchange between that stream and one of another connection, whatever version
// either speaks.
//
//	client <- h1/h2.Server <- Stream  <->  Exchange  <->  Stream -> h1/h2.Client -> endpoint
//
// An Upstream is what all loops share: routes, and the endpoints with their
// load. A Lane is one loop's part: connections to endpoints, and exchanges. It
// parses no bytes, accepts no connections and counts nothing: a Recorder is
// told.
package exchange

import (
	"time"

	"github.com/meshctl/meshctl/proxy/h1"
	"github.com/meshctl/meshctl/proxy/h2"
	"github.com/meshctl/meshctl/proxy/mesh"
	"github.com/meshctl/meshctl/proxy/message"
	"github.com/meshctl/meshctl/proxy/route"
)

// Config holds times and limits. The zero value has the defaults.
type Config struct {
	ConnectTimeout time.Duration // 1 s
	// FailFast is how long a request waits for an endpoint to be ready: 3 s.
	FailFast time.Duration
	// MaxInFlight is how many exchanges a lane carries at once: 100,000; more are
	// answered 503.
	MaxInFlight int
	// MaxQueue is how many of them may wait for an endpoint: 10,000.
	MaxQueue int
	// PoolIdle is how long an HTTP/1 connection to an endpoint is kept unused: 3 s.
	PoolIdle time.Duration
	H1       h1.Config
	H2       h2.Config
	// Mesh, if set, carries what goes to meshed endpoints by mTLS; nil: nothing is.
	Mesh *mesh.Mesh
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		at  *time.Duration
		def time.Duration
	}{{&c.ConnectTimeout, time.Second}, {&c.FailFast, 3 * time.Second}, {&c.PoolIdle, 3 * time.Second}} {
		if *d.at <= 0 {
			*d.at = d.def
		}
	}
	if c.MaxInFlight <= 0 {
		c.MaxInFlight = 100_000
	}
	if c.MaxQueue <= 0 {
		c.MaxQueue = 10_000
	}
	return c
}

// Recorder is told what happens to the requests of one client connection.
type Recorder interface {
	// Requested is called when a request's head has come.
	Requested(method []byte)
	// Responded is called once for each Requested.
	Responded(Result)
}

// Result is how an exchange ended.
type Result struct {
	Method     []byte        // of the request; valid during the call
	Request    *message.Head // as it came; valid during the call
	Route      *route.Action // that it came under; nil: none
	Endpoint   Endpoint      // that was tried last; none: zero
	BytesIn    int64         // of the request's body, or of the tunnel
	BytesOut   int64         // of the response's
	OverBudget bool          // it would have been sent again, had the budget not been used up
	Status     int           // sent to the client; 0: none was
	GRPC       bool          // the response is gRPC by its content type
	GRPCStatus int           // -1: missing, or not gRPC
	HasLatency bool
	Latency    time.Duration // from the request's head to the first byte of the response's body, or to its end
	Total      time.Duration
	Retries    int
	Failure    Failure // what the middle itself had to say; zero: the answer is the endpoint's
	Aborted    bool    // the response did not reach its end
}
