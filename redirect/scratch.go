package redirect

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// scratch is a peer for probes: a namespace without a name that a link leads
// to, and that is gone with its descriptor, also when we are killed.
//
//	the namespace under test                    the peer, known by descriptor only
//	mctlvXXXXXX 198.18.x.y+1/30   <--veth-->    eth0 198.18.x.y+2/30
//	            2001:db8:6d65:7368:r::1/126          2001:db8:6d65:7368:r::2/126
//
// Without CAP_SYS_ADMIN there can be no peer. The link's other end then lies in
// the namespace under test, and serves as a way out for outbound connections.
type scratch struct {
	near, far map[bool]netip.Addr // by whether it is IPv6; near is under test
	peer      *Namespace          // nil when it could not be made
	noPeer    error               // why
	noIPv6    error               // why there is no IPv6 address
	under     *Namespace
	link      string
}

// newScratch makes the peer and the link. Close removes them.
func newScratch(ctx context.Context, under *Namespace) (*scratch, error) {
	s := &scratch{under: under, link: fmt.Sprintf("mctlv%06x", rand.Uint32N(1<<24))}
	s.choose()
	s.peer, s.noPeer = anonymousNamespace()
	if s.noPeer != nil && ClassOf(s.noPeer) != Permission {
		return nil, s.noPeer
	}
	if err := s.connect(ctx); err != nil {
		s.Close()
		return nil, &Error{Step: "making a link for probes", Err: err}
	}
	return s, nil
}

// choose takes random addresses of the probes' prefixes.
func (s *scratch) choose() {
	v4 := probePrefix4.Addr().As4()
	base := binary.BigEndian.Uint32(v4[:]) + 4*rand.Uint32N(1<<15)
	v6 := probePrefix6.Addr().As16()
	binary.BigEndian.PutUint64(v6[8:], rand.Uint64()&^3)
	s.near, s.far = map[bool]netip.Addr{}, map[bool]netip.Addr{}
	for i, side := range []map[bool]netip.Addr{s.near, s.far} {
		binary.BigEndian.PutUint32(v4[:], base+1+uint32(i))
		v6[15] = v6[15]&^3 | byte(i+1)
		side[false], side[true] = netip.AddrFrom4(v4), netip.AddrFrom16(v6)
	}
}

// anonymousNamespace makes a namespace that only a descriptor holds.
func anonymousNamespace() (*Namespace, error) {
	done := make(chan made, 1)
	go unshareThread(done)
	m := <-done
	return m.ns, m.err
}

// made is the answer of unshareThread.
type made struct {
	ns  *Namespace
	err error
}

// unshareThread is a goroutine of its own, because its thread may have to end.
func unshareThread(done chan<- made) {
	runtime.LockOSThread()
	ns, back, err := unshareHere()
	if back {
		runtime.UnlockOSThread()
	}
	done <- made{ns, err}
}

// unshareHere makes the namespace on the calling thread and goes back home;
// back tells whether that worked.
func unshareHere() (ns *Namespace, back bool, err error) {
	if err := raiseCapabilities(); err != nil {
		return nil, true, err
	}
	home, err := netns.GetFromPath(ownNamespace)
	if err != nil {
		return nil, true, err
	}
	defer home.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, true, &Error{Step: "making a namespace for probes", Err: err}
	}
	made, err := netns.GetFromPath(ownNamespace)
	if err == nil {
		ns = &Namespace{file: os.NewFile(uintptr(made), "probes"), ref: "the namespace for probes"}
	}
	return ns, netns.Set(home) == nil, err
}

// connect makes the link, gives both ends addresses and waits until it carries.
func (s *scratch) connect(ctx context.Context) error {
	err := s.under.Do(func() error {
		veth := netlink.NewVeth(netlink.LinkAttrs{Name: s.link})
		veth.PeerName = s.link + "p"
		if s.peer != nil {
			veth.PeerName, veth.PeerNamespace = "eth0", netlink.NsFd(int(s.peer.file.Fd()))
		}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("adding %s: %w", s.link, err)
		}
		if s.peer == nil {
			if err := raiseLink(s.link + "p"); err != nil {
				return err
			}
		}
		return s.furnish(s.link, s.near)
	})
	if err == nil && s.peer != nil {
		err = s.peer.Do(func() error { return s.furnish("eth0", s.far) })
		if err == nil {
			err = s.peer.Do(func() error { return s.carries(ctx, "eth0", s.far, s.near) })
		}
	}
	if err != nil {
		return err
	}
	return s.under.Do(func() error { return s.carries(ctx, s.link, s.near, s.far) })
}

// furnish gives a device its addresses and raises it. IPv6 may be off.
func (s *scratch) furnish(device string, addrs map[bool]netip.Addr) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	for v6, bits := range map[bool]int{false: 30, true: 126} {
		addr, err := netlink.ParseAddr(netip.PrefixFrom(addrs[v6], bits).String())
		if err != nil {
			return err
		}
		if v6 {
			addr.Flags = unix.IFA_F_NODAD // usable at once
		}
		err = netlink.AddrAdd(link, addr)
		if v6 && err != nil {
			s.noIPv6, err = fmt.Errorf("IPv6 is off here: %w", err), nil
		}
		if err != nil {
			return fmt.Errorf("adding an address to %s: %w", device, err)
		}
	}
	return raiseLink(device)
}

func raiseLink(device string) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// carries waits until a device is up and the kernel has finished with its
// addresses, which it does in the background: a first packet lost before that
// costs a second.
func (s *scratch) carries(ctx context.Context, device string, own, other map[bool]netip.Addr) error {
	for {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		ready := link.Attrs().OperState == netlink.OperUp
		if s.noIPv6 == nil {
			ready = ready && routed(own[true], unix.RTN_LOCAL) && routed(other[true], unix.RTN_UNICAST)
		}
		if ready {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", device, ctx.Err())
		case <-time.After(500 * time.Microsecond):
		}
	}
}

// routed tells whether the kernel has a route of a type to addr.
func routed(addr netip.Addr, kind int) bool {
	routes, err := netlink.RouteGet(addr.AsSlice())
	return err == nil && len(routes) == 1 && routes[0].Type == kind
}

// Close removes the link; the peer goes with its descriptor.
func (s *scratch) Close() error {
	err := s.under.Do(func() error {
		link, err := netlink.LinkByName(s.link)
		if err != nil {
			return nil // never made
		}
		return netlink.LinkDel(link)
	})
	if s.peer != nil {
		err = errors.Join(err, s.peer.Close())
	}
	return err
}
