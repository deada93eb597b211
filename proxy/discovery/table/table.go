// Package table is one table of tests for everything that says what a
// destination is: objects, a destination, and the View that has to come of them.
// A source is opened by an Open, given objects step by step, and asked; see Run.
// It is for tests only.
package table

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/proxy/discovery"
)

// Case is a story about some objects. Its objects are as an API server takes
// them, so that one can be given them.
type Case struct {
	Name      string
	Namespace string // of the clients
	Steps     []Step
}

// Step is how the objects are from now on, and what has to be said then.
type Step struct {
	Objects string // YAML documents; all of them, not only those that are new
	Asks    []Ask
}

// Ask is one destination and what Text has to say of its View.
type Ask struct {
	To string // address:port
	// Requests are those that are matched with the View's Table: "GET host/path" and
	// then fields as "name: value", separated by "; ".
	Requests []string
	Want     string
}

// Open makes a Resolver for clients of a namespace, and set, which makes objects
// all that there are. What set changes may be seen a little later; Run waits. What
// Open starts ends with t.
type Open func(t *testing.T, namespace string) (r discovery.Resolver, set func(objects string))

// Config says how a source is tested.
type Config struct {
	Open Open
	// Carried cuts from a line of Text what the source cannot know; empty leaves the
	// line out. Nil: it knows everything.
	Carried func(line string) string
	Within  time.Duration // how long a change may take; 0: 20 s
}

// Run holds a source to the table.
func Run(t *testing.T, cfg Config) {
	if cfg.Within == 0 {
		cfg.Within = 20 * time.Second
	}
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			r, set := cfg.Open(t, c.Namespace)
			held := map[string]*discovery.Target{} // what is held has to follow
			for i, step := range c.Steps {
				set(step.Objects)
				for _, a := range step.Asks {
					cfg.ask(t, i+1, a, r, held)
				}
			}
		})
	}
}

func (cfg Config) ask(t *testing.T, step int, a Ask, r discovery.Resolver, held map[string]*discovery.Target) {
	t.Helper()
	target := r.Resolve(netip.MustParseAddrPort(a.To))
	if before := held[a.To]; before != nil && before != target {
		t.Errorf("step %d: %s has another Target than before", step, a.To)
	}
	held[a.To] = target
	want := cfg.cut(a.Want)
	for end := time.Now().Add(cfg.Within); ; time.Sleep(10 * time.Millisecond) {
		got := cfg.cut(Text(target.View(), a.Requests...))
		if got == want {
			return
		}
		if time.Now().After(end) {
			t.Errorf("step %d: %s (-want +got):\n%s", step, a.To, cmp.Diff(want, got))
			return
		}
	}
}

// cut leaves of a text what the source can know, without indents and empty lines.
func (cfg Config) cut(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if cfg.Carried != nil && line != "" {
			line = strings.TrimSpace(cfg.Carried(line))
		}
		if line != "" {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}
