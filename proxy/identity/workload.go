package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/workloadapi"
)

// maxBackoff is the longest time between two attempts to reach the Workload API: a
// pod is there before the agent of its node as a rule, and should not wait
// long for it.
const maxBackoff = 5 * time.Second

// WorkloadConfig says where the Workload API is.
type WorkloadConfig struct {
	Socket string       // unix:///run/spire/agent.sock, or only the path; tcp://IP:PORT
	Log    *slog.Logger // nil: none
}

// workload is the Source of the SPIFFE Workload API.
type workload struct {
	*holder
	client  *workloadapi.Client
	cancel  context.CancelFunc
	running sync.WaitGroup
	fault   string // the last error told; of the watching goroutine
}

// Workload follows what the SPIFFE Workload API says, until ctx ends or the
// Source is closed. Only an address that cannot be is an error at once: the Source
// waits for the API, and comes back to it after a break. The API renews certificates
// by itself, long before they end. Anchors count for their own trust domain.
func Workload(ctx context.Context, cfg WorkloadConfig) (Source, error) {
	addr, err := Address(cfg.Socket)
	if err != nil {
		return nil, err
	}
	w := &workload{holder: newHolder(cfg.Log, "the Workload API at "+addr+" has not answered")}
	ctx, w.cancel = context.WithCancel(ctx)
	w.client, err = workloadapi.New(ctx, workloadapi.WithAddr(addr), workloadapi.WithBackoffStrategy(steps{}))
	if err != nil {
		w.cancel()
		return nil, fmt.Errorf("the Workload API at %s: %w", addr, err)
	}
	w.running.Go(func() { w.follow(ctx) })
	w.running.Go(func() { w.watchLife(ctx) })
	return w, nil
}

// Address is the address of a Workload API as a URI; a path stands for a Unix
// socket.
func Address(socket string) (string, error) {
	addr := socket
	if !strings.Contains(addr, ":") {
		if !strings.HasPrefix(addr, "/") {
			return "", fmt.Errorf("the Workload API's socket %q is neither an absolute path nor unix:///... nor tcp://IP:PORT", socket)
		}
		addr = "unix://" + addr
	}
	if err := workloadapi.ValidateAddress(addr); err != nil {
		return "", fmt.Errorf("the Workload API's socket %q: %w", socket, err)
	}
	return addr, nil
}

// Close implements Source.
func (w *workload) Close() error {
	w.cancel()
	w.running.Wait()
	if err := w.client.Close(); err != nil {
		return fmt.Errorf("leaving the Workload API: %w", err)
	}
	return nil
}

// follow watches the API. The library comes back by itself after most errors.
func (w *workload) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := w.client.WatchX509Context(ctx, updates{w})
		if ctx.Err() != nil {
			return
		}
		w.failing(err)
		select {
		case <-ctx.Done():
		case <-time.After(maxBackoff):
		}
	}
}

// failing tells an error once, until something comes or it is another one.
func (w *workload) failing(err error) {
	w.failed.Add(1)
	if err.Error() == w.fault {
		return
	}
	w.fault = err.Error()
	if w.current.Load() == nil {
		w.wait("the Workload API: " + w.fault)
		w.log.Warn("the Workload API gives no certificate: there is no identity yet", "err", err)
		return
	}
	w.log.Warn("the Workload API gives no certificate: what there was stays in force, until it expires", "err", err)
}

// updates gets what the API sends. Its methods are not a workload's own.
type updates struct{ w *workload }

// OnX509ContextUpdate takes a certificate and anchors.
func (u updates) OnX509ContextUpdate(c *workloadapi.X509Context) {
	s, err := snapshotOf(c, time.Now())
	if err != nil {
		u.w.failing(err)
		return
	}
	u.w.fault = ""
	u.w.take(s)
}

// OnX509ContextWatchError is told of what the library tries again.
func (u updates) OnX509ContextWatchError(err error) {
	if !errors.Is(err, context.Canceled) {
		u.w.failing(err)
	}
}

// snapshotOf takes the first certificate, as SPIFFE has it for workloads that
// want one only.
func snapshotOf(c *workloadapi.X509Context, now time.Time) (*Snapshot, error) {
	if len(c.SVIDs) == 0 {
		return nil, errors.New("the Workload API sent no certificate")
	}
	svid := c.DefaultSVID()
	cert := tls.Certificate{PrivateKey: svid.PrivateKey}
	for _, x := range svid.Certificates {
		cert.Certificate = append(cert.Certificate, x.Raw)
	}
	domains := map[string][]*x509.Certificate{}
	for _, b := range c.Bundles.Bundles() {
		domains[b.TrustDomain().Name()] = b.X509Authorities()
	}
	s, err := newSnapshot(cert, newDomains(svid.ID.TrustDomain().Name(), domains), now)
	if err != nil {
		return nil, fmt.Errorf("the certificate of %s is not taken: %w", svid.ID, err)
	}
	return s, nil
}

// steps is how the library waits between attempts: 1, 2, 3 ... seconds.
type steps struct{}

// NewBackoff begins at the first step.
func (steps) NewBackoff() workloadapi.Backoff { return new(step) }

type step struct{ n int }

// Next is the time before the next attempt.
func (s *step) Next() time.Duration {
	s.n++
	return min(time.Duration(s.n)*time.Second, maxBackoff)
}

// Reset begins again.
func (s *step) Reset() { s.n = 0 }
