package exchange

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/balance"
	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/h1"
	"github.com/meshctl/meshctl/proxy/h2"
)

type poolKey struct {
	to Endpoint
	h2 bool
}

// maxIdle is how many HTTP/1 connections to one endpoint a lane keeps unused.
const maxIdle = 10_000

// pool is a lane's connections to one endpoint that speak one version.
type pool struct {
	lane    *Lane
	key     poolKey
	idle    []idleConn // HTTP/1, the last used at the end
	live    []*h2.Client
	socks   map[*h1.Client]*conn.Socket // HTTP/1 connections, idle or not, that have not ended
	dialing int                         // attempts under way
	queue   []*Exchange                 // waiting for a connection
	// users are the endpoints that have sent something here and have not left. An
	// address may be an endpoint of several backends.
	users []*balance.Endpoint[Endpoint]
	left  bool // all of them: connections close after what is under way
}

type idleConn struct {
	client *h1.Client
	since  time.Duration
}

// get gives x a stream, now or when there is one: x.connected, or
// x.unconnected, is called.
func (p *pool) get(x *Exchange) {
	p.usedBy(x.endpoint)
	if p.serve(x) {
		return
	}
	p.queue = append(p.queue, x)
	x.pool = p
	if p.dialing == 0 || !p.key.h2 && p.dialing < len(p.queue) {
		p.dial()
	}
}

// serve gives x a stream on a connection that is there.
func (p *pool) serve(x *Exchange) bool {
	if p.key.h2 {
		for _, c := range p.live {
			if c.CanOpen() {
				x.connected(c.Open(x))
				return true
			}
		}
		return false
	}
	for n := len(p.idle); n > 0; n = len(p.idle) {
		c := p.idle[n-1].client
		p.idle[n-1] = idleConn{}
		p.idle = p.idle[:n-1]
		if s := c.Open(x); s != nil { // else it has just ended, which will be told
			x.connected(s)
			return true
		}
	}
	return false
}

// leave takes x out of the queue.
func (p *pool) leave(x *Exchange) {
	if i := slices.Index(p.queue, x); i >= 0 {
		p.queue = slices.Delete(p.queue, i, i+1)
	}
	x.pool = nil
}

// feed serves those that wait.
func (p *pool) feed() {
	for len(p.queue) > 0 && p.has() {
		x := p.queue[0]
		p.leave(x)
		if !p.serve(x) { // what seemed idle had ended
			p.queue = slices.Insert(p.queue, 0, x)
			x.pool = p
			break
		}
	}
	if p.dialing == 0 && len(p.queue) > 0 {
		p.dial()
	}
}

// has reports whether there may be a stream for somebody.
func (p *pool) has() bool { return p.key.h2 || len(p.idle) > 0 }

// connected begins to use a connection that is up.
func (p *pool) connected(sock *conn.Socket, closed func()) {
	loop := p.lane.loop
	if p.key.h2 {
		c := h2.NewClient(loop, sock, p.lane.cfg.H2, func(*h2.Client) { p.feed() }, func(c *h2.Client, _ error) {
			closed()
			p.gone2(c)
		})
		c.Start()
		p.live = append(p.live, c)
	} else {
		c := h1.NewClient(loop, sock, p.lane.cfg.H1, p.rested, func(c *h1.Client, _ error) {
			closed()
			p.gone1(c)
		})
		p.socks[c] = sock
		p.idle = append(p.idle, idleConn{c, loop.Now()})
	}
	p.feed()
	if p.left { // while it was dialed
		p.closeIdle()
	}
}

// usedBy notes an endpoint that the connections serve; nil: one that has left.
func (p *pool) usedBy(e *balance.Endpoint[Endpoint]) {
	switch {
	case e == nil || e.Removed():
		p.left = p.left || len(p.users) == 0
	case !slices.Contains(p.users, e):
		p.users, p.left = append(p.users, e), false
	}
}

// retire ends what nobody is going to use, once the last of its users has left.
func (p *pool) retire() {
	p.users = slices.DeleteFunc(p.users, (*balance.Endpoint[Endpoint]).Removed)
	if len(p.users) == 0 {
		p.left = true
		p.closeIdle()
	}
}

// closeIdle closes idle connections, and has busy ones close after what is under
// way on them.
func (p *pool) closeIdle() {
	for len(p.idle) > 0 {
		n := len(p.idle) - 1
		c := p.idle[n].client
		p.idle = p.idle[:n]
		c.Close() // and gone1 is told
	}
	for _, c := range slices.Clone(p.live) {
		c.Drain()
	}
}

// rested takes an HTTP/1 connection back that can carry another exchange.
func (p *pool) rested(c *h1.Client) {
	if len(p.idle) >= maxIdle || p.left && len(p.queue) == 0 {
		c.Close()
		return
	}
	p.idle = append(p.idle, idleConn{c, p.lane.loop.Now()})
	if len(p.queue) > 0 {
		p.feed()
	}
}

// gone1 forgets an HTTP/1 connection that has ended.
func (p *pool) gone1(c *h1.Client) {
	delete(p.socks, c)
	p.idle = slices.DeleteFunc(p.idle, func(i idleConn) bool { return i.client == c })
	p.feed()
}

// gone2 forgets an HTTP/2 connection that has ended.
func (p *pool) gone2(c *h2.Client) {
	p.live = slices.DeleteFunc(p.live, func(o *h2.Client) bool { return o == c })
	p.feed()
}

// sweep closes HTTP/1 connections that were idle for too long, and reports
// whether nothing is left. (HTTP/2 ones look after themselves.)
func (p *pool) sweep() (empty bool) {
	before := p.lane.loop.Now() - p.lane.cfg.PoolIdle
	for len(p.idle) > 0 && p.idle[0].since < before {
		c := p.idle[0].client
		p.idle = slices.Delete(p.idle, 0, 1)
		c.Close() // and gone1 is told
	}
	return len(p.socks) == 0 && len(p.live) == 0 && p.dialing == 0 && len(p.queue) == 0
}

// look ends HTTP/1 connections to machines that have vanished with something
// under way to them. (HTTP/2 asks its peers whether they live.)
func (p *pool) look() {
	for _, s := range p.socks {
		if s.Vanished(p.lane.vanishedAfter) {
			_ = unix.Shutdown(s.FD(), unix.SHUT_RDWR) // the client reads the end
		}
	}
}
