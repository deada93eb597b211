package detect

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	db   = netip.MustParseAddrPort("10.0.0.7:3306")
	mail = netip.MustParseAddrPort("[2001:db8::25]:25")
	web  = netip.MustParseAddrPort("10.0.0.7:80")
)

func TestMemoryForgetsWhenTimeIsUp(t *testing.T) {
	var m Memory
	m.Add(db, noon)
	tests := []struct {
		after time.Duration
		want  bool
	}{{0, true}, {DefaultMemoryTTL - 1, true}, {DefaultMemoryTTL, false}, {-time.Second, true}}
	for _, tt := range tests {
		if got := m.Has(db, noon.Add(tt.after)); got != tt.want {
			t.Errorf("after %v: %v, want %v", tt.after, got, tt.want)
		}
	}
	m.Add(db, noon.Add(time.Minute))
	if !m.Has(db, noon.Add(DefaultMemoryTTL)) {
		t.Error("a second sighting does not prolong it")
	}
	m.Add(mail, noon.Add(time.Hour))
	if got := m.held.Load(); got != 1 {
		t.Errorf("%d held after an hour, want the expired one gone", got)
	}
}

func TestMemoryTellsTargetsApart(t *testing.T) {
	var m Memory
	m.Add(db, noon)
	if m.Has(web, noon) || m.Has(mail, noon) || m.Has(netip.AddrPort{}, noon) {
		t.Error("remembers what it never saw")
	}
}

func TestMemoryForgetsOnRequest(t *testing.T) {
	var m Memory
	m.Forget(db)
	m.Add(db, noon)
	m.Add(mail, noon)
	m.Forget(web)
	m.Forget(db)
	if m.Has(db, noon) {
		t.Error("still there")
	}
	if !m.Has(mail, noon) {
		t.Error("forgot another target too")
	}
	m.Forget(mail)
	if got := m.held.Load(); got != 0 {
		t.Errorf("%d held, want none", got)
	}
}

func TestMemoryKeepsTheLatestWithinItsLimit(t *testing.T) {
	m := Memory{Limit: 3, TTL: time.Hour}
	at := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(db.Addr(), port) }
	for port := range uint16(3) {
		m.Add(at(port), noon)
	}
	m.Add(at(0), noon)
	m.Add(at(9), noon)
	want := []netip.AddrPort{at(9), at(0), at(2)}
	if diff := cmp.Diff(want, m.Targets(noon), cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
		t.Error(diff)
	}
	if len(m.index) != 3 {
		t.Errorf("%d in the index, want 3", len(m.index))
	}
	if got := m.Targets(noon.Add(2 * time.Hour)); got != nil {
		t.Errorf("%v after their time", got)
	}
}

func TestMemoryHoldsAThousandByDefault(t *testing.T) {
	var m Memory
	if got := m.Len(); got != 0 {
		t.Errorf("%d in a new one", got)
	}
	for i := range 3000 {
		m.Add(netip.AddrPortFrom(db.Addr(), uint16(i)), noon)
	}
	if got := len(m.Targets(noon)); got != DefaultMemoryLimit || m.Len() != got {
		t.Errorf("%d remembered, want %d", got, DefaultMemoryLimit)
	}
}

func TestMemoryIsSharedByLoops(t *testing.T) {
	m := Memory{Limit: 16}
	var loops sync.WaitGroup
	for loop := range 4 {
		loops.Go(func() {
			for i := range 2000 {
				at := netip.AddrPortFrom(db.Addr(), uint16(i%32))
				m.Add(at, noon)
				m.Has(at, noon)
				if i%8 == loop {
					m.Forget(at)
				}
				m.Targets(noon)
			}
		})
	}
	loops.Wait()
	if n := len(m.Targets(noon)); n > 16 || n != len(m.index) || int64(n) != m.held.Load() {
		t.Errorf("%d listed, %d indexed, %d held", n, len(m.index), m.held.Load())
	}
}

func TestAskingAMemoryAllocatesNothing(t *testing.T) {
	var m Memory
	m.Add(mail, noon)
	if n := testing.AllocsPerRun(100, func() { m.Has(mail, noon); m.Has(db, noon) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
