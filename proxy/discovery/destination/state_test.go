package destination_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/destination"
	"github.com/meshctl/meshctl/proxy/policy"
)

// lines is a log that may be read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestAControlPlaneThatWasNeverThereIsToldOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var log lines
	c, err := destination.Open(destination.Config{Addrs: []string{addr}, Opaque: policy.DefaultOpaque(), Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx, discovery.NewCache(discovery.CacheConfig{}, c))
	}()
	const want = "cannot be reached"
	for end := time.Now().Add(30 * time.Second); !strings.Contains(log.String(), want); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not told: %s", log.String())
		}
	}
	time.Sleep(time.Second) // two or three further attempts
	stop()
	<-ended
	if n := strings.Count(log.String(), want); n != 1 || !strings.Contains(log.String(), addr) {
		t.Errorf("told %d times:\n%s", n, log.String())
	}
}
