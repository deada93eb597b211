package exchange

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/message"
	"github.com/meshctl/meshctl/proxy/route"
)

// broken serves one endpoint with a breaker.
func (r *rig) broken(e *endpoint, most uint32) {
	m := members(e)
	m.Breaker = route.Breaker{MaxFailures: most, MinPenalty: time.Second, MaxPenalty: time.Minute}
	r.serve(Parent{Backends: []Members{m}})
}

func (r *rig) ready() int { return r.up.plan.Load().backends[0].balancer.Ready() }

func TestAnEndpointOnTrialGetsOneRequestUntilItHasAnswered(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(false)
		r.broken(e, 1)
		s := r.get()
		e.call(1).answer(500)
		s.wants("500 end\n")
		r.sleep(time.Second)
		var all []*stream
		for range 5 {
			all = append(all, r.get())
		}
		e.call(2)
		r.settle()
		if len(e.calls) != 2 || r.ready() != 0 {
			t.Fatalf("%d requests on trial", len(e.calls)-1)
		}
		all[0].gone() // nothing is known then: another one tries
		e.call(3)
		r.settle()
		if len(e.calls) != 3 {
			t.Fatalf("%d requests on trial", len(e.calls)-2)
		}
		e.calls[2].answer(200)
		r.until("the others to be asked", func() bool { return len(e.calls) == 6 })
		for _, c := range e.calls[3:] {
			c.answer(200)
		}
		for _, s := range all[1:] {
			s.wants("200 end\n")
		}
	})
}

func TestWhatWasUnderWayWhenAnEndpointWasShutSaysNothingNew(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(false)
		r.broken(e, 1)
		var all []*stream
		for range 6 {
			all = append(all, r.get())
		}
		e.call(6)
		for i, c := range e.calls { // five that fail and one that does not
			c.answer([]int{500, 500, 500, 500, 500, 200}[i])
			r.settle()
		}
		for _, s := range all {
			r.until("the end", func() bool { return s.over })
		}
		if r.ready() != 0 {
			t.Fatal("an answer to an older request lets it in again")
		}
		r.sleep(time.Second)
		if r.ready() != 1 {
			t.Fatal("the penalty has doubled more than once")
		}
		s := r.get()
		e.call(7).answer(500)
		s.wants("500 end\n")
		r.sleep(1999 * time.Millisecond)
		if r.ready() != 0 {
			t.Fatal("the second penalty is too short")
		}
		r.sleep(time.Millisecond)
		if r.ready() != 1 {
			t.Fatal("the second penalty is too long")
		}
	})
}

func TestABreakerReadsTheStatusOfGRPCWhereverItStands(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(true)
		r.broken(e, 3)
		ask := func(end func(c *call)) {
			t.Helper()
			s := r.grpc()
			c := e.call(len(e.calls) + 1)
			c.say(200, false, "content-type", "application/grpc")
			c.stream.SendData([]byte("x"), false)
			r.settle()
			end(c)
			r.until("the end", func() bool { return s.over })
		}
		bad := func(c *call) { c.stream.SendTrailers(trailers("grpc-status", "13")) }
		ask(bad)
		ask(bad)
		ask(func(c *call) { c.stream.SendData(nil, true) }) // says nothing bad
		ask(bad)
		ask(func(c *call) { c.stream.SendTrailers(trailers("grpc-status", "5")) }) // not the server's fault
		ask(bad)
		ask(bad)
		if r.ready() != 1 {
			t.Fatal("shut before three failures in a row")
		}
		ask(bad)
		if r.ready() != 0 {
			t.Fatal("not shut after three failures in a row")
		}
	})
}

// The status of gRPC-Web travels in the body: one that cannot be seen is not one
// that is missing, for the breaker as little as for the metrics.
func TestGRPCWebIsNoGRPCWithoutAStatus(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(true)
		r.broken(e, 1)
		s := r.client(message.HTTP2, "POST", "/a", true, "content-type", "application/grpc-web")
		c := e.call(1)
		c.say(200, false, "content-type", "application/grpc-web")
		c.stream.SendData([]byte("status in here"), true)
		r.until("the end", func() bool { return s.over })
		if got := r.rec.results[0]; got.GRPC || got.GRPCStatus != -1 || got.Status != 200 {
			t.Errorf("recorded: %+v", got)
		}
	})
}

func TestAWaitingRequestHearsOfABackendThatWasThere(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(false)
		none, one := members(), members(e)
		one.Name = "shop/other:80"
		r.serve(Parent{Backends: []Members{none, one}})
		s := r.get()
		r.up.Update(Parent{Backends: []Members{one, none}}) // no endpoint comes or goes
		e.call(1).answer(200)
		s.wants("200 end\n")
	})
}

func TestAClientMayEndItsSideOfATunnelBeforeItIsOpen(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(true)
		r.to(e)
		s := r.client(message.HTTP2, "CONNECT", "", false)
		s.data("hello", true)
		c := e.call(1)
		c.say(200, false)
		s.wants("200\n")
		c.stream.SendData([]byte("bye"), true)
		r.until("the end", func() bool { return strings.HasSuffix(s.log.String(), " end\n") })
		r.settle()
		if r.lane.open != 0 {
			t.Error("the exchange is still open")
		}
	})
}

func TestTheEndOfAnUpgradeRequestIsNotThatOfTheClientsSide(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(false)
		r.to(e)
		s := r.client(message.HTTP11, "GET", "/chat", true, "upgrade", "echo")
		c := e.call(1)
		c.stream.SendHead(&message.Head{Status: 101, Upgrade: []byte("echo"), Length: message.Unknown}, false)
		c.stream.SendData(nil, true)
		r.until("the endpoint's end", func() bool { return strings.HasSuffix(s.log.String(), " end\n") })
		s.data("still here", true)
		r.until("what the client says", func() bool { return strings.Contains(c.log.String(), "still here") })
	})
}

func TestRunningOutOfDescriptorsSaysNothingOfAnEndpoint(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(false)
		r.to(e)
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		set := func(n uint64) {
			t.Helper()
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: limit.Max}); err != nil {
				t.Fatal(err)
			}
		}
		set(1)
		s := r.get()
		set(limit.Cur)
		if !strings.HasPrefix(s.log.String(), "502 ") {
			t.Errorf("the client got %q", s.log.String())
		}
		if r.ready() != 1 {
			t.Error("the endpoint is shut")
		}
		s = r.get()
		e.call(1).answer(200)
		s.wants("200 end\n")
	})
}

func TestTheTimeForAResponseBeginsWhenTheRequestHasEnded(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(false)
		r.annotated(map[string]string{"timeout.linkerd.io/response": "1s"}, e)
		s := r.client(message.HTTP11, "POST", "/", false)
		e.call(1)
		for range 10 {
			r.sleep(900 * time.Millisecond)
			s.data(".", false)
		}
		s.data("", true)
		r.sleep(999 * time.Millisecond)
		if s.over {
			t.Fatalf("too early: %s", s.log.String())
		}
		r.sleep(time.Millisecond)
		if !strings.HasPrefix(s.log.String(), "504 ") {
			t.Errorf("the client got %q", s.log.String())
		}
	})
}

func TestATryHasItsOwnTime(t *testing.T) {
	for _, begun := range []bool{false, true} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			e := r.endpoint(false)
			r.routed(route.Rule{Timeouts: &route.TimeoutSpec{Request: "10s", BackendRequest: "1s"}}, e)
			s := r.get()
			c := e.call(1)
			if begun {
				c.say(200, false)
				s.wants("200\n")
			}
			r.sleep(999 * time.Millisecond)
			if s.over {
				t.Fatalf("too early: %s", s.log.String())
			}
			r.sleep(time.Millisecond)
			if !s.over || begun != (s.aborted != 0) || !begun && !strings.HasPrefix(s.log.String(), "504 ") {
				t.Errorf("the client got %q", s.log.String())
			}
		})
	}
}

func TestATryThatCannotConnectInItsTimeIsRepeatedElsewhere(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		deaf, good := r.deaf(), r.endpoint(false)
		r.annotated(map[string]string{"retry.linkerd.io/http": "5xx", "retry.linkerd.io/timeout": "300ms", "retry.linkerd.io/limit": "5"}, deaf, good)
		retried := false
		for n := 0; n < 40 && !retried; n++ {
			s := r.get()
			n := len(good.calls)
			for range 200 {
				if r.settle(); len(good.calls) > n {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			good.call(n + 1).answer(200)
			s.wants("200 end\n")
			retried = strings.Contains(r.rec.last(), "retries=1")
			if n := len(r.lane.pool(Endpoint{Addr: deaf.at}, false).queue); n != 0 {
				t.Fatalf("%d exchanges wait for a connection that nobody needs", n)
			}
			r.sleep(200 * time.Millisecond)
		}
		if !retried {
			t.Error("the one that does not answer was never tried")
		}
		r.sleep(2 * time.Second)
	})
}
