package exchange

import (
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/message"
)

// sweepEvery is how often a lane looks for connections that nobody uses.
const sweepEvery = time.Second

// Lane is one loop's part: its connections to endpoints and its exchanges. All
// but what is atomic is touched on the loop's goroutine only.
type Lane struct {
	// Dialed, if set, is told of each connection to an endpoint, and returns what
	// to call when it has ended. It is set before the loop runs.
	Dialed func(sock *conn.Socket) (closed func())

	loop   *conn.Loop
	cfg    Config
	offset time.Duration // from the loop's clock to the one that lanes share
	seed   *rand.PCG
	pools  map[poolKey]*pool
	free   []*Exchange
	queue  []*Exchange // waiting for an endpoint to be ready
	open   int
	budget budget
	waits  atomic.Int32 // len(queue), for other loops
	sweep  conn.Timer
}

type poolKey struct {
	addr netip.AddrPort
	h2   bool
}

// NewLanes makes a lane for each loop, before the loops run.
func NewLanes(cfg Config, loops []*conn.Loop) []*Lane {
	cfg = cfg.withDefaults()
	start := time.Now()
	var lanes []*Lane
	for _, l := range loops {
		lanes = append(lanes, &Lane{loop: l, cfg: cfg, offset: time.Since(start) - l.Now(),
			seed: rand.NewPCG(rand.Uint64(), rand.Uint64()), pools: map[poolKey]*pool{}})
	}
	return lanes
}

// now is the time on the clock that all lanes share.
func (ln *Lane) now() time.Duration { return ln.loop.Now() + ln.offset }

func (ln *Lane) random() uint64 { return ln.seed.Uint64() }

// Open is how many exchanges are under way.
func (ln *Lane) Open() int { return ln.open }

// Serve returns who takes the requests of one client connection to u.
func (ln *Lane) Serve(u *Upstream, rec Recorder) message.Opener {
	return &opener{lane: ln, upstream: u, rec: rec}
}

// opener gives each stream of one client connection its exchange.
type opener struct {
	lane     *Lane
	upstream *Upstream
	rec      Recorder
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

// keptFree is how many unused exchanges a lane keeps.
const keptFree = 1024

func (ln *Lane) give(x *Exchange) {
	ln.open--
	x.reset()
	if len(ln.free) < keptFree {
		ln.free = append(ln.free, x)
	}
}

// wait puts x in the queue for an endpoint.
func (ln *Lane) wait(x *Exchange) {
	ln.queue = append(ln.queue, x)
	ln.waits.Store(int32(len(ln.queue)))
}

// unwait takes x out of the queue.
func (ln *Lane) unwait(x *Exchange) {
	for i, q := range ln.queue {
		if q == x {
			ln.queue = append(ln.queue[:i], ln.queue[i+1:]...)
			break
		}
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
		x.from.upstream.fresh()
		x.phase = choosing
		x.choose()
	}
}

// pool returns the connections to addr.
func (ln *Lane) pool(addr netip.AddrPort, h2 bool) *pool {
	k := poolKey{addr, h2}
	p := ln.pools[k]
	if p == nil {
		p = &pool{lane: ln, key: k}
		ln.pools[k] = p
		if !ln.sweep.Active() {
			ln.loop.Start(&ln.sweep, sweepEvery, ln)
		}
	}
	return p
}

// Adopt takes over a connection that was dialed for a client before it spoke:
// it serves
// the next request to addr. closed is called when it has ended.
func (ln *Lane) Adopt(addr netip.AddrPort, sock *conn.Socket, h2 bool, closed func()) {
	ln.pool(addr, h2).connected(sock, closed)
}

// Expired closes what nobody uses.
func (ln *Lane) Expired(*conn.Timer) {
	for k, p := range ln.pools {
		if p.sweep() {
			delete(ln.pools, k)
		}
	}
	if len(ln.pools) > 0 {
		ln.loop.Start(&ln.sweep, sweepEvery, ln)
	}
}

// Panicked passes a panic on: it is not of one connection.
func (ln *Lane) Panicked(v any, _ []byte) { panic(v) }
