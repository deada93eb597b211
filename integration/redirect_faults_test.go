package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/lab"
)

// A run may be killed at any moment: what was there stays, or all that is to
// come is there, and a second run always ends well.
func TestKilledRunsLeaveOldOrNewRules(t *testing.T) {
	n := lab.Pair(t)
	whole := map[string]bool{}
	for _, list := range []string{"25", "3306"} {
		if got := rulesOnly(t, n.Pod, "--skip-outbound-ports", list); got.code != 0 {
			t.Fatal(got.err)
		}
		whole[nft(t, n.Pod)] = true
	}
	if len(whole) != 2 {
		t.Fatal("the two lists give the same rules")
	}
	half, written := 0, 0
	for i := range 40 {
		cmd := exec.Command(meshctl, "redirect", "--rules-only", "--netns", n.Pod.Path(), "--skip-outbound-ports", []string{"25", "3306"}[i%2])
		cmd.Env = lab.Environ()
		before := nft(t, n.Pod)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i) * 500 * time.Microsecond)
		cmd.Process.Kill()
		cmd.Wait()
		after := nft(t, n.Pod)
		if !whole[after] {
			half++
		}
		if after != before {
			written++
		}
	}
	t.Logf("40 kills: %d half-written, %d after the write", half, written)
	if half > 0 {
		t.Errorf("%d of 40 kills left half of the rules", half)
	}
	if got := rulesOnly(t, n.Pod, "--skip-outbound-ports", "25"); got.code != 0 || !whole[nft(t, n.Pod)] {
		t.Errorf("the run after: exit code %d: %s", got.code, got.err)
	}
}

func TestWithoutTheCapabilityNothingIsWritten(t *testing.T) {
	n := lab.Pair(t)
	for _, backend := range []string{"auto", "nftables", "iptables-nft", "iptables-legacy"} {
		got := runIn(t, n.Pod, nil, "setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin",
			meshctl, "redirect", "--rules-only", "--backend", backend)
		if got.code != 77 || !strings.Contains(got.err, "CAP_NET_ADMIN") || strings.Count(got.err, "\n") != 1 {
			t.Errorf("%s: exit code %d: %q", backend, got.code, got.err)
		}
	}
	if left := nft(t, n.Pod); left != "" {
		t.Errorf("written all the same:\n%s", left)
	}
}

// The image's binary carries capabilities as permitted only: it has to raise
// them itself where it may, and to start all the same where it may not.
func TestABinaryWithFileCapabilitiesWorksAsAnOrdinaryUser(t *testing.T) {
	n := lab.Pair(t)
	dir, err := os.MkdirTemp("", "meshctl-caps")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	binary := filepath.Join(dir, "meshctl")
	text, err := os.ReadFile(meshctl)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, text, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("setcap", "cap_net_admin,cap_net_raw=p", binary).CombinedOutput(); err != nil {
		t.Fatalf("setcap: %v: %s", err, out)
	}
	as := func(bounding string, args ...string) ran {
		return runIn(t, n.Pod, nil, "setpriv", append([]string{"--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=" + bounding,
			"--inh-caps=-all", binary, "redirect", "--rules-only"}, args...)...)
	}
	for _, backend := range []string{"nftables", "iptables-nft", "iptables-legacy"} {
		if got := as("-all,+net_admin,+net_raw", "--backend", backend); got.code != 0 {
			t.Errorf("%s: exit code %d: %s", backend, got.code, got.err)
		}
	}
	if got := as("-all,+net_admin", "--backend", "nftables"); got.code != 0 {
		t.Errorf("with NET_ADMIN alone: exit code %d: %s", got.code, got.err)
	}
	if got := as("-all"); got.code != 77 {
		t.Errorf("with nothing: exit code %d: %s", got.code, got.err)
	}
}

// On a read-only root the lock file cannot be written.
func TestIPTablesLegacyWorksWithAReadOnlyLockFile(t *testing.T) {
	n := lab.Pair(t)
	script := `touch /run/xtables.lock && mount --bind /run/xtables.lock /run/xtables.lock && mount -o remount,ro,bind /run/xtables.lock && exec "$@"`
	got := runIn(t, n.Pod, nil, "unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh",
		meshctl, "redirect", "--rules-only", "--backend", "iptables-legacy")
	if got.code != 0 {
		t.Errorf("exit code %d: %s", got.code, got.err)
	}
	if text := n.Pod.Run(t, "ip6tables-legacy-save"); !strings.Contains(text, "MESHCTL_OUTBOUND") {
		t.Errorf("not written:\n%s", text)
	}
}

// IPv6 programs that fail are a failure, and IPv4 is not left redirected alone.
func TestFailingIPv6ProgramsFailTheRun(t *testing.T) {
	n := lab.Pair(t)
	dir := t.TempDir()
	for _, kind := range []string{"", "-nft", "-legacy"} {
		for _, verb := range []string{"", "-save", "-restore"} {
			if err := os.WriteFile(filepath.Join(dir, "ip6tables"+kind+verb), []byte("#!/bin/sh\nexit 3\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, backend := range []string{"iptables", "iptables-nft", "iptables-legacy"} {
		got := runIn(t, n.Pod, []string{"PATH=" + dir + ":" + os.Getenv("PATH")}, meshctl, "redirect", "--rules-only", "--backend", backend)
		if got.code == 0 || !strings.Contains(got.err, "ip6tables") {
			t.Errorf("%s: exit code %d: %q", backend, got.code, got.err)
		}
	}
	if left := nft(t, n.Pod) + n.Pod.Run(t, "cat", "/proc/net/ip_tables_names"); left != "" {
		t.Errorf("left:\n%s", left)
	}
}

func TestTheReasonGoesToTheTerminationLog(t *testing.T) {
	n := lab.Pair(t)
	dir := t.TempDir()
	log := filepath.Join(dir, "termination-log")
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	script := `mknod "$0/null" c 1 3 && mount --bind "$0" /dev && exec "$@"`
	got := runIn(t, n.Pod, nil, "unshare", "-m", "--propagation", "private", "sh", "-c", script, dir,
		meshctl, "redirect", "--rules-only", "--skip-outbound-ports", "44x4")
	text, err := os.ReadFile(log)
	if err != nil || got.code != 64 || string(text) != got.err || len(text) == 0 {
		t.Errorf("exit code %d, said %q, log %q, %v", got.code, got.err, text, err)
	}
}

// The figures that were promised: 1000 ranges are written in under 60 ms, and
// no program is started for it.
func TestAThousandRangesAreWrittenFastAndByOneProcess(t *testing.T) {
	n := lab.Pair(t)
	ranges := make([]string, 1000)
	for i := range ranges {
		ranges[i] = fmt.Sprintf("%d-%d", 10000+4*i, 10002+4*i)
	}
	best := time.Hour
	for range 8 {
		n.Pod.Run(t, meshctl, "redirect", "remove")
		cmd := exec.Command(meshctl, "redirect", "--rules-only", "--netns", n.Pod.Path(), "--skip-outbound-ports", strings.Join(ranges, ","))
		cmd.Env = append(lab.Environ(), "PATH=/nonexistent")
		began := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		best = min(best, time.Since(began))
	}
	t.Logf("1000 ranges in %v", best)
	if best > 60*time.Millisecond {
		t.Errorf("took %v, want under 60 ms", best)
	}
}

// A proxy's ports may be taken: then no rules are written.
func TestPortsThatAreTakenLeaveNoRules(t *testing.T) {
	n := lab.Pair(t)
	first := mesh(t, n)
	before := nft(t, n.Pod)
	got := runIn(t, n.Pod, nil, meshctl, "redirect", "--proxy-uid", proxyUID, "--skip-outbound-ports", "9")
	if got.code != 75 || !strings.Contains(got.err, "address already in use") {
		t.Errorf("a second one: exit code %d: %s", got.code, got.err)
	}
	if after := nft(t, n.Pod); after != before {
		t.Errorf("the second run changed the rules of the first:\n%s", after)
	}
	select {
	case <-first.proxy.Gone():
		t.Error("the first proxy ended")
	default:
	}
}

// From before the rules until the proxy runs, no connection is refused.
func TestNoConnectionIsRefusedWhileTheProxyStarts(t *testing.T) {
	n := lab.Pair(t)
	at := lab.PeerV4.String() + ":8080"
	serveHello(t, n.Peer, at)
	var stop atomic.Bool
	var refused, served atomic.Int64
	var clients sync.WaitGroup
	for range 2 {
		clients.Add(1)
		go func() {
			defer clients.Done()
			for !stop.Load() {
				if err := hello(n.Pod, at); err != nil {
					t.Errorf("a connection failed: %v", err)
					refused.Add(1)
				} else {
					served.Add(1)
				}
				time.Sleep(5 * time.Millisecond)
			}
		}()
	}
	time.Sleep(100 * time.Millisecond)
	mesh(t, n)
	time.Sleep(1500 * time.Millisecond)
	stop.Store(true)
	clients.Wait()
	t.Logf("%d served, %d refused", served.Load(), refused.Load())
}
