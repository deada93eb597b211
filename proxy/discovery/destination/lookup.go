package destination

import (
	"context"
	"net/netip"
	"slices"
	"time"

	destination "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/destination/wire"
)

// lookup is one destination that is watched. All of it is under the Client's lock.
type lookup struct {
	client *Client
	dst    netip.AddrPort
	found  time.Time // when Find last asked
	cancel context.CancelFunc
	timer  *time.Timer

	hasProfile, hasPolicy bool // something was answered, be it nothing
	profile               *destination.DestinationProfile
	policy                *outbound.OutboundPolicy
	plan                  *wire.Plan
	paths                 map[string]bool // members that are held
	late                  bool            // it is not waited for any longer
	known                 bool            // view is an answer
	view                  discovery.View
}

// begin starts the streams, if the Client runs, and gives the first View.
func (l *lookup) begin() {
	c := l.client
	if !l.known {
		l.view = l.unknown()
	}
	if c.ctx == nil || l.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(c.ctx)
	l.cancel = cancel
	c.streams.Go(func() { l.followProfile(ctx) })
	c.streams.Go(func() { l.followPolicy(ctx) })
	if l.late = l.late && c.failed.Load(); !l.late {
		l.view = l.unknown()
		l.timer = time.AfterFunc(c.cfg.Wait, l.giveUp)
	}
}

// end stops the streams and lets go of the members.
func (l *lookup) end() {
	if l.cancel != nil {
		l.cancel()
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	for path := range l.paths {
		l.client.release(path, l)
	}
}

// giveUp has the address count as it is, until there is an answer.
func (l *lookup) giveUp() {
	c := l.client
	c.mu.Lock()
	defer c.mu.Unlock()
	l.late = true
	if !l.known {
		l.view = l.unknown()
		c.touch(l.dst)
	}
}

// unknown is the View before the first answer.
func (l *lookup) unknown() discovery.View {
	v := discovery.View{Kind: discovery.Address, Port: l.dst.Port(), Pending: !l.late}
	v.Protocol = discovery.Decide(discovery.Facts{Kind: v.Kind, Port: v.Port, Default: l.client.cfg.Opaque})
	if l.late {
		mesh := discovery.Mesh{NoTLS: discovery.NotProvided}
		if local := l.client.cfg.Local; local != nil && local(l.dst.Addr()) {
			mesh.NoTLS = discovery.Loopback
		}
		v.Endpoints = []discovery.Endpoint{{Addr: l.dst, Mesh: mesh}}
	}
	return v
}

// touch notes that Find says something else now. The lock is held.
func (c *Client) touch(dst netip.AddrPort) {
	c.dirty[dst] = struct{}{}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (l *lookup) followProfile(ctx context.Context) {
	c := l.client
	c.follow(ctx, func(ctx context.Context) (func() error, error) {
		s, err := c.destinations().GetProfile(ctx, &destination.GetDestination{Path: l.dst.String(), ContextToken: c.token})
		return func() error {
			p, err := s.Recv()
			if err == nil {
				l.said(func() bool {
					same := l.hasProfile && proto.Equal(l.profile, p)
					l.hasProfile, l.profile = true, p
					return !same
				})
			}
			return err
		}, err
	}, func(codes.Code) time.Duration {
		l.said(func() bool { l.hasProfile = true; return true })
		return refusedAfter
	})
}

func (l *lookup) followPolicy(ctx context.Context) {
	c := l.client
	c.follow(ctx, func(ctx context.Context) (func() error, error) {
		s, err := c.policies().Watch(ctx, &outbound.TrafficSpec{SourceWorkload: c.source, Target: &outbound.TrafficSpec_Addr{Addr: wire.Address(l.dst)}})
		return func() error {
			p, err := s.Recv()
			if err == nil {
				l.said(func() bool {
					same := l.hasPolicy && proto.Equal(l.policy, p)
					l.hasPolicy, l.policy = true, p
					return !same
				})
			}
			return err
		}, err
	}, func(codes.Code) time.Duration {
		l.said(func() bool { l.hasPolicy = true; return true })
		return refusedAfter
	})
}

// said takes an answer: set stores it and reports whether it is another one.
func (l *lookup) said(set func() bool) {
	c := l.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if !set() || !l.hasProfile || !l.hasPolicy || c.lookups[l.dst] != l || c.ctx == nil {
		return
	}
	plan, err := c.reader.Plan(l.dst, l.profile, l.policy)
	if err != nil {
		c.cfg.Log.Warn("the routes that the destination service names do not count", "destination", l.dst, "err", err)
	}
	l.plan = plan
	wanted := map[string]bool{}
	for _, path := range plan.Paths() {
		wanted[path] = true
		if !l.paths[path] {
			c.hold(path, l)
		}
	}
	for path := range l.paths {
		if !wanted[path] {
			c.release(path, l)
		}
	}
	l.paths = wanted
	l.update()
}

// update makes the View from what is known. While members are missing the one
// before stays.
func (l *lookup) update() {
	c := l.client
	if l.plan == nil {
		return
	}
	v, ok := c.reader.View(l.plan, func(path string) (wire.Endpoints, bool) {
		m := c.members[path]
		if m == nil || !m.known {
			return wire.Endpoints{}, false
		}
		return m.now, true
	})
	if !ok {
		return
	}
	l.view, l.known = v, true
	c.touch(l.dst)
}

// members are the endpoints of a Service's port, for all lookups that lead there.
type members struct {
	holders []*lookup
	known   bool
	now     wire.Endpoints
	cancel  context.CancelFunc
}

func (c *Client) hold(path string, l *lookup) {
	m := c.members[path]
	if m == nil {
		ctx, cancel := context.WithCancel(c.ctx)
		m = &members{cancel: cancel}
		c.members[path] = m
		c.streams.Go(func() { c.followMembers(ctx, path, m) })
	}
	m.holders = append(m.holders, l)
}

func (c *Client) release(path string, l *lookup) {
	m := c.members[path]
	if m == nil {
		return
	}
	m.holders = slices.DeleteFunc(m.holders, func(h *lookup) bool { return h == l })
	if len(m.holders) == 0 {
		m.cancel()
		delete(c.members, path)
	}
}

func (c *Client) followMembers(ctx context.Context, path string, m *members) {
	c.follow(ctx, func(ctx context.Context) (func() error, error) {
		s, err := c.destinations().Get(ctx, &destination.GetDestination{Scheme: "k8s", Path: path, ContextToken: c.token})
		var now wire.Endpoints // what this stream has said: the first message replaces what was known
		return func() error {
			u, err := s.Recv()
			if err == nil {
				now = now.Apply(u)
				c.membersAre(m, now)
			}
			return err
		}, err
	}, func(codes.Code) time.Duration {
		c.membersAre(m, wire.Endpoints{})
		return refusedAfter
	})
}

func (c *Client) membersAre(m *members, now wire.Endpoints) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.now, m.known = now, true
	for _, l := range m.holders {
		l.update()
	}
}

// refusedAfter is how long a question that the server has refused is not asked
// again.
const refusedAfter = 30 * time.Second

// follow keeps a stream open until ctx ends: open begins it and returns what takes
// one message. none is called where the server says that there is no answer, and
// says when to ask again; 0: as after any other failure.
func (c *Client) follow(ctx context.Context, open func(context.Context) (func() error, error), none func(codes.Code) time.Duration) {
	pause := newPause()
	for ctx.Err() == nil {
		heard, err := c.stream(ctx, open)
		if ctx.Err() != nil {
			return
		}
		c.failures.Add(1)
		if heard {
			pause.reset()
		}
		wait := pause.next()
		switch status.Code(err) {
		case codes.Unimplemented, codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.PermissionDenied:
			if again := none(status.Code(err)); again > 0 {
				wait = again
			}
		}
		c.cfg.Log.Debug("a stream of the destination service ended", "err", err, "again_in", wait)
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}

func (c *Client) stream(ctx context.Context, open func(context.Context) (func() error, error)) (heard bool, err error) {
	ctx, cancel := context.WithCancel(ctx) // else grpc keeps what an error has left
	defer cancel()
	c.requests.Add(1)
	recv, err := open(ctx)
	if err != nil {
		return false, err
	}
	c.open.Add(1)
	defer c.open.Add(-1)
	for {
		if err := recv(); err != nil {
			return heard, err
		}
		heard = true
		c.messages.Add(1)
	}
}
