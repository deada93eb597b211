package l7

import (
	"math/rand/v2"
	"testing"
)

func TestTheStreamTableIsAMap(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var table streamTable
	want := map[uint32]Method{}
	for range 200000 {
		id, m := 1+uint32(r.IntN(300)), Method(r.IntN(9))
		s := table.get(id)
		if _, ok := want[id]; ok != (s != nil) || ok && s.method != want[id] {
			t.Fatalf("stream %d: %v in the table, %v in the map", id, s, ok)
		}
		switch {
		case s != nil && r.IntN(2) == 0:
			table.remove(s)
			delete(want, id)
		case s == nil && r.IntN(3) > 0:
			if !table.add(stream{id: id, method: m}) {
				t.Fatalf("stream %d is not taken beside %d", id, table.n)
			}
			want[id] = m
		}
		if table.n != len(want) {
			t.Fatalf("%d streams, want %d", table.n, len(want))
		}
	}
	table.all(func(s *stream) { delete(want, s.id) })
	if len(want) > 0 {
		t.Errorf("all leaves out %v", want)
	}
}
