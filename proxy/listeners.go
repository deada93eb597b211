package proxy

import (
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/internal/listen"
	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/forward"
)

// open takes over what was handed over and listens on the rest. The addresses
// in the Config become those that are really listened on: what was handed over
// may differ from it.
func (p *Proxy) open() error {
	for name, addrs := range map[string]*[]netip.AddrPort{
		listen.Inbound: &p.cfg.InboundListen, listen.Outbound: &p.cfg.OutboundListen, listen.Admin: &p.cfg.AdminListen,
	} {
		if err := p.openOne(name, *addrs); err != nil {
			return err
		}
		*addrs = nil
		for _, fd := range p.sockets[name] {
			a, err := conn.LocalAddr(fd)
			if err != nil {
				return fmt.Errorf("asking a listener for its address: %w", err)
			}
			*addrs = append(*addrs, a)
		}
	}
	return nil
}

func (p *Proxy) openOne(name string, addrs []netip.AddrPort) error {
	if fds := p.cfg.Inherited[name]; len(fds) > 0 {
		p.sockets[name] = fds
		return nil
	}
	if len(addrs) == 0 {
		return nil
	}
	skipped, err := p.sockets.Open(name, addrs)
	for _, a := range skipped {
		p.cfg.Log.Warn("no such address here: not listening on it", "addr", a)
	}
	return err
}

// accept shares every listening socket among all loops.
func (p *Proxy) accept() error {
	for name, to := range map[string]*forward.Forwarder{listen.Inbound: p.inbound, listen.Outbound: p.outbound} {
		for fd, ok := p.take(name); ok; fd, ok = p.take(name) {
			if err := p.share(fd, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// take hands a listening socket over: its owner is the caller.
func (p *Proxy) take(name string) (fd int, ok bool) {
	if len(p.sockets[name]) == 0 {
		return -1, false
	}
	fd, p.sockets[name] = p.sockets[name][0], p.sockets[name][1:]
	return fd, true
}

// share has every loop accept from one socket, each through a descriptor of its
// own.
func (p *Proxy) share(fd int, to *forward.Forwarder) error {
	for i, l := range p.loops {
		if i > 0 {
			dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("sharing a listener: %w", err)
			}
			fd = dup
		}
		ln, err := l.Listen(fd, p.loops, to)
		if err != nil {
			return err
		}
		p.listeners = append(p.listeners, ln)
	}
	return nil
}

// stopAccepting closes the listeners, each on its loop's goroutine, and returns
// when all are closed.
func (p *Proxy) stopAccepting() {
	var closed sync.WaitGroup
	for i, ln := range p.listeners {
		closed.Add(1)
		if !p.loops[i%len(p.loops)].Post(func() { defer closed.Done(); ln.Close() }) {
			closed.Done()
		}
	}
	closed.Wait()
}
