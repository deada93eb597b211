package accesslog

import (
	"net/netip"
	"strconv"
	"time"
)

// Exchange is an HTTP request and what became of it. Slices are what the client
// wrote; they are not kept. What is not known is empty, and left out or "-".
type Exchange struct {
	At                time.Time // the request's head came
	Took              time.Duration
	Latency           time.Duration // to the first byte of the response's body; 0: not known
	Direction         string
	Client            netip.AddrPort
	Target            netip.AddrPort // original destination
	Endpoint          netip.AddrPort // that answered
	Method            []byte
	Authority, Path   []byte
	Version           string // HTTP/1.1, HTTP/2.0
	UserAgent         []byte
	TraceParent       []byte // the field traceparent
	Status            int    // 0: none was sent
	GRPCStatus        int    // -1: none
	BytesIn, BytesOut int64  // of the bodies; -1: not known
	Service, Route    string
	Retries           int
	Peer              Peer
	Error             string // why the proxy answered, or the exchange was cut
}

// Peer is what mTLS told of the other proxy; empty where there is no mesh.
type Peer struct {
	TLS      string // "true", or why not in the words of the metrics: no_identity, opaque
	ClientID string // inbound
	ServerID string // outbound
}

// Connection is a TCP connection that was relayed without looking at requests.
type Connection struct {
	At                time.Time
	Took              time.Duration
	Direction         string
	Client, Target    netip.AddrPort
	Endpoint          netip.AddrPort
	Protocol, Reason  string
	Service           string
	BytesIn, BytesOut uint64
	Peer              Peer
	Error             string
}

// Bounds of what a client wrote, in bytes.
const (
	longestPath = 2048
	longestName = 256
)

// Exchange adds a line.
func (ln *Lane) Exchange(e *Exchange) {
	if ln.log.format == JSON {
		ln.added(e.json(ln.begin()))
		return
	}
	ln.added(e.apache(ln.begin()))
}

// Connection adds a line.
func (ln *Lane) Connection(c *Connection) {
	if ln.log.format == JSON {
		ln.added(c.json(ln.begin()))
		return
	}
	ln.added(c.apache(ln.begin()))
}

// apache is the Combined Log Format (client, two names that are not known, time,
// request line, status, bytes, referrer, user agent) and then the authority, the
// trace, microseconds and the error.
func (e *Exchange) apache(b []byte) []byte {
	b = start(b, e.Client, e.At)
	b = word(b, e.Method, longestName)
	b = append(b, ' ')
	b = word(b, e.Path, longestPath)
	b = append(b, ' ')
	b = append(b, e.Version...)
	b = append(b, `" `...)
	if e.Status == 0 {
		b = append(b, '-')
	} else {
		b = strconv.AppendInt(b, int64(e.Status), 10)
	}
	b = append(b, ' ')
	b = count(b, e.BytesOut)
	b = append(b, ` "-" "`...)
	b = word(b, e.UserAgent, longestName)
	b = append(b, `" "`...)
	b = word(b, e.Authority, longestName)
	b = append(b, `" `...)
	return finish(b, trace(e.TraceParent), e.Took, e.Error)
}

// apache writes TCP for a method and the target for a path.
func (c *Connection) apache(b []byte) []byte {
	b = start(b, c.Client, c.At)
	b = append(b, "TCP "...)
	b = c.Target.AppendTo(b)
	b = append(b, ' ')
	b = append(b, c.Protocol...)
	b = append(b, `" - `...)
	b = strconv.AppendUint(b, c.BytesOut, 10)
	b = append(b, ` "-" "-" "`...)
	b = word(b, []byte(c.Service), longestName)
	b = append(b, `" `...)
	return finish(b, nil, c.Took, c.Error)
}

func start(b []byte, client netip.AddrPort, at time.Time) []byte {
	b = client.Addr().Unmap().AppendTo(b)
	b = append(b, " - - ["...)
	b = at.AppendFormat(b, "02/Jan/2006:15:04:05 -0700")
	return append(b, `] "`...)
}

func finish(b, trace []byte, took time.Duration, err string) []byte {
	b = word(b, trace, longestName)
	b = append(b, ' ')
	b = strconv.AppendInt(b, took.Microseconds(), 10)
	b = append(b, ` "`...)
	b = word(b, []byte(err), longestName)
	return append(b, '"')
}

func count(b []byte, n int64) []byte {
	if n < 0 {
		return append(b, '-')
	}
	return strconv.AppendInt(b, n, 10)
}

// trace is the trace-id of a traceparent field (W3C Trace Context, 3.2): 32
// lower-case hex digits, not all zero; else nothing.
func trace(parent []byte) []byte {
	if len(parent) < 55 || parent[2] != '-' || parent[35] != '-' || parent[52] != '-' {
		return nil
	}
	id, zero := parent[3:35], true
	for _, c := range id {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return nil
		}
		zero = zero && c == '0'
	}
	if zero {
		return nil
	}
	return id
}
