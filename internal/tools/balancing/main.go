// Command balancing draws docs/balancing.svg: what becomes of requests when one
// of four endpoints is ten times slower, by way of choosing endpoints. It is a
// simulation, the same on every run.
package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/meshctl/meshctl/internal/simulation"
	"github.com/meshctl/meshctl/proxy/balance"
)

func main() {
	if err := draw(os.Stdout, curves()); err != nil {
		fmt.Fprintln(os.Stderr, "balancing:", err)
		os.Exit(1)
	}
}

// curve is one way of choosing, and what came out.
type curve struct {
	name, colour string
	result       *simulation.Result
}

// curves runs the simulation for every way. The rate is one that the slow
// endpoint can just bear when it gets a quarter; at a higher one its queue
// would grow for as long as one cares to look.
func curves() []curve {
	fast := simulation.Endpoint{Mean: 10 * time.Millisecond, Workers: 8}
	slow := simulation.Endpoint{Mean: 100 * time.Millisecond, Workers: 8}
	cfg := simulation.Config{
		Endpoints: []simulation.Endpoint{fast, fast, fast, slow},
		Rate:      250, Requests: 220_000, Warmup: 20_000, Seed: 1,
	}
	return []curve{
		{"random", "#b0413e", simulation.Run(cfg, simulation.Random{N: 4})},
		{"round robin", "#c98b2b", simulation.Run(cfg, &simulation.RoundRobin{N: 4})},
		{"meshctl: P2C, peak EWMA", "#2b6c8f", simulation.Run(cfg, simulation.NewBalanced(4, 1, balance.Config{}))},
	}
}

// Sizes of the drawing, in its own units.
const (
	width, height            = 720, 400
	left, right, top, bottom = 64, 24, 64, 96
)

// percentiles are the stops of the horizontal axis, which are equally far apart.
func percentiles() []float64 { return []float64{0.5, 0.75, 0.9, 0.95, 0.99, 0.999} }

func draw(w io.Writer, list []curve) error {
	p := &pen{w: w}
	p.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	p.printf(`<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	p.text(left, 24, "start", 15, "Latency when one of four endpoints is ten times slower")
	p.text(left, 44, "start", 12, "simulated: 250 requests a second, 8 workers an endpoint, 10 ms and once 100 ms on average")
	p.axes()
	for i, c := range list {
		p.curve(&c, i)
	}
	p.printf("</svg>\n")
	return p.err
}
