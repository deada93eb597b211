package ports

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestASetIsMergedToDisjointIntervalsThatDoNotTouch(t *testing.T) {
	for _, c := range []struct {
		name, list string
		want       []Range
	}{
		{"doubled ports are one", "3306,3306", []Range{{3306, 3306}}},
		{"neighbours are joined", "4568,4567", []Range{{4567, 4568}}},
		{"overlaps are joined", "80-90,85-95", []Range{{80, 95}}},
		{"an inner range vanishes", "1-100,5-7", []Range{{1, 100}}},
		{"a gap of one port stays a gap", "10-19,21-30", []Range{{10, 19}, {21, 30}}},
		{"the last port has no neighbour above", "65535,1", []Range{{1, 1}, {65535, 65535}}},
		{"the last two ports are joined", "65534,65535", []Range{{65534, 65535}}},
		{"everything is one range", "32768-65535,1-32767", []Range{{1, 65535}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, must(t, c.list).Ranges()); diff != "" {
				t.Errorf("Ranges (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOfLeavesPortZeroOut(t *testing.T) {
	if got := Of(0, 80, 0).String(); got != "80" {
		t.Errorf("Of(0, 80, 0) = %q, want %q", got, "80")
	}
}

func TestRangesGivesACopy(t *testing.T) {
	s := Of(80)
	s.Ranges()[0] = Range{1, 65535}
	if s.Contains(81) {
		t.Error("changing the result of Ranges changed the set")
	}
}

func TestFindGivesTheIntervalAroundAPort(t *testing.T) {
	s := must(t, "25,4567-4570")
	if r, ok := s.Find(4568); !ok || r != (Range{4567, 4570}) {
		t.Errorf("Find(4568) = %v, %v", r, ok)
	}
	if r, ok := s.Find(26); ok {
		t.Errorf("Find(26) = %v, want none", r)
	}
}

func TestASetInJSONIsAListAsPeopleWriteIt(t *testing.T) {
	b, err := json.Marshal(must(t, "587,25,30-40"))
	if err != nil || string(b) != `"25,30-40,587"` {
		t.Errorf("json = %s, %v", b, err)
	}
	var back Set
	if err := json.Unmarshal(b, &back); err != nil || !back.Equal(must(t, "25,30-40,587")) {
		t.Errorf("read back: %v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`"0"`), &back); err == nil {
		t.Error("a wrong list was read from JSON")
	}
}

// TestSetsAgreeWithANaiveModel compares every operation with arrays of 65536
// booleans, for random sets of few and of many intervals.
func TestSetsAgreeWithANaiveModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		a, am := randomSet(rnd)
		b, bm := randomSet(rnd)
		var or, and model
		for p := range or {
			or[p], and[p] = am[p] || bm[p], am[p] && bm[p]
		}
		and.equals(t, "intersection", a.Intersect(b))
		or.equals(t, "union", a.Union(b))
		am.equals(t, "left operand afterwards", a)
		if a.Overlaps(b) != (and != model{}) {
			t.Errorf("Overlaps(%v, %v) = %v", a, b, a.Overlaps(b))
		}
		if a.Equal(b) != (*am == *bm) {
			t.Errorf("Equal(%v, %v) = %v", a, b, a.Equal(b))
		}
	}
}

// model is a set of ports written as plainly as can be.
type model [65536]bool

func (m *model) equals(t *testing.T, what string, s Set) {
	t.Helper()
	n := 0
	for p, in := range m {
		if in {
			n++
		}
		if s.Contains(uint16(p)) != in {
			t.Fatalf("%s: Contains(%d) = %v, model says %v (%v)", what, p, !in, in, s)
		}
	}
	if s.Len() != n || s.Empty() != (n == 0) {
		t.Errorf("%s: Len %d, Empty %v, model has %d", what, s.Len(), s.Empty(), n)
	}
}

func randomSet(rnd *rand.Rand) (Set, *model) {
	var s Set
	var m model
	for range rnd.IntN(8) {
		lo := 1 + rnd.IntN(65535)
		hi := min(65535, lo+rnd.IntN(1+rnd.IntN(20000)))
		s = s.Union(Set{[]Range{{uint16(lo), uint16(hi)}}})
		for p := lo; p <= hi; p++ {
			m[p] = true
		}
	}
	return s, &m
}

func must(t *testing.T, list string) Set {
	t.Helper()
	s, err := Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
