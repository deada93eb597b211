package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/redirect"
)

// pair is two network namespaces that only descriptors hold, joined by a link:
// with the last process in them all is gone, whatever ended it.
//
//	pod                                        peer
//	eth0 10.77.0.2/24 fd77::2/64  <--veth-->   eth0 10.77.0.1/24 fd77::1/64
type pair struct{ pod, peer *side }

// side is one namespace of the pair.
type side struct {
	*redirect.Namespace
	handle netns.NsHandle // its number is what /proc/PID/fd is asked for
	v4, v6 netip.Prefix
}

func newPair(ctx context.Context) (p *pair, err error) {
	p = &pair{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.pod, err = newSide("10.77.0.2/24", "fd77::2/64"); err != nil {
		return p, err
	}
	if p.peer, err = newSide("10.77.0.1/24", "fd77::1/64"); err != nil {
		return p, err
	}
	return p, p.join(ctx)
}

// newSide makes a namespace on a thread of its own.
func newSide(v4, v6 string) (*side, error) {
	done := make(chan unshared, 1)
	go unshareThread(done)
	u := <-done
	if u.err != nil {
		return nil, u.err
	}
	ns, err := redirect.OpenNamespace(fmt.Sprintf("/proc/self/fd/%d", int(u.handle)))
	if err != nil {
		u.handle.Close()
		return nil, err
	}
	return &side{ns, u.handle, netip.MustParsePrefix(v4), netip.MustParsePrefix(v6)}, nil
}

// unshared is the answer of unshareThread.
type unshared struct {
	handle netns.NsHandle
	err    error
}

// unshareThread takes its thread back home after the new namespace is made; a
// thread that cannot go back ends with this goroutine.
func unshareThread(done chan<- unshared) {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		done <- unshared{err: fmt.Errorf("finding the own namespace: %w", err)}
		return
	}
	defer home.Close()
	handle, err := netns.New() // the thread is inside now
	if err != nil {
		runtime.UnlockOSThread()
		done <- unshared{err: fmt.Errorf("making a network namespace: %w", err)}
		return
	}
	if netns.Set(home) == nil {
		runtime.UnlockOSThread()
	}
	done <- unshared{handle: handle}
}

// path is what other programs may call the namespace while this one runs.
func (s *side) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(s.handle)) }

func (s *side) close() {
	if s != nil {
		s.Close()
		s.handle.Close()
	}
}

// addr is the side's own address of a family with a port.
func (s *side) addr(v6 bool, port uint16) netip.AddrPort {
	if v6 {
		return netip.AddrPortFrom(s.v6.Addr(), port)
	}
	return netip.AddrPortFrom(s.v4.Addr(), port)
}

// listen opens a TCP listener for both families on every address of the side.
func (s *side) listen(port uint16) (l net.Listener, err error) {
	err = s.Do(func() error {
		l, err = net.Listen("tcp", fmt.Sprintf("[::]:%d", port))
		return err
	})
	return l, err
}

func (p *pair) join(ctx context.Context) error {
	err := p.pod.Do(func() error {
		veth := netlink.NewVeth(netlink.LinkAttrs{Name: "eth0"})
		veth.PeerName, veth.PeerNamespace = "eth0", netlink.NsFd(int(p.peer.handle))
		return netlink.LinkAdd(veth)
	})
	if err != nil {
		return fmt.Errorf("joining the namespaces: %w", err)
	}
	for _, s := range []*side{p.pod, p.peer} {
		if err := s.Do(s.furnish); err != nil {
			return fmt.Errorf("giving a namespace its addresses: %w", err)
		}
	}
	for _, s := range []*side{p.pod, p.peer} {
		if err := s.Do(func() error { return carries(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

// furnish runs inside the side.
func (s *side) furnish() error {
	eth0, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	for _, p := range []netip.Prefix{s.v4, s.v6} {
		addr, err := netlink.ParseAddr(p.String())
		if err != nil {
			return err
		}
		if p.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD // usable at once
		}
		if err := netlink.AddrAdd(eth0, addr); err != nil {
			return fmt.Errorf("adding %s: %w", p, err)
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetUp(lo), netlink.LinkSetUp(eth0))
}

// carries waits until the link of the calling thread's namespace is up: a first
// packet lost costs a second.
func carries(ctx context.Context) error {
	for {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		addrs, err := netlink.AddrList(eth0, netlink.FAMILY_V6)
		if err != nil {
			return err
		}
		if eth0.Attrs().OperState == netlink.OperUp && len(addrs) > 0 {
			return nil
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return fmt.Errorf("waiting for the link: %w", err)
		}
	}
}

func (p *pair) close() {
	p.pod.close()
	p.peer.close()
}

// pause sleeps, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
