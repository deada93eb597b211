package main

import (
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestAwaitWaitsUntilTheProxyIsReady(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ready" || asked.Add(1) < 3 {
			http.Error(w, "not ready: no certificate yet", http.StatusServiceUnavailable)
		}
	})}
	go func() { _ = srv.Serve(l) }() // ends with Close
	defer srv.Close()
	got := runInject(t, t.TempDir(), "", "await", "--admin", l.Addr().String())
	if got.code != 0 || asked.Load() != 3 {
		t.Errorf("exit code %d after %d answers: %s", got.code, asked.Load(), got.stderr)
	}
	asked.Store(-1 << 30)
	got = runInject(t, t.TempDir(), "", "await", "--timeout", "200ms", "--admin", l.Addr().String())
	if got.code != exitTryAgain || !strings.Contains(got.stderr, "no certificate yet") {
		t.Errorf("exit code %d, %q: want what the proxy said last", got.code, got.stderr)
	}
}

func TestAwaitTellsOfAProxyThatIsNotThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // nobody listens there now
	got := runInject(t, t.TempDir(), "", "await", "--timeout", "200ms", "--admin", l.Addr().String())
	if got.code != exitTryAgain || !strings.Contains(got.stderr, "connection refused") {
		t.Errorf("exit code %d, %q", got.code, got.stderr)
	}
	if got := runInject(t, t.TempDir(), "", "await", "--admin", "somewhere"); got.code != exitUsage {
		t.Errorf("exit code %d, %q", got.code, got.stderr)
	}
}
