package built

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"
)

// decidedWithin bounds how long a connection may stay undecided for Connection.
const decidedWithin = 20 * time.Second

// Connection is what /connections says of one connection.
type Connection struct {
	Direction, Client, Target, Protocol string
	Detected, Reason, SNI, ALPN, State  string
	BytesIn                             uint64 `json:"bytes_in"`
	BytesOut                            uint64 `json:"bytes_out"`
	Service, Declared, Endpoint         string
	TLS                                 string
	ClientID                            string `json:"client_id"`
	ServerID                            string `json:"server_id"`
}

// Connections returns the open connections.
func (p *Proxy) Connections(t testing.TB) []Connection {
	t.Helper()
	var all []Connection
	if err := json.Unmarshal(p.page(t, "/connections"), &all); err != nil {
		t.Fatalf("reading /connections: %v", err)
	}
	return all
}

// Connection returns what the proxy says of the connection that a client has with
// this local address, once it has decided about it.
func (p *Proxy) Connection(t testing.TB, client netip.AddrPort) Connection {
	t.Helper()
	var all []Connection
	for deadline := time.Now().Add(decidedWithin); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		all = p.Connections(t)
		for _, c := range all {
			if c.Client == client.String() && c.Reason != "" && c.Reason != "unknown" {
				return c
			}
		}
	}
	t.Fatalf("/connections has not decided about %s: %+v\n%s", client, all, p.Logged(t))
	return Connection{}
}

func (p *Proxy) page(t testing.TB, path string) []byte {
	t.Helper()
	status, body, err := p.get(path)
	if err != nil || status != http.StatusOK {
		t.Fatalf("%s: status %d, %v: %s", path, status, err, body)
	}
	return body
}

// Sample is one reading of /metrics: its lines, without comments.
type Sample []string

// Sample reads /metrics.
func (p *Proxy) Sample(t testing.TB) Sample {
	t.Helper()
	var s Sample
	for line := range strings.Lines(string(p.page(t, "/metrics"))) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			s = append(s, line)
		}
	}
	return s
}

// Sum adds up the series of one name that have all of these labels, each written
// as in the text format: direction="inbound".
func (s Sample) Sum(name string, labels ...string) float64 {
	sum := 0.0
next:
	for _, line := range s {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		at := strings.LastIndexByte(rest, ' ')
		for _, l := range labels {
			if !strings.Contains(rest[:at], "{"+l) && !strings.Contains(rest[:at], ","+l) {
				continue next
			}
		}
		v, err := strconv.ParseFloat(rest[at+1:], 64)
		if err != nil {
			return -1 // no sum of counters: whoever compares will tell
		}
		sum += v
	}
	return sum
}

// Settled reads /metrics until nothing has been open or changed for a moment, so
// that what is counted at the end of connections is in.
func (p *Proxy) Settled(t testing.TB) Sample {
	t.Helper()
	var last Sample
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		s := p.Sample(t)
		if s.Sum("tcp_open_connections") == 0 && len(last) > 0 && s.traffic() == last.traffic() {
			return s
		}
		last = s
	}
	t.Fatalf("the metrics do not settle: %v connections are open", last.Sum("tcp_open_connections"))
	return nil
}

// traffic is a figure that any traffic changes.
func (s Sample) traffic() [3]float64 {
	return [3]float64{s.Sum("tcp_read_bytes_total"), s.Sum("tcp_close_total"), s.Sum("response_total")}
}
