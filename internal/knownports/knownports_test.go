package knownports

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/proxy/detect"
	"github.com/meshctl/meshctl/proxy/policy"
	"github.com/meshctl/meshctl/rules"
)

// treatedAs is the union of the ports of all rows with that default.
func treatedAs(d Default) (set ports.Set) {
	for _, e := range All() {
		if e.Default == d {
			set = set.Union(e.Ports)
		}
	}
	return set
}

func TestTableHasTheDefaultListsAndNothingElseUnderTheirNames(t *testing.T) {
	tests := []struct {
		as   Default
		want ports.Set
	}{
		{Opaque, policy.DefaultOpaque()},
		{Skipped, rules.DefaultConfig().SkipInboundPorts},
		{Skipped, rules.DefaultConfig().SkipOutboundPorts},
		{Opaque, ports.Of(25, 587, 3306, 4444, 5432, 6379, 9300, 11211)},
		{Skipped, ports.Of(4567, 4568)},
	}
	for _, tt := range tests {
		if got := treatedAs(tt.as); !got.Equal(tt.want) {
			t.Errorf("%v: the table has %v, the default is %v", tt.as, got, tt.want)
		}
	}
}

func TestPortStandsInOneRowOnly(t *testing.T) {
	var had ports.Set
	for _, e := range All() {
		if e.Ports.Overlaps(had) {
			t.Errorf("%s: %v stand in another row too", e.Name, e.Ports.Intersect(had))
		}
		had = had.Union(e.Ports)
	}
}

func TestEveryProtocolThatDetectionNamesHasARow(t *testing.T) {
	var names []string
	for _, e := range All() {
		names = append(names, e.Name)
	}
	for _, n := range detect.Names() {
		if !slices.Contains(names, n) {
			t.Errorf("no row for %s", n)
		}
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(All()) {
		t.Error("a name stands in two rows")
	}
}

func TestRowsSayAllTheyHaveToSay(t *testing.T) {
	for _, e := range All() {
		if e.Title == "" || e.First == Unsaid || e.Default == Unset || e.Set == "" {
			t.Errorf("%s: a column is empty: %+v", e.Name, e)
		}
		if !strings.HasSuffix(e.Note, ".") || strings.TrimSpace(e.Note) != e.Note {
			t.Errorf("%s: the note is no sentence: %q", e.Name, e.Note)
		}
		for _, a := range e.Aliases {
			if a != strings.ToLower(a) {
				t.Errorf("%s: alias %q is never found", e.Name, a)
			}
		}
	}
}

func TestAdviceOnPortsIsAboutThePortsOfTheRow(t *testing.T) {
	advice := regexp.MustCompile(`--opaque-ports \+([0-9,-]+)`)
	for _, e := range All() {
		m := advice.FindStringSubmatch(e.Set)
		if (e.First == Server && e.Default == Detected) && m == nil {
			t.Errorf("%s: its server speaks first, and nothing is said about it", e.Name)
		}
		if m == nil {
			continue
		}
		set, err := ports.Parse(m[1])
		if err != nil || !set.Equal(e.Ports) {
			t.Errorf("%s: advises %s (%v) for the ports %v", e.Name, m[1], err, e.Ports)
		}
	}
}

func TestFindByNameTitleAliasOrPort(t *testing.T) {
	tests := []struct {
		query string
		want  []string
	}{
		{"mysql", []string{"mysql"}},
		{" MariaDB ", []string{"mysql"}},
		{"3306", []string{"mysql"}},
		{"galera", []string{"mysql", "galera-sst", "galera-group"}},
		{"4568", []string{"galera-group"}},
		{"Elasticsearch Transport", []string{"elasticsearch"}},
		{"5902", []string{"vnc"}},
		{"thrift", []string{"thrift"}},
		{"8080", nil},
		{"0", nil},
		{"65536", nil},
		{"", nil},
		{"my", nil},
	}
	for _, tt := range tests {
		var got []string
		for _, e := range Find(tt.query) {
			got = append(got, e.Name)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("Find(%q): %s", tt.query, diff)
		}
	}
}

func TestWordsOfColumnsAreDistinct(t *testing.T) {
	speakers := []string{Unsaid.String(), Client.String(), Server.String(), Either.String()}
	defaults := []string{Unset.String(), Detected.String(), Opaque.String(), Skipped.String()}
	for _, words := range [][]string{speakers, defaults} {
		slices.Sort(words)
		if got := len(slices.Compact(words)); got != 4 {
			t.Errorf("%d words for 4 values: %v", got, words)
		}
	}
}
