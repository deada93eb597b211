package admin

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
)

const profiles = "/debug/pprof/"

// handler is the map of paths. A pattern with GET takes HEAD too; other methods
// get 405 and other paths 404 from the mux.
func (a *Admin) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", a.cfg.Metrics)
	mux.HandleFunc("GET /live", live)
	mux.HandleFunc("GET /ready", a.ready)
	mux.HandleFunc("GET /connections", a.connections)
	mux.HandleFunc("GET /config", a.settings)
	if a.cfg.Shutdown != nil {
		// A page in a browser can POST to loopback without reading the answer.
		origin := http.NewCrossOriginProtection()
		mux.Handle("POST /shutdown", origin.Handler(http.HandlerFunc(a.shutdown)))
	}
	if a.cfg.Profiles {
		mux.HandleFunc("GET "+profiles, pprof.Index)
		mux.HandleFunc("GET "+profiles+"cmdline", pprof.Cmdline)
		mux.HandleFunc("GET "+profiles+"profile", pprof.Profile)
		mux.HandleFunc("GET "+profiles+"symbol", pprof.Symbol)
		mux.HandleFunc("POST "+profiles+"symbol", pprof.Symbol)
		mux.HandleFunc("GET "+profiles+"trace", pprof.Trace)
	}
	return guard(timed(mux))
}

func live(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "live\n") }

func (a *Admin) ready(w http.ResponseWriter, _ *http.Request) {
	if a.cfg.Ready() {
		writeText(w, http.StatusOK, "ready\n")
		return
	}
	text := "not ready\n"
	if a.cfg.NotReady != nil {
		if why := a.cfg.NotReady(); why != "" {
			text = "not ready: " + why + "\n"
		}
	}
	writeText(w, http.StatusServiceUnavailable, text)
}

func (a *Admin) shutdown(w http.ResponseWriter, r *http.Request) {
	a.cfg.Log.Info("shutdown requested", slog.String("client", r.RemoteAddr))
	writeText(w, http.StatusOK, "shutdown\n")
	// A client that is gone already still wants the shutdown.
	_ = http.NewResponseController(w).Flush()
	a.cfg.Shutdown()
}

func (a *Admin) settings(w http.ResponseWriter, r *http.Request) {
	body, err := json.MarshalIndent(a.cfg.Settings, "", "  ")
	if err != nil {
		a.cfg.Log.Error("writing /config", slog.Any("err", err))
		http.Error(w, "the configuration cannot be shown", http.StatusInternalServerError)
		return
	}
	writeJSONHeader(w)
	_, _ = w.Write(append(body, '\n')) // the client is gone: nothing to do
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // the client is gone: nothing to do
}

func writeJSONHeader(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}
