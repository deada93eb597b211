package redirect

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/rules"
)

// foreign is what others have in a namespace: services, a container engine, a
// policy, another redirector, in the languages that each of them writes.
const foreign = `*nat
:KUBE-SERVICES - [0:0]
:DOCKER - [0:0]
:SIDE_OUTPUT - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -j KUBE-SERVICES
-A KUBE-SERVICES -p tcp --dport 30080 -j RETURN
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT -p tcp -j SIDE_OUTPUT
-A SIDE_OUTPUT -m owner --uid-owner 1337 -j RETURN
COMMIT
*mangle
:MARKS - [0:0]
-A PREROUTING -j MARKS
-A MARKS -p tcp --dport 9 -j MARK --set-mark 0x9
COMMIT
*filter
:POLICY - [0:0]
-A INPUT -j POLICY
-A POLICY -p tcp --dport 9 -j DROP
COMMIT
`

const foreignNFT = `table inet other {
	set s { type inet_service; elements = { 1, 2 }; }
	chain in { type filter hook input priority 10; tcp dport 7 drop; tcp dport @s accept; }
}
table ip meshctl { chain own { tcp dport 1 accept; }; }
`

// Others' rules are what they were, to the letter and in their order, after
// writing, rewriting and removing.
func TestOthersRulesAreNotTouched(t *testing.T) {
	everyBackend(t, func(t *testing.T, pair *lab.Net, b Backend) {
		for _, kind := range []string{"nft", "legacy"} {
			feed(t, pair.Pod, foreign, "iptables-"+kind+"-restore", "--noflush")
			feed(t, pair.Pod, foreign, "ip6tables-"+kind+"-restore", "--noflush")
		}
		feed(t, pair.Pod, foreignNFT, "nft", "-f", "-")
		before := everything(t, pair.Pod)
		for _, p := range plans(t) {
			mustApply(t, b, p, true)
			if diff := cmp.Diff(withoutOurs(before), withoutOurs(everything(t, pair.Pod))); diff != "" {
				t.Fatalf("after writing:\n%s", diff)
			}
		}
		if _, err := b.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, everything(t, pair.Pod)); diff != "" {
			t.Errorf("after removing:\n%s", diff)
		}
	})
}

// withoutOurs takes our own table, chains and jumps out of a listing.
func withoutOurs(listing string) string {
	var out strings.Builder
	skip := ""
	for line := range strings.Lines(listing) {
		indent := line[:len(line)-len(strings.TrimLeft(line, "\t"))]
		opens := strings.HasPrefix(line, "table inet meshctl ") || strings.HasPrefix(line, "\tchain MESHCTL_")
		switch {
		case skip != "":
			if line == skip {
				skip = ""
			}
		case opens:
			skip = indent + "}\n"
		case strings.TrimSpace(line) == "": // nft(8) puts one between chains
		case strings.Contains(line, "MESHCTL_"):
		default:
			out.WriteString(line)
		}
	}
	return out.String()
}

func TestASecondMeshIsReportedAndNotWrittenBeside(t *testing.T) {
	for kind, rule := range map[string]string{
		"nft":    "*nat\n:ISTIO_OUTPUT - [0:0]\n-A OUTPUT -j ISTIO_OUTPUT\nCOMMIT\n",
		"legacy": "*nat\n:PROXY_INIT_REDIRECT - [0:0]\nCOMMIT\n",
	} {
		t.Run(kind, func(t *testing.T) {
			pair := lab.Pair(t)
			feed(t, pair.Pod, rule, "iptables-"+kind+"-restore", "--noflush")
			ns := open(t, pair.Pod.Path())
			before := everything(t, pair.Pod)
			choice, err := Pick(t.Context(), ns, Options{})
			if err != nil {
				t.Fatal(err)
			}
			var mesh *OtherMeshError
			if _, err := choice.Apply(t.Context(), plan(t, nil)); !errors.As(err, &mesh) || len(mesh.Found) != 1 {
				t.Fatalf("beside another mesh: %v", err)
			}
			if diff := cmp.Diff(before, everything(t, pair.Pod)); diff != "" {
				t.Errorf("written in spite of it:\n%s", diff)
			}
			choice, err = Pick(t.Context(), ns, Options{Force: true})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := choice.Apply(t.Context(), plan(t, nil)); err != nil {
				t.Errorf("forced: %v", err)
			}
		})
	}
}

// Rules that are in one backend move to another when that is asked for, and
// stay where they are when nothing is. There is never a second copy.
func TestRulesMoveBetweenBackends(t *testing.T) {
	pair := lab.Pair(t)
	ns := open(t, pair.Pod.Path())
	asked := []Kind{IPTablesLegacy, Auto, NFTables, Auto, IPTablesNFT, Auto, IPTablesLegacy, NFTables}
	wants := []Kind{IPTablesLegacy, IPTablesLegacy, NFTables, NFTables, IPTablesNFT, IPTablesNFT, IPTablesLegacy, NFTables}
	for i, kind := range asked {
		choice, err := Pick(t.Context(), ns, Options{Backend: kind})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := choice.Apply(t.Context(), plan(t, nil)); err != nil {
			t.Fatal(err)
		}
		around, err := lookAround(ns)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]Kind{wants[i]}, around.holds()); diff != "" {
			t.Errorf("asked for %s (%s): held by\n%s", kind, choice.Why, diff)
		}
	}
}

func TestRemoveTakesTheRulesOutOfEveryBackend(t *testing.T) {
	pair := lab.Pair(t)
	ns := open(t, pair.Pod.Path())
	for _, kind := range []Kind{NFTables, IPTablesNFT, IPTablesLegacy} {
		mustApply(t, (&Choice{}).make(ns, kind, Options{}), plan(t, nil), true)
	}
	choice, err := Pick(t.Context(), ns, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if choice.Backend.Name() != "nftables" || choice.OtherNames() != "iptables-nft, iptables-legacy" {
		t.Errorf("chose %s, others %q", choice.Backend.Name(), choice.OtherNames())
	}
	if removed, err := choice.Remove(t.Context()); err != nil || !removed {
		t.Fatalf("removed %v, %v", removed, err)
	}
	if left := strings.ToLower(everything(t, pair.Pod)); strings.Contains(left, "meshctl") {
		t.Errorf("left:\n%s", left)
	}
}

// A service address that somebody else translates is captured with that address
// as the original destination, whoever was there first, and the proxy's own
// connection to it is still translated.
func TestServiceAddressesAreCapturedBeforeTheyAreTranslated(t *testing.T) {
	const dnat = "table ip services { chain out { type nat hook output priority -100; ip daddr 10.96.0.20 tcp dport 80 dnat to 10.231.0.1:8081; }; }\n"
	for _, order := range []string{"before", "after"} {
		everyBackend(t, func(t *testing.T, pair *lab.Net, b Backend) {
			if b.Name() != "nftables" && order == "after" {
				// The built-in chains of iptables stand at -100 too, where the
				// one that is registered later wins: nothing of ours can help.
				t.Log("iptables cannot be before a chain that is made later at the same priority")
				return
			}
			config := rules.DefaultConfig()
			tr := newTraffic(t, pair, config)
			serve(t, pair.Peer, onPort(lab.PeerV4, 8081), direct)
			pair.Pod.Run(t, "ip", "route", "replace", "10.96.0.0/16", "via", lab.PeerV4.String())
			steps := []func(){
				func() { feed(t, pair.Pod, dnat, "nft", "-f", "-") },
				func() { mustApply(t, b, plan(t, nil), true) },
			}
			if order == "after" {
				steps[0], steps[1] = steps[1], steps[0]
			}
			steps[0]()
			steps[1]()
			to := onPort(netipAddr("10.96.0.20"), 80)
			for owner, want := range map[lab.Owner]string{app: "outbound proxy for 10.96.0.20:80", root: "outbound proxy for 10.96.0.20:80", proxy: direct} {
				tr.servers[pair.Pod.Name+to.String()] = true // nobody listens there itself
				if got := tr.arrives(t, dialled{from: pair.Pod, owner: owner, to: to}); got != want {
					t.Errorf("translated %s: uid %d: %q, want %q", order, owner.UID, got, want)
				}
			}
		})
	}
}

// The rules of an embedded resolver on loopback, which a container engine puts
// there, go on working.
func TestARedirectedResolverOnLoopbackStillAnswers(t *testing.T) {
	everyBackend(t, func(t *testing.T, pair *lab.Net, b Backend) {
		const resolver = "*nat\n:DNS_OUT - [0:0]\n-A DNS_OUT -d 127.0.0.11/32 -p tcp --dport 53 -j DNAT --to-destination 127.0.0.11:5300\n-A OUTPUT -d 127.0.0.11/32 -j DNS_OUT\nCOMMIT\n"
		feed(t, pair.Pod, resolver, "iptables-nft-restore", "--noflush")
		serve(t, pair.Pod, onPort(netipAddr("127.0.0.11"), 5300), direct)
		mustApply(t, b, plan(t, nil), true)
		tr := &traffic{Net: pair, servers: map[string]bool{}}
		to := onPort(netipAddr("127.0.0.11"), 53)
		tr.servers[pair.Pod.Name+to.String()] = true
		if got := tr.arrives(t, dialled{from: pair.Pod, owner: app, to: to}); got != direct {
			t.Errorf("the resolver: %q", got)
		}
	})
}

// A native rule inside iptables' table, which its save program cannot print,
// keeps its meaning: nothing of others is ever written back.
func TestARuleThatIPTablesCannotPrintKeepsItsMeaning(t *testing.T) {
	pair := lab.Pair(t)
	b := iptablesIn(open(t, pair.Pod.Path()))[0]
	pair.Pod.Run(t, "iptables-nft", "-t", "nat", "-A", "OUTPUT", "-p", "tcp", "--dport", "1", "-j", "RETURN")
	feed(t, pair.Pod, "insert rule ip nat OUTPUT meta skuid { 5000, 5001 } counter accept\n", "nft", "-f", "-")
	before := everything(t, pair.Pod)
	mustApply(t, b, plan(t, nil), true)
	if diff := cmp.Diff(strings.Count(before, "skuid { 5000, 5001 }"), strings.Count(everything(t, pair.Pod), "skuid { 5000, 5001 }")); diff != "" {
		t.Errorf("the rule changed:\n%s", diff)
	}
	tr := newTraffic(t, pair, rules.DefaultConfig())
	if got := tr.arrives(t, dialled{from: pair.Pod, owner: app, to: onPort(lab.PeerV4, 8080)}); !strings.HasPrefix(got, outbound) {
		t.Errorf("others: %q", got)
	}
}

// While the path is swapped between the namespace and the host's own, rules
// land in the namespace or nowhere; the host's never change.
func TestASwappedPathNeverReachesTheHost(t *testing.T) {
	pair, host := lab.Pair(t), lab.Pair(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "ns")
	if err := os.Symlink(pair.Pod.Path(), path); err != nil {
		t.Fatal(err)
	}
	before := everything(t, host.Pod)
	var stop atomic.Bool
	swapped := make(chan int)
	go func() {
		n := 0
		for ; !stop.Load(); n++ {
			target := []string{"/proc/self/ns/mnt", pair.Pod.Path(), filepath.Join(dir, "none")}[n%3]
			next := filepath.Join(dir, "next")
			os.Symlink(target, next)
			os.Rename(next, path)
		}
		swapped <- n
	}()
	applied, tries := 0, 0
	for deadline := time.Now().Add(10 * time.Second); applied < 30 && time.Now().Before(deadline); tries++ {
		ns, err := OpenNamespace(path)
		if err != nil {
			if ClassOf(err) != Usage {
				t.Errorf("%v (%v)", err, ClassOf(err))
			}
			continue
		}
		if _, err := (nfTables{ns}).Apply(t.Context(), plans(t)[[]string{"default", "lists"}[applied%2]]); err != nil {
			t.Error(err)
		}
		applied++
		ns.Close()
	}
	stop.Store(true)
	t.Logf("%d swaps, %d of %d tries wrote", <-swapped, applied, tries)
	if applied < 30 {
		t.Error("hardly ever written")
	}
	if diff := cmp.Diff(before, everything(t, host.Pod)); diff != "" {
		t.Errorf("another namespace changed:\n%s", diff)
	}
	if inodeIn(t, func(fn func() error) error { return fn() }) == inodeIn(t, pair.Pod.Do) {
		t.Error("the test is in the namespace")
	}
}
