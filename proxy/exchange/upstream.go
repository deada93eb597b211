package exchange

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meshctl/meshctl/proxy/balance"
	"github.com/meshctl/meshctl/proxy/mesh"
	"github.com/meshctl/meshctl/proxy/message"
	"github.com/meshctl/meshctl/proxy/route"
)

// Endpoint is where a connection can go.
type Endpoint struct {
	Addr netip.AddrPort // of the application
	Mesh mesh.Endpoint  // how it is reached by mTLS; zero: it is not meshed
	// Opaque says that the receiver takes its port for opaque: it is not told what
	// the bytes are, and they are what the client speaks.
	Opaque bool
	NoTLS  string // why it is not meshed, for metrics; "": not said
}

// Parent is what a destination is made of: what NewUpstream and Update are told.
type Parent struct {
	Table *route.Table // nil: every request goes to the first backend as it is
	// Backends are those of Table, by its indexes; at least one.
	Backends []Members
}

// Members are the endpoints of one backend.
type Members struct {
	Name      string // what it is, such as "shop/db:8080": it keeps its estimates under this name
	Endpoints []Endpoint
	// Version is what the endpoints speak, HTTP11 or HTTP2; not said: what the
	// client speaks.
	Version message.Version
	Breaker route.Breaker
	Penalty route.Penalty
}

// Upstream is where the requests of one destination go. It is shared by all
// loops; one Update at a time.
type Upstream struct {
	// Fresh, if set, is called before each request or connection: it calls Update
	// if what the Upstream was made of has changed. It is set before first use.
	Fresh func()

	plan   atomic.Pointer[plan]
	lanes  []*Lane
	budget budget
}

// plan is what is in force; it never changes.
type plan struct {
	table    *route.Table
	backends []*backend
}

// backend is the endpoints of one backend with what is known of each.
type backend struct {
	name     string
	version  message.Version
	balancer *balance.Balancer[Endpoint]
	breaker  route.Breaker
	penalty  route.Penalty

	sick    atomic.Int32 // len(health), so that the healthy pay one load
	starved atomic.Int64 // since when no endpoint is known to be reachable, on the lanes' clock; 0: one is
	mu      sync.Mutex
	health  map[*balance.Endpoint[Endpoint]]*health
}

// NewUpstream makes an Upstream for all lanes of a proxy.
func NewUpstream(p Parent, lanes []*Lane) *Upstream {
	u := &Upstream{lanes: lanes}
	u.budget.fill(0)
	u.Update(p)
	return u
}

// Update makes p what is in force for requests that come from now on. Backends
// of the same name keep the estimates and the connections of endpoints that
// stay, and two of one name are one. Endpoints that left finish what is under way
// on them; their connections are closed then, idle ones at once.
func (u *Upstream) Update(p Parent) {
	old := u.plan.Load()
	next := &plan{table: p.Table}
	for _, m := range p.Backends {
		b := next.find(m)
		if b == nil {
			if b = old.find(m); b == nil {
				b = u.newBackend(m)
			}
			if len(m.Endpoints) > 0 && len(b.balancer.Endpoints()) == 0 {
				b.starved.Store(0) // the wait for those that are new is a new one
			}
			b.balancer.Update(m.Endpoints)
		}
		next.backends = append(next.backends, b)
	}
	u.plan.Store(next)
	if old != nil {
		u.retire(old, next)
	}
	u.changed() // who woke up for the endpoints may have looked too early
}

func (u *Upstream) newBackend(m Members) *backend {
	return &backend{name: m.Name, version: m.Version, breaker: m.Breaker, penalty: m.Penalty,
		health:   map[*balance.Endpoint[Endpoint]]*health{},
		balancer: balance.New[Endpoint](balance.Config{Changed: u.changed})}
}

// retire has the lanes let go of connections to endpoints that left.
func (u *Upstream) retire(old, next *plan) {
	for _, b := range old.backends {
		if !slices.Contains(next.backends, b) {
			b.balancer.Update(nil)
		}
	}
	for _, ln := range u.lanes {
		ln.loop.Post(ln.retire)
	}
}

// find returns the backend that m is, apart from its endpoints; nil: none is.
func (p *plan) find(m Members) *backend {
	if p == nil {
		return nil
	}
	for _, b := range p.backends {
		if b.name == m.Name && b.version == m.Version && b.breaker == m.Breaker && b.penalty == m.Penalty {
			return b
		}
	}
	return nil
}

// speaks is the version for the request of a client.
func (b *backend) speaks(client message.Version) message.Version {
	if b.version != 0 {
		return b.version
	}
	return client
}

// at is the endpoint of that address; nil: none is.
func (b *backend) at(to Endpoint) *balance.Endpoint[Endpoint] {
	for _, e := range b.balancer.Endpoints() {
		if e.Value == to {
			return e
		}
	}
	return nil
}

// starvedFor notes that there is no endpoint to be had, and returns how much is
// left of the time in which one is waited for: once that has passed, requests
// fail at once, until an endpoint has been connected to.
func (b *backend) starvedFor(now, most time.Duration) (left time.Duration) {
	now = max(now, 1)
	b.starved.CompareAndSwap(0, int64(now))
	since := time.Duration(b.starved.Load())
	if since == 0 { // reached meanwhile
		since = now
	}
	return since + most - now
}

func (u *Upstream) fresh() {
	if u.Fresh != nil {
		u.Fresh()
	}
}

// changed wakes the exchanges that wait for an endpoint.
func (u *Upstream) changed() {
	for _, ln := range u.lanes {
		ln.Wake()
	}
}

// Connection is an opaque connection's place on an endpoint.
type Connection struct {
	backend  *backend
	endpoint *balance.Endpoint[Endpoint]
	flight   balance.Flight[Endpoint]
	trial    bool
}

// Pick chooses the endpoint of an opaque connection that ln is to open; false
// when there is none. Up, or Failed, is called when that has ended, and Closed
// at its end; GivenUp instead of either when nobody waits any more.
func (u *Upstream) Pick(ln *Lane) (c Connection, to Endpoint, ok bool) {
	u.fresh()
	b := u.plan.Load().backends[0]
	e := b.balancer.Pick(ln.now(), ln.random())
	if e == nil { // none is ready: trying one beats refusing
		all := b.balancer.Endpoints()
		if len(all) == 0 {
			return c, to, false
		}
		e = all[ln.random()%uint64(len(all))]
	}
	return Connection{backend: b, endpoint: e, flight: e.Start(ln.now()), trial: b.try(e)}, e.Value, true
}

// Endpoint is where the connection goes.
func (c *Connection) Endpoint() Endpoint { return c.endpoint.Value }

// Starved is how much longer an opaque connection for which Pick has found no
// endpoint may wait for one; 0 or less: no longer. Requests have the same wait.
func (u *Upstream) Starved(ln *Lane) (left time.Duration) {
	return u.plan.Load().backends[0].starvedFor(ln.now(), ln.cfg.FailFast)
}

// Up says that the connection is established: it is load until Closed.
func (c *Connection) Up(ln *Lane) {
	c.flight.Done(ln.now())
	c.endpoint.Opened()
	c.trial = false
	c.backend.reached(c.endpoint)
}

// GivenUp says that nobody waits for the connection any more.
func (c *Connection) GivenUp(ln *Lane) {
	c.flight.Done(ln.now())
	if c.trial {
		c.backend.untried(c.endpoint)
	}
}

// Failed says that the endpoint could not be connected to.
func (c *Connection) Failed(ln *Lane) {
	c.flight.Done(ln.now())
	c.backend.unreachable(ln, c.endpoint)
}

// Closed ends what Up began.
func (c *Connection) Closed() { c.endpoint.Closed() }

// First is one of the destination's own endpoints; zero: there is none.
func (u *Upstream) First() (e Endpoint) {
	if all := u.plan.Load().backends[0].balancer.Endpoints(); len(all) > 0 {
		e = all[0].Value
	}
	return e
}

// Endpoints is how many endpoints the destination's own backend has.
func (u *Upstream) Endpoints() int { return len(u.plan.Load().backends[0].balancer.Endpoints()) }
