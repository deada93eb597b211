package forward

import (
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/meshctl/meshctl/proxy/accesslog"
	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/exchange"
	"github.com/meshctl/meshctl/proxy/l4"
	"github.com/meshctl/meshctl/proxy/l7"
	"github.com/meshctl/meshctl/proxy/metrics"
	"github.com/meshctl/meshctl/proxy/protocol"
)

// flushEvery is how long a line of the access log may stay in a lane's buffer.
const flushEvery = 100 * time.Millisecond

// access is a lane's part of the access log. The zero value writes nothing.
type access struct {
	lines *accesslog.Lane // nil: nobody wants them
	timer conn.Timer
	// One of each, used again and again: lines need no allocation.
	exchange   accesslog.Exchange
	connection accesslog.Connection
	view       *discovery.View // whose Service's name is service
	service    string
}

// Expired hands over what there is.
func (a *access) Expired(*conn.Timer) { a.lines.Flush() }

// Panicked is not of a connection: it ends the process.
func (a *access) Panicked(v any, _ []byte) { panic(v) }

// soon sees to it that a line does not stay for long.
func (a *access) soon(l *conn.Loop) {
	if !a.timer.Active() {
		l.Start(&a.timer, flushEvery, a)
	}
}

// FlushAccessLog hands over the lines that the lanes still have. Their loops must
// have ended.
func (f *Forwarder) FlushAccessLog() {
	for _, ln := range f.lanes {
		if ln.access.lines != nil {
			ln.access.lines.Flush()
		}
	}
}

// logExchange writes a line about a request that was taken by itself.
func (fl *flow) logExchange(r *exchange.Result, failure string) {
	a := &fl.lane.access
	if a.lines == nil {
		return
	}
	e := fl.newExchange(r.Total)
	e.Method, e.Authority, e.Path = r.Method, r.Request.Authority, r.Request.Path
	e.UserAgent, e.TraceParent = r.Request.Get("user-agent"), r.Request.Get("traceparent")
	e.Status, e.GRPCStatus, e.BytesIn, e.BytesOut = r.Status, -1, r.BytesIn, r.BytesOut
	if r.GRPC {
		e.GRPCStatus = r.GRPCStatus
	}
	if r.HasLatency {
		e.Latency = r.Latency
	}
	e.Endpoint, e.Retries = r.Endpoint.Addr, r.Retries
	e.Peer = fl.peerOf(r.Endpoint)
	if e.Error = failure; r.Aborted && failure == "" {
		e.Error = l7.ErrAborted
	}
	if r.Route != nil {
		e.Route = fl.lane.ruleOf(fl, r.Route).name
	}
	a.lines.Exchange(e)
	*e = accesslog.Exchange{}
	a.soon(fl.lane.loop)
}

// logObserved writes a line about an exchange that was seen in passing, of which
// less is known.
func (fl *flow) logObserved(r *l7.Response) {
	a := &fl.lane.access
	if a.lines == nil {
		return
	}
	e := fl.newExchange(r.Latency)
	e.Method = append(fl.lane.method[:0], r.Method.String()...)
	fl.lane.method = e.Method
	e.Status, e.GRPCStatus, e.BytesIn, e.BytesOut = r.Status, -1, -1, -1
	if r.GRPC {
		e.GRPCStatus = r.GRPCStatus
	}
	if r.HasLatency {
		e.Latency = r.Latency
	}
	e.Endpoint, e.Error = fl.to, r.Err
	e.Peer = fl.peerOf(exchange.Endpoint{})
	if fl.hasPlace {
		e.Peer = fl.peerOf(fl.place.Endpoint())
	}
	if d := r.Detail; d != nil {
		e.Path, e.TraceParent = d.Path, d.TraceParent
	}
	a.lines.Exchange(e)
	*e = accesslog.Exchange{}
	a.soon(fl.lane.loop)
}

// peerOf is what mTLS told of the client or, outbound, of the endpoint.
func (fl *flow) peerOf(to exchange.Endpoint) accesslog.Peer {
	f := fl.lane.forwarder
	if f.cfg.Mesh == nil {
		return accesslog.Peer{}
	}
	l := fl.clientTLS()
	if f.direction == metrics.Outbound {
		l = f.serverTLS(to)
	}
	return accesslog.Peer{TLS: l.TLS, ClientID: l.ClientID, ServerID: l.ServerID}
}

func (fl *flow) newExchange(took time.Duration) *accesslog.Exchange {
	e := &fl.lane.access.exchange
	e.At, e.Took, e.Direction = time.Now().Add(-took), took, fl.lane.forwarder.direction.String()
	e.Client, e.Target, e.Version = fl.client, fl.route.Target, "HTTP/1.1"
	if fl.kind == protocol.HTTP2 {
		e.Version = "HTTP/2.0"
	}
	e.Service = fl.serviceName()
	return e
}

// logConnection writes a line about a connection whose requests, if it had any,
// nobody saw.
func (fl *flow) logConnection(took time.Duration, err syscall.Errno) {
	a := &fl.lane.access
	if a.lines == nil || fl.http != nil {
		return
	}
	c := &a.connection
	*c = accesslog.Connection{
		At: time.Now().Add(-took), Took: took, Direction: fl.lane.forwarder.direction.String(), Client: fl.client,
		Target: fl.route.Target, Protocol: fl.kind.String(), Reason: fl.reason.String(),
		Service: fl.serviceName(), BytesIn: fl.bytes[l4.Client], BytesOut: fl.bytes[l4.Server],
	}
	if fl.to != (netip.AddrPort{}) {
		c.Endpoint = fl.to
	}
	c.Peer = fl.peerOf(exchange.Endpoint{})
	if fl.hasPlace {
		c.Peer = fl.peerOf(fl.place.Endpoint())
	}
	if err != 0 {
		c.Error = errnoName(err)
	}
	a.lines.Connection(c)
	a.soon(fl.lane.loop)
}

// serviceName is "shop/web:80", or empty. The last one is kept: the next line is
// often about the same.
func (fl *flow) serviceName() string {
	a, v := &fl.lane.access, fl.route.View
	if v == nil {
		return ""
	}
	if a.view != v {
		a.view, a.service = v, ""
		if s := fl.destination().Service; s.Name != "" {
			a.service = s.Namespace + "/" + s.Name + ":" + strconv.Itoa(int(s.Port))
		}
	}
	return a.service
}
