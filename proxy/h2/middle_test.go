package h2_test

import (
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/h2"
	"github.com/meshctl/meshctl/proxy/message"
)

// middle forwards the streams of its servers to one server over HTTP/2: the
// smallest intermediary there can be. All of it runs on one loop.
type middle struct {
	loop    *conn.Loop
	to      netip.AddrPort
	cfg     h2.Config
	clients []*h2.Client
	servers map[*h2.Server]bool
	hops    []*hop // free ones
	ended   func(error)
}

// Accept serves a client.
func (m *middle) Accept(l *conn.Loop, c conn.Accepted) {
	d := &downstream{m: m}
	if err := l.Attach(&d.sock, c.FD, d); err != nil {
		unix.Close(c.FD)
		return
	}
	d.server = h2.NewServer(l, &d.sock, m.cfg, m, d.ended)
	m.servers[d.server] = true
	d.server.Start(nil)
}

// AcceptFailed is not expected.
func (m *middle) AcceptFailed(err error) { panic(err) }

// downstream holds a client's socket.
type downstream struct {
	m      *middle
	sock   conn.Socket
	server *h2.Server
}

func (d *downstream) Ready(*conn.Socket, conn.Events) {}
func (d *downstream) Panicked(v any, _ []byte)        { panic(v) }
func (d *downstream) ended(err error) {
	delete(d.m.servers, d.server)
	if d.m.ended != nil {
		d.m.ended(err)
	}
}

// Open begins an exchange.
func (m *middle) Open(s message.Stream) message.Receiver {
	if n := len(m.hops); n > 0 {
		h := m.hops[n-1]
		m.hops = m.hops[:n-1]
		*h = hop{m: m, down: s}
		return h
	}
	return &hop{m: m, down: s}
}

// client returns a connection that takes one more stream.
func (m *middle) client() *h2.Client {
	for _, c := range m.clients {
		if c.CanOpen() {
			return c
		}
	}
	sock := &conn.Socket{}
	if _, e := m.loop.Dial(sock, m.to, &downstream{m: m}); e != 0 {
		return nil
	}
	for end := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		if e := sock.Connected(); e == 0 {
			break
		} else if e != unix.EINPROGRESS || time.Now().After(end) {
			sock.Close()
			return nil
		}
	}
	c := h2.NewClient(m.loop, sock, m.cfg, nil, m.lost)
	c.Start()
	m.clients = append(m.clients, c)
	return c
}

func (m *middle) lost(c *h2.Client, _ error) {
	for i, o := range m.clients {
		if o == c {
			m.clients = append(m.clients[:i], m.clients[i+1:]...)
			return
		}
	}
}

// hop is one exchange; it receives what comes from both sides.
type hop struct {
	m        *middle
	down, up message.Stream
	answered bool
	tunnel   bool
	over     bool
}

func (h *hop) other(s message.Stream) message.Stream {
	if s == h.down {
		return h.up
	}
	return h.down
}

// Head implements message.Receiver.
func (h *hop) Head(s message.Stream, head *message.Head, end bool) {
	if s == h.up {
		h.answered = h.answered || !head.Interim()
		h.down.SendHead(head, end)
		h.done(s, end)
		return
	}
	c := h.m.client()
	if c == nil {
		h.fail(502)
		return
	}
	h.tunnel = string(head.Method) == "CONNECT"
	h.up = c.Open(h)
	h.up.SendHead(head, end)
}

func (h *hop) fail(status int) {
	var head message.Head
	head.Status = status
	h.down.SendHead(&head, true)
	h.done(h.up, true)
}

// Data implements message.Receiver.
func (h *hop) Data(s message.Stream, b []byte, end bool) {
	to := h.other(s)
	to.SendData(b, end)
	if !end && to.Pending() > message.HighWater {
		s.Hold(true)
	}
	h.done(s, end)
}

// Trailers implements message.Receiver.
func (h *hop) Trailers(s message.Stream, head *message.Head) {
	h.other(s).SendTrailers(head)
	h.done(s, true)
}

// Drained implements message.Receiver.
func (h *hop) Drained(s message.Stream) { h.other(s).Hold(false) }

// Aborted implements message.Receiver.
func (h *hop) Aborted(s message.Stream, code message.Code) {
	switch {
	case s == h.down:
		if h.up != nil {
			h.up.Abort(code)
		}
		h.done(h.up, true)
	case !h.answered && code == message.Closed:
		h.fail(502)
	default:
		h.down.Abort(code)
		h.done(s, true)
	}
}

// done ends the exchange with its response.
func (h *hop) done(s message.Stream, end bool) {
	if end && s == h.up && !h.over && !h.tunnel {
		h.over = true
		h.m.hops = append(h.m.hops, h)
	}
}

// listen returns a listening socket of the kernel's choice.
func listen(addr string) (fd int, at netip.AddrPort, err error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return 0, at, err
	}
	defer ln.Close()
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		return 0, at, err
	}
	defer f.Close()
	if fd, err = unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0); err == nil {
		err = unix.SetNonblock(fd, true)
	}
	return fd, ln.Addr().(*net.TCPAddr).AddrPort(), err
}

// serve makes a middle that listens on addr and forwards to another address.
func serve(loop *conn.Loop, addr string, to netip.AddrPort, cfg h2.Config) (*middle, netip.AddrPort, error) {
	fd, at, err := listen(addr)
	if err != nil {
		return nil, at, err
	}
	m := &middle{loop: loop, to: to, cfg: cfg, servers: map[*h2.Server]bool{}}
	_, err = loop.Listen(fd, nil, m)
	return m, at, err
}
