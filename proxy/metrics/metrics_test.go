package metrics

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

var web = netip.MustParseAddrPort("10.0.0.7:8080")

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
	m.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestConnectionsAreCountedWhileTheyAreOpen(t *testing.T) {
	m := New(Config{})
	tls := TLSLabels{TLS: "no_identity", NoTLSReason: "no_tls_from_remote"}
	c := m.TCP(Inbound, Src, netip.MustParseAddrPort("[::ffff:10.0.0.7]:8080"), tls)
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
