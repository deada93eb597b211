package metrics

import "strconv"

// Balancer is the state of the endpoints of one backend of a destination.
type Balancer struct {
	Parent, Backend Service
	Ready, Pending  int     // endpoints that may be chosen, and that may not now
	RetryTokens     float64 // retries to the Parent that may be made now; alike for all of its backends
}

// Pool is what the loops of one direction have under way where requests are
// taken one by one.
type Pool struct {
	Direction          Direction
	Idle, Busy, Opened int // connections to endpoints: HTTP/1 unused, HTTP/1 in use, HTTP/2
	Waiting            int // requests for which no endpoint or no connection is ready
	Exchanges          int // requests under way, those that wait among them
}

func (p *page) intermediary() {
	p.retries = p.add("meshctl_retries_total", "Requests sent again, by the Service that they were for; skipped: those that were not, because the budget was used up.", "direction", "skipped", "dst_namespace", "dst_service")
	p.answers = p.add("outbound_http_errors_total", "Requests that the proxy answered itself, or gave up, by why.", "error")
	p.bypasses = p.add("meshctl_route_bypass_total", "Connections to a destination with routes that did not count for them, by why.", "direction", "reason", "dst_namespace", "dst_service")
	p.endpoints = p.add("outbound_http_balancer_endpoints", "Endpoints of a destination's backend, by whether one may be chosen.",
		append(serviceLabels(), "endpoint_state", "backend_namespace", "backend_name", "backend_port")...)
	p.pooled = p.add("meshctl_pool_connections", "Connections to endpoints that carry, or may carry, requests.", "direction", "state")
	p.waiting = p.add("meshctl_waiting_requests", "Requests for which no endpoint, or no connection, is ready.", "direction")
	p.exchanges = p.add("meshctl_exchanges", "Requests under way where they are taken one by one.", "direction")
	p.retryTokens = p.add("meshctl_retry_budget", "Retries of requests to a destination that may be made now.", serviceLabels()...)
	p.accessLines = p.add("meshctl_access_log_lines_total", "Lines of the access log; dropped: whoever reads it is too slow.", "result")
}

// Retried counts n requests to a Service that were sent again.
func (m *Metrics) Retried(d Direction, to Service, n int) {
	for range n {
		m.retries.add(values{d.String(), "", to.Namespace, to.Name})
	}
}

// RetrySkipped counts a request that was not sent again although its route
// wanted it, because the budget was used up.
func (m *Metrics) RetrySkipped(d Direction, to Service) {
	m.retries.add(values{d.String(), "no_budget", to.Namespace, to.Name})
}

// Answered counts a request that the proxy answered itself, or gave up, by a
// word of a closed set: failfast, loadshed ...
func (m *Metrics) Answered(why string) { m.answers.add(values{why}) }

// RouteBypassed counts a connection to a Service with routes that did not count
// for it, by a word of a closed set: not_http, timeout ...
func (m *Metrics) RouteBypassed(d Direction, to Service, reason string) {
	m.bypasses.add(values{d.String(), reason, to.Namespace, to.Name})
}

func (m *Metrics) collectIntermediary(send sender) {
	if m.cfg.Balancers != nil {
		all := m.cfg.Balancers()
		collectBalancers(m.page.endpoints, all, send)
		collectBudgets(m.page.retryTokens, all, send)
	}
	if m.cfg.Pools != nil {
		for _, p := range m.cfg.Pools() {
			p.collect(m.page, send)
		}
	}
	if m.cfg.AccessLog != nil {
		written, dropped := m.cfg.AccessLog()
		send.counter(m.page.accessLines, written, labels{}.with("result", "written"))
		send.counter(m.page.accessLines, dropped, labels{}.with("result", "dropped"))
	}
}

func (p Pool) collect(to *page, send sender) {
	l := labels{}.with("direction", p.Direction.String())
	for _, s := range []struct {
		state string
		n     int
	}{{"idle", p.Idle}, {"busy", p.Busy}, {"http2", p.Opened}} {
		send.gauge(to.pooled, int64(s.n), l.with("state", s.state).sorted())
	}
	l = l.sorted()
	send.gauge(to.waiting, int64(p.Waiting), l)
	send.gauge(to.exchanges, int64(p.Exchanges), l)
}

// collectBudgets shows the least of several destinations that have a Service in
// common, such as its addresses.
func collectBudgets(f *family, all []Balancer, send sender) {
	least := make(map[Service]float64)
	for _, b := range all {
		p := b.Parent.clean()
		if had, ok := least[p]; !ok || b.RetryTokens < had {
			least[p] = b.RetryTokens
		}
	}
	for p, n := range least {
		send.gauge(f, int64(n), p.appendTo(nil).sorted())
	}
}

// collectBalancers adds up what several destinations have alike, such as the
// addresses of one Service: a series must not come twice.
func collectBalancers(f *family, all []Balancer, send sender) {
	type pair struct{ parent, backend Service }
	sums := make(map[pair]Balancer)
	for _, b := range all {
		p := pair{b.Parent.clean(), b.Backend.clean()}
		sum := sums[p]
		sum.Ready += b.Ready
		sum.Pending += b.Pending
		sums[p] = sum
	}
	for p, b := range sums {
		l := p.parent.appendTo(nil).with("backend_namespace", p.backend.Namespace).
			with("backend_name", p.backend.Name).with("backend_port", strconv.Itoa(int(p.backend.Port))).sorted()
		send.gauge(f, int64(b.Ready), l.with("endpoint_state", "ready").sorted())
		send.gauge(f, int64(b.Pending), l.with("endpoint_state", "pending").sorted())
	}
}
