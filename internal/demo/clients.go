package demo

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"
)

// patience bounds everything a client waits for, beyond what it waits on purpose.
const patience = 5 * time.Second

// client is one connection that knows when its first byte came.
type client struct {
	net.Conn
	began time.Time
	first atomic.Int64 // nanoseconds from began; 0: nothing came yet
}

// dial connects from inside a namespace.
func dial(ctx context.Context, from *side, to netip.AddrPort) (*client, error) {
	c := &client{}
	err := from.Do(func() (err error) {
		dialer := net.Dialer{Timeout: patience}
		c.began = time.Now()
		c.Conn, err = dialer.DialContext(ctx, "tcp", to.String())
		return err
	})
	return c, err
}

// Read notes when the first byte came.
func (c *client) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.first.CompareAndSwap(0, int64(time.Since(c.began)))
	}
	return n, err
}

// firstByte is the time from connect(2) to the first byte of the server.
func (c *client) firstByte() time.Duration { return time.Duration(c.first.Load()) }

func (c *client) local() netip.AddrPort {
	a := c.LocalAddr().(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// talk is what a client does with its connection; afterwards the connection is
// still open, and the server has answered as it should.
type talk func(ctx context.Context, c *client) error

// request asks for a page, by HTTP/1 or by HTTP/2 without TLS.
func request(two bool) talk {
	return func(ctx context.Context, c *client) error {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(!two)
		protocols.SetUnencryptedHTTP2(two)
		transport := &http.Transport{
			Protocols:   protocols,
			DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil },
		}
		// The transport lets go of its connection when the client closes it.
		ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+tlsName+"/", nil)
		if err != nil {
			return err
		}
		answer, err := transport.RoundTrip(ask)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			return fmt.Errorf("reading the page: %w", err)
		}
		return same("the page", body, webAnswer)
	}
}

// secured speaks TLS with the peer, and checks whom it speaks with.
func secured(roots *x509.CertPool) talk {
	return func(ctx context.Context, c *client) error {
		conn := tls.Client(c, &tls.Config{ServerName: tlsName, RootCAs: roots})
		if err := conn.HandshakeContext(ctx); err != nil {
			return err
		}
		return sayAndHear(conn, webAnswer, webAnswer)
	}
}

// greeted hears the server out, and then speaks.
func greeted(greeting, say, answer string) talk {
	return func(_ context.Context, c *client) error {
		if err := hear(c, greeting); err != nil {
			return err
		}
		return sayAndHear(c, say, answer)
	}
}

// speaks is silent for a while, and then speaks.
func speaks(after time.Duration, say, answer string) talk {
	return func(ctx context.Context, c *client) error {
		if err := pause(ctx, after); err != nil {
			return err
		}
		return sayAndHear(c, say, answer)
	}
}

func sayAndHear(c net.Conn, say, answer string) error {
	if _, err := io.WriteString(c, say); err != nil {
		return err
	}
	return hear(c, answer)
}

func hear(c io.Reader, want string) error {
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil {
		return fmt.Errorf("after %d bytes from the server: %w", n, err)
	}
	return same("the answer", got, want)
}

func same(what string, got []byte, want string) error {
	if !bytes.Equal(got, []byte(want)) {
		return fmt.Errorf("%s is %q, not %q", what, got, want)
	}
	return nil
}
