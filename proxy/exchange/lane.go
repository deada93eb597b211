package exchange

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/h1"
	"github.com/meshctl/meshctl/proxy/message"
)

const (
	// sweepEvery is how often a lane looks for connections that nobody uses.
	sweepEvery = time.Second
	// askEvery is how often a lane whose exchanges wait for an endpoint asks
	// whether there is one: nobody else may have a reason to.
	askEvery = 100 * time.Millisecond

	// An endpoint whose machine has not answered for vanishedAfter is gone; that
	// is looked at in every lookEvery-th sweep.
	vanishedAfter = 30 * time.Second
	lookEvery     = 10

	keptFree   = 1024     // unused exchanges that a lane keeps
	keptBody   = 4 << 10  // the largest buffer for a body that each of them keeps
	bodiesKept = 32       // larger ones that the lane keeps
	bodySize   = 68 << 10 // of those: replayMost, and a little that came too much
)

// Lane is one loop's part: its connections to endpoints and its exchanges. All
// but what is atomic is touched on the loop's goroutine only.
type Lane struct {
	// Dialed, if set, is told of each connection to an endpoint, and returns what
	// to call when it has ended. Panicked, if set, is told of a panic that ended
	// one exchange. All are set before the loop runs.
	Dialed   func(sock *conn.Socket, to Endpoint) (closed func())
	Panicked func(value any, stack []byte)
	// Unverified, if set, is told why a handshake with an endpoint failed.
	Unverified func(to Endpoint, err error)

	loop   *conn.Loop
	cfg    Config
	start  time.Time     // of the clock that lanes share
	offset time.Duration // from the loop's clock to it
	seed   *rand.PCG
	pools  map[poolKey]*pool
	free   []*Exchange
	bodies [][]byte
	queue  []*Exchange // waiting for an endpoint to be ready
	open   int
	waits  atomic.Int32 // len(queue), for other loops
	sweep  chore
	sweeps int

	vanishedAfter time.Duration
	ask           chore
}

// NewLanes makes a lane for each loop, before the loops run.
func NewLanes(cfg Config, loops []*conn.Loop) []*Lane {
	cfg = cfg.withDefaults()
	start := time.Now()
	var lanes []*Lane
	for _, l := range loops {
		ln := &Lane{loop: l, cfg: cfg, vanishedAfter: vanishedAfter, start: start, offset: time.Since(start) - l.Now(),
			seed: rand.NewPCG(rand.Uint64(), rand.Uint64()), pools: map[poolKey]*pool{}}
		ln.sweep.do, ln.ask.do = ln.sweepPools, ln.askAgain
		lanes = append(lanes, ln)
	}
	return lanes
}

// now is the time on the clock that all lanes share.
func (ln *Lane) now() time.Duration { return ln.loop.Now() + ln.offset }

// shared is now, for other goroutines than the loop's.
func (ln *Lane) shared() time.Duration { return time.Since(ln.start) }

func (ln *Lane) random() uint64 { return ln.seed.Uint64() }

// Open is how many exchanges are under way.
func (ln *Lane) Open() int { return ln.open }

// Client is a client connection whose requests are taken one by one.
type Client struct {
	Upstream *Upstream // where they go
	Port     uint16    // that the client asked for
	Recorder Recorder
	// Gate, if set, sees each request first.
	Gate Gate
	// Local: the client is the application, which may say whom it wants to reach
	// (message.RequireID).
	Local bool
	// Mesh: the client is another proxy that has shown its identity, so what it says
	// of the request's original form is believed.
	Mesh bool
}

// Gate stands in front of the requests of one client connection.
type Gate interface {
	// Admit may change the head of a request, which is the exchange's own copy. A
	// Failure other than 0 is the answer.
	Admit(h *message.Head) Failure
}

// Serve returns who takes the requests of c.
func (ln *Lane) Serve(c Client) message.Opener { return &opener{Client: c, lane: ln} }

// opener gives each stream of one client connection its exchange.
type opener struct {
	Client
	lane *Lane
}

// Open implements message.Opener.
func (o *opener) Open(s message.Stream) message.Receiver {
	x := o.lane.take()
	x.from, x.down = o, s
	return x
}

// take returns an unused exchange; give takes it back.
func (ln *Lane) take() *Exchange {
	ln.open++
	if n := len(ln.free); n > 0 {
		x := ln.free[n-1]
		ln.free = ln.free[:n-1]
		return x
	}
	return &Exchange{lane: ln}
}

func (ln *Lane) give(x *Exchange) {
	ln.open--
	x.reset()
	if len(ln.free) < keptFree {
		ln.free = append(ln.free, x)
	}
}

// takeBody lends an empty buffer for a body to be kept.
func (ln *Lane) takeBody() []byte {
	if n := len(ln.bodies); n > 0 {
		b := ln.bodies[n-1]
		ln.bodies = ln.bodies[:n-1]
		return b
	}
	return make([]byte, 0, bodySize)
}

func (ln *Lane) giveBody(b []byte) {
	if cap(b) == bodySize && len(ln.bodies) < bodiesKept {
		ln.bodies = append(ln.bodies, b[:0])
	}
}

// wait puts x in the queue for an endpoint.
func (ln *Lane) wait(x *Exchange) {
	ln.queue = append(ln.queue, x)
	ln.waits.Store(int32(len(ln.queue)))
	if !ln.ask.timer.Active() {
		ln.ask.in(ln.loop, askEvery)
	}
}

// unwait takes x out of the queue.
func (ln *Lane) unwait(x *Exchange) {
	if i := slices.Index(ln.queue, x); i >= 0 {
		ln.queue = slices.Delete(ln.queue, i, i+1)
	}
	ln.waits.Store(int32(len(ln.queue)))
}

// Wake has the lane's exchanges that wait for an endpoint look again; it may be
// called from any goroutine.
func (ln *Lane) Wake() {
	if ln.waits.Load() > 0 {
		ln.loop.Post(ln.wake)
	}
}

func (ln *Lane) wake() {
	queue := ln.queue
	ln.queue = nil
	ln.waits.Store(0)
	for _, x := range queue {
		x.awake()
	}
}

// askAgain has the upstreams that are waited for look whether they are out of
// date.
func (ln *Lane) askAgain() {
	var last *Upstream
	for _, x := range ln.queue {
		if u := x.from.Upstream; u != last {
			last = u
			u.fresh() // those that it wakes are woken later, see Wake
		}
	}
	if len(ln.queue) > 0 {
		ln.ask.in(ln.loop, askEvery)
	}
}

// pool returns the connections to an endpoint.
func (ln *Lane) pool(to Endpoint, h2 bool) *pool {
	k := poolKey{to, h2}
	p := ln.pools[k]
	if p == nil {
		p = &pool{lane: ln, key: k, socks: map[*h1.Client]*conn.Socket{}}
		ln.pools[k] = p
		if !ln.sweep.timer.Active() {
			ln.sweep.in(ln.loop, sweepEvery)
		}
	}
	return p
}

// Adopt takes over a connection to an endpoint of u that was dialed for a client
// before it spoke: it serves the next request that goes there. client is what
// the client turned out to speak, closed is called when the connection has ended.
// The endpoint is not meshed: one that is has to be told first what comes.
func (ln *Lane) Adopt(u *Upstream, to Endpoint, sock *conn.Socket, client message.Version, closed func()) {
	version := u.plan.Load().backends[0].speaks(client)
	p := ln.pool(to, version == message.HTTP2)
	p.usedBy(u.plan.Load().backends[0].at(to))
	p.connected(sock, closed)
}

// retire closes connections to endpoints that no backend has any more.
func (ln *Lane) retire() {
	for _, p := range ln.pools {
		p.retire()
	}
}

// sweepPools closes what nobody uses.
func (ln *Lane) sweepPools() {
	ln.sweeps++
	for k, p := range ln.pools {
		if ln.sweeps%lookEvery == 0 {
			p.look()
		}
		if p.sweep() {
			delete(ln.pools, k)
		}
	}
	if len(ln.pools) > 0 {
		ln.sweep.in(ln.loop, sweepEvery)
	}
}

// chore is what a lane does from time to time.
type chore struct {
	timer conn.Timer
	do    func()
}

func (c *chore) in(l *conn.Loop, d time.Duration) { l.Start(&c.timer, d, c) }

// Expired does it.
func (c *chore) Expired(*conn.Timer) { c.do() }

// Panicked passes a panic on: it is not of one exchange.
func (c *chore) Panicked(v any, _ []byte) { panic(v) }
