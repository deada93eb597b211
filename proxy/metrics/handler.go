package metrics

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// maxScrapes is how many scrapes are answered at once; more get a 503. Each
// holds the whole page in memory.
const maxScrapes = 4

// Registry returns a new registry with the numbers of m and of the process.
// Errors of registering would be a name used twice in this package: they panic.
func (m *Metrics) Registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collector{m}, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Handler serves the numbers in the Prometheus text format, with gzip if the
// client accepts it. A collector that fails is logged to log and left out.
func (m *Metrics) Handler(log *slog.Logger) http.Handler {
	page := promhttp.HandlerFor(m.Registry(), promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: maxScrapes,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.Sweep(m.cfg.Now())
		page.ServeHTTP(w, r)
	})
}
