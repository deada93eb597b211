package lab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Namespace is a named network namespace of this machine.
type Namespace struct {
	Name   string // below /run/netns
	handle netns.NsHandle
}

// Path is the file that stands for the namespace.
func (n *Namespace) Path() string { return filepath.Join("/run/netns", n.Name) }

func create(t testing.TB, name string) *Namespace {
	t.Helper()
	ns := &Namespace{Name: name}
	err := onThread(func() error {
		handle, err := netns.NewNamed(name)
		ns.handle = handle
		return err
	})
	if err != nil {
		t.Fatalf("making namespace %s: %v", name, err)
	}
	t.Cleanup(func() { ns.handle.Close() })
	return ns
}

// onThread runs fn on a thread of its own, which ends with it: whatever fn does
// to the thread (namespace, user) never reaches another goroutine. The first
// thread of a process is never taken, because it cannot end.
func onThread(fn func() error) error {
	done := make(chan error, 1)
	go runLocked(fn, done)
	return <-done
}

// runLocked never unlocks the thread it ran fn on, so the runtime ends it.
func runLocked(fn func() error, done chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		defer runtime.UnlockOSThread()
		done <- onThread(fn) // another thread: this one is held until the answer
		return
	}
	done <- fn()
}

// Do runs fn on a thread inside the namespace. Sockets that fn opens belong to
// the namespace for good; goroutines that fn starts do not run in it.
func (n *Namespace) Do(fn func() error) error {
	return onThread(func() error {
		if err := netns.Set(n.handle); err != nil {
			return fmt.Errorf("entering %s: %w", n.Name, err)
		}
		return fn()
	})
}

// Command is a program that will run inside the namespace. The test's own
// MESHCTL_ settings are not passed on: MESHCTL_NETNS would mean --netns.
func (n *Namespace) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + n.Path(), "--", name}, args...)...)
	cmd.Env = Environ()
	return cmd
}

// Environ is the environment without MESHCTL_ variables.
func Environ() []string {
	var env []string
	for _, item := range os.Environ() {
		if !strings.HasPrefix(item, "MESHCTL_") {
			env = append(env, item)
		}
	}
	return env
}

// Run runs a program inside the namespace, for 30 s at most, and returns what
// it printed. The test fails if the program does.
func (n *Namespace) Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	text, err := n.Command(ctx, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s in %s: %v\n%s", name, strings.Join(args, " "), n.Name, err, text)
	}
	return string(text)
}

// Listen opens a TCP listener inside the namespace, closed at the test's end.
func (n *Namespace) Listen(t testing.TB, addr netip.AddrPort) net.Listener {
	t.Helper()
	network := "tcp4"
	if addr.Addr().Is6() {
		network = "tcp6"
	}
	var l net.Listener
	err := n.Do(func() (err error) {
		l, err = net.Listen(network, addr.String())
		return err
	})
	if err != nil {
		t.Fatalf("listening on %s in %s: %v", addr, n.Name, err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// Owner is the user a socket belongs to, as rules see it.
type Owner struct{ UID, GID int }

// Dial connects from inside the namespace; the socket belongs to owner. A from
// that is valid is the client's own address.
func (n *Namespace) Dial(owner Owner, from, to netip.AddrPort, timeout time.Duration) (*net.TCPConn, error) {
	dialer := net.Dialer{Timeout: timeout}
	if from.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(from)
	}
	var conn net.Conn
	err := n.Do(func() (err error) {
		// The owner of a socket is the fsuid of the thread that opens it,
		// and both are per thread (credentials(7)).
		if err := setOwner(owner); err != nil {
			return err
		}
		conn, err = dialer.Dial("tcp", to.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

func setOwner(owner Owner) error {
	for _, set := range []struct{ call, id int }{{unix.SYS_SETFSGID, owner.GID}, {unix.SYS_SETFSUID, owner.UID}} {
		syscall.RawSyscall(uintptr(set.call), uintptr(set.id), 0, 0)
		got, _, _ := syscall.RawSyscall(uintptr(set.call), ^uintptr(0), 0, 0)
		if int(got) != set.id {
			return fmt.Errorf("taking id %d: still %d", set.id, got)
		}
	}
	return nil
}

// join puts a veth pair between the two and gives them addresses and routes.
func join(pod, peer *Namespace) error {
	for _, ns := range []*Namespace{pod, peer} {
		if err := ns.Do(withoutDuplicateDetection); err != nil {
			return fmt.Errorf("setting up %s: %w", ns.Name, err)
		}
	}
	inPod, err := netlink.NewHandleAt(pod.handle)
	if err != nil {
		return fmt.Errorf("talking to %s: %w", pod.Name, err)
	}
	defer inPod.Close()
	inPeer, err := netlink.NewHandleAt(peer.handle)
	if err != nil {
		return fmt.Errorf("talking to %s: %w", peer.Name, err)
	}
	defer inPeer.Close()
	veth := netlink.NewVeth(netlink.LinkAttrs{Name: "eth0"})
	veth.PeerName, veth.PeerNamespace = "eth0", netlink.NsFd(int(peer.handle))
	if err := inPod.LinkAdd(veth); err != nil {
		return fmt.Errorf("adding the veth pair: %w", err)
	}
	if err := raise(inPod, "10.231.0.2/24", "fd31::2/64"); err != nil {
		return err
	}
	if err := raise(inPeer, "10.231.0.1/24", "fd31::1/64", "10.232.0.10/24"); err != nil {
		return err
	}
	if err := defaultRoutes(inPod); err != nil {
		return err
	}
	return settle(inPod, inPeer)
}

func raise(h *netlink.Handle, addrs ...string) error {
	eth0, err := h.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("finding eth0: %w", err)
	}
	for _, text := range addrs {
		addr, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD // usable at once
		if err := h.AddrAdd(eth0, addr); err != nil {
			return fmt.Errorf("adding %s: %w", text, err)
		}
	}
	lo, err := h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding lo: %w", err)
	}
	for _, link := range []netlink.Link{lo, eth0} {
		if err := h.LinkSetUp(link); err != nil {
			return fmt.Errorf("raising %s: %w", link.Attrs().Name, err)
		}
	}
	return nil
}

func defaultRoutes(h *netlink.Handle) error {
	for _, gateway := range []netip.Addr{PeerV4, PeerV6} {
		if err := h.RouteAdd(&netlink.Route{Gw: gateway.AsSlice()}); err != nil {
			return fmt.Errorf("adding the route by %s: %w", gateway, err)
		}
	}
	return nil
}

// settle waits until both ends are up: IPv6 neighbours answer only then, and a
// first packet lost costs a second.
func settle(handles ...*netlink.Handle) error {
	deadline := time.Now().Add(5 * time.Second)
	for _, h := range handles {
		for {
			eth0, err := h.LinkByName("eth0")
			if err != nil {
				return fmt.Errorf("finding eth0: %w", err)
			}
			addrs, err := h.AddrList(eth0, netlink.FAMILY_V6)
			if err != nil {
				return fmt.Errorf("listing addresses: %w", err)
			}
			if eth0.Attrs().OperState == netlink.OperUp && linkLocalReady(addrs) {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("eth0 is still %s after 5 s", eth0.Attrs().OperState)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// linkLocalReady tells whether the kernel has finished bringing IPv6 up: the
// link-local address is the last that it adds, and duplicate detection is off.
func linkLocalReady(addrs []netlink.Addr) bool {
	for _, a := range addrs {
		if a.IP.IsLinkLocalUnicast() {
			return a.Flags&unix.IFA_F_TENTATIVE == 0
		}
	}
	return false
}

// withoutDuplicateDetection saves the second that the kernel waits for another
// owner of an address on a link that has but two ends.
func withoutDuplicateDetection() error {
	return os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0o644)
}
