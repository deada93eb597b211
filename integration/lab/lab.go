// Package lab makes joined network namespaces for tests, so that what is tested
// is a real kernel with real connections:
//
//	mctl-PID-N-pod                                mctl-PID-N-peer
//	  eth0 10.231.0.2/24 fd31::2/64  <--veth-->   eth0 10.231.0.1/24 fd31::1/64
//	  default route via the peer                       10.232.0.10/24
//
// The namespaces belong to one test and are gone after it, also when the test
// binary is killed. The package knows nothing of redirects or proxies.
package lab

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The addresses of every pair. AltV4 is a second address of the peer, for
// tests that skip one subnet of two.
var (
	PodV4  = netip.MustParseAddr("10.231.0.2")
	PodV6  = netip.MustParseAddr("fd31::2")
	PeerV4 = netip.MustParseAddr("10.231.0.1")
	PeerV6 = netip.MustParseAddr("fd31::1")
	AltV4  = netip.MustParseAddr("10.232.0.10")
)

// Net is one pair of joined namespaces.
type Net struct {
	Pod  *Namespace // where rules are written and applications live
	Peer *Namespace // the rest of the world
}

// Require skips the test when namespaces cannot be made here, in one line, or
// fails it if the environment says MESHCTL_NETNS=require.
func Require(t testing.TB) {
	t.Helper()
	err := able()
	switch {
	case err == nil:
	case os.Getenv("MESHCTL_NETNS") == "require":
		t.Fatalf("network namespaces are required: %v", err)
	default:
		t.Skipf("needs network namespaces: %v", err)
	}
}

func able() error {
	if os.Geteuid() != 0 {
		return errors.New("not root")
	}
	var caps [2]unix.CapUserData
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&head, &caps[0]); err != nil {
		return fmt.Errorf("reading capabilities: %w", err)
	}
	const need = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_NET_ADMIN
	if caps[0].Effective&need != need {
		return errors.New("no CAP_SYS_ADMIN or CAP_NET_ADMIN")
	}
	return nil
}

// Pair makes two joined namespaces; it calls Require first. The test's cleanup
// removes them; open connections in them die with their processes.
func Pair(t testing.TB) *Net {
	t.Helper()
	Require(t)
	base := fmt.Sprintf("mctl-%d-%d", os.Getpid(), rand.Uint32N(1e6))
	pod, peer := base+"-pod", base+"-peer"
	sweepAtDeath(t, pod, peer)
	net := &Net{Pod: create(t, pod), Peer: create(t, peer)}
	if err := join(net.Pod, net.Peer); err != nil {
		t.Fatalf("joining %s and %s: %v", pod, peer, err)
	}
	return net
}

// sweepAtDeath leaves a shell that waits for its standard input to end, which
// happens at the test's cleanup and also when the test binary is killed, and
// then removes the names. It has its own session: Ctrl-C does not reach it.
//
// umount(8) reads /proc/self/mountinfo, in which an entry may be missing while
// others mount and unmount: it then takes a mount for none, and the name cannot be
// removed. So it is tried again, for 10 s at most.
func sweepAtDeath(t testing.TB, names ...string) {
	t.Helper()
	script := `read x
left=100
for n in "$@"; do
	while umount -l "/run/netns/$n" 2>/dev/null; ! rm -f "/run/netns/$n"; do
		[ $((left -= 1)) -gt 0 ] || exit 1
		sleep 0.1
	done
done`
	sweeper := exec.Command("/bin/sh", append([]string{"-c", script, "sweep"}, names...)...)
	sweeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := sweeper.StdinPipe()
	if err != nil {
		t.Fatalf("making the sweeper's pipe: %v", err)
	}
	if err := sweeper.Start(); err != nil {
		t.Fatalf("starting the sweeper: %v", err)
	}
	t.Cleanup(func() { endSweeper(t, in, sweeper) })
}

func endSweeper(t testing.TB, in io.Closer, sweeper *exec.Cmd) {
	in.Close()
	// `read` reports the end of input by its status, not the script's.
	if err := sweeper.Wait(); err != nil {
		t.Errorf("removing the namespaces: %v", err)
	}
}
