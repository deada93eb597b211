package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// Serving says where a Server is reached.
type Serving struct {
	Listen      []netip.AddrPort // the APIs
	AdminListen []netip.AddrPort // /live /ready /metrics
	// TLS of the APIs; nil: plaintext, on loopback only.
	TLS *tls.Config
	// Ready says why the Server should not be asked yet; nil: it may be.
	Ready func() error
	// More writes further metrics; nil: there are none.
	More  func(io.Writer)
	Grace time.Duration // how long streams have to end; 0: 5 s
}

// Validate names the first field that cannot be.
func (c Serving) Validate() error {
	if len(c.Listen) == 0 {
		return errors.New("no address to listen on")
	}
	for _, a := range c.Listen {
		if c.TLS == nil && !a.Addr().IsLoopback() {
			return fmt.Errorf("%s is not on loopback: there it takes mTLS", a)
		}
	}
	return nil
}

// Serve serves until ctx ends, then ends the streams, so that clients go to
// another replica, and returns. opened, if set, is told the addresses of the APIs.
func (s *Server) Serve(ctx context.Context, c Serving, opened func([]net.Addr)) error {
	if err := c.Validate(); err != nil {
		return err
	}
	apis, err := listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	admins, err := listen(ctx, c.AdminListen)
	if err != nil {
		closeAll(apis)
		return err
	}
	g := s.NewGRPC()
	admin := &http.Server{Handler: s.Admin(c.Ready, c.More), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	failed := make(chan error, len(apis)+len(admins))
	var serving sync.WaitGroup
	var addrs []net.Addr
	for _, l := range apis {
		addrs = append(addrs, l.Addr())
		if c.TLS != nil {
			l = tls.NewListener(l, c.TLS)
		}
		serving.Go(func() {
			if err := g.Serve(l); err != nil {
				failed <- err
			}
		})
	}
	for _, l := range admins {
		serving.Go(func() {
			if err := admin.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		})
	}
	if opened != nil {
		opened(addrs)
	}
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.end(g, c.Grace)
	_ = admin.Close() // a scrape may be cut
	serving.Wait()
	return err
}

// end ends the streams and then the server, at the latest after grace.
func (s *Server) end(g *grpc.Server, grace time.Duration) {
	if grace <= 0 {
		grace = 5 * time.Second
	}
	s.Close()
	t := time.AfterFunc(grace, g.Stop)
	defer t.Stop()
	g.GracefulStop()
}

func listen(ctx context.Context, addrs []netip.AddrPort) ([]net.Listener, error) {
	var out []net.Listener
	for _, a := range addrs {
		var cfg net.ListenConfig
		l, err := cfg.Listen(ctx, "tcp", a.String())
		if err != nil {
			closeAll(out)
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}

func closeAll(list []net.Listener) {
	for _, l := range list {
		_ = l.Close() // nothing was accepted
	}
}
