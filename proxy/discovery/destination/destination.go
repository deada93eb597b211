// Package destination asks a control plane what destinations are: meshctl's
// controller, or Linkerd's destination and policy controllers. Client is a
// discovery.Source whose answers come later: until then, but not for long, a View
// is Pending. What was heard last counts for as long as nothing newer is heard.
package destination

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	destination "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/destination/wire"
)

// Config says whom to ask, and for whom.
type Config struct {
	// Addrs are host:port of the control plane's replicas; they are tried in turn,
	// and a name is looked up again for each connection.
	Addrs []string
	// TLS returns the configuration for the next connection; nil: plaintext.
	TLS func() (*tls.Config, error)
	// Namespace, Pod and Node say where the client is.
	Namespace, Pod, Node string
	// Domain ends the names of Services; empty: cluster.local.
	Domain string
	// Opaque is the default list of opaque ports, for addresses outside.
	Opaque ports.Set
	// Local reports whether an address is the client's own; nil: none is.
	Local func(netip.Addr) bool
	// Wait is how long a View is Pending at most: then it is the address as it is.
	// It is less than what requests wait for an endpoint, 3 s; 0: 2 s.
	Wait time.Duration
	// Idle is how long what nobody asks for is watched; 0: 5 s.
	Idle time.Duration
	Log  *slog.Logger // nil: none
}

// Client is a discovery.Source. Open makes one, Run keeps it up to date.
type Client struct {
	cfg    Config
	reader wire.Reader
	conn   *grpc.ClientConn
	token  string
	source string
	turn   atomic.Uint64 // which address is next

	mu      sync.Mutex
	ctx     context.Context // of Run; nil before
	lookups map[netip.AddrPort]*lookup
	members map[string]*members
	dirty   map[netip.AddrPort]struct{}
	wake    chan struct{} // has room for one
	streams sync.WaitGroup
	ports   *Ports // nil: nobody asks who may call; set before Run

	up       atomic.Bool
	down     atomic.Int64 // since when, in nanoseconds since 1970; 0: up
	failed   atomic.Bool  // the last attempt to connect failed
	messages atomic.Uint64
	requests atomic.Uint64
	failures atomic.Uint64
	open     atomic.Int64
}

// Open reads the configuration. It does not connect.
func Open(cfg Config) (*Client, error) {
	if len(cfg.Addrs) == 0 {
		return nil, errors.New("no address of a destination service")
	}
	for _, a := range cfg.Addrs {
		if host, port, err := net.SplitHostPort(a); err != nil || host == "" || port == "" {
			return nil, fmt.Errorf("the destination service %q is no HOST:PORT", a)
		}
	}
	if cfg.Wait <= 0 {
		cfg.Wait = 2 * time.Second
	}
	if cfg.Idle <= 0 {
		cfg.Idle = 5 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Client{
		cfg: cfg, reader: wire.Reader{Config: wire.Config{Domain: cfg.Domain}, Opaque: cfg.Opaque, Local: cfg.Local},
		lookups: map[netip.AddrPort]*lookup{}, members: map[string]*members{}, dirty: map[netip.AddrPort]struct{}{}, wake: make(chan struct{}, 1),
	}
	c.down.Store(time.Now().UnixNano())
	c.token, c.source = tokens(cfg)
	var err error
	c.conn, err = grpc.NewClient("passthrough:///"+cfg.Addrs[0],
		grpc.WithTransportCredentials(insecure.NewCredentials()), // dial does TLS itself: Linkerd's servers have no ALPN
		grpc.WithContextDialer(c.dial),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 5 * time.Second,
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 10 * time.Second}}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20), grpc.WaitForReady(true)),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithIdleTimeout(0),
	)
	return c, err
}

// tokens are how Linkerd's proxies say where they are.
func tokens(cfg Config) (token, source string) {
	raw, _ := json.Marshal(struct {
		Namespace string `json:"ns"`
		Node      string `json:"nodeName,omitempty"`
		Pod       string `json:"pod,omitempty"`
	}{cfg.Namespace, cfg.Node, cfg.Pod})
	name, _ := json.Marshal(struct {
		Namespace string `json:"ns"`
		Pod       string `json:"pod"`
	}{cfg.Namespace, cfg.Pod})
	return string(raw), string(name)
}

// dial connects to the next address.
func (c *Client) dial(ctx context.Context, _ string) (net.Conn, error) {
	addr := c.cfg.Addrs[int(c.turn.Add(1)-1)%len(c.cfg.Addrs)]
	var d net.Dialer
	raw, err := d.DialContext(ctx, "tcp", addr)
	if err != nil || c.cfg.TLS == nil {
		return raw, err
	}
	cfg, err := c.cfg.TLS()
	if err != nil {
		raw.Close()
		return nil, err
	}
	secure := tls.Client(raw, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		raw.Close()
		c.cfg.Log.Warn("the destination service is refused", "addr", addr, "err", err)
		return nil, err
	}
	return secure, nil
}

// Find implements discovery.Source: what is known of dst, and the question if it has
// not been asked yet.
func (c *Client) Find(dst netip.AddrPort) discovery.View {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lookups[dst]
	if l == nil {
		l = &lookup{client: c, dst: dst, late: c.failed.Load() && !c.up.Load()}
		c.lookups[dst] = l
		l.begin()
	}
	l.found = time.Now()
	return l.view
}

// Run keeps cache, whose source the Client is, up to date until ctx ends, and then
// closes the connection.
func (c *Client) Run(ctx context.Context, cache *discovery.Cache) {
	ctx, stop := context.WithCancel(ctx)
	c.mu.Lock()
	c.ctx = ctx
	for _, l := range c.lookups {
		l.begin()
	}
	if c.ports != nil {
		c.ports.run()
		defer c.ports.end()
	}
	c.mu.Unlock()
	c.streams.Go(func() { c.look(ctx) })
	c.serve(ctx, cache)
	c.mu.Lock()
	c.ctx = nil // nothing begins any more
	c.mu.Unlock()
	stop()
	_ = c.conn.Close() // ends what still reads
	c.streams.Wait()
}

// settle is how long answers are collected before they count: a new destination
// has several.
const settle = time.Millisecond

func (c *Client) serve(ctx context.Context, cache *discovery.Cache) {
	sweep := time.NewTicker(max(c.cfg.Idle/2, 100*time.Millisecond))
	defer sweep.Stop()
	ports := time.NewTicker(portsRound)
	defer ports.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweep.C:
			cache.Sweep()
			c.forget(cache)
		case <-ports.C:
			if c.ports != nil {
				c.ports.sweep()
			}
		case <-c.wake:
			time.Sleep(settle)
			c.mu.Lock()
			change := &discovery.Change{}
			for dst := range c.dirty {
				change.AddAddr(dst.Addr())
			}
			clear(c.dirty)
			c.mu.Unlock()
			cache.Update(change)
		}
	}
}

// forget ends the watches of destinations that nobody holds any more.
func (c *Client) forget(cache *discovery.Cache) {
	alive := map[netip.AddrPort]bool{}
	for _, t := range cache.Targets() {
		alive[t.Dst()] = true
	}
	old := time.Now().Add(-c.cfg.Idle)
	c.mu.Lock()
	defer c.mu.Unlock()
	for dst, l := range c.lookups {
		if !alive[dst] && l.found.Before(old) {
			l.end()
			delete(c.lookups, dst)
		}
	}
}

func (c *Client) destinations() destination.DestinationClient {
	return destination.NewDestinationClient(c.conn)
}
func (c *Client) policies() outbound.OutboundPoliciesClient {
	return outbound.NewOutboundPoliciesClient(c.conn)
}
