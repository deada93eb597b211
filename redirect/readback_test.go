package redirect

import (
	"testing"

	"github.com/meshctl/meshctl/integration/lab"
)

func TestEveryBackendReadsThePlanBack(t *testing.T) {
	everyBackend(t, func(t *testing.T, pair *lab.Net, b Backend) {
		if _, ok := read(t, b).Plan(); ok {
			t.Error("a plan where there are no rules")
		}
		for name, p := range plans(t) {
			if _, err := b.Apply(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			back, ok := read(t, b).Plan()
			if !ok || !back.Equal(p) {
				t.Errorf("%s: read back %v, %+v", name, ok, back.Config())
			}
		}
	})
}

func TestChangedRulesAreNoPlan(t *testing.T) {
	pair := lab.Pair(t)
	b := nfTables{open(t, pair.Pod.Path())}
	mustApply(t, b, plan(t, nil), true)
	feed(t, pair.Pod, "insert rule inet meshctl outbound tcp dport 80 return\n", "nft", "-f", "-")
	if _, ok := read(t, b).Plan(); ok {
		t.Error("somebody's rule was taken for ours")
	}
}
