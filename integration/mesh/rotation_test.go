package mesh

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/integration/servers"
	"github.com/meshctl/meshctl/proxy/identity/authority"
)

// Anchors and leaves change twenty times under load, in the three steps that
// docs/identity.md tells, and no request notices.
func TestRotationUnderLoad(t *testing.T) {
	t.Parallel()
	w := meshed(t, setup{before: func(w *world) {
		servers.HTTP1(t, servers.At(w.Peer, lab.PeerV4, 8080))
		servers.GRPC(t, servers.At(w.Peer, lab.PeerV4, 8083))
		startApplication(t, w.Peer.Listen(t, at(5000)))
	}})
	ctx, stop := context.WithCancel(t.Context())
	l := &load{}
	var running sync.WaitGroup
	loop := func(n *atomic.Int64, once func() error) {
		running.Go(func() {
			for ctx.Err() == nil {
				l.count(n, once())
			}
		})
	}
	grpc := w.grpc(t, at(8083))
	client := w.client(t)
	for range 2 {
		loop(&l.http, func() error { return get(client, "http://"+at(8080).String()+"/") })
		loop(&l.grpc, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := grpc.UnaryCall(ctx, &testgrpc.SimpleRequest{ResponseSize: 100})
			return err
		})
	}
	loop(&l.fresh, func() error { // a handshake each, with the identities of the moment
		time.Sleep(5 * time.Millisecond)
		if !w.asks(t, 5000) {
			return fmt.Errorf("a new connection gets no answer")
		}
		return nil
	})
	var lasting []io.ReadWriter
	for range 8 {
		conn := w.dial(t, at(5000))
		must(t, conn.SetDeadline(time.Now().Add(2*time.Minute)))
		converse(t, conn, conn, "\x01hello\n", "yes")
		lasting = append(lasting, conn)
	}
	loop(&l.kept, func() error {
		time.Sleep(20 * time.Millisecond)
		for i, c := range lasting {
			if _, err := io.WriteString(c, "more"); err != nil {
				return fmt.Errorf("lasting connection %d: %w", i, err)
			}
			if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
				return fmt.Errorf("lasting connection %d: %w", i, err)
			}
		}
		return nil
	})
	const rotations = 20
	for range rotations {
		w.rotate(t)
	}
	await(t, "10,000 requests", func() bool {
		return l.http.Load() > 5000 && l.http.Load()+l.grpc.Load() >= 10_000 && l.grpc.Load() > 1000
	})
	stop()
	running.Wait()
	t.Logf("%d rotations: %d requests of HTTP/1 and %d of gRPC, %d new and %d rounds of 8 lasting opaque connections, %d failed: %v",
		rotations, l.http.Load(), l.grpc.Load(), l.fresh.Load(), l.kept.Load(), l.failed.Load(), l.first.Load())
	if n := l.failed.Load(); n != 0 {
		t.Errorf("%d failed; the first: %v", n, l.first.Load())
	}
	if n := w.db.Sample(t).Sum("control_identity_cert_refreshes_total", `result="error"`); n != 0 {
		t.Errorf("db has refused %v of its files", n)
	}
}

// load counts what was done and what failed.
type load struct {
	http, grpc, fresh, kept, failed atomic.Int64
	first                           atomic.Value
}

func (l *load) count(n *atomic.Int64, err error) {
	n.Add(1)
	if err != nil {
		l.failed.Add(1)
		l.first.CompareAndSwap(nil, err.Error())
	}
}

func get(c *http.Client, url string) error {
	resp, err := c.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s, %s", resp.Status, resp.Header.Get("l5d-proxy-error"))
	}
	return nil
}

// rotate replaces the CA in three steps, each everywhere before the next: both
// anchors, leaves of the new one, the new anchor alone.
func (w *world) rotate(t testing.TB) {
	t.Helper()
	old, next := w.ca, newCA(t)
	for _, step := range []struct {
		by   *authority.Authority
		also []*authority.Authority
	}{{old, []*authority.Authority{next}}, {next, []*authority.Authority{old}}, {next, nil}} {
		before := []float64{refreshes(t, w.web), refreshes(t, w.db)}
		for _, p := range []struct {
			*pod
			name string
		}{{w.web, webID}, {w.db, dbID}} {
			leaf := issued(t, step.by, p.name)
			for _, a := range step.also {
				leaf.Anchors = append(leaf.Anchors, a.Certificate())
			}
			must(t, leaf.Write(p.dir))
		}
		await(t, "both proxies have the new files", func() bool {
			return refreshes(t, w.web) > before[0] && refreshes(t, w.db) > before[1]
		})
	}
	w.ca = next
}

func refreshes(t testing.TB, p *pod) float64 {
	return p.Sample(t).Sum("control_identity_cert_refreshes_total", `result="ok"`)
}
