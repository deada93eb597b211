package metrics

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// address returns a different address for each i below 2^24.
func address(i int) Destination {
	return Destination{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 80)}
}

// grep returns the lines that start with name and hold all of the parts.
func grep(lines []string, name string, parts ...string) []string {
	var found []string
	for _, l := range lines {
		ok := strings.HasPrefix(l, name+"{")
		for _, p := range parts {
			ok = ok && strings.Contains(l, p)
		}
		if ok {
			found = append(found, l)
		}
	}
	return found
}

// sum adds the values of lines.
func sum(t *testing.T, lines []string) (total float64) {
	t.Helper()
	for _, l := range lines {
		v, err := strconv.ParseFloat(l[strings.LastIndexByte(l, ' ')+1:], 64)
		if err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		total += v
	}
	return total
}

func TestTwentyThousandTargetsMakeABoundedPage(t *testing.T) {
	now := time.Unix(1e9, 0)
	m := New(Config{Now: func() time.Time { return now }})
	const n = 20000
	for i := range n {
		tls := TLSLabels{TLS: "opaque", SNI: "t" + strconv.Itoa(i) + ".tenant.example"}
		c := m.TCP(Outbound, Dst, address(i), tls)
		c.Open()
		c.Read(1)
		c.Close("", time.Second)
		h := m.HTTP(Outbound, address(i), tls)
		h.Request()
		h.Response(ResponseLabels{Status: 200, Success: true}, time.Millisecond, true)
		h.Release()
	}
	families := []string{"tcp_open_total", "tcp_read_bytes_total", "tcp_close_total", "request_total", "response_total", "response_latency_ms_count"}
	all := scrape(t, m, append(families, "meshctl_series_folded_total")...)
	for _, name := range families {
		lines := grep(all, name)
		if len(lines) != 2001 {
			t.Errorf("%s: %d series, want 2000 and one for the rest", name, len(lines))
		}
		if got := sum(t, lines); got != n {
			t.Errorf("%s: %v counted, want %d", name, got, n)
		}
		folded := grep(lines, name, `target_addr="other",target_ip="other",target_port="other"`)
		if got := sum(t, folded); len(folded) != 1 || got != n-2000 {
			t.Errorf("%s: %v under other in %d series, want %d in one", name, got, len(folded), n-2000)
		}
	}
	names := map[string]bool{}
	for _, l := range grep(all, "tcp_open_total") {
		if _, rest, ok := strings.Cut(l, `sni="`); ok {
			name, _, _ := strings.Cut(rest, `"`)
			names[name] = true
		}
	}
	if len(names) != 101 {
		t.Errorf("%d values of sni, want 100 and other", len(names))
	}
	if got := sum(t, grep(all, "meshctl_series_folded_total")); got != 2*(n-2000) {
		t.Errorf("%v foldings, want %d", got, 2*(n-2000))
	}

	now = now.Add(10*time.Minute + 1)
	if lines := scrape(t, m, "tcp_open_total", "request_total", "response_total", "response_latency_ms_count"); len(lines) != 0 {
		t.Errorf("%d series after ten idle minutes, want none", len(lines))
	}
	c := m.TCP(Outbound, Dst, address(n), TLSLabels{SNI: "late.example"})
	c.Open()
	if lines := grep(scrape(t, m, "tcp_open_total"), "tcp_open_total", `sni="late.example",target_addr="10.0.78.32:80"`); len(lines) != 1 {
		t.Errorf("a new target has no series of its own after the sweep: %v", scrape(t, m, "tcp_open_total"))
	}
}

func TestSeriesOfAnOpenConnectionIsNeverDropped(t *testing.T) {
	now := time.Unix(1e9, 0)
	m := New(Config{Now: func() time.Time { return now }})
	open := m.TCP(Inbound, Src, web, TLSLabels{})
	open.Open()
	seen := m.HTTP(Inbound, web, TLSLabels{})
	seen.Request()
	now = now.Add(240 * time.Hour)
	m.Sweep(now)
	open.Read(5)
	open.Close("", time.Hour)
	seen.Release()
	now = now.Add(9 * time.Minute)
	if got := sum(t, scrape(t, m, "tcp_read_bytes_total", "request_total")); got != 6 {
		t.Errorf("%v counted, want 5 bytes and a request", got)
	}
	now = now.Add(time.Minute)
	if lines := scrape(t, m, "tcp_read_bytes_total", "request_total"); len(lines) != 0 {
		t.Errorf("still there ten minutes after the close: %v", lines)
	}
}

func TestLabelValuesCannotBreakThePage(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"quote", `a"b`, `a"b`},
		{"backslash", `a\b`, `a\b`},
		{"line end", "a\nx_total 5\nb", "a\nx_total 5\nb"},
		{"carriage return and NUL", "a\r\x00b", "a\r\x00b"},
		{"not UTF-8", "a\xff\xfeb", "a\uFFFDb"},
		{"long", strings.Repeat("x", 100000), strings.Repeat("x", longest)},
		{"cut inside a rune", strings.Repeat("x", longest-1) + "é", strings.Repeat("x", longest-1) + "\uFFFD"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := New(Config{Version: tc.in, SkipPackets: func() []SkipCount { return []SkipCount{{Inbound, tc.in, 1}} }})
			m.TCP(Inbound, Src, web, TLSLabels{TLS: tc.in, NoTLSReason: tc.in, ClientID: tc.in, ServerID: tc.in, SNI: tc.in}).Open()
			m.Refused(Inbound, tc.in)
			parser := expfmt.NewTextParser(model.LegacyValidation)
			families, err := parser.TextToMetricFamilies(strings.NewReader(serve(t, m)))
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, f := range []string{"tcp_open_total", "meshctl_refused_total", "meshctl_skip_packets_total", "proxy_build_info"} {
				for _, l := range families[f].GetMetric()[0].GetLabel() {
					got[l.GetName()] = l.GetValue()
				}
			}
			for _, label := range []string{"tls", "no_tls_reason", "client_id", "server_id", "sni", "reason", "rule", "version"} {
				if got[label] != tc.want {
					t.Errorf("%s = %q, want %q", label, got[label], tc.want)
				}
			}
			if families["x_total"] != nil {
				t.Error("a label value forged a series")
			}
		})
	}
}

func TestEventsWithEndlessWordsAreCapped(t *testing.T) {
	m := New(Config{})
	for i := range 5000 {
		word := strconv.Itoa(i)
		m.Refused(Inbound, word)
		m.AcceptError(word)
		m.Detected(Inbound, uint16(i), ResultNotHTTP, word, 0)
		m.Detected(Outbound, uint16(i), word, "bytes", 0)
	}
	for name, most := range map[string]int{
		"meshctl_refused_total":                  words + 1,
		"meshctl_accept_errors_total":            words + 1,
		"outbound_tcp_detect_http_results_total": words + 1,
		"meshctl_detect_total":                   500 + slack + 2,
	} {
		if lines := scrape(t, m, name); len(lines) > most {
			t.Errorf("%s: %d series, at most %d may be", name, len(lines), most)
		}
	}
	if got := sum(t, scrape(t, m, "meshctl_detect_total")); got != 10000 {
		t.Errorf("%v detections counted, want 10000", got)
	}
}

func TestPortsOverTheCapAreCountedTogether(t *testing.T) {
	m := New(Config{MaxPorts: 3})
	for port := range uint16(5) {
		m.Detected(Inbound, 8000+port, ResultHTTP1, "bytes", 0)
		m.Detected(Inbound, 8000+port, ResultHTTP1, "bytes", 0)
	}
	const start = `meshctl_detect_total{direction="inbound",port="`
	const end = `",protocol="http/1",reason="bytes"} `
	want := []string{start + "8000" + end + "2", start + "8001" + end + "2", start + "8002" + end + "2", start + "other" + end + "4"}
	if d := cmp.Diff(want, scrape(t, m, "meshctl_detect_total")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestPortThatIsQuietMakesRoom(t *testing.T) {
	now := time.Unix(1e9, 0)
	m := New(Config{MaxPorts: 1, Now: func() time.Time { return now }})
	m.Detected(Inbound, 1, ResultHTTP1, "bytes", 0)
	for range 11 {
		scrape(t, m) // a scrape sweeps
		now = now.Add(time.Minute)
	}
	scrape(t, m)
	m.Detected(Inbound, 2, ResultHTTP1, "bytes", 0)
	want := []string{`meshctl_detect_total{direction="inbound",port="2",protocol="http/1",reason="bytes"} 1`}
	if d := cmp.Diff(want, scrape(t, m, "meshctl_detect_total")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
