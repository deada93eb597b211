package exchange

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/h1"
	"github.com/meshctl/meshctl/proxy/h2"
)

// pool is a lane's connections to one endpoint that speak one version.
type pool struct {
	lane    *Lane
	key     poolKey
	idle    []idleConn // HTTP/1, the last used at the end
	live    []*h2.Client
	busy    int         // HTTP/1 connections that carry an exchange
	dialing int         // attempts under way
	queue   []*Exchange // waiting for a connection
}

type idleConn struct {
	client *h1.Client
	since  time.Duration
}

// get gives x a stream, now or when there is one: x.connected, or
// x.unconnected, is called.
func (p *pool) get(x *Exchange) {
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
		if s := c.Open(x); s != nil {
			p.busy++
			x.connected(s)
			return true
		}
	}
	return false
}

// leave takes x out of the queue.
func (p *pool) leave(x *Exchange) {
	for i, q := range p.queue {
		if q == x {
			p.queue = append(p.queue[:i], p.queue[i+1:]...)
			return
		}
	}
}

// feed serves those that wait.
func (p *pool) feed() {
	for len(p.queue) > 0 {
		x := p.queue[0]
		p.queue = p.queue[1:]
		x.pool = nil
		if !p.serve(x) {
			p.queue = append([]*Exchange{x}, p.queue...)
			x.pool = p
			break
		}
	}
	if p.key.h2 && len(p.queue) > 0 && p.dialing == 0 {
		p.dial()
	}
}

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
		p.idle = append(p.idle, idleConn{c, loop.Now()})
	}
	p.feed()
}

// rested takes an HTTP/1 connection back that can carry another exchange.
func (p *pool) rested(c *h1.Client) {
	p.busy--
	p.idle = append(p.idle, idleConn{c, p.lane.loop.Now()})
	p.feed()
}

// gone1 forgets an HTTP/1 connection that has ended.
func (p *pool) gone1(c *h1.Client) {
	for i := range p.idle {
		if p.idle[i].client == c {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			return
		}
	}
	p.busy--
}

// gone2 forgets an HTTP/2 connection that has ended.
func (p *pool) gone2(c *h2.Client) {
	for i := range p.live {
		if p.live[i] == c {
			p.live = append(p.live[:i], p.live[i+1:]...)
			break
		}
	}
	p.feed()
}

// sweep closes HTTP/1 connections that were idle for too long, and reports
// whether nothing is left. (HTTP/2 ones look after themselves.)
func (p *pool) sweep() (empty bool) {
	before := p.lane.loop.Now() - p.lane.cfg.PoolIdle
	for len(p.idle) > 0 && p.idle[0].since < before {
		p.idle[0].client.Close() // gone1 takes it out
		if len(p.idle) > 0 && p.idle[0].since < before {
			continue
		}
	}
	return len(p.idle) == 0 && len(p.live) == 0 && p.busy == 0 && p.dialing == 0 && len(p.queue) == 0
}

// dial is one attempt to connect.
func (p *pool) dial() {
	p.dialing++
	d := &dial{pool: p}
	done, e := p.lane.loop.Dial(&d.sock, p.key.addr, d)
	switch {
	case e != 0:
		d.end(e)
	case done:
		d.end(0)
	default:
		p.lane.loop.Start(&d.timer, p.lane.cfg.ConnectTimeout, d)
	}
}

// dial is an attempt to connect; it holds the socket for as long as the
// connection lives.
type dial struct {
	pool  *pool
	sock  conn.Socket
	timer conn.Timer
}

// Ready finds out whether the connection is up.
func (d *dial) Ready(*conn.Socket, conn.Events) {
	if e := d.sock.Connected(); e != unix.EINPROGRESS {
		d.pool.lane.loop.Cancel(&d.timer)
		d.end(e)
	}
}

// Expired gives up.
func (d *dial) Expired(*conn.Timer) { d.end(unix.ETIMEDOUT) }

// Panicked passes a panic on: nothing of a connection runs here.
func (d *dial) Panicked(v any, _ []byte) { panic(v) }

// end is called once. Of those that wait for HTTP/1 one attempt serves one, so
// that one fails with it; of HTTP/2, all.
func (d *dial) end(e syscall.Errno) {
	p := d.pool
	p.dialing--
	if e == 0 {
		closed := func() {}
		if p.lane.Dialed != nil {
			closed = p.lane.Dialed(&d.sock)
		}
		p.connected(&d.sock, closed)
		return
	}
	d.sock.Reset()
	failed := p.queue
	if !p.key.h2 && len(failed) > 1 {
		failed = failed[:1]
	}
	failed = append([]*Exchange(nil), failed...)
	p.queue = p.queue[len(failed):]
	for _, x := range failed {
		x.pool = nil
		x.unconnected(e)
	}
}
