package controller

import (
	"fmt"
	"io"
	"net/http"
	"time"
)

// Admin answers /live, /ready and /metrics. ready says why the Server should not be
// asked yet; nil: it may be. more, if set, writes further metrics.
func (s *Server) Admin(ready func() error, more func(io.Writer)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "live") })
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-s.done:
			http.Error(w, "not ready: ending", http.StatusServiceUnavailable)
			return
		default:
		}
		if err := ready(); err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		s.writeMetrics(w)
		if more != nil {
			more(w)
		}
	})
	return mux
}

// writeMetrics writes Prometheus' text format: there are few numbers, and none of
// them has a label that a client chooses.
func (s *Server) writeMetrics(w io.Writer) {
	write := func(name, help, kind string) {
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	}
	write("meshctl_controller_streams", "Streams that are open, by the method that proxies called.", "gauge")
	for k := askMembers; k < kinds; k++ {
		fmt.Fprintf(w, "meshctl_controller_streams{method=%q} %d\n", k.String(), s.streams[k].Load())
	}
	write("meshctl_controller_watches", "Different questions that streams ask; each is computed once for all of them.", "gauge")
	fmt.Fprintf(w, "meshctl_controller_watches %d\n", s.hub.size())
	write("meshctl_controller_messages_total", "Messages sent to proxies.", "counter")
	fmt.Fprintf(w, "meshctl_controller_messages_total %d\n", s.sent.Load())
	write("meshctl_controller_changes_total", "Changes of the picture.", "counter")
	fmt.Fprintf(w, "meshctl_controller_changes_total %d\n", s.updates.Load())
	write("meshctl_controller_computed_total", "Answers computed, also where they turned out to be the same.", "counter")
	fmt.Fprintf(w, "meshctl_controller_computed_total %d\n", s.worked.Load())
	write("meshctl_controller_computing_seconds_total", "Time spent on computing answers after changes.", "counter")
	fmt.Fprintf(w, "meshctl_controller_computing_seconds_total %g\n", time.Duration(s.took.Load()).Seconds())
}
