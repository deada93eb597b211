package exchange

import (
	"errors"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/mesh"
	"github.com/meshctl/meshctl/proxy/mesh/header"
)

// dial is one attempt to connect.
func (p *pool) dial() {
	p.dialing++
	d := &dial{pool: p}
	to := p.key.to.Addr
	if p.meshed() {
		to = p.key.to.Mesh.Addr(to)
	}
	done, e := p.lane.loop.Dial(&d.sock, to, d)
	switch {
	case e != 0:
		d.end(e)
	case done:
		d.up()
	default:
		p.lane.loop.Start(&d.timer, p.lane.cfg.ConnectTimeout, d)
	}
}

// meshed reports whether connections of p are mTLS.
func (p *pool) meshed() bool { return p.lane.cfg.Mesh != nil && !p.key.to.Mesh.IsZero() }

// dial is an attempt to connect; it holds the socket for as long as the
// connection lives.
type dial struct {
	pool  *pool
	sock  conn.Socket
	timer conn.Timer
	shake *mesh.Handshake
}

// Ready finds out whether the connection is up.
func (d *dial) Ready(*conn.Socket, conn.Events) {
	switch e := d.sock.Connected(); e {
	case unix.EINPROGRESS:
	case 0:
		d.up()
	default:
		d.end(e)
	}
}

// up goes on with TLS where that is wanted.
func (d *dial) up() {
	p := d.pool
	if !p.meshed() {
		d.end(0)
		return
	}
	h := header.Header{Port: p.key.to.Addr.Port(), Session: header.HTTP1}
	switch {
	case p.key.to.Opaque:
		h.Session = header.None
	case p.key.h2:
		h.Session = header.HTTP2
	}
	p.lane.loop.Start(&d.timer, mesh.HandshakeTimeout, d)
	d.shake = p.lane.cfg.Mesh.Client(&d.sock, p.key.to.Addr, p.key.to.Mesh, h, d, d.shaken)
}

// shaken ends the handshake.
func (d *dial) shaken(_ *mesh.Session, err error) {
	d.shake = nil
	if err == nil {
		d.end(0)
		return
	}
	if p := d.pool; p.lane.Unverified != nil {
		p.lane.Unverified(p.key.to, err)
	}
	d.end(reason(err))
}

// reason is the errno of a failed handshake: the kernel's, or EPROTO.
func reason(err error) syscall.Errno {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e
	}
	return unix.EPROTO
}

// Expired gives up.
func (d *dial) Expired(*conn.Timer) {
	d.shake.GiveUp()
	d.end(unix.ETIMEDOUT)
}

// Panicked passes a panic on: exchanges contain their own.
func (d *dial) Panicked(v any, _ []byte) { panic(v) }

// end is called once. Of those that wait for HTTP/1 one attempt serves one, so
// that one fails with it; of HTTP/2, all.
func (d *dial) end(e syscall.Errno) {
	p := d.pool
	p.dialing--
	p.lane.loop.Cancel(&d.timer)
	if e == 0 {
		closed := func() {}
		if p.lane.Dialed != nil {
			closed = p.lane.Dialed(&d.sock, p.key.to)
		}
		p.connected(&d.sock, closed)
		return
	}
	d.sock.Close() // with a FIN: an alert may be under way
	n := len(p.queue)
	if !p.key.h2 {
		n = min(n, 1)
	}
	failed := slices.Clone(p.queue[:n])
	p.queue = slices.Delete(p.queue, 0, n)
	for _, x := range failed {
		x.pool = nil
	}
	for _, x := range failed {
		x.unconnected(e)
	}
}
