package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestResponsesAreLabelledAsLinkerdDoes(t *testing.T) {
	for _, tc := range []struct {
		name    string
		in      ResponseLabels
		want    string // labels of response_total without the target's
		missing int
	}{
		{"plain success", ResponseLabels{Status: 204, Success: true}, `classification="success",direction="outbound",status_code="204"`, 0},
		{"server error", ResponseLabels{Status: 503}, `classification="failure",direction="outbound",status_code="503"`, 0},
		{"no status before the end", ResponseLabels{Err: "reset"}, `classification="failure",direction="outbound",error="reset"`, 0},
		{"gRPC success", ResponseLabels{Status: 200, GRPC: true, Success: true}, `classification="success",direction="outbound",grpc_status="0",status_code="200"`, 0},
		{"gRPC failure", ResponseLabels{Status: 200, GRPC: true, GRPCStatus: 14}, `classification="failure",direction="outbound",grpc_status="14",status_code="200"`, 0},
		{"gRPC status missing", ResponseLabels{Status: 200, GRPC: true, GRPCStatus: -1}, `classification="failure",direction="outbound",grpc_status="missing",status_code="200"`, 1},
		{"gRPC cut before its status", ResponseLabels{Status: 200, GRPC: true, GRPCStatus: -1, Err: "cancel"}, `classification="failure",direction="outbound",error="cancel",status_code="200"`, 0},
		{"gRPC status that does not exist", ResponseLabels{Status: 200, GRPC: true, GRPCStatus: 99}, `classification="failure",direction="outbound",grpc_status="other",status_code="200"`, 0},
		{"grpc-status without gRPC", ResponseLabels{Status: 200, GRPCStatus: -1, Success: true}, `classification="success",direction="outbound",status_code="200"`, 0},
		{"status out of range", ResponseLabels{Status: 70000}, `classification="failure",direction="outbound"`, 0},
		{"error that is no word of ours", ResponseLabels{Status: 200, Err: "x\ny"}, `classification="failure",direction="outbound",error="other",status_code="200"`, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := New(Config{})
			h := m.HTTP(Outbound, web, TLSLabels{})
			h.Request()
			h.Response(tc.in, 0, false)
			want := []string{
				fmt.Sprintf("meshctl_grpc_status_missing_total %d", tc.missing),
				`request_total{direction="outbound",target_addr="10.0.0.7:8080",target_ip="10.0.0.7",target_port="8080"} 1`,
				`response_total{` + tc.want + `,target_addr="10.0.0.7:8080",target_ip="10.0.0.7",target_port="8080"} 1`,
			}
			got := scrape(t, m, "request_total", "response_total", "response_latency_ms_count", "meshctl_grpc_status_missing_total")
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestLatencyFallsIntoTheBucketWhoseEdgeItReaches(t *testing.T) {
	m := New(Config{})
	h := m.HTTP(Inbound, web, TLSLabels{})
	for _, d := range []time.Duration{-time.Second, 0, time.Millisecond, time.Millisecond + 1, 50 * time.Second, time.Minute} {
		h.Response(ResponseLabels{Status: 200, Success: true}, d, true)
	}
	h.Response(ResponseLabels{Status: 200, Success: true}, time.Hour, false)
	got := map[string]string{}
	for _, line := range scrape(t, m, "response_latency_ms_bucket", "response_latency_ms_count", "response_latency_ms_sum") {
		name, n, _ := strings.Cut(line, "} ")
		_, le, _ := strings.Cut(name, `le="`)
		if le == "" {
			le, _, _ = strings.Cut(strings.TrimPrefix(name, "response_latency_ms_"), "{")
		}
		got[strings.TrimSuffix(le, `"`)] = n
	}
	want := map[string]string{"count": "6", "sum": "110002", "+Inf": "6", "50000": "5", "1": "3"}
	for _, e := range m.page.latencyBounds.edges[1:] {
		if e < 50000 {
			want[fmt.Sprint(e)] = "4"
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestServerThatInventsStatusesFillsOnlyItsOwnShare(t *testing.T) {
	m := New(Config{})
	h := m.HTTP(Outbound, web, TLSLabels{})
	for status := 100; status <= 999; status++ {
		h.Response(ResponseLabels{Status: status, Success: status < 500}, time.Millisecond, true)
	}
	lines := scrape(t, m, "response_total", "response_latency_ms_count")
	if len(lines) != 2*perTarget+3 {
		t.Errorf("%d series, want %d of each and what is folded", len(lines), perTarget)
	}
	if got, want := sum(t, grep(lines, "response_total", `classification="success"`)), 400.0; got != want {
		t.Errorf("%v successes, want %v: the success rate must survive folding", got, want)
	}
	if got := sum(t, grep(lines, "response_total", `status_code="other"`)); got != 900-perTarget {
		t.Errorf("%v under other, want %d", got, 900-perTarget)
	}
	if got := sum(t, scrape(t, m, "meshctl_series_folded_total")); got != 2*(900-perTarget) {
		t.Errorf("%v foldings, want %d", got, 2*(900-perTarget))
	}
}

func TestStatusesOfAllTargetsTogetherAreCapped(t *testing.T) {
	now := time.Unix(1e9, 0)
	m := New(Config{MaxSeries: 100, Now: func() time.Time { return now }})
	fill := func() {
		for i := range 50 {
			h := m.HTTP(Outbound, address(i), TLSLabels{})
			for status := 500; status < 510; status++ {
				h.Response(ResponseLabels{Status: status}, time.Millisecond, true)
			}
			h.Release()
		}
	}
	fill()
	for _, name := range []string{"response_total", "response_latency_ms_count"} {
		lines := scrape(t, m, name)
		if got, most := len(lines), 100+50; got > most {
			t.Errorf("%s: %d series, at most %d may be", name, got, most)
		}
		if got := sum(t, lines); got != 500 {
			t.Errorf("%s: %v counted, want 500", name, got)
		}
	}
	now = now.Add(time.Hour)
	m.Sweep(now)
	if m.room.responses.live.Load() != 0 || m.room.latencies.live.Load() != 0 {
		t.Errorf("room not given back: %d and %d", m.room.responses.live.Load(), m.room.latencies.live.Load())
	}
	fill()
	if got := len(grep(scrape(t, m, "response_total"), "response_total", `status_code="505"`)); got != 10 {
		t.Errorf("%d targets have their own 505 after the sweep, want 10", got)
	}
}
