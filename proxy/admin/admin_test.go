package admin

import (
	"encoding/json"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// page stands for the metrics handler, which has its own tests.
func page(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "up 1\n") }

func configured() Config {
	return Config{
		Metrics:  http.HandlerFunc(page),
		Ready:    func() bool { return true },
		Log:      slog.New(slog.DiscardHandler),
		Settings: map[string]any{"detect_timeout": "10s"},
		Shutdown: func() {},
	}
}

func build(t *testing.T, cfg Config) *Admin {
	t.Helper()
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// ask sends one request to the handler as a peer at remote.
func ask(a *Admin, method, path, remote, host string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr, r.Host = remote, host
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	a.server.Handler.ServeHTTP(w, r)
	return w
}

const (
	loopback = "127.0.0.1:40000"
	here     = "127.0.0.1:4191"
)

func TestWhatIsMissingIsSaid(t *testing.T) {
	for name, spoil := range map[string]func(*Config){
		"metrics":   func(c *Config) { c.Metrics = nil },
		"readiness": func(c *Config) { c.Ready = nil },
		"logger":    func(c *Config) { c.Log = nil },
	} {
		cfg := configured()
		spoil(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: error %v", name, err)
		}
	}
}

func TestAnswersByPathMethodAndPeer(t *testing.T) {
	a := build(t, configured())
	methods := []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions}
	read := []int{200, 200, 405, 405, 405, 405}
	act := []int{405, 405, 200, 405, 405, 405}
	none := []int{404, 404, 404, 404, 404, 404}
	deny := []int{403, 403, 403, 403, 403, 403}
	peers := map[string]bool{
		loopback: true, "127.8.7.6:1": true, "[::1]:1": true, "[::ffff:127.0.0.1]:1": true,
		"10.0.0.9:1": false, "[fd00::9]:1": false, "[::ffff:10.0.0.9]:1": false, "[fe80::1%eth0]:1": false,
		"0.0.0.0:1": false, "@": false, "": false,
	}
	for _, tc := range []struct {
		path           string
		local, distant []int
	}{
		{"/metrics", read, read},
		{"/live", read, read},
		{"/ready", read, read},
		{"/connections", read, deny},
		{"/config", read, deny},
		{"/shutdown", act, deny},
		{"/debug/pprof/", none, deny},
		{"/debug/pprof/heap", none, deny},
		{"/", none, deny},
		{"/metrics/", none, deny},
		{"/livez", none, deny},
		{"/proxy-log-level", none, deny},
	} {
		for remote, local := range peers {
			want := tc.distant
			if local {
				want = tc.local
			}
			for i, method := range methods {
				if got := ask(a, method, tc.path, remote, here).Code; got != want[i] {
					t.Errorf("%s %s from %q: %d, want %d", method, tc.path, remote, got, want[i])
				}
			}
		}
	}
}

func TestPathsThatAreNotCleanReachNothingFromOutside(t *testing.T) {
	a := build(t, configured())
	for _, path := range []string{"//config", "/./config", "/live/../config", "/live/%2e%2e/config", "/%63onfig", "/live;/config"} {
		if got := ask(a, http.MethodGet, path, "10.0.0.9:1", here); got.Code != http.StatusForbidden {
			t.Errorf("%s: %d, want 403", path, got.Code)
		}
	}
}

func TestLoopbackPathsWantAnAddressOrLocalhostAsHost(t *testing.T) {
	a := build(t, configured())
	for host, want := range map[string]int{
		"127.0.0.1": 200, "127.0.0.1:4191": 200, "[::1]:4191": 200, "[::1]": 200, "::1": 200, "10.1.2.3:4191": 200,
		"localhost": 200, "localhost:4191": 200, "LOCALHOST:4191": 200,
		"evil.example": 403, "evil.example:4191": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example:4191": 403,
		"": 403, ":4191": 403, "127.0.0.1@evil.example": 403, "0x7f.1": 403, "[]:4191": 403,
	} {
		if got := ask(a, http.MethodGet, "/config", loopback, host).Code; got != want {
			t.Errorf("Host %q: %d, want %d", host, got, want)
		}
		if got := ask(a, http.MethodGet, "/live", loopback, host).Code; got != 200 {
			t.Errorf("/live with Host %q: %d, want 200: probes may name the pod as they like", host, got)
		}
	}
}

func TestShutdownIsForProgramsAndNotForWebPages(t *testing.T) {
	for _, tc := range []struct {
		name   string
		header []string
		want   int
	}{
		{"curl", nil, 200},
		{"page of another site", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"page of another port", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"old browser", []string{"Origin", "http://evil.example"}, 403},
		{"page without an origin", []string{"Origin", "null"}, 403},
	} {
		calls := 0
		cfg := configured()
		cfg.Shutdown = func() { calls++ }
		w := ask(build(t, cfg), http.MethodPost, "/shutdown", loopback, here, tc.header...)
		if w.Code != tc.want || calls != map[int]int{200: 1, 403: 0}[tc.want] {
			t.Errorf("%s: %d and %d calls, want %d", tc.name, w.Code, calls, tc.want)
		}
	}
	cfg := configured()
	cfg.Shutdown = nil
	if w := ask(build(t, cfg), http.MethodPost, "/shutdown", loopback, here); w.Code != http.StatusNotFound {
		t.Errorf("without a shutdown function: %d, want 404", w.Code)
	}
}

func TestProbesTellLifeFromReadiness(t *testing.T) {
	var ready atomic.Bool
	cfg := configured()
	cfg.Ready = ready.Load
	a := build(t, cfg)
	check := func(path string, code int, body string) {
		t.Helper()
		if w := ask(a, http.MethodGet, path, "10.0.0.9:1", "pod.example"); w.Code != code || w.Body.String() != body {
			t.Errorf("%s: %d %q, want %d %q", path, w.Code, w.Body, code, body)
		}
	}
	check("/live", 200, "live\n")
	check("/ready", 503, "not ready\n")
	ready.Store(true)
	check("/ready", 200, "ready\n")
	check("/metrics", 200, "up 1\n")
}

func TestConfigIsShownAsJSON(t *testing.T) {
	w := ask(build(t, configured()), http.MethodGet, "/config", loopback, here)
	if got, want := w.Body.String(), "{\n  \"detect_timeout\": \"10s\"\n}\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	cfg := configured()
	cfg.Settings = func() {}
	if w := ask(build(t, cfg), http.MethodGet, "/config", loopback, here); w.Code != http.StatusInternalServerError {
		t.Errorf("settings that are no JSON: %d, want 500", w.Code)
	}
}

func sequence(all ...Connection) iter.Seq[Connection] { return slices.Values(all) }

func TestConnectionsAreListedAsAnArray(t *testing.T) {
	full := Connection{
		Direction: "outbound", Client: netip.MustParseAddrPort("[::ffff:10.0.0.1]:5000"), Target: netip.MustParseAddrPort("[fd00::1]:443"),
		Protocol: "tls", Detected: "mysql", Reason: "bytes", SNI: "a\"\n\xff.example", ALPN: "h2,http/1.1", State: "relaying",
		BytesIn: 1, BytesOut: 1 << 60, Age: 1500 * time.Millisecond,
	}
	for _, tc := range []struct {
		name string
		in   iter.Seq[Connection]
		want []map[string]any
	}{
		{"no function", nil, []map[string]any{}},
		{"none", sequence(), []map[string]any{}},
		{"two", sequence(full, Connection{Direction: "inbound"}), []map[string]any{
			{
				"direction": "outbound", "client": "10.0.0.1:5000", "target": "[fd00::1]:443", "protocol": "tls", "detected": "mysql",
				"reason": "bytes", "sni": "a\"\n\uFFFD.example", "alpn": "h2,http/1.1", "state": "relaying",
				"bytes_in": json.Number("1"), "bytes_out": json.Number("1152921504606846976"), "age_ms": json.Number("1500"),
			},
			{
				"direction": "inbound", "client": "", "target": "", "protocol": "",
				"bytes_in": json.Number("0"), "bytes_out": json.Number("0"), "age_ms": json.Number("0"),
			},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := configured()
			cfg.Connections = tc.in
			w := ask(build(t, cfg), http.MethodGet, "/connections", loopback, here)
			decoder := json.NewDecoder(w.Body)
			decoder.UseNumber()
			got := []map[string]any{}
			if err := decoder.Decode(&got); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestHeadDoesNotWalkTheConnections(t *testing.T) {
	cfg := configured()
	cfg.Connections = func(func(Connection) bool) { t.Error("walked") }
	if w := ask(build(t, cfg), http.MethodHead, "/connections", loopback, here); w.Code != http.StatusOK || w.Body.Len() != 0 {
		t.Errorf("%d with %d bytes", w.Code, w.Body.Len())
	}
}

func TestProfilesAreThereOnlyIfAskedFor(t *testing.T) {
	cfg := configured()
	cfg.Profiles = true
	a := build(t, cfg)
	for _, path := range []string{"", "cmdline", "symbol", "goroutine?debug=1", "heap", "profile?seconds=1", "trace?seconds=0.1"} {
		if w := ask(a, http.MethodGet, "/debug/pprof/"+path, loopback, here); w.Code != http.StatusOK || w.Body.Len() == 0 {
			t.Errorf("%s: %d with %d bytes", path, w.Code, w.Body.Len())
		}
		if w := ask(a, http.MethodGet, "/debug/pprof/"+path, "10.0.0.9:1", here); w.Code != http.StatusForbidden {
			t.Errorf("%s from outside: %d, want 403", path, w.Code)
		}
	}
}
