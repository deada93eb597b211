package balance

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const ms = time.Millisecond

// start is some time of a loop that has run for a while.
const start = 100 * time.Second

func one(t testing.TB, cfg Config) *Endpoint[int] {
	t.Helper()
	b := New[int](cfg)
	b.Update([]int{1})
	return b.Pick(start, 0)
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 0.0015 {
		t.Errorf("%s: %.4f, want %.4f", what, got, want)
	}
}

func TestTheEstimateJumpsUpAndComesDownSlowly(t *testing.T) {
	for _, c := range []struct {
		name         string
		before       time.Duration
		wait, sample time.Duration
		want         float64 // ms
	}{
		{"a higher sample counts at once", 30 * ms, 0, 100 * ms, 100},
		{"one that is a little higher", 100 * ms, 0, 120 * ms, 120},
		{"a higher sample after a while", 30 * ms, 7 * time.Second, 100 * ms, 100},
		{"a lower one after 5 s", 100 * ms, 5 * time.Second, 10 * ms, 64.588},
		{"a lower one after 10 s", 100 * ms, 10 * time.Second, 10 * ms, 43.109},
		{"a lower one after 0.1 s", 30 * ms, 100 * ms, 5 * ms, 29.751},
		{"a lower one at once changes nothing", 100 * ms, 0, 10 * ms, 100},
		{"one that is lower than the last and higher than what is left of it", 100 * ms, 10 * time.Second, 50 * ms, 68.394},
		{"one of no time", 100 * ms, 10 * time.Second, 0, 36.788},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := one(t, Config{Initial: c.before})
			e.Latency(start) // its decay begins
			e.observe(c.sample, start+c.wait)
			near(t, "estimate", millis(e.Latency(start+c.wait)), c.want)
		})
	}
}

func TestTheEstimateDecaysWhileNothingIsAsked(t *testing.T) {
	e := one(t, Config{})
	e.observe(100*ms, start)
	near(t, "after 10 s", millis(e.Latency(start+10*time.Second)), 36.788)
	near(t, "after 20 s", millis(e.Latency(start+20*time.Second)), 13.534)
	near(t, "looking does not change it", millis(e.Latency(start)), 100)
}

func TestANewEndpointIsTakenToNeed30msFromItsFirstLook(t *testing.T) {
	b := New[int](Config{})
	b.Update([]int{1})
	e := b.Endpoints()[0]
	near(t, "at its first look, however late", e.Load(time.Hour), 30)
	near(t, "10 s later", e.Load(time.Hour+10*time.Second), 11.036)
}

func TestClocksOfLoopsMayDifferALittle(t *testing.T) {
	e := one(t, Config{})
	e.observe(100*ms, start)
	near(t, "a loop that is behind", millis(e.Latency(start-20*ms)), 100)
	wrap := time.Duration(math.MaxUint32) * ms
	e.observe(100*ms, wrap-5*time.Second)
	near(t, "over the end of the counter", millis(e.Latency(wrap+5*time.Second)), 36.788)
	near(t, "after a month, when the counter looks into the future", millis(e.Latency(wrap+40*24*time.Hour)), 0)
}

func TestTheLoadIsTheEstimateTimesWhatIsUnderWay(t *testing.T) {
	e := one(t, Config{})
	e.observe(100*ms, start)
	first, second := e.Start(start), e.Start(start)
	near(t, "two under way", e.Load(start), 300)
	e.Opened()
	near(t, "and an open connection", e.Load(start), 400)
	if e.Pending() != 2 || e.Open() != 1 {
		t.Errorf("%d under way and %d open", e.Pending(), e.Open())
	}
	first.Done(start + 50*ms)
	first.Done(start + 500*ms)
	near(t, "one of them done, once", e.Load(start+50*ms), 3*(100*math.Exp(-0.005)+50*(1-math.Exp(-0.005))))
	second.Penalize(5*time.Second, start+60*ms)
	e.Closed()
	near(t, "the other one penalized", e.Load(start+60*ms), 5000)
	var none Flight[int]
	none.Done(start)
	if e.Pending() != 0 || e.Open() != 0 {
		t.Errorf("%d under way and %d open at the end", e.Pending(), e.Open())
	}
}

func TestAFlightsLengthIsTheSample(t *testing.T) {
	e := one(t, Config{})
	f := e.Start(start)
	f.Done(start + 80*ms)
	near(t, "estimate", millis(e.Latency(start+80*ms)), 80)
	f = e.Start(start + time.Second)
	f.Penalize(5*ms, start+time.Second+200*ms)
	near(t, "a penalty that is less than it took", millis(e.Latency(start+time.Second+200*ms)), 200)
	f = e.Start(start + 2*time.Second)
	f.Done(start) // by a clock that is behind
	if got := e.Latency(start + 2*time.Second); got < 0 || got > 200*ms {
		t.Errorf("estimate %v after a flight that ended before it began", e.Latency(start+2*time.Second))
	}
}

// drawn is random bits that draw i first and j second of n.
func drawn(i, j, n uint64) uint64 {
	if j > i {
		j--
	}
	up := func(k, n uint64) uint64 { return ((k<<32)+n-1)/n + 1 }
	return up(i, n)<<32 | up(j, n-1)
}

func TestTheLowerLoadOfTwoWins(t *testing.T) {
	for _, c := range []struct {
		name string
		tie  float64
		load []time.Duration
		i, j uint64
		want int
	}{
		{"the first is lower", -1, []time.Duration{10 * ms, 20 * ms, 5 * ms}, 0, 1, 0},
		{"the second is lower", -1, []time.Duration{10 * ms, 20 * ms, 5 * ms}, 1, 0, 0},
		{"the third one was not drawn", -1, []time.Duration{10 * ms, 20 * ms, 5 * ms}, 0, 1, 0},
		{"a tie goes to the first", -1, []time.Duration{10 * ms, 10 * ms, 5 * ms}, 1, 0, 1},
		{"without tolerance the least difference counts", -1, []time.Duration{9990 * time.Microsecond, 10 * ms, 5 * ms}, 1, 0, 0},
		{"a quarter is a tie", 0, []time.Duration{10 * ms, 12 * ms, 5 * ms}, 1, 0, 1},
		{"more than a quarter is none", 0, []time.Duration{10 * ms, 13 * ms, 5 * ms}, 1, 0, 0},
		{"a tolerance of one's own", 0.5, []time.Duration{10 * ms, 14 * ms, 5 * ms}, 1, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := New[int](Config{Initial: time.Microsecond, Tie: c.tie})
			b.Update([]int{0, 1, 2})
			for i, e := range b.Endpoints() {
				e.observe(c.load[i], start)
			}
			if got := b.Pick(start, drawn(c.i, c.j, 3)).Value; got != c.want {
				t.Errorf("picked %d, want %d", got, c.want)
			}
		})
	}
}

func TestTwoDistinctOnesAreDrawnEvenly(t *testing.T) {
	const n, rounds = 5, 200_000
	b := New[int](Config{})
	b.Update([]int{0, 1, 2, 3, 4})
	b.Endpoints()[3].observe(time.Hour, start) // wins only against itself
	r := rand.New(rand.NewPCG(1, 2))
	picks := make([]float64, n)
	for range rounds {
		picks[b.Pick(start, r.Uint64()).Value]++
	}
	want := []float64{0.25, 0.25, 0.25, 0, 0.25}
	for i := range picks {
		if got := picks[i] / rounds; math.Abs(got-want[i]) > 0.005 {
			t.Errorf("endpoint %d got %.4f of all, want %.2f", i, got, want[i])
		}
	}
	for _, edge := range []uint64{0, math.MaxUint64, 1<<32 - 1, math.MaxUint64 &^ (1<<32 - 1)} {
		if e := b.Pick(start, edge); e == nil {
			t.Errorf("nothing picked for %x", edge)
		}
	}
}

func TestOnlyReadyEndpointsArePicked(t *testing.T) {
	changes := 0
	b := New[int](Config{Changed: func() { changes++ }})
	if b.Pick(start, 7) != nil {
		t.Error("picked from none")
	}
	b.Update([]int{0, 1, 2})
	all := b.Endpoints()
	all[0].SetReady(false)
	all[0].SetReady(false)
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		if b.Pick(start, r.Uint64()) == all[0] {
			t.Fatal("picked one that is shut")
		}
	}
	all[1].SetReady(false)
	if got := b.Pick(start, 1<<40); got != all[2] {
		t.Errorf("picked %v, want the only one that is ready", got)
	}
	all[2].SetReady(false)
	if b.Pick(start, 0) != nil || b.Ready() != 0 || all[2].Ready() {
		t.Error("one is ready though all are shut")
	}
	all[1].SetReady(true)
	if b.Pick(start, 0) != all[1] || b.Ready() != 1 || !all[1].Ready() {
		t.Error("one that is ready again is not picked")
	}
	if changes != 5 {
		t.Errorf("told of %d changes, want 5", changes)
	}
}

func TestAnUpdateKeepsWhatStays(t *testing.T) {
	changes := 0
	b := New[string](Config{Changed: func() { changes++ }})
	b.Update([]string{"a", "b", "c", "b"})
	old := b.Endpoints()
	if len(old) != 3 {
		t.Fatalf("%d endpoints of three, one of them named twice", len(old))
	}
	old[0].observe(200*ms, start)
	flight := old[1].Start(start)
	old[2].SetReady(false)
	b.Update([]string{"c", "a", "d"})
	var names []string
	for _, e := range b.Endpoints() {
		names = append(names, e.Value)
	}
	if diff := cmp.Diff([]string{"c", "a", "d"}, names); diff != "" {
		t.Error(diff)
	}
	now := b.Endpoints()
	if now[1] != old[0] || now[1].Latency(start) != 200*ms {
		t.Error("a lost what was known of it")
	}
	if now[0] != old[2] || now[0].Ready() {
		t.Error("c is ready again")
	}
	if now[2].Latency(start) != DefaultInitial {
		t.Errorf("d begins with %v", now[2].Latency(start))
	}
	if !old[1].Removed() || old[1].Ready() || old[0].Removed() {
		t.Error("b is not removed, or a is")
	}
	flight.Done(start + ms)
	if old[1].Pending() != 0 {
		t.Error("what was under way on b did not end")
	}
	b.Update([]string{"b", "d"})
	if again := b.Endpoints()[0]; again == old[1] || again.Removed() {
		t.Error("b came back as the one that was removed")
	}
	was := changes
	b.Update([]string{"b", "d"})
	if changes != was {
		t.Error("told of a change that is none")
	}
	b.Update(nil)
	if b.Pick(start, 0) != nil {
		t.Error("picked from none")
	}
}

func TestSeveralLoopsMayPickWhileEndpointsChange(t *testing.T) {
	b := New[int](Config{})
	b.Update([]int{0, 1, 2, 3})
	const loops, rounds = 4, 5000
	done := make(chan int, loops)
	for i := range loops {
		go func() {
			r, picked := rand.New(rand.NewPCG(1, uint64(i))), 0
			for n := range rounds {
				now := start + time.Duration(n)*ms
				if e := b.Pick(now, r.Uint64()); e != nil {
					f := e.Start(now)
					f.Done(now + time.Duration(r.IntN(10))*ms)
					picked++
				}
			}
			done <- picked
		}()
	}
	seen := map[*Endpoint[int]]bool{}
	for n, left := 0, loops; left > 0; n++ {
		b.Update([]int{n % 3, 1 + n%5, 7})
		for _, e := range b.Endpoints() {
			seen[e] = true
			e.SetReady(n%2 == 0 || e.Value == 7)
		}
		select {
		case picked := <-done:
			if left--; picked != rounds {
				t.Errorf("a loop picked %d times of %d, though there was always one", picked, rounds)
			}
		default:
		}
	}
	for e := range seen {
		if e.Pending() != 0 {
			t.Errorf("endpoint %d has %d under way at the end", e.Value, e.Pending())
		}
	}
}

func TestPickingAllocatesNothing(t *testing.T) {
	b := New[int](Config{})
	b.Update([]int{0, 1, 2, 3})
	now := start
	if n := testing.AllocsPerRun(1000, func() {
		now += ms
		f := b.Pick(now, uint64(now)*0x9e3779b97f4a7c15).Start(now)
		f.Done(now + ms)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPickStartDone(b *testing.B) {
	bal := New[int](Config{})
	bal.Update([]int{0, 1, 2, 3})
	b.ReportAllocs()
	now := start
	for b.Loop() {
		now += 10 * time.Microsecond
		f := bal.Pick(now, rand.Uint64()).Start(now)
		f.Done(now + ms)
	}
}

// The same from all CPUs at once, on endpoints that they share.
func BenchmarkPickStartDoneShared(b *testing.B) {
	bal := New[int](Config{})
	bal.Update([]int{0, 1, 2, 3})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		now := start
		for pb.Next() {
			now += 10 * time.Microsecond
			f := bal.Pick(now, rand.Uint64()).Start(now)
			f.Done(now + ms)
		}
	})
}
