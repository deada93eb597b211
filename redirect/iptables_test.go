package redirect

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/integration/lab"
)

// iptablesIn are both kinds of iptables in a namespace.
func iptablesIn(ns *Namespace) []ipTables {
	return []ipTables{
		{ns: ns, kind: IPTablesNFT, wait: time.Second},
		{ns: ns, kind: IPTablesLegacy, wait: time.Second},
	}
}

// everyBackend runs a test in a pair of its own for each backend.
func everyBackend(t *testing.T, run func(*testing.T, *lab.Net, Backend)) {
	for _, kind := range []Kind{NFTables, IPTablesNFT, IPTablesLegacy} {
		t.Run(kind.String(), func(t *testing.T) {
			pair := lab.Pair(t)
			run(t, pair, (&Choice{}).make(open(t, pair.Pod.Path()), kind, Options{Wait: time.Second}))
		})
	}
}

func TestEveryBackendAppliesOnceAndThenFindsItInPlace(t *testing.T) {
	everyBackend(t, func(t *testing.T, pair *lab.Net, b Backend) {
		for name, p := range plans(t) {
			changed, err := b.Apply(t.Context(), p)
			if err != nil || !changed {
				t.Fatalf("%s: changed %v, %v", name, changed, err)
			}
			first := everything(t, pair.Pod)
			mustApply(t, b, p, false)
			if diff := cmp.Diff(first, everything(t, pair.Pod)); diff != "" {
				t.Errorf("%s: the second run changed the rules:\n%s", name, diff)
			}
			if state := read(t, b); state.Hash != p.Hash() {
				t.Errorf("%s: hash %q, want %q", name, state.Hash, p.Hash())
			}
		}
		if changed, err := b.Remove(t.Context()); err != nil || !changed {
			t.Errorf("removing: changed %v, %v", changed, err)
		}
		if changed, err := b.Remove(t.Context()); err != nil || changed {
			t.Errorf("removing what is gone: changed %v, %v", changed, err)
		}
		if left := everything(t, pair.Pod); strings.Contains(strings.ToLower(left), "meshctl") {
			t.Errorf("left behind:\n%s", left)
		}
	})
}

func TestReadingMakesNoTable(t *testing.T) {
	everyBackend(t, func(t *testing.T, pair *lab.Net, b Backend) {
		if state := read(t, b); state.Present {
			t.Errorf("found %+v in an empty namespace", state)
		}
		if left := everything(t, pair.Pod); left != "" {
			t.Errorf("reading left:\n%s", left)
		}
	})
}

// leftovers are the half states that a run of another kind may have left: by
// the chain alone, a jump to nothing, and one direction of two.
var leftovers = map[string]string{
	"a chain that nothing jumps to": "*nat\n:MESHCTL_INBOUND - [0:0]\n-A MESHCTL_INBOUND -p tcp -j REDIRECT --to-ports 4143\nCOMMIT\n",
	"a jump to an empty chain":      "*nat\n:MESHCTL_OUTBOUND - [0:0]\n-A OUTPUT -j MESHCTL_OUTBOUND\nCOMMIT\n",
	"outbound without inbound":      "*nat\n:MESHCTL_OUTBOUND - [0:0]\n-A MESHCTL_OUTBOUND -p tcp -j REDIRECT --to-ports 4140\n-A OUTPUT -p tcp -j MESHCTL_OUTBOUND\nCOMMIT\n",
}

func TestLeftoversOfARunThatDiedAreHealed(t *testing.T) {
	for name, text := range leftovers {
		t.Run(name, func(t *testing.T) {
			pair := lab.Pair(t)
			for _, b := range iptablesIn(open(t, pair.Pod.Path())) {
				feed(t, pair.Pod, text, b.Name()+"-restore", "--noflush")
				mustApply(t, b, plan(t, nil), true)
				mustApply(t, b, plan(t, nil), false)
			}
		})
	}
}

// IPv6 programs that are there and fail must not leave IPv4 redirected: what
// cannot be done for both is not done.
func TestFailingIPv6ProgramsUndoIPv4(t *testing.T) {
	for _, before := range []string{"nothing", "an older plan"} {
		for i := range 2 {
			pair := lab.Pair(t)
			b := iptablesIn(open(t, pair.Pod.Path()))[i]
			t.Run(b.Name()+" over "+before, func(t *testing.T) {
				if before != "nothing" {
					mustApply(t, b, plan(t, nil), true)
				}
				want := everything(t, pair.Pod)
				failingPrograms(t, "ip6tables-restore")
				_, err := b.Apply(t.Context(), plans(t)["lists"])
				if err == nil || !strings.Contains(err.Error(), "ip6tables") {
					t.Errorf("error %v does not name the program", err)
				}
				got := everything(t, pair.Pod)
				if before == "nothing" && strings.Contains(got, "MESHCTL") {
					t.Errorf("IPv4 rules remain:\n%s", got)
				}
				if before != "nothing" && got != want {
					t.Errorf("not as before:\n%s", cmp.Diff(want, got))
				}
			})
		}
	}
}

// failingPrograms puts programs that fail before the real ones: all whose name
// begins like one of the restore programs of IPv6.
func failingPrograms(t *testing.T, names ...string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		base, verb, _ := strings.Cut(name, "-")
		for _, kind := range []string{"", "-nft", "-legacy"} {
			file := filepath.Join(dir, base+kind+"-"+verb)
			if err := os.WriteFile(file, []byte("#!/bin/sh\nexit 3\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestMissingIPv6ProgramsAreAWarningUnlessIPv6IsNeeded(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"iptables-nft", "iptables-nft-save", "iptables-nft-restore"} {
		if err := os.Symlink("/usr/sbin/xtables-nft-multi", filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	pair := lab.Pair(t)
	ns := open(t, pair.Pod.Path())
	t.Setenv("PATH", dir)
	c, err := Pick(t.Context(), ns, Options{Backend: IPTablesNFT})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(t.Context(), plan(t, nil)); err != nil || len(c.Warnings) != 1 {
		t.Errorf("error %v, warnings %q", err, c.Warnings)
	}
	c, err = Pick(t.Context(), ns, Options{Backend: IPTablesNFT, NeedIPv6: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(t.Context(), plans(t)["lists"]); ClassOf(err) != Unsupported {
		t.Errorf("needed IPv6: %v (%v)", err, ClassOf(err))
	}
}

func TestAHeldLockIsWaitedForAndThenNamed(t *testing.T) {
	pair := lab.Pair(t)
	b := iptablesIn(open(t, pair.Pod.Path()))[1]
	lock := ownLock(t)
	began := time.Now()
	_, err := b.Apply(t.Context(), plan(t, nil))
	if ClassOf(err) != TryAgain || !strings.Contains(err.Error(), "lock") {
		t.Errorf("with the lock held: %v (%v)", err, ClassOf(err))
	}
	if took := time.Since(began); took < 900*time.Millisecond || took > 5*time.Second {
		t.Errorf("waited %v for the lock, asked for 1 s", took)
	}
	if left := everything(t, pair.Pod); strings.Contains(left, "MESHCTL") {
		t.Errorf("half written:\n%s", left)
	}
	lock()
	mustApply(t, b, plan(t, nil), true)
}

// ownLock takes a lock file of the test's own, so that nobody else on the
// machine waits for it, and returns the way to let go.
func ownLock(t *testing.T) (unlock func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "xtables.lock")
	t.Setenv("XTABLES_LOCKFILE", path)
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return func() { file.Close() }
}

func TestTheTotalTimeIsBounded(t *testing.T) {
	pair := lab.Pair(t)
	b := iptablesIn(open(t, pair.Pod.Path()))[1]
	b.wait = 20 * time.Second
	defer ownLock(t)()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := b.Apply(ctx, plan(t, nil))
	if !errors.Is(err, context.DeadlineExceeded) || ClassOf(err) != TryAgain {
		t.Errorf("after the time: %v (%v)", err, ClassOf(err))
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestEveryBackendCountsRuleByRule(t *testing.T) {
	everyBackend(t, func(t *testing.T, pair *lab.Net, b Backend) {
		mustApply(t, b, plan(t, nil), true)
		pair.Pod.Dial(lab.Owner{UID: 1000}, noAddr, onPort(lab.PeerV4, 80), 200*time.Millisecond)
		pair.Pod.Dial(lab.Owner{UID: 1000}, noAddr, onPort(lab.PeerV6, 80), 200*time.Millisecond)
		counted := map[string]uint64{}
		for _, c := range read(t, b).Counters {
			counted[c.ID] += c.Packets
		}
		if counted["redirect-outbound"] != 2 || counted["redirect-inbound"] != 0 {
			t.Errorf("counted %v, want two outbound", counted)
		}
	})
}

func TestTheRuleThatFailsIsNamed(t *testing.T) {
	const text = "*nat\n:X - [0:0]\n-A X -m comment --comment \"loopback: stays\" -j RETURN\nCOMMIT\n"
	for stderr, want := range map[string]string{
		"iptables-restore: line 3 failed":                 "loopback",
		"Error occurred at line: 3":                       "loopback",
		"iptables-restore v1.8.9: line 99 failed":         "",
		"iptables-restore v1.8.9 (nf_tables): line 2: no": "",
		"no number": "",
	} {
		if got := ruleAtLine(text, stderr); got != want {
			t.Errorf("%q: rule %q, want %q", stderr, got, want)
		}
	}
}

// everything is what netfilter holds, without counters. Legacy tables that are
// there but empty are left out: a table cannot be taken out again.
func everything(t testing.TB, ns *lab.Namespace) string {
	t.Helper()
	var out strings.Builder
	out.WriteString(ruleset(t, ns))
	for _, f := range []struct{ names, save string }{
		{"ip_tables_names", "iptables-legacy-save"}, {"ip6_tables_names", "ip6tables-legacy-save"},
	} {
		for table := range strings.FieldsSeq(ns.Run(t, "cat", "/proc/net/"+f.names)) {
			for line := range strings.Lines(ns.Run(t, f.save, "-t", table)) {
				if strings.HasPrefix(line, "-A ") || strings.HasPrefix(line, ":MESHCTL") {
					out.WriteString(f.save + " " + table + " " + line)
				}
			}
		}
	}
	return out.String()
}
