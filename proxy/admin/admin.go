// Package admin is the proxy's HTTP server for people, probes and scrapers:
// metrics, liveness, readiness, the open connections, the effective
// configuration, shutdown and, if asked for, profiles.
//
// It knows nothing of the proxy: what it shows is handed in. Whoever can reach
// the port may read /metrics, /live and /ready; everything else is for loopback
// peers that do not come by way of a browser (see guard).
package admin

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Config is what the server shows and does.
type Config struct {
	Metrics http.Handler // serves /metrics; required
	Ready   func() bool  // whether the listeners are bound; required
	// NotReady says why Ready is false; nil or empty: there is nothing to say.
	NotReady func() string
	Log      *slog.Logger // required

	// Connections yields the open connections for /connections. It runs on the
	// request's goroutine and may be stopped by a slow or lost client at any
	// yield, so it must hold no lock while it yields. Nil means none.
	Connections iter.Seq[Connection]
	// Settings is the effective configuration, shown by /config as JSON.
	Settings any
	// Shutdown is called on POST /shutdown, once the answer is on its way. It
	// must return at once. Nil leaves the path out.
	Shutdown func()
	// Profiles turns on /debug/pprof/.
	Profiles bool
}

// Validate says what is missing in c.
func (c Config) Validate() error {
	switch {
	case c.Metrics == nil:
		return errors.New("no handler for metrics")
	case c.Ready == nil:
		return errors.New("no readiness function")
	case c.Log == nil:
		return errors.New("no logger")
	}
	return nil
}

// Bounds on what one client can hold. A scrape, a probe or a person needs far
// less; what the proxy has of descriptors and memory belongs to the traffic.
const (
	maxHeaderBytes    = 16 << 10
	maxConnections    = 256 // of all listeners
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 30 * time.Second // of one answer; profiles take as long as they are asked to
	idleTimeout       = 90 * time.Second // longer than a scrape interval
)

// Admin is the server. Make one with New.
type Admin struct {
	cfg    Config
	server *http.Server
}

// New makes a server that does not listen yet.
func New(cfg Config) (*Admin, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the admin server: %w", err)
	}
	a := &Admin{cfg: cfg}
	a.server = &http.Server{
		Handler:           a.handler(),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnState:         newSeats(maxConnections).changed,
		ErrorLog:          slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),

		DisableGeneralOptionsHandler: true,
	}
	return a, nil
}

// Serve answers on l until Shutdown; then it returns nil. It may be called for
// several listeners, each in its own goroutine, and closes l.
func (a *Admin) Serve(l net.Listener) error {
	err := a.server.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving admin on %s: %w", l.Addr(), err)
}

// Shutdown closes the listeners, lets answers under way end until ctx is done,
// and then cuts them.
func (a *Admin) Shutdown(ctx context.Context) error {
	err := a.server.Shutdown(ctx)
	if err == nil {
		return nil
	}
	if closeErr := a.server.Close(); closeErr != nil {
		return fmt.Errorf("closing the admin server: %w", closeErr)
	}
	return fmt.Errorf("shutting the admin server down: %w", err)
}
