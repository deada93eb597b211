package balance_test

import (
	"math"
	"testing"
	"time"

	"github.com/meshctl/meshctl/internal/simulation"
	"github.com/meshctl/meshctl/proxy/balance"
)

func equal(n int, e simulation.Endpoint) []simulation.Endpoint {
	out := make([]simulation.Endpoint, n)
	for i := range out {
		out[i] = e
	}
	return out
}

func TestFourEqualEndpointsGetEqualShares(t *testing.T) {
	for _, c := range []struct {
		name  string
		e     simulation.Endpoint
		usage float64
		n     int
	}{
		{"one request after the other", simulation.Endpoint{Mean: 100 * time.Microsecond, Spread: simulation.Steady, Workers: 4}, 0.01, 10_000},
		{"one after the other, noisy", simulation.Endpoint{Mean: 100 * time.Microsecond, Workers: 4}, 0.01, 10_000},
		{"some at once", simulation.Endpoint{Mean: time.Millisecond, Spread: simulation.Steady, Workers: 4}, 0.3, 10_000},
		{"busy", simulation.Endpoint{Mean: time.Millisecond, Workers: 4}, 0.8, 10_000},
		{"slow and noisy", simulation.Endpoint{Mean: 5 * time.Millisecond, Workers: 4}, 0.8, 20_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(5) {
				r := simulation.Run(simulation.Config{
					Endpoints: equal(4, c.e), Rate: c.usage * 16 / c.e.Mean.Seconds(), Requests: c.n, Seed: seed,
				}, simulation.NewBalanced(4, 1, balance.Config{}))
				for i := range 4 {
					if got := r.Share(i); math.Abs(got-0.25) > 0.025 {
						t.Errorf("seed %d: endpoint %d got %.3f of all, more than 10 %% from 0.25", seed, i, got)
					}
				}
			}
		})
	}
}

// slow are 4 endpoints of 8 workers each, one of them 10 times slower.
func slow() simulation.Config {
	e := simulation.Endpoint{Mean: 10 * time.Millisecond, Workers: 8}
	list := equal(4, e)
	list[3].Mean = 100 * time.Millisecond
	return simulation.Config{Endpoints: list, Rate: 1000, Requests: 60_000, Warmup: 5_000, Seed: 1}
}

func TestAnEndpointThatIsTenTimesSlowerGetsLess(t *testing.T) {
	balanced := simulation.Run(slow(), simulation.NewBalanced(4, 1, balance.Config{}))
	if got := balanced.Share(3); got > 0.05 || got == 0 {
		t.Errorf("the slow one got %.4f of all, want some, and less than 0.05", got)
	}
	p99 := balanced.Percentile(0.99)
	for name, c := range map[string]simulation.Chooser{"round robin": &simulation.RoundRobin{N: 4}, "random": simulation.Random{N: 4}} {
		other := simulation.Run(slow(), c)
		if got := other.Percentile(0.99); got < 10*p99 {
			t.Errorf("p99 %v, of %s only %v", p99, name, got)
		}
	}
	if p99 > 70*time.Millisecond {
		t.Errorf("p99 is %v, more than a good endpoint's own 46 ms allows for", p99)
	}
}

func TestAnEndpointThatGetsWellAgainGetsItsShareAgain(t *testing.T) {
	b := balance.New[int](balance.Config{})
	b.Update([]int{0, 1})
	now := time.Second
	for _, e := range b.Endpoints() {
		f := e.Start(now)
		took := 10 * time.Millisecond
		if e.Value == 1 {
			took = time.Second
		}
		f.Done(now + took)
	}
	random, first := uint64(1), 0
	for n := 0; n < 10_000; n++ { // 100 s, one request each 10 ms
		now += 10 * time.Millisecond
		random = random*6364136223846793005 + 1442695040888963407
		e := b.Pick(now, random)
		f := e.Start(now)
		f.Done(now + 10*time.Millisecond)
		if e.Value == 1 && first == 0 {
			first = n
		}
	}
	if first < 2_000 || first > 6_000 { // 10 s * ln(100) = 46 s, less what the tolerance and the other's decay do
		t.Errorf("tried again after %d requests of 10 ms, want 20 to 60 s", first)
	}
}

func TestToleranceCostsLittleWhereEndpointsDiffer(t *testing.T) {
	strict := simulation.Run(slow(), simulation.NewBalanced(4, 1, balance.Config{Tie: -1}))
	tolerant := simulation.Run(slow(), simulation.NewBalanced(4, 1, balance.Config{}))
	if a, b := strict.Percentile(0.99), tolerant.Percentile(0.99); float64(b) > 1.1*float64(a) {
		t.Errorf("p99 %v with tolerance, %v without", b, a)
	}
}
