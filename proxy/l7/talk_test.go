package l7

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// record is a Recorder that keeps everything.
type record struct {
	Requests  []Request
	Responses []Response
}

func (r *record) Request(q Request)   { r.Requests = append(r.Requests, q) }
func (r *record) Response(p Response) { r.Responses = append(r.Responses, p) }

// String has a line for each request and then for each response.
func (r record) String() string {
	var b strings.Builder
	for _, q := range r.Requests {
		fmt.Fprintf(&b, "> %s\n", q.Method)
	}
	for _, p := range r.Responses {
		b.WriteString("< " + brief(p) + "\n")
	}
	return b.String()
}

// brief is a Response without its times.
func brief(p Response) string {
	s := fmt.Sprintf("%s %d", p.Method, p.Status)
	if p.GRPC {
		s += fmt.Sprintf(" grpc %d", p.GRPCStatus)
	}
	if p.Success {
		s += " success"
	} else {
		s += " failure"
	}
	return strings.TrimSpace(s + " " + p.Err)
}

// said is one thing that happens on a connection.
type said struct {
	what byte // 'C' or 'S': bytes; 'c' or 's': FIN; 'x': cut
	text string
}

// talk is a conversation. Each step happens a second after the one before.
type talk []said

func c(text string) said { return said{'C', text} }
func s(text string) said { return said{'S', text} }

var (
	clientFIN = said{'c', ""}
	serverFIN = said{'s', ""}
	cut       = said{'x', ""}
)

// replay feeds a talk to an observer, each text in the pieces that cuts says.
func (t talk) replay(o Observer, cuts func(step, size int) []int) {
	for i, e := range t {
		now := time.Duration(i+1) * time.Second
		side := FromClient
		if e.what == 'S' || e.what == 's' {
			side = FromServer
		}
		switch e.what {
		case 'x':
			o.Abort(now)
		case 'c', 's':
			o.End(side, now)
		default:
			at := 0
			for _, n := range append(cuts(i, len(e.text)), len(e.text)) {
				o.Feed(side, []byte(e.text[at:n]), now)
				at = n
			}
		}
	}
}

func uncut(int, int) []int { return nil }

func everyByte(_, size int) []int {
	var at []int
	for i := 1; i < size; i++ {
		at = append(at, i)
	}
	return at
}

func randomly(r *rand.Rand) func(int, int) []int {
	return func(_, size int) []int {
		var at []int
		for i := 0; ; {
			i += 1 + r.IntN(1+size/(1+r.IntN(8)))
			if i >= size {
				return at
			}
			at = append(at, i)
		}
	}
}

// outcome is all that an observer can be seen to do.
type outcome struct {
	Record  record
	State   State
	Idle    bool
	Passive bool
}

func (t talk) run(make func(Recorder) Observer, cuts func(int, int) []int) outcome {
	var out outcome
	o := make(&out.Record)
	t.replay(o, cuts)
	out.State, out.Idle, out.Passive = o.State(), o.Idle(), o.Passive()
	return out
}

// observe replays a talk whole, byte by byte, cut once at every byte and cut
// at random, checks that the outcome is always the same, and returns it.
func (t talk) observe(tb testing.TB, make func(Recorder) Observer) outcome {
	tb.Helper()
	want := t.observeLong(tb, make)
	for i, e := range t {
		if len(e.text) > 1024 {
			continue
		}
		for at := 1; at < len(e.text); at++ {
			t.same(tb, make, want, fmt.Sprintf("in step %d at byte %d", i, at), func(step, _ int) []int {
				if step == i {
					return []int{at}
				}
				return nil
			})
		}
	}
	return want
}

// observeLong is observe without the cuts at every byte, for long talks.
func (t talk) observeLong(tb testing.TB, make func(Recorder) Observer) outcome {
	tb.Helper()
	want := t.run(make, uncut)
	t.same(tb, make, want, "at every byte", everyByte)
	for seed := range uint64(10) {
		t.same(tb, make, want, fmt.Sprintf("with seed %d", seed), randomly(rand.New(rand.NewPCG(seed, uint64(len(t))))))
	}
	return want
}

// same checks that a talk has the same outcome when it is cut.
func (t talk) same(tb testing.TB, make func(Recorder) Observer, want outcome, how string, cuts func(int, int) []int) {
	tb.Helper()
	if got := t.run(make, cuts); !reflect.DeepEqual(want, got) {
		tb.Fatalf("cut %s (-whole +cut):\n%s", how, cmp.Diff(want, got))
	}
}

func newH1(r Recorder) Observer { return NewH1(r) }
func newH2(r Recorder) Observer { return NewH2(r) }

// lines joins the lines of a record's String.
func lines(l ...string) string { return strings.Join(append(l, ""), "\n") }
