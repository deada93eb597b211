package iptables

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/rules"
)

// TestTheKernelHoldsWhatWasWritten writes one plan over the other and looks at
// each through the listing: the kernel holds it, line by line.
func TestTheKernelHoldsWhatWasWritten(t *testing.T) {
	everywhere(t, func(t *testing.T, k kernel) {
		for _, name := range append(slices.Sorted(maps.Keys(plans())), "default") {
			p := build(t, plans()[name])
			k.restore(t, Restore(p, k.family, Parse(k.save(t))))
			found := Parse(k.save(t))
			// legacy lists nat before mangle, nft the other way round
			want, got := slices.Sorted(slices.Values(Lines(p, k.family))), slices.Sorted(slices.Values(found.Rules))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: rules wanted (-) and listed (+):\n%s", name, diff)
			}
			if !found.Holds(p, k.family) {
				t.Errorf("%s: the kernel does not hold the plan: %+v", name, found)
			}
			if found.Hash() != p.Hash() && !found.Empty() {
				t.Errorf("%s: hash %q, want %q", name, found.Hash(), p.Hash())
			}
		}
		k.restore(t, Remove(Parse(k.save(t))))
		if left := Parse(k.save(t)); !left.Empty() {
			t.Errorf("left after removal: %+v", left)
		}
	})
}

func TestWritingTwiceChangesNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, k kernel) {
		p := build(t, plans()["many ports"])
		k.restore(t, Restore(p, k.family, Parse(k.save(t))))
		once := k.save(t)
		again := Restore(p, k.family, Parse(once))
		if strings.Contains(again, "-I ") || strings.Contains(again, "-D ") {
			t.Errorf("the second text touches jumps:\n%s", again)
		}
		k.restore(t, again)
		if diff := cmp.Diff(once, k.save(t)); diff != "" {
			t.Errorf("after the first run (-) and the second (+):\n%s", diff)
		}
	})
}

// TestDamageIsFoundAndMended starts from what an interrupted run, another
// version or a person may leave.
func TestDamageIsFoundAndMended(t *testing.T) {
	damages := map[string]string{
		"a chain without a jump":        "*nat\n:MESHCTL_INBOUND - [0:0]\n-D PREROUTING -p tcp -m comment --comment \"meshctl: TCP connections that come in\" -j MESHCTL_INBOUND\nCOMMIT\n",
		"a jump twice":                  "*nat\n-A OUTPUT -p tcp -m comment --comment \"meshctl: TCP connections that local processes open\" -j MESHCTL_OUTBOUND\nCOMMIT\n",
		"a jump of another spelling":    "*nat\n-A OUTPUT -j MESHCTL_OUTBOUND -m comment --comment \"it's a -j X\"\nCOMMIT\n",
		"someone before our jump":       "*nat\n:SOMEONE - [0:0]\n-I PREROUTING 1 -j SOMEONE\nCOMMIT\n",
		"a jump from another chain":     "*nat\n:SOMEONE - [0:0]\n-A SOMEONE -g MESHCTL_INBOUND\nCOMMIT\n",
		"a rule too many":               "*nat\n-A MESHCTL_OUTBOUND -p tcp -j REDIRECT --to-ports 9\nCOMMIT\n",
		"a rule gone":                   "*nat\n-D MESHCTL_OUTBOUND 1\nCOMMIT\n",
		"a chain emptied":               "*mangle\n:MESHCTL_INVALID - [0:0]\nCOMMIT\n",
		"the jump of a chain to remove": "*mangle\n-A PREROUTING -j MESHCTL_INVALID\nCOMMIT\n",
	}
	everywhere(t, func(t *testing.T, k kernel) {
		p := build(t, nil)
		k.restore(t, Restore(p, k.family, Found{}))
		for name, damage := range damages {
			k.restore(t, damage)
			if Parse(k.save(t)).Holds(p, k.family) {
				t.Errorf("%s: not seen", name)
			}
			k.restore(t, Restore(p, k.family, Parse(k.save(t))))
			if found := Parse(k.save(t)); !found.Holds(p, k.family) {
				t.Errorf("%s: not mended: %+v", name, found)
			}
		}
		k.restore(t, Remove(Parse(k.save(t))))
		if found := Parse(k.save(t)); !found.Empty() {
			t.Errorf("left after removal: %+v", found)
		}
	})
}

func TestRulesOfOthersStayToTheLetter(t *testing.T) {
	everywhere(t, func(t *testing.T, k kernel) {
		k.restore(t, `*nat
:SERVICES - [0:0]
:MESHCTL_OUTBOUNDER - [0:0]
-A PREROUTING -m comment --comment "jump -j MESHCTL_INBOUND \"quoted\"" -j SERVICES
-A OUTPUT -j SERVICES
-A SERVICES -p tcp -m tcp --dport 30080 -j RETURN
-A MESHCTL_OUTBOUNDER -j SERVICES
COMMIT
*filter
:MESHCTL_INBOUND - [0:0]
-A INPUT -j MESHCTL_INBOUND
-A MESHCTL_INBOUND -p tcp -m tcp --dport 9 -j DROP
COMMIT
*mangle
-A PREROUTING -j MARK --set-xmark 0x1/0xffffffff
COMMIT
`)
		before := k.save(t)
		if found := Parse(before); !found.Empty() {
			t.Errorf("taken for ours: %+v", found)
		}
		p := build(t, nil)
		k.restore(t, Restore(p, k.family, Parse(before)))
		k.restore(t, Remove(Parse(k.save(t))))
		if diff := cmp.Diff(before, k.save(t)); diff != "" {
			t.Errorf("before (-) and after removal (+):\n%s", diff)
		}
	})
}

// kernel is a namespace seen through one pair of programs.
type kernel struct {
	prefix string // "iptables-nft", "ip6tables-legacy"
	family rules.Family
	lock   string
}

// everywhere runs f for both backends and both families, each in a network
// namespace of its own. The thread stays locked to the test and ends with it,
// and the namespace with the thread.
func everywhere(t *testing.T, f func(*testing.T, kernel)) {
	for _, backend := range []string{"nft", "legacy"} {
		for family, program := range map[rules.Family]string{rules.IPv4: "iptables-", rules.IPv6: "ip6tables-"} {
			t.Run(program+backend, func(t *testing.T) {
				runtime.LockOSThread()
				if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
					if os.Getenv("MESHCTL_NETNS") == "require" {
						t.Fatalf("no network namespace: %v", err)
					}
					t.Skipf("no network namespace: %v", err)
				}
				f(t, kernel{program + backend, family, filepath.Join(t.TempDir(), "lock")})
			})
		}
	}
}

func (k kernel) restore(t *testing.T, text string) {
	t.Helper()
	if text == "" {
		return
	}
	k.run(t, text, k.prefix+"-restore", "--noflush")
}

// save returns the listing without what changes by itself: times and counters.
func (k kernel) save(t *testing.T) string {
	t.Helper()
	out := k.run(t, "", k.prefix+"-save")
	out = regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(out, "")
	return regexp.MustCompile(`\[\d+:\d+\]`).ReplaceAllString(out, "[0:0]")
}

func (k kernel) run(t *testing.T, input string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+k.lock)
	cmd.Stdin = strings.NewReader(input)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s\n%s", name, err, errs.String(), input)
	}
	return out.String()
}
