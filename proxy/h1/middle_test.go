package h1_test

import (
	"net"
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/h1"
	"github.com/meshctl/meshctl/proxy/message"
)

// middle is the smallest thing that can stand between Server and Client: each
// request goes to one endpoint, over pooled connections.
type middle struct {
	loop  *conn.Loop
	cfg   h1.Config
	to    netip.AddrPort
	idle  []*h1.Client
	free  []*exchange
	socks map[*h1.Client]*conn.Socket

	onEnd   func(error) // a server connection has ended
	servers []*h1.Server
	dialed  atomic.Int32
}

func newMiddle(to netip.AddrPort, cfg h1.Config) (*middle, error) {
	loop, err := conn.NewLoop()
	if err != nil {
		return nil, err
	}
	return &middle{loop: loop, cfg: cfg, to: to, socks: map[*h1.Client]*conn.Socket{}}, nil
}

// listen serves what a listener accepts; the descriptor is taken from it.
func (m *middle) listen(ln *net.TCPListener) error {
	f, err := ln.File()
	if err != nil {
		return err
	}
	fd, err := unix.Dup(int(f.Fd()))
	f.Close()
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	_, err = m.loop.Listen(fd, []*conn.Loop{m.loop}, m)
	return err
}

// Accept implements conn.Acceptor.
func (m *middle) Accept(l *conn.Loop, c conn.Accepted) {
	sock := new(conn.Socket)
	s := h1.NewServer(l, sock, m.cfg, m, func(err error) {
		l.AddLoad(-1)
		if m.onEnd != nil {
			m.onEnd(err)
		}
	})
	if err := l.Attach(sock, c.FD, s); err != nil {
		unix.Close(c.FD)
		return
	}
	m.servers = append(m.servers, s)
	s.Start(nil)
}

func (m *middle) AcceptFailed(error) {}

// exchange passes one request up and its response down.
type exchange struct {
	m        *middle
	down, up message.Stream
	client   *h1.Client
	head     message.Head // until the dial is done
	queued   []byte
	tail     *message.Head // trailers that came before the dial was done
	ended    bool          // queued is all of the body
	headEnd  bool
	answered bool
	tunnel   bool
	isConn   bool
}

// Open implements message.Opener.
func (m *middle) Open(s message.Stream) message.Receiver {
	var x *exchange
	if n := len(m.free); n > 0 {
		x, m.free = m.free[n-1], m.free[:n-1]
		x.up, x.client, x.answered, x.queued, x.ended, x.headEnd, x.tunnel = nil, nil, false, x.queued[:0], false, false, false
	} else {
		x = &exchange{m: m}
	}
	x.down = s
	return (*request)(x)
}

func (m *middle) done(x *exchange) { m.free = append(m.free, x) }

// Idle and ended make the pool.
func (m *middle) pooled(c *h1.Client) { m.idle = append(m.idle, c) }

func (m *middle) gone(c *h1.Client, _ error) {
	for i, o := range m.idle {
		if o == c {
			m.idle = append(m.idle[:i], m.idle[i+1:]...)
		}
	}
	delete(m.socks, c)
}

// request hears the client.
type request exchange

func (r *request) Head(_ message.Stream, h *message.Head, end bool) {
	x, m := (*exchange)(r), r.m
	x.isConn = string(h.Method) == "CONNECT"
	if n := len(m.idle); n > 0 {
		c := m.idle[n-1]
		m.idle = m.idle[:n-1]
		x.client = c
		x.up = c.Open((*response)(x))
		x.up.SendHead(h, end)
		return
	}
	x.head.Reset()
	x.head.CopyFrom(h)
	x.headEnd = end
	x.down.Hold(true)
	x.connect()
}

// connect dials; the exchange is the handler until the connection is up.
func (x *exchange) connect() {
	m := x.m
	m.dialed.Add(1)
	sock := new(conn.Socket)
	done, e := m.loop.Dial(sock, m.to, dialing{x, sock})
	switch {
	case e != 0:
		x.fail(502)
	case done:
		x.connected(sock)
	}
}

type dialing struct {
	x    *exchange
	sock *conn.Socket
}

func (d dialing) Ready(s *conn.Socket, _ conn.Events) {
	switch e := s.Connected(); e {
	case unix.EINPROGRESS:
	case 0:
		d.x.connected(s)
	default:
		s.Close()
		d.x.fail(502)
	}
}

func (d dialing) Panicked(v any, stack []byte) { panic(string(stack)) }

func (x *exchange) connected(sock *conn.Socket) {
	if x.down == nil {
		sock.Close()
		x.m.done(x)
		return
	}
	c := h1.NewClient(x.m.loop, sock, x.m.cfg, x.m.pooled, x.m.gone)
	x.m.socks[c] = sock
	x.client = c
	x.up = c.Open((*response)(x))
	x.up.SendHead(&x.head, x.headEnd)
	if len(x.queued) > 0 || x.ended {
		x.up.SendData(x.queued, x.ended)
	}
	if x.tail != nil {
		x.up.SendTrailers(x.tail)
		x.tail = nil
	}
	x.down.Hold(false)
}

func (x *exchange) fail(status int) {
	if x.down == nil {
		x.m.done(x)
		return
	}
	h := message.Head{Status: status}
	h.Add("l5d-proxy-error", "no endpoint")
	h.Add("connection", "close")
	d := x.down
	x.down = nil
	d.SendHead(&h, true)
	x.m.done(x)
}

func (r *request) Data(_ message.Stream, b []byte, end bool) {
	x := (*exchange)(r)
	if x.up == nil {
		x.queued = append(x.queued, b...)
		x.ended = x.ended || end
		return
	}
	x.up.SendData(b, end)
	if x.up.Pending() > message.HighWater {
		x.down.Hold(true)
	}
}

func (r *request) Trailers(_ message.Stream, h *message.Head) {
	x := (*exchange)(r)
	if x.up == nil {
		x.tail = new(message.Head)
		x.tail.CopyFrom(h)
		return
	}
	x.up.SendTrailers(h)
}

func (r *request) Aborted(_ message.Stream, c message.Code) {
	x := (*exchange)(r)
	x.down = nil
	if x.up != nil {
		x.up.Abort(c)
		x.m.done(x)
	}
}

func (r *request) Drained(message.Stream) {
	if r.up != nil {
		r.up.Hold(false)
	}
}

// response hears the server.
type response exchange

func (r *response) Head(_ message.Stream, h *message.Head, end bool) {
	x := (*exchange)(r)
	if !h.Interim() {
		x.answered = true
		x.tunnel = h.Status == 101 || x.isConn && h.Status/100 == 2
	}
	x.down.SendHead(h, end)
	if end {
		x.m.done(x)
	}
}

func (r *response) Data(s message.Stream, b []byte, end bool) {
	x := (*exchange)(r)
	x.down.SendData(b, end)
	if end && !x.tunnel {
		x.m.done(x)
		return
	}
	if x.down.Pending() > message.HighWater && !end {
		s.Hold(true)
	}
}

func (r *response) Trailers(_ message.Stream, h *message.Head) {
	x := (*exchange)(r)
	x.down.SendTrailers(h)
	x.m.done(x)
}

func (r *response) Aborted(s message.Stream, c message.Code) {
	x := (*exchange)(r)
	stale := s.(interface{ Stale() bool }).Stale()
	switch {
	case x.answered:
		x.down.Abort(c)
		x.m.done(x)
	case stale && x.headEnd:
		x.fail(503)
	default:
		x.fail(502)
	}
}

func (r *response) Drained(message.Stream) {
	if r.down != nil {
		r.down.Hold(false)
	}
}

// run drives the loop until the returned function is called.
func (m *middle) run() (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := m.loop.Run(); err != nil {
			panic(err)
		}
	}()
	return func() {
		m.loop.Stop()
		<-done
	}
}
