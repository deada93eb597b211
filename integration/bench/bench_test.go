// Package bench compares meshctl with its peers on one machine, side by side:
//
//	peer namespace: load  --veth-->  pod namespace: rules by meshctl --> contender --> nginx, echo, source
//
// Times of one run on one machine say little, and less when others use it too.
// So every contender is measured afresh in every round, in turns, and what is
// printed are medians of the ratios within rounds. BENCHTIME (a measurement's
// length), ROUNDS and LOADS (names, by comma) change it; with less than three
// rounds it shows that the benchmark works, and prints no result.
package bench

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/built"
	"github.com/meshctl/meshctl/integration/lab"
)

// settings are what the environment says.
type settings struct {
	length time.Duration // of one measurement
	rounds int
	loads  []load
}

func readSettings() (settings, error) {
	s := settings{length: 100 * time.Millisecond, rounds: 1, loads: loads()}
	var err error
	if v := os.Getenv("BENCHTIME"); v != "" {
		if s.length, err = time.ParseDuration(v); err != nil {
			return s, fmt.Errorf("BENCHTIME: %w", err)
		}
	}
	if v := os.Getenv("ROUNDS"); v != "" {
		if s.rounds, err = strconv.Atoi(v); err != nil {
			return s, fmt.Errorf("ROUNDS: %w", err)
		}
	}
	if v := os.Getenv("LOADS"); v != "" {
		names := strings.Split(v, ",")
		s.loads = slices.DeleteFunc(s.loads, func(l load) bool { return !slices.Contains(names, l.name) })
		if len(s.loads) != len(names) {
			return s, fmt.Errorf("LOADS: there are %d loads of %v", len(s.loads), names)
		}
	}
	return s, nil
}

// bench is one comparison.
type bench struct {
	settings
	net     *lab.Net
	program string // meshctl
	results results
}

// TestCompare is the benchmark, and in its short form the proof that it runs.
func TestCompare(t *testing.T) {
	lab.Require(t)
	s, err := readSettings()
	if err != nil {
		t.Fatal(err)
	}
	program, remove, err := built.Compile()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remove)
	prefer(os.Getpid())
	b := &bench{settings: s, net: lab.Pair(t), program: program, results: results{}}
	b.tune(t)
	b.backends(t)
	for _, l := range b.loads {
		t.Run(l.name, func(t *testing.T) { b.compare(t, l) })
	}
	fmt.Print(b.results.table(b.rounds))
}

// compare measures one load: every contender once a round, in turns that begin
// with another one each round.
func (b *bench) compare(t *testing.T, l load) {
	all := present(t, l)
	for round := range b.rounds {
		for i := range all {
			c := all[(i+round)%len(all)]
			t.Run(fmt.Sprintf("%s %d", c.name, round+1), func(t *testing.T) {
				m := b.measure(t, l, c)
				if len(m) == 0 && !t.Failed() {
					t.Error("nothing was measured")
				}
				b.results.add(l, c.name, m)
			})
		}
	}
}

// tune gives both namespaces enough ports, and lets go of finished connections
// soon, so that connections a second are not a matter of what is left over.
func (b *bench) tune(t *testing.T) {
	for _, ns := range []*lab.Namespace{b.net.Pod, b.net.Peer} {
		err := ns.Do(func() error {
			for name, value := range map[string]string{
				"ipv4/ip_local_port_range": "1024 65000", "ipv4/ip_local_reserved_ports": "4140-4191,8080-8085",
				"ipv4/tcp_tw_reuse": "1", "core/somaxconn": "65535", "ipv4/tcp_max_syn_backlog": "65535",
			} {
				if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0o644); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
