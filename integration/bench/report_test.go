package bench

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// few is how many rounds are too few for a result.
const few = 3

// key is one figure of one load.
type key struct{ load, unit string }

// results are all figures, by contender, one a round.
type results map[key]map[string][]float64

func (rs results) add(l load, contender string, m figures) {
	for unit, v := range m {
		k := key{l.name, unit}
		if rs[k] == nil {
			rs[k] = map[string][]float64{}
		}
		rs[k][contender] = append(rs[k][contender], v)
	}
}

// ratios compares two contenders round by round.
func ratios(of, to []float64) []float64 {
	var out []float64
	for i := range min(len(of), len(to)) {
		if to[i] != 0 {
			out = append(out, of[i]/to[i])
		}
	}
	return out
}

// median is the middle of v, or of its two middle ones; 0 of nothing.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	mid := len(v) / 2
	if len(v)%2 == 1 {
		return v[mid]
	}
	return (v[mid-1] + v[mid]) / 2
}

// table shows for every figure the median ratio of each contender to the
// reference, the spread of the ratios, and the reference's own median.
func (rs results) table(rounds int) string {
	if rounds < few {
		return fmt.Sprintf("%d round(s): it works, and that is all this says. A result takes ROUNDS=%d or more, BENCHTIME=2s or more.\n", rounds, few)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "\nMedians of %d rounds: each contender as a multiple of %s in the same round (lowest to highest).\n", rounds, reference)
	keys := slices.SortedFunc(maps.Keys(rs), func(a, b key) int {
		return strings.Compare(a.load+a.unit, b.load+b.unit)
	})
	for _, k := range keys {
		better := "more is better"
		if lowerIsBetter(k.unit) {
			better = "less is better"
		}
		fmt.Fprintf(&out, "\n%s, %s (%s; %s: %.4g)\n", k.load, k.unit, better, reference, median(rs[k][reference]))
		for _, name := range slices.Sorted(maps.Keys(rs[k])) {
			if r := ratios(rs[k][name], rs[k][reference]); name != reference && len(r) > 0 {
				fmt.Fprintf(&out, "  %-10s %6.2f  (%.2f to %.2f)\n", name, median(r), slices.Min(r), slices.Max(r))
			}
		}
	}
	return out.String()
}

func TestTheTableShowsMediansOfRatiosWithinRounds(t *testing.T) {
	rs := results{}
	for round, v := range [][2]float64{{100, 90}, {50, 60}, {200, 220}} {
		_ = round
		rs.add(load{name: "http1"}, reference, figures{perSecond: v[0]})
		rs.add(load{name: "http1"}, "meshctl", figures{perSecond: v[1]})
	}
	want := `
Medians of 3 rounds: each contender as a multiple of haproxy in the same round (lowest to highest).

http1, requests/s (more is better; haproxy: 100)
  meshctl      1.10  (0.90 to 1.20)
`
	if diff := cmp.Diff(want, rs.table(3)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := rs.table(2); strings.Contains(got, "1.10") || !strings.Contains(got, "ROUNDS=3") {
		t.Errorf("two rounds are shown as a result: %s", got)
	}
}

func TestTheMedianIsTheMiddle(t *testing.T) {
	for _, v := range []struct {
		of   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 2, 3}, 2.5}} {
		if got := median(v.of); got != v.want {
			t.Errorf("the median of %v is %v, want %v", v.of, got, v.want)
		}
	}
}
