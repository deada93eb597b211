package discovery

import (
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pages is a Source whose answers carry a number, and that counts questions.
type pages struct {
	n     uint16
	asked *atomic.Int64
}

func (p pages) Find(dst netip.AddrPort) View {
	if p.asked != nil {
		p.asked.Add(1)
	}
	return View{Kind: Address, Port: p.n, Endpoints: []Endpoint{{Addr: dst}}}
}

func at(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)
}

func TestADestinationHasOneTargetAndIsAskedForOnce(t *testing.T) {
	var asked atomic.Int64
	c := NewCache(CacheConfig{}, pages{1, &asked})
	a := c.Resolve(at(1))
	if b := c.Resolve(at(1)); a != b {
		t.Error("two targets for one destination")
	}
	if b := c.Resolve(netip.MustParseAddrPort("[::ffff:10.0.0.1]:80")); a != b {
		t.Error("a mapped address is another destination")
	}
	if asked.Load() != 1 {
		t.Errorf("asked %d times", asked.Load())
	}
	if v := a.View(); v.Version != 1 || v.Endpoints[0].Addr != at(1) {
		t.Errorf("view %+v", v)
	}
}

func TestAViewChangesOnlyWhenItsContentDoes(t *testing.T) {
	c := NewCache(CacheConfig{}, pages{n: 1})
	target := c.Resolve(at(1))
	first := target.View()
	c.Replace(pages{n: 1})
	if target.View() != first {
		t.Error("the same content is a new view")
	}
	c.Replace(pages{n: 2})
	if v := target.View(); v.Port != 2 || v.Version != 2 {
		t.Errorf("view %+v", v)
	}
}

func TestSubscribersHearOfEachReplaceAfterTheViewsAreNew(t *testing.T) {
	c := NewCache(CacheConfig{}, pages{n: 1})
	target := c.Resolve(at(1))
	var seen []uint16
	cancel := c.Subscribe(func() { seen = append(seen, target.View().Port) })
	c.Replace(pages{n: 2})
	c.Replace(pages{n: 3})
	cancel()
	c.Replace(pages{n: 4})
	if len(seen) != 2 || seen[0] != 2 || seen[1] != 3 {
		t.Errorf("seen %v", seen)
	}
}

func TestAnIdleTargetIsForgottenOnceNothingHoldsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCache(CacheConfig{Idle: time.Minute}, pages{n: 1})
		held := c.Resolve(at(1))
		c.Resolve(at(2))
		c.Resolve(at(3))
		time.Sleep(50 * time.Second)
		c.Resolve(at(3))
		time.Sleep(20 * time.Second)
		c.Sweep()
		runtime.GC()
		c.Sweep()
		if n := c.Len(); n != 2 {
			t.Errorf("%d targets, want the one that is held and the one that was asked for", n)
		}
		c.Replace(pages{n: 2})
		if held.View().Port != 2 {
			t.Error("a target that is held does not keep up")
		}
		if c.Resolve(at(1)) != held {
			t.Error("a second target for a destination whose target is held")
		}
		runtime.KeepAlive(held)
	})
}

func TestTheCacheIsBounded(t *testing.T) {
	c := NewCache(CacheConfig{Max: 100}, pages{n: 1})
	for i := range 10_000 {
		c.Resolve(at(i))
		if i%1000 == 0 {
			runtime.GC()
			c.Sweep()
		}
	}
	for range 20 { // weak pointers fall with the collector's rounds
		runtime.GC()
		for i := range 8 {
			c.Resolve(at(20_000 + i))
		}
		c.Sweep()
	}
	strong := 0
	for _, e := range c.targets {
		if e.strong.Load() != nil {
			strong++
		}
	}
	if strong > 100 || int64(strong) != c.held.Load() {
		t.Errorf("%d targets are held, %d are counted, the limit is 100", strong, c.held.Load())
	}
}

func TestNoTargetIsLeftBehindWhenSourcesAreReplaced(t *testing.T) {
	c := NewCache(CacheConfig{}, pages{n: 1})
	const last = 200
	stop := make(chan struct{})
	var resolving sync.WaitGroup
	targets := make([][]*Target, 4)
	for g := range targets {
		resolving.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				target := c.Resolve(at(i % 500))
				targets[g] = append(targets[g], target)
				before := target.View()
				after := target.View()
				if after.Version < before.Version || after.Port < before.Port {
					t.Error("a view went back")
					return
				}
				if len(targets[g]) > 2000 {
					targets[g] = targets[g][:0]
				}
			}
		})
	}
	for n := range last {
		c.Replace(pages{n: uint16(n + 1)})
	}
	close(stop)
	resolving.Wait()
	for _, list := range targets {
		for _, target := range list {
			if got := target.View().Port; got != last {
				t.Fatalf("%s is at source %d of %d", target.Dst(), got, last)
			}
		}
	}
}

func BenchmarkResolveAKnownDestination(b *testing.B) {
	c := NewCache(CacheConfig{}, pages{n: 1})
	c.Resolve(at(1))
	b.ReportAllocs()
	for b.Loop() {
		if c.Resolve(at(1)).View().Port != 1 {
			b.Fatal("wrong view")
		}
	}
}
