package metrics

import (
	"runtime"
	runtimemetrics "runtime/metrics"

	"github.com/prometheus/client_golang/prometheus"
)

// collector shows a Metrics to the Prometheus library.
type collector struct{ *Metrics }

// Describe sends nothing: series leave labels out that they do not have, which
// the library allows to collectors that describe nothing beforehand.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends every series as it is now.
func (c collector) Collect(out chan<- prometheus.Metric) {
	send := sender(func(m prometheus.Metric) { out <- m })
	for _, t := range c.tcp.list() {
		t.collect(c.page, send)
	}
	for _, h := range c.http.list() {
		h.collect(c.page, send)
	}
	for _, t := range c.capped {
		t.collect(send)
	}
	c.collectDurations(send)
	c.collectItself(send)
	c.collectResources(send)
	c.collectKubernetes(send)
	c.collectIdentity(send)
	c.collectControlPlane(send)
	c.collectIntermediary(send)
	c.collectAuthorizations(send)
	c.collectFoldings(send)
	c.collectSkips(send)
	collectRuntime(c.page, send)
}

func (m *Metrics) collectDurations(send sender) {
	for _, d := range []Direction{Inbound, Outbound} {
		for _, p := range []Peer{Src, Dst} {
			l := labels{}.with("direction", d.String()).with("peer", p.String()).sorted()
			send.histogram(m.page.tcpConnectionDuration, &m.durations[d.slot()][p.slot()], l)
		}
	}
	send.histogram(m.page.inboundDetectDuration, &m.detectDuration[Inbound.slot()], nil)
	send.histogram(m.page.outboundDetectDuration, &m.detectDuration[Outbound.slot()], nil)
}

func (m *Metrics) collectItself(send sender) {
	send.gauge(m.page.detecting, m.detecting.Load(), nil)
	send.gauge(m.page.serverFirstTargets, m.serverFirstTargets.Load(), nil)
	send.counter(m.page.panics, m.panics.Load(), nil)
	send.counter(m.page.grpcStatusMissing, m.grpcStatusMissing.Load(), nil)
	var draining int64
	if m.draining.Load() {
		draining = 1
	}
	send.gauge(m.page.draining, draining, nil)
	l := labels{}.known("version", clean(m.cfg.Version)).known("git_sha", clean(m.cfg.GitSHA))
	l = l.with("go_version", runtime.Version()).with("arch", runtime.GOARCH)
	send.gauge(m.page.buildInfo, 1, l.sorted())
}

func (m *Metrics) collectFoldings(send sender) {
	var events uint64
	for _, t := range m.capped {
		events += t.foldings()
	}
	for _, f := range []struct {
		family string
		n      uint64
	}{
		{"tcp", m.tcp.foldings()},
		{"http", m.http.foldings()},
		{"response", m.room.responses.lost.Load() + m.foldedRoom.responses.lost.Load()},
		{"latency", m.room.latencies.lost.Load() + m.foldedRoom.latencies.lost.Load()},
		{"event", events},
		{"authorization", m.authz.lost.Load()},
	} {
		send.counter(m.page.seriesFolded, f.n, labels{}.with("family", f.family))
	}
}

// collectSkips adds up equal rules: a series must not come twice.
func (m *Metrics) collectSkips(send sender) {
	if m.cfg.SkipPackets == nil {
		return
	}
	type rule struct{ direction, name string }
	sums := make(map[rule]uint64)
	for _, c := range m.cfg.SkipPackets() {
		r := rule{c.Direction.String(), clean(c.Rule)}
		if _, ok := sums[r]; !ok && len(sums) >= m.cfg.MaxSeries {
			r.name = other
		}
		sums[r] += c.Packets
	}
	for r, n := range sums {
		send.counter(m.page.skipPackets, n, labels{}.with("direction", r.direction).with("rule", r.name))
	}
}

// collectRuntime sends three numbers of the Go runtime. The library's collector
// has some forty, and reads memory statistics with the world stopped for them.
func collectRuntime(p *page, send sender) {
	read := []runtimemetrics.Sample{
		{Name: "/sched/goroutines:goroutines"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/total:bytes"},
	}
	runtimemetrics.Read(read)
	for i, f := range []*family{p.goGoroutines, p.goHeapBytes, p.goTotalBytes} {
		if read[i].Value.Kind() == runtimemetrics.KindUint64 {
			send.gauge(f, int64(read[i].Value.Uint64()), nil)
		}
	}
}
