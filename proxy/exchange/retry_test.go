package exchange

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/h2"
	"github.com/meshctl/meshctl/proxy/message"
	"github.com/meshctl/meshctl/proxy/route"
)

// annotated makes the Upstream of a Service with these annotations.
func (r *rig) annotated(annotations map[string]string, ends ...*endpoint) {
	r.t.Helper()
	tab, err := route.New(route.Config{Annotations: annotations})
	if err != nil {
		r.t.Fatal(err)
	}
	m := members(ends...)
	m.Breaker, m.Penalty = tab.Breaker, tab.Penalty
	r.serve(Parent{Table: tab, Backends: []Members{m}})
}

var retries5xx = map[string]string{"retry.linkerd.io/http": "5xx", "retry.linkerd.io/limit": "2"}

func TestARequestIsSentAgainAfterAStatusThatTheRuleNames(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(false)
		r.annotated(retries5xx, e)
		s := r.client(message.HTTP11, "POST", "/", false, "x-a", "1")
		s.data("body", true)
		e.call(1).answer(503)
		r.settle()
		if len(e.calls) != 1 {
			t.Fatal("no pause before the second try")
		}
		r.sleep(28 * time.Millisecond) // 25 ms and at most a tenth
		e.call(2).answer(500)
		r.settle()
		r.sleep(56 * time.Millisecond)
		c := e.call(3)
		r.until("the body", func() bool { return c.ended })
		if got := c.log.String(); got != e.calls[0].log.String() || !strings.Contains(got, "body") {
			t.Errorf("the third request is\n%swant\n%s", got, e.calls[0].log.String())
		}
		c.answer(502) // more than the limit: passed on as it is
		s.wants("502 end\n")
		if got := r.rec.last(); got != "POST 502 retries=2" {
			t.Errorf("recorded: %s", got)
		}
	})
}

func TestAResponseThatTheRuleDoesNotNamePasses(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(false)
		r.annotated(retries5xx, e)
		s := r.get()
		e.call(1).answer(404)
		s.wants("404 end\n")
	})
}

func TestARequestIsSentAgainAfterAGRPCStatusInTheHead(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(true)
		r.annotated(map[string]string{"retry.linkerd.io/grpc": "unavailable"}, e)
		s := r.grpc()
		e.call(1).answer(200, "content-type", "application/grpc", "grpc-status", "14")
		r.settle()
		r.sleep(30 * time.Millisecond)
		c := e.call(2)
		c.say(200, false, "content-type", "application/grpc")
		c.stream.SendTrailers(trailers("grpc-status", "14")) // too late
		s.wants("200 [content-type: application/grpc]\ntrailers [grpc-status: 14] end\n")
		if got := r.rec.last(); got != "POST 200 grpc=14 retries=1" {
			t.Errorf("recorded: %s", got)
		}
	})
}

func TestARequestIsSentAgainAfterItsTryTookTooLong(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(false)
		r.annotated(map[string]string{"retry.linkerd.io/http": "5xx", "retry.linkerd.io/timeout": "300ms", "retry.linkerd.io/limit": "1"}, e)
		s := r.get()
		first := e.call(1)
		r.sleep(300 * time.Millisecond)
		r.until("the first try to be given up", func() bool { return first.aborted != 0 })
		r.sleep(30 * time.Millisecond)
		second := e.call(2)
		r.sleep(time.Second) // the last try has all the time
		second.answer(200)
		s.wants("200 end\n")
	})
}

func TestABodyThatIsTooLargeIsNotSentAgain(t *testing.T) {
	for _, v := range []struct {
		size  int
		again bool
	}{{64 << 10, true}, {64<<10 + 1, false}} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			e := r.endpoint(false)
			r.annotated(retries5xx, e)
			s := r.client(message.HTTP11, "POST", "/", false)
			for left := v.size; left > 0; left -= 16 << 10 {
				e.call(1)
				s.data(strings.Repeat("x", min(left, 16<<10)), false)
				r.settle()
			}
			s.data("", true)
			c := e.call(1)
			r.until("the body", func() bool { return c.ended })
			c.answer(503)
			r.settle()
			r.sleep(30 * time.Millisecond)
			if again := len(e.calls) == 2; again != v.again {
				t.Fatalf("%d bytes: sent again: %v", v.size, again)
			}
			if v.again {
				e.call(2).answer(200)
			}
			r.until("the end", func() bool { return s.over })
		})
	}
}

func TestRetriesHaveABudget(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(false)
		r.annotated(map[string]string{"retry.linkerd.io/http": "5xx", "retry.linkerd.io/limit": "1"}, e)
		r.up.budget.leave(2, r.lane.now())
		retried := 0
		for range 10 {
			s := r.get()
			e.call(len(e.calls) + 1).answer(503)
			r.settle()
			if !s.over { // it waits for the second try
				retried++
				x := s.recv.(*Exchange)
				x.until = r.loop.Now() // do not earn by waiting
				x.Expired(nil)
				e.call(len(e.calls) + 1).answer(200)
				r.until("the end", func() bool { return s.over })
			}
		}
		if retried != 4 && retried != 3 { // 2, and a fifth of 10
			t.Errorf("%d retries", retried)
		}
	})
}

// leave makes n retries all that there is.
func (b *budget) leave(n int, now time.Duration) {
	b.since.Store(int64(now) - int64(n)*int64(budgetRetry))
}

func TestABudgetGrowsWithTimeUpToAHistory(t *testing.T) {
	b := budget{}
	b.earn(time.Second)
	if got := b.tokens(time.Second); got != 10.2 {
		t.Errorf("after a second and a request: %v", got)
	}
	b.earn(time.Hour)
	if got := b.tokens(time.Hour); got != 100 {
		t.Errorf("after an hour: %v", got)
	}
	for range 100 {
		if !b.spend(time.Hour) {
			t.Fatal("what was earned cannot be spent")
		}
	}
	if b.spend(time.Hour) || b.tokens(time.Hour) != 0 {
		t.Error("more is spent than was earned")
	}
	for range 5 {
		b.earn(time.Hour)
	}
	if !b.spend(time.Hour) || b.spend(time.Hour) {
		t.Error("five requests are worth one retry")
	}
}

func TestLoopsThatSpendAtOnceSpendWhatThereIs(t *testing.T) {
	b := budget{}
	b.fill(0)
	var spent atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				if b.spend(0) {
					spent.Add(1)
				}
				b.earn(0)
			}
		})
	}
	all.Wait()
	if n := spent.Load(); n < 100+800/5-1 || n > 100+800/5 { // what was there, and a fifth of what came
		t.Errorf("%d retries", n)
	}
}

func TestADestinationHasABudgetOfItsOwn(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(false)
		r.annotated(map[string]string{"retry.linkerd.io/http": "5xx", "retry.linkerd.io/limit": "1"}, e)
		poor := r.up
		poor.budget.leave(0, r.lane.now())
		r.get()
		e.call(1).answer(503)
		r.until("an answer", func() bool { return len(r.rec.results) == 1 })
		if got := r.rec.results[0]; got.Retries != 0 || !got.OverBudget {
			t.Errorf("without a budget: %+v", got)
		}
		r.annotated(map[string]string{"retry.linkerd.io/http": "5xx", "retry.linkerd.io/limit": "1"}, e) // another destination
		s := r.get()
		e.call(2).answer(503)
		r.settle()
		r.sleep(30 * time.Millisecond)
		e.call(3).answer(200)
		s.wants("200 end\n")
		if left := r.up.RetryTokens(); left >= 100 || left < 98 {
			t.Errorf("%v of 100 retries are left after one", left)
		}
		poor.Update(Parent{Table: poor.plan.Load().table, Backends: []Members{members(e)}})
		poor.budget.leave(3, r.lane.now())
		poor.Update(Parent{Table: poor.plan.Load().table, Backends: []Members{members(e)}})
		if left := poor.RetryTokens(); left < 2.9 || left > 3.1 {
			t.Errorf("a change of endpoints makes 3 retries %v", left)
		}
	})
}

func TestARequestThatMeetsAConnectionThatHasEndedIsSentAgain(t *testing.T) {
	for _, v := range []struct {
		method string
		again  bool
	}{{"GET", true}, {"PUT", true}, {"POST", false}} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			e := r.endpoint(false)
			r.to(e)
			s := r.get()
			e.call(1).answer(200)
			s.wants("200 end\n")
			r.settle()
			s = r.client(message.HTTP11, v.method, "/", false)
			s.data("body", true)
			e.call(2)
			e.cut() // as if it had left before the request came
			if !v.again {
				r.until("an answer", func() bool { return s.over })
				if !strings.HasPrefix(s.log.String(), "502 ") {
					t.Errorf("%s: %s", v.method, s.log.String())
				}
				return
			}
			third := e.call(3)
			r.until("the body", func() bool { return third.ended })
			third.answer(200)
			s.wants("200 end\n")
		})
	}
}

func TestAFirstConnectionThatEndsIsNotTriedAgain(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(false)
		r.to(e)
		s := r.get()
		e.call(1)
		e.cut()
		r.until("an answer", func() bool { return s.over })
		if !strings.HasPrefix(s.log.String(), "502 ") || len(e.calls) != 1 {
			t.Errorf("%d requests, %s", len(e.calls), s.log.String())
		}
	})
}

func TestWhatWasRefusedUnprocessedIsSentAgain(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(true)
		r.to(e)
		s := r.client(message.HTTP2, "POST", "/", false)
		s.data("body", true)
		for i := range 3 {
			c := e.call(i + 1)
			r.until("the body", func() bool { return c.ended })
			c.stream.Abort(message.Refused)
		}
		r.until("an answer", func() bool { return s.over })
		if !strings.HasPrefix(s.log.String(), "502 ") || len(e.calls) != 3 {
			t.Errorf("%d tries, then %s", len(e.calls), s.log.String())
		}
		if got := r.rec.last(); got != "POST 502 endpoint closed the connection" {
			t.Errorf("recorded: %s", got)
		}
	})
}

func TestABreakerOpensTriesAndCloses(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		bad, good := r.endpoint(false), r.endpoint(false)
		m := members(bad, good)
		m.Breaker = route.Breaker{MaxFailures: 3, MinPenalty: time.Second, MaxPenalty: time.Minute}
		r.serve(Parent{Backends: []Members{m}})
		ready := func() int { return r.up.plan.Load().backends[0].balancer.Ready() }
		status, wrong := 500, 0
		ask := func() {
			s := r.get()
			r.until("an answer", func() bool {
				for _, e := range []*endpoint{bad, good} {
					if n := len(e.calls); n > 0 && !e.calls[n-1].answered() {
						if e == bad {
							wrong++
							e.calls[n-1].finish(status)
						} else {
							e.calls[n-1].finish(200)
						}
					}
				}
				return s.over
			})
		}
		for n := 0; ready() == 2 && n < 200; n++ {
			ask()
		}
		if wrong != 3 || ready() != 1 {
			t.Fatalf("%d failures, %d endpoints ready", wrong, ready())
		}
		for range 10 {
			ask()
		}
		if wrong != 3 {
			t.Fatal("an endpoint that is shut was asked")
		}
		r.sleep(time.Second) // it may be tried
		if ready() != 2 {
			t.Fatal("it is shut for longer than the penalty")
		}
		for n := 0; wrong == 3 && n < 200; n++ {
			ask()
		}
		if wrong != 4 || ready() != 1 {
			t.Fatalf("after the trial: %d failures, %d ready", wrong, ready())
		}
		r.sleep(1900 * time.Millisecond)
		if ready() != 1 {
			t.Fatal("the penalty did not double")
		}
		r.sleep(100 * time.Millisecond)
		status = 200
		for n := 0; wrong == 4 && n < 200; n++ {
			ask()
		}
		if wrong != 5 || ready() != 2 || r.up.plan.Load().backends[0].sick.Load() != 0 {
			t.Fatalf("after a good trial: %d asked, %d ready", wrong, ready())
		}
	})
}

// answered reports that the call was answered.
func (c *call) answered() bool {
	return c.aborted != 0 || c.log.Len() > 0 && strings.HasSuffix(c.log.String(), "done\n")
}

func (c *call) finish(status int) {
	c.answer(status)
	c.log.WriteString("done\n")
}

func TestOnlyOneRequestTriesAnEndpointThatWasShut(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.refusing()
		r.to(e)
		s := r.get()
		r.until("an answer", func() bool { return s.over })
		var waiting []*stream
		for range 5 {
			waiting = append(waiting, r.get())
		}
		r.sleep(110 * time.Millisecond)
		over := 0
		for _, s := range waiting {
			if s.over {
				over++
			}
		}
		if over != 1 {
			t.Fatalf("%d of 5 tried it", over)
		}
		e.rise()
		r.sleep(220 * time.Millisecond)
		r.until("the rest to be asked", func() bool { return len(e.calls) == 4 })
		for _, c := range e.calls {
			c.answer(200)
		}
		for _, s := range waiting {
			r.until("the end", func() bool { return s.over })
		}
	})
}

func TestAnEndpointIsLeftAloneLongerAfterEachAttemptToConnect(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.refusing()
		r.to(e)
		ready := func() bool { return r.up.plan.Load().backends[0].balancer.Ready() == 1 }
		for _, ms := range []int{100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000} {
			s := r.get()
			r.until("an answer", func() bool { return s.over })
			least := time.Duration(ms) * time.Millisecond
			r.sleep(least - time.Millisecond)
			if ready() {
				t.Fatalf("it is tried again before %v", least)
			}
			r.sleep(least/10 + 2*time.Millisecond)
			if !ready() {
				t.Fatalf("it is not tried again %v and a tenth later", least)
			}
		}
		if _, ok := r.up.plan.Load().backends[0].health[r.up.plan.Load().backends[0].balancer.Endpoints()[0]]; !ok {
			t.Error("its failures are forgotten")
		}
	})
}

func TestABadAnswerIsAPenalty(t *testing.T) {
	for _, v := range []struct {
		status int
		after  string
		want   time.Duration
	}{{200, "", 0}, {404, "", 0}, {429, "", 5 * time.Second}, {503, "", 5 * time.Second}, {503, "20", 20 * time.Second}, {503, "4000", 300 * time.Second}} {
		t.Run(fmt.Sprint(v.status, v.after), func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				e := r.endpoint(false)
				m := members(e)
				m.Penalty = route.Penalty{Latency: 5 * time.Second, MaxRetryAfter: 300 * time.Second}
				r.serve(Parent{Backends: []Members{m}})
				s := r.get()
				c := e.call(1)
				if v.after != "" {
					c.answer(v.status, "retry-after", v.after)
				} else {
					c.answer(v.status)
				}
				r.until("the end", func() bool { return s.over })
				got := r.up.plan.Load().backends[0].balancer.Endpoints()[0].Latency(r.lane.now())
				if v.want == 0 && got > 100*time.Millisecond || v.want > 0 && got.Round(time.Second) != v.want {
					t.Errorf("it is taken to take %v", got)
				}
			})
		})
	}
}

func TestConnectionsThatNobodyUsesAreClosed(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(false)
		r.to(e)
		a, b := r.get(), r.get()
		e.call(2)
		e.calls[0].answer(200)
		e.calls[1].answer(200)
		a.wants("200 end\n")
		b.wants("200 end\n")
		r.settle()
		p := r.lane.pool(Endpoint{Addr: e.at}, false)
		if len(p.idle) != 2 || len(p.socks) != 2 {
			t.Fatalf("%d idle of %d", len(p.idle), len(p.socks))
		}
		for range 6 {
			r.sleep(time.Second)
		}
		if len(p.idle) != 0 || len(p.socks) != 0 || len(r.lane.pools) != 0 {
			t.Errorf("%d idle of %d, %d dialing %d queued %d pools", len(p.idle), len(p.socks), p.dialing, len(p.queue), len(r.lane.pools))
		}
	})
}

func TestAConnectionThatWasDialedEarlyServesTheFirstRequest(t *testing.T) {
	for _, h2c := range []bool{false, true} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			e := r.endpoint(h2c)
			r.to(e)
			c, at, ok := r.up.Pick(r.lane)
			if !ok || at.Addr != e.at {
				t.Fatal(at, ok)
			}
			sock, closed := new(conn.Socket), 0
			if _, errno := r.loop.Dial(sock, at.Addr, nobody{}); errno != 0 {
				t.Fatal(errno)
			}
			r.until("the connection", func() bool { return sock.Connected() == 0 && len(e.socks) == 1 })
			c.Up(r.lane)
			c.Closed()
			version := message.HTTP11
			if h2c {
				version = message.HTTP2
			}
			r.lane.Adopt(r.up, at, sock, version, func() { closed++ })
			s := r.client(version, "GET", "/", true)
			e.call(1).answer(200)
			s.wants("200 end\n")
			if len(e.socks) != 1 {
				t.Error("another connection was made")
			}
			end := r.up.plan.Load().backends[0].balancer.Endpoints()[0]
			if end.Open() != 0 || end.Pending() != 0 {
				t.Errorf("%d open, %d pending", end.Open(), end.Pending())
			}
			e.cut()
			r.until("its end to be told", func() bool { return closed == 1 })
			if p := r.lane.pool(Endpoint{Addr: e.at}, h2c); len(p.live)+len(p.idle)+len(p.socks) != 0 {
				t.Error("the pool remembers a connection that has ended")
			}
		})
	}
}

func TestOpaqueConnectionsAreLoad(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.lane.seed = rand.NewPCG(1, 2) // others spread 40 connections a little less evenly, now and then
		r.to(r.refusing(), r.refusing(), r.refusing(), r.refusing())
		counts := map[string]int{}
		var all []Connection
		for range 40 {
			c, at, ok := r.up.Pick(r.lane)
			if !ok {
				t.Fatal("no endpoint")
			}
			c.Up(r.lane)
			all = append(all, c)
			counts[at.Addr.String()]++
		}
		for at, n := range counts {
			if n < 8 || n > 12 {
				t.Errorf("%s has %d of 40 connections", at, n)
			}
		}
		for i := range all {
			all[i].Closed()
		}
		gone, _, _ := r.up.Pick(r.lane)
		gone.GivenUp(r.lane)
		for _, e := range r.up.plan.Load().backends[0].balancer.Endpoints() {
			if e.Open()+e.Pending() != 0 {
				t.Errorf("%d open, %d pending", e.Open(), e.Pending())
			}
		}
	})
}

func TestASecondConnectionIsMadeWhenStreamsRunOut(t *testing.T) {
	bubble(t, func(c *Config) { c.H2 = h2.Config{} }, func(t *testing.T, r *rig) {
		e := r.endpoint(true)
		r.to(e)
		var all []*stream
		for range 260 { // an endpoint takes 250 on a connection, and 100 until it has said so
			all = append(all, r.client(message.HTTP2, "GET", "/", true))
		}
		r.until("all to be asked", func() bool { return len(e.calls) == 260 })
		for _, c := range e.calls {
			c.answer(200)
		}
		for _, s := range all {
			r.until("the end", func() bool { return s.over })
		}
		if n := len(e.socks); n < 2 || n > 3 {
			t.Errorf("%d connections", n)
		}
	})
}
