package forward

import (
	"log/slog"
	"sync"

	"github.com/meshctl/meshctl/proxy/detect"
	"github.com/meshctl/meshctl/proxy/exchange"
	"github.com/meshctl/meshctl/proxy/l7"
	"github.com/meshctl/meshctl/proxy/metrics"
	"github.com/meshctl/meshctl/proxy/route"
)

// destination is where the connection was to go, as metrics name it.
func (fl *flow) destination() metrics.Destination {
	d := metrics.Destination{Addr: fl.route.Target}
	if v := fl.route.View; v != nil && v.Object.Kind == "Service" {
		d.Service = metrics.Service{Namespace: v.Object.Namespace, Name: v.Object.Name, Port: v.Port}
	}
	return d
}

// Requested counts a request that is taken by itself.
func (fl *flow) Requested([]byte) { fl.http.Request() }

// Responded counts what became of it.
func (fl *flow) Responded(r exchange.Result) {
	f := fl.lane.forwarder
	l := metrics.ResponseLabels{Status: r.Status, GRPC: r.GRPC, GRPCStatus: r.GRPCStatus}
	if r.Aborted {
		l.Err = l7.ErrAborted
		if r.Failure == exchange.ClientGone {
			l.Err = l7.ErrCancel
		}
	}
	l.Success = l.Err == "" && r.Failure == 0 && l7.Success(r.Status, r.GRPC, r.GRPCStatus)
	fl.http.Response(l, r.Latency, r.HasLatency)
	if r.Route != nil {
		h := fl.lane.ruleOf(fl, r.Route).counts
		h.Request()
		h.Response(l, r.Latency, r.HasLatency)
	}
	if r.Retries > 0 {
		f.metrics.Retried(f.direction, fl.destination().Service, r.Retries)
	}
	if r.OverBudget {
		f.metrics.RetrySkipped(f.direction, fl.destination().Service)
	}
	why := failureWord(r.Failure)
	if why != "" {
		f.metrics.Answered(why)
	}
	fl.logExchange(&r, why)
}

// failureWord is the value of a metric's label for f: a closed set.
func failureWord(f exchange.Failure) string {
	switch f {
	case 0:
		return ""
	case exchange.NoRoute:
		return "no_route"
	case exchange.NoBackend:
		return "no_backend"
	case exchange.ConnectFailed:
		return "connect"
	case exchange.ConnectTimeout:
		return "connect_timeout"
	case exchange.UpstreamBroken:
		return "broken"
	case exchange.FailFast:
		return "failfast"
	case exchange.LoadShed:
		return "loadshed"
	case exchange.TimedOut:
		return "timeout"
	case exchange.ClientGone:
		return "cancel"
	case exchange.IdentityRequired:
		return "identity_required"
	case exchange.Unauthorized:
		return "unauthorized"
	case exchange.Broken:
		return "internal"
	default:
		return "other"
	}
}

// rulesKept is how many rules a lane keeps the counters of. Rules that are no
// longer in force go when there are more.
const rulesKept = 1000

// rule is what a lane keeps of a rule of a route.
type rule struct {
	counts *metrics.HTTP
	name   string // of its route: "HTTPRoute shop/web"
}

// ruleOf is the rule that a says. It is looked up once.
func (ln *lane) ruleOf(fl *flow, a *route.Action) rule {
	if r, ok := ln.rules[a]; ok {
		return r
	}
	if len(ln.rules) >= rulesKept {
		for _, old := range ln.rules {
			old.counts.Release()
		}
		clear(ln.rules)
	}
	if ln.rules == nil {
		ln.rules = make(map[*route.Action]rule)
	}
	m := metrics.Route{Namespace: a.Route.Namespace, Name: a.Route.Name}
	r := rule{}
	if m.Name != "" {
		m.Kind = a.Route.Kind.String()
		r.name = m.Kind + " " + m.Namespace + "/" + m.Name
	}
	r.counts = ln.forwarder.metrics.Route(ln.forwarder.direction, fl.destination().Service, m)
	ln.rules[a] = r
	return r
}

// recordBypass tells of a connection to a destination with routes that cannot
// count for it, because it is not HTTP as far as is known.
func (fl *flow) recordBypass() {
	v := fl.route.View
	if v == nil || fl.kind.HTTP() || !v.Bypassed && (v.Table == nil || !v.Table.Routed) {
		return
	}
	reason := fl.reason.String()
	switch fl.reason {
	case detect.ReasonBytes, detect.ReasonPrefixAtEOF, detect.ReasonCutAtEOF, detect.ReasonTooLong:
		reason = "not_http"
	}
	f := fl.lane.forwarder
	f.metrics.RouteBypassed(f.direction, fl.destination().Service, reason)
	fl.lane.log(slog.LevelInfo, "routes do not apply to a connection that is not HTTP", fl.about(
		slog.String("target", v.String()), slog.String("protocol", fl.kind.String()), slog.String("reason", reason))...)
}

// Pool asks each loop what it has under way for requests that are taken one by
// one, and waits for its answer: the loops have to be running, or to have ended.
func (f *Forwarder) Pool() metrics.Pool {
	var (
		mu  sync.Mutex
		sum = metrics.Pool{Direction: f.direction}
		wg  sync.WaitGroup
	)
	for l, ln := range f.lanes {
		wg.Add(1)
		if !l.Post(func() {
			defer wg.Done()
			mu.Lock()
			defer mu.Unlock()
			c := ln.exchanges.Counts()
			sum.Idle, sum.Busy, sum.Opened = sum.Idle+c.Idle, sum.Busy+c.Busy, sum.Opened+c.HTTP2
			sum.Waiting, sum.Exchanges = sum.Waiting+c.Waiting, sum.Exchanges+c.Open
		}) {
			wg.Done()
		}
	}
	wg.Wait()
	return sum
}
