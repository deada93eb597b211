package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var at = time.Date(2026, 11, 30, 12, 13, 14, 150000000, time.UTC)

func exchanged() *Exchange {
	return &Exchange{
		At: at, Took: 1500 * time.Microsecond, Latency: time.Millisecond, Direction: "outbound",
		Client: netip.MustParseAddrPort("[::ffff:10.0.0.2]:5000"), Target: netip.MustParseAddrPort("10.96.0.1:80"), Endpoint: netip.MustParseAddrPort("10.244.0.1:8080"),
		Method: []byte("GET"), Authority: []byte("web.shop"), Path: []byte("/a?b=c"), Version: "HTTP/1.1", UserAgent: []byte("curl/8"),
		TraceParent: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
		Status:      200, GRPCStatus: -1, BytesIn: 3, BytesOut: 17, Service: "shop/web:80", Route: "HTTPRoute shop/r", Retries: 1,
	}
}

func connected() *Connection {
	return &Connection{At: at, Took: time.Second, Direction: "outbound", Client: netip.MustParseAddrPort("10.0.0.2:5000"),
		Target: netip.MustParseAddrPort("10.96.0.2:3306"), Endpoint: netip.MustParseAddrPort("10.96.0.2:3306"),
		Protocol: "opaque", Reason: "server_first", Service: "shop/db:3306", BytesIn: 10, BytesOut: 20, Error: "ECONNRESET"}
}

// written is what a Log of one Lane writes.
func written(f Format, add func(*Lane)) string {
	var out bytes.Buffer
	l := New(f, &out)
	ln := l.Lane()
	add(ln)
	ln.Flush()
	l.Close()
	return out.String()
}

func TestLinesAreWhatTheFormatSays(t *testing.T) {
	add := func(ln *Lane) {
		ln.Exchange(exchanged())
		ln.Exchange(&Exchange{At: at, Client: netip.MustParseAddrPort("10.0.0.2:5000"), GRPCStatus: -1, BytesIn: -1, BytesOut: -1, Method: []byte("GET"), Version: "HTTP/2.0", Error: "cancel"})
		ln.Connection(connected())
	}
	for f, want := range map[Format]string{
		Apache: `10.0.0.2 - - [30/Nov/2026:12:13:14 +0000] "GET /a?b=c HTTP/1.1" 200 17 "-" "curl/8" "web.shop" 4bf92f3577b34da6a3ce929d0e0e4736 1500 "-"
10.0.0.2 - - [30/Nov/2026:12:13:14 +0000] "GET - HTTP/2.0" - - "-" "-" "-" - 0 "cancel"
10.0.0.2 - - [30/Nov/2026:12:13:14 +0000] "TCP 10.96.0.2:3306 opaque" - 20 "-" "-" "shop/db:3306" - 1000000 "ECONNRESET"
`,
		JSON: `{"time":"2026-11-30T12:13:14.150000Z","direction":"outbound","client":"10.0.0.2:5000","orig_dst":"10.96.0.1:80","endpoint":"10.244.0.1:8080","method":"GET","authority":"web.shop","path":"/a?b=c","version":"HTTP/1.1","status":200,"bytes_in":3,"bytes_out":17,"latency_us":1000,"took_us":1500,"user_agent":"curl/8","trace_id":"4bf92f3577b34da6a3ce929d0e0e4736","service":"shop/web:80","route":"HTTPRoute shop/r","retries":1}
{"time":"2026-11-30T12:13:14.150000Z","client":"10.0.0.2:5000","method":"GET","version":"HTTP/2.0","took_us":0,"error":"cancel"}
{"time":"2026-11-30T12:13:14.150000Z","direction":"outbound","client":"10.0.0.2:5000","orig_dst":"10.96.0.2:3306","protocol":"opaque","reason":"server_first","bytes_in":10,"bytes_out":20,"took_us":1000000,"service":"shop/db:3306","error":"ECONNRESET"}
`,
	} {
		if d := cmp.Diff(want, written(f, add)); d != "" {
			t.Errorf("%s (-want +got):\n%s", f, d)
		}
	}
}

func TestWhatAClientWritesCannotForgeALine(t *testing.T) {
	nasty := []byte("/\" 200 1\r\n10.0.0.1 \\ \x00\x7f\u2028\u0085é\xff")
	e := exchanged()
	e.Method, e.Path, e.Authority, e.UserAgent = nasty, nasty, nasty, nasty
	e.TraceParent = []byte("00-4bf92f3577b34da6a3ce929d0e0e47\n6-00f067aa0ba902b7-01")
	add := func(ln *Lane) { ln.Exchange(e) }
	line := written(Apache, add)
	if n := strings.Count(line, "\n"); n != 1 || !strings.HasSuffix(line, "\n") {
		t.Errorf("%d line ends in %q", n, line)
	}
	for _, c := range []byte(strings.TrimSuffix(line, "\n")) {
		if c < ' ' || c > '~' {
			t.Errorf("the byte %#x is in %q", c, line)
		}
	}
	if got := strings.Count(line, `"`) - strings.Count(line, `\"`); got != 10 {
		t.Errorf("%d quotes stand alone in %q, want 10", got, line)
	}
	text := written(JSON, add)
	var got map[string]any
	if err := json.Unmarshal([]byte(text), &got); err != nil || strings.Count(text, "\n") != 1 {
		t.Fatalf("%q: %v", text, err)
	}
	if want := "/\" 200 1\r\n10.0.0.1 \\ \x00\x7f\u2028\u0085é\uFFFD"; got["path"] != want {
		t.Errorf("the path is %q, want %q", got["path"], want)
	}
	if strings.ContainsAny(text, "\u2028\u0085\x7f\x00\r") || got["trace_id"] != nil {
		t.Errorf("%q", text)
	}
}

func TestWhatAClientWritesIsBounded(t *testing.T) {
	e := exchanged()
	e.Path, e.UserAgent = bytes.Repeat([]byte("\x01"), 1<<20), bytes.Repeat([]byte("a"), 1<<20)
	for _, f := range []Format{Apache, JSON} {
		if n := len(written(f, func(ln *Lane) { ln.Exchange(e) })); n > 14_000 {
			t.Errorf("%s: a line of %d bytes", f, n)
		}
	}
}

func TestOnlyATraceIsATrace(t *testing.T) {
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	for in, want := range map[string]string{
		"00-" + id + "-00f067aa0ba902b7-01":                      id,
		"cc-" + id + "-00f067aa0ba902b7-01-what-comes-later":     id,
		"00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01": "",
		"00-" + strings.ToUpper(id) + "-00f067aa0ba902b7-01":     "",
		"00-" + id + "-00f067aa0ba902b7":                         "",
		"00-" + id[:31] + "-00f067aa0ba902b7-01----":             "",
		"": "",
	} {
		if got := string(trace([]byte(in))); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// stuck is a reader that takes nothing until it is let go.
type stuck struct {
	once    sync.Once
	entered chan struct{}
	release chan struct{}
}

// Write waits.
func (s *stuck) Write(b []byte) (int, error) {
	s.once.Do(func() { close(s.entered) })
	<-s.release
	return len(b), nil
}

func TestAReaderThatIsStuckHoldsNobodyUp(t *testing.T) {
	out := &stuck{entered: make(chan struct{}), release: make(chan struct{})}
	l := New(JSON, out)
	ln := l.Lane()
	const lines = 20_000
	for range lines { // would never end if a line waited
		ln.Exchange(exchanged())
	}
	<-out.entered
	close(out.release)
	ln.Flush()
	l.Close()
	written, dropped := l.Counts()
	if written+dropped != lines || dropped == 0 || written == 0 {
		t.Errorf("%d lines written, %d dropped, of %d", written, dropped, lines)
	}
}

// failing takes nothing.
type failing struct{}

// Write fails.
func (failing) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestLinesThatCannotBeWrittenAreCounted(t *testing.T) {
	l := New(Apache, failing{})
	ln := l.Lane()
	ln.Connection(connected())
	ln.Flush()
	l.Close()
	if written, dropped := l.Counts(); written != 0 || dropped != 1 {
		t.Errorf("%d written, %d dropped", written, dropped)
	}
}

func TestALineAllocatesNothing(t *testing.T) {
	l := New(JSON, &bytes.Buffer{})
	defer l.Close()
	ln := l.Lane()
	e, c := exchanged(), connected()
	if n := testing.AllocsPerRun(100, func() {
		ln.Exchange(e)
		ln.Connection(c)
		ln.batch = batch{text: ln.batch.text[:0]} // as after Flush, but without the writer
	}); n != 0 {
		t.Errorf("%v allocations for two lines", n)
	}
}

func BenchmarkExchange(b *testing.B) {
	l := New(JSON, &stuckless{})
	defer l.Close()
	ln := l.Lane()
	e := exchanged()
	b.ReportAllocs()
	for b.Loop() {
		ln.Exchange(e)
	}
	ln.Flush()
}

// stuckless takes everything.
type stuckless struct{}

// Write takes b.
func (*stuckless) Write(b []byte) (int, error) { return len(b), nil }

// What mTLS told of the peer is in the objects; the Apache format has no place for
// it.
func TestObjectsNameThePeer(t *testing.T) {
	e, c := exchanged(), connected()
	e.Peer, c.Peer = Peer{TLS: "true", ServerID: "db.shop"}, Peer{TLS: "true", ClientID: "web.shop"}
	text := written(JSON, func(ln *Lane) { ln.Exchange(e); ln.Connection(c) })
	for _, want := range []string{`"route":"HTTPRoute shop/r","retries":1,"tls":"true","server_id":"db.shop"}`, `"service":"shop/db:3306","tls":"true","client_id":"web.shop","error":"ECONNRESET"}`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
}
