package accesslog

import (
	"net/netip"
	"strconv"
	"time"
)

// object is a line of JSON that is being written. Keys are the program's own.
type object struct{ b []byte }

func (o *object) key(k string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(o.b, '"')
	o.b = append(o.b, k...)
	o.b = append(o.b, '"', ':')
}

// text adds a string, unless it is empty.
func (o *object) text(k string, s []byte, most int) {
	if len(s) > 0 {
		o.key(k)
		o.b = text(o.b, s, most)
	}
}

func (o *object) string(k, s string) { o.text(k, []byte(s), longestName) }

func (o *object) number(k string, n int64) {
	o.key(k)
	o.b = strconv.AppendInt(o.b, n, 10)
}

func (o *object) addr(k string, a netip.AddrPort) {
	if a.IsValid() {
		o.key(k)
		o.b = append(o.b, '"')
		o.b = netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).AppendTo(o.b)
		o.b = append(o.b, '"')
	}
}

func (o *object) peer(p Peer) {
	o.string("tls", p.TLS)
	o.string("client_id", p.ClientID)
	o.string("server_id", p.ServerID)
}

func (o *object) begin(at time.Time, direction string, client, target, endpoint netip.AddrPort) {
	o.b = append(o.b, '{')
	o.key("time")
	o.b = append(o.b, '"')
	o.b = at.UTC().AppendFormat(o.b, "2006-01-02T15:04:05.000000Z")
	o.b = append(o.b, '"')
	o.string("direction", direction)
	o.addr("client", client)
	o.addr("orig_dst", target)
	if endpoint != target {
		o.addr("endpoint", endpoint)
	}
}

func (e *Exchange) json(b []byte) []byte {
	o := object{b}
	o.begin(e.At, e.Direction, e.Client, e.Target, e.Endpoint)
	o.text("method", e.Method, longestName)
	o.text("authority", e.Authority, longestName)
	o.text("path", e.Path, longestPath)
	o.string("version", e.Version)
	if e.Status > 0 {
		o.number("status", int64(e.Status))
	}
	if e.GRPCStatus >= 0 {
		o.number("grpc_status", int64(e.GRPCStatus))
	}
	if e.BytesIn >= 0 && e.BytesOut >= 0 {
		o.number("bytes_in", e.BytesIn)
		o.number("bytes_out", e.BytesOut)
	}
	if e.Latency > 0 {
		o.number("latency_us", e.Latency.Microseconds())
	}
	o.number("took_us", e.Took.Microseconds())
	o.text("user_agent", e.UserAgent, longestName)
	o.text("trace_id", trace(e.TraceParent), longestName)
	o.string("service", e.Service)
	o.string("route", e.Route)
	if e.Retries > 0 {
		o.number("retries", int64(e.Retries))
	}
	o.peer(e.Peer)
	o.string("error", e.Error)
	return append(o.b, '}')
}

func (c *Connection) json(b []byte) []byte {
	o := object{b}
	o.begin(c.At, c.Direction, c.Client, c.Target, c.Endpoint)
	o.string("protocol", c.Protocol)
	o.string("reason", c.Reason)
	o.number("bytes_in", int64(c.BytesIn))
	o.number("bytes_out", int64(c.BytesOut))
	o.number("took_us", c.Took.Microseconds())
	o.string("service", c.Service)
	o.peer(c.Peer)
	o.string("error", c.Error)
	return append(o.b, '}')
}
