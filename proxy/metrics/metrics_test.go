package metrics

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/meshctl/meshctl/proxy/protocol"
)

var web = Destination{Addr: netip.MustParseAddrPort("10.0.0.7:8080")}

// scrape returns the lines of a page that hold one of the names, sorted, and
// fails the test if the page is not valid.
func scrape(t *testing.T, m *Metrics, names ...string) []string {
	t.Helper()
	page := serve(t, m)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	if _, err := parser.TextToMetricFamilies(strings.NewReader(page)); err != nil {
		t.Fatalf("the page does not parse: %v", err)
	}
	lines := []string{}
	for line := range strings.Lines(page) {
		name, _, _ := strings.Cut(line, " ")
		name, _, _ = strings.Cut(name, "{")
		for _, want := range names {
			if name == want {
				lines = append(lines, strings.TrimSuffix(line, "\n"))
			}
		}
	}
	sort.Strings(lines)
	return lines
}

func serve(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler(quiet()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestConnectionsAreCountedWhileTheyAreOpen(t *testing.T) {
	m := New(Config{})
	tls := TLSLabels{TLS: "no_identity", NoTLSReason: "no_tls_from_remote"}
	c := m.TCP(Inbound, Src, Destination{Addr: netip.MustParseAddrPort("[::ffff:10.0.0.7]:8080")}, tls)
	c.Open()
	c.Read(100)
	c.Read(-1)
	c.Write(7)
	label := `{direction="inbound",no_tls_reason="no_tls_from_remote",peer="src",target_addr="10.0.0.7:8080",target_ip="10.0.0.7",target_port="8080",tls="no_identity"}`
	want := []string{
		"tcp_open_connections" + label + " 1",
		"tcp_open_total" + label + " 1",
		"tcp_read_bytes_total" + label + " 100",
		"tcp_write_bytes_total" + label + " 7",
	}
	names := []string{"tcp_open_connections", "tcp_open_total", "tcp_read_bytes_total", "tcp_write_bytes_total", "tcp_close_total"}
	if d := cmp.Diff(want, scrape(t, m, names...)); d != "" {
		t.Errorf("while open (-want +got):\n%s", d)
	}

	c.Close("ECONNRESET", 1500*time.Millisecond)
	want[0] = "tcp_open_connections" + label + " 0"
	closed := strings.Replace(label, `inbound",`, `inbound",errno="ECONNRESET",`, 1)
	want = append([]string{"tcp_close_total" + closed + " 1"}, want...)
	if d := cmp.Diff(want, scrape(t, m, names...)); d != "" {
		t.Errorf("after the close (-want +got):\n%s", d)
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestDetectionIsCountedByLinkerdsWordsAndOurs(t *testing.T) {
	for _, tc := range []struct{ result, linkerd, protocol string }{
		{ResultNotHTTP, "not_http", "opaque"},
		{ResultHTTP1, "http/1", "http/1"},
		{ResultHTTP2, "http/2", "http/2"},
		{ResultTLS, "not_http", "tls"},
		{ResultReadTimeout, "read_timeout", "opaque"},
		{ResultError, "error", "unknown"},
	} {
		m := New(Config{})
		m.Detected(Outbound, 3306, tc.result, "bytes", 250*time.Millisecond)
		want := []string{
			`meshctl_detect_total{direction="outbound",port="3306",protocol="` + tc.protocol + `",reason="bytes"} 1`,
			`outbound_tcp_detect_http_duration_seconds_sum 0.25`,
			`outbound_tcp_detect_http_results_total{result="` + tc.linkerd + `"} 1`,
		}
		got := scrape(t, m, "meshctl_detect_total", "inbound_tcp_detect_http_results_total", "outbound_tcp_detect_http_results_total", "outbound_tcp_detect_http_duration_seconds_sum")
		moved := got[:0]
		for _, l := range got {
			if !strings.HasSuffix(l, " 0") {
				moved = append(moved, l)
			}
		}
		if d := cmp.Diff(want, moved); d != "" {
			t.Errorf("%s (-want +got):\n%s", tc.result, d)
		}
	}
}

func TestEventsMoveTheirOwnCounter(t *testing.T) {
	m := New(Config{Version: "1.2.3", GitSHA: "abc", SkipPackets: func() []SkipCount {
		return []SkipCount{{Inbound, "skip ports", 3}, {Outbound, "skip ports", 5}, {Inbound, "skip ports", 4}}
	}})
	m.DetectedName(Inbound, "mysql")
	m.DetectedName(Inbound, "")
	m.OutboundProtocol("detect")
	m.TCPError(Inbound, "i/o")
	m.TCPError(Outbound, "unexpected")
	m.EarlyDial(Outbound, "server_first")
	m.Refused(Inbound, "own_listener")
	m.AcceptError("EMFILE")
	m.ObserverLost(protocol.HTTP2, "limit")
	m.SetDraining(true)
	m.SetServerFirstTargets(7)
	m.Detecting(2)
	m.Panic()
	want := []string{
		`inbound_tcp_errors_total{error="i/o"} 1`,
		`meshctl_accept_errors_total{error="EMFILE"} 1`,
		`meshctl_detected_protocol_connections_total{detected="mysql",direction="inbound"} 1`,
		`meshctl_detecting_connections 2`,
		`meshctl_draining 1`,
		`meshctl_early_dials_total{direction="outbound",outcome="server_first"} 1`,
		`meshctl_observer_lost_total{protocol="http/2",reason="limit"} 1`,
		`meshctl_panics_total 1`,
		`meshctl_refused_total{direction="inbound",reason="own_listener"} 1`,
		`meshctl_server_first_targets 7`,
		`meshctl_skip_packets_total{direction="inbound",rule="skip ports"} 7`,
		`meshctl_skip_packets_total{direction="outbound",rule="skip ports"} 5`,
		`outbound_tcp_errors_total{error="unexpected"} 1`,
		`outbound_tcp_protocol_connections_total{protocol="detect"} 1`,
		`proxy_build_info{arch="` + runtime.GOARCH + `",git_sha="abc",go_version="` + runtime.Version() + `",version="1.2.3"} 1`,
	}
	var names []string
	for _, l := range want {
		name, _, _ := strings.Cut(l, " ")
		name, _, _ = strings.Cut(name, "{")
		names = append(names, name)
	}
	var got []string
	for _, l := range scrape(t, m, names...) {
		if !strings.HasSuffix(l, " 0") {
			got = append(got, l)
		}
	}
	if d := cmp.Diff(want, slices.Compact(got)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestErrnosOutsideTheListAreCountedTogether(t *testing.T) {
	m := New(Config{})
	for _, e := range []string{"", "EPIPE", "EPIPE", "EWHATEVER", "x y"} {
		c := m.TCP(Inbound, Dst, Destination{Addr: netip.MustParseAddrPort("[fd00::1]:53")}, TLSLabels{})
		c.Open()
		c.Close(e, 0)
	}
	const rest = `,peer="dst",target_addr="[fd00::1]:53",target_ip="fd00::1",target_port="53"} `
	want := []string{
		`tcp_close_total{direction="inbound",errno=""` + rest + "1",
		`tcp_close_total{direction="inbound",errno="EPIPE"` + rest + "2",
		`tcp_close_total{direction="inbound",errno="other"` + rest + "2",
	}
	if d := cmp.Diff(want, scrape(t, m, "tcp_close_total")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestManyClientsOfOneTargetAddFewLines holds the page small for what a client
// can vary: its requests' methods, paths and hosts are no labels, and closing
// and reopening connections adds no histogram.
func TestManyClientsOfOneTargetAddFewLines(t *testing.T) {
	m := New(Config{})
	before := strings.Count(serve(t, m), "\n")
	for range 5000 {
		src, dst := m.TCP(Inbound, Src, web, TLSLabels{TLS: "no_identity"}), m.TCP(Inbound, Dst, web, TLSLabels{TLS: "no_identity"})
		src.Open()
		dst.Open()
		m.Detected(Inbound, web.Addr.Port(), ResultHTTP1, "bytes", 0)
		h := m.HTTP(Inbound, web, TLSLabels{TLS: "no_identity"})
		h.Request()
		h.Response(ResponseLabels{Status: 200, Success: true}, time.Millisecond, true)
		h.Release()
		src.Close("", 0)
		dst.Close("", 0)
	}
	after := strings.Count(serve(t, m), "\n")
	// The HELP and TYPE lines of nine families come with the first series.
	if added := after - before - 2*9; added > 50 {
		t.Errorf("%d lines added, at most 50 may be", added)
	} else {
		t.Logf("%d lines added", added)
	}
}
