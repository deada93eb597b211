package exchange

import (
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/proxy/message"
	"github.com/meshctl/meshctl/proxy/route"
)

func TestARequestAndItsResponsePassBetweenAllVersions(t *testing.T) {
	for _, v := range []struct {
		name   string
		client message.Version
		h2     bool
		told   message.Version
	}{
		{"h1 to h1", message.HTTP11, false, 0},
		{"h2 to h2", message.HTTP2, true, 0},
		{"h1 to h2", message.HTTP11, true, message.HTTP2},
		{"h2 to h1", message.HTTP2, false, message.HTTP11},
		{"1.0 to h1", message.HTTP10, false, 0},
	} {
		t.Run(v.name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				e := r.endpoint(v.h2)
				m := members(e)
				m.Version = v.told
				r.serve(Parent{Backends: []Members{m}})
				for range 3 { // the second and third on the same connection
					s := r.client(v.client, "POST", "/cart?id=7", false, "x-a", "1")
					s.data("hel", false)
					s.data("lo", false)
					s.recv.Trailers(s, trailers("x-sum", "5"))
					c := e.call(len(r.rec.results) + 1)
					r.until("the whole request", func() bool { return c.ended })
					log := c.log.String()
					if !strings.HasPrefix(log, "POST cart.shop /cart?id=7 [x-a: 1]") || !strings.HasSuffix(log, "trailers [x-sum: 5] end\n") ||
						strings.Count(strings.ReplaceAll(log, "\"\n\"", ""), "\"hello\"") != 1 {
						t.Fatalf("the endpoint got %s", log)
					}
					c.say(103, false, "link", "/a")
					c.say(200, false, "x-b", "2")
					c.stream.SendData([]byte("yes"), false)
					r.settle()
					c.stream.SendTrailers(trailers("x-end", "3"))
					s.wants("103 [link: /a]\n200 [x-b: 2]\n\"yes\"\ntrailers [x-end: 3] end\n")
					if got := r.rec.last(); got != "POST 200" {
						t.Errorf("recorded: %s", got)
					}
					r.settle()
				}
				if len(e.socks) != 1 {
					t.Errorf("%d connections for three requests, one after the other", len(e.socks))
				}
			})
		})
	}
}

func TestNothingOfAnExchangeIsLeftInTheNext(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(true)
		r.to(e)
		first := r.client(message.HTTP2, "POST", "/a", false, "content-type", "application/grpc", "x-a", "1")
		first.data(strings.Repeat("x", 5000), true)
		c := e.call(1)
		c.say(200, false, "content-type", "application/grpc", "x-b", "2")
		c.stream.SendTrailers(trailers("grpc-status", "14"))
		r.until("the first to end", func() bool { return first.over })
		if len(r.lane.free) != 1 {
			t.Fatalf("%d unused exchanges", len(r.lane.free))
		}
		x := r.lane.free[0]
		second := r.client(message.HTTP2, "GET", "/b", true)
		if len(r.lane.free) != 0 {
			t.Fatal("the exchange was not used again")
		}
		c = e.call(2)
		if got := c.log.String(); got != "GET cart.shop /b end\n" {
			t.Errorf("the endpoint got %s", got)
		}
		first.recv.Data(first, []byte("late"), false) // a call that comes too late finds another stream
		first.gone()
		c.answer(204)
		second.wants("204 end\n")
		if got := r.rec.last(); got != "GET 204" {
			t.Errorf("recorded: %s", got)
		}
		blank := Exchange{lane: x.lane, req: x.req, edited: x.edited, trailers: x.trailers, body: x.body}
		if x.phase != blank.phase || x.tries != 0 || x.isGRPC || x.respGRPC || x.headSent || x.keeps || x.up != nil || x.down != nil || len(x.body)+len(x.req.Fields) > 0 {
			t.Errorf("left over: %+v", x)
		}
	})
}

func TestAClientThatIsGoneTakesItsRequestAlongAtOnce(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			e := r.endpoint(h2)
			m := members(e)
			m.Version = message.HTTP11
			if h2 {
				m.Version = message.HTTP2
			}
			r.serve(Parent{Backends: []Members{m}})
			s := r.get()
			c := e.call(1)
			s.gone()
			r.until("the endpoint to hear of it", func() bool { return c.aborted != 0 })
			if got := r.rec.last(); got != "GET 0 client went away aborted" {
				t.Errorf("recorded: %s", got)
			}
		})
	}
}

func TestAClientMayLeaveWhileItsRequestWaits(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		deaf := r.deaf()
		r.to(deaf)
		s := r.get() // linking
		s.gone()
		r.sleep(2 * time.Second) // connecting fails, for nobody
		r.to()                   // no endpoints
		s = r.get()
		s.gone()
		if n := len(r.lane.queue); n != 0 || r.lane.open != 0 {
			t.Errorf("%d in the queue, %d open", n, r.lane.open)
		}
		r.sleep(5 * time.Second)
	})
}

func TestAResponseMayEndBeforeItsRequest(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(false)
		r.to(e)
		s := r.client(message.HTTP11, "POST", "/up", false)
		s.data("some", false)
		e.call(1).answer(413)
		s.wants("413 [connection: close] end\n413 end\n"[len("413 [connection: close] end\n"):])
		if got := r.rec.last(); got != "POST 413" {
			t.Errorf("recorded: %s", got)
		}
		r.settle()
		if p := r.lane.pool(Endpoint{Addr: e.at}, false); len(p.idle) != 0 {
			t.Error("a connection that is owed the rest of a request is used again")
		}
	})
}

func TestASenderIsStoppedWhenItsReceiverIsSlow(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(false)
		r.to(e)
		s := r.client(message.HTTP11, "POST", "/", false)
		c := e.call(1)
		c.stream.Hold(true)
		sent := 0
		for ; !s.held && sent < 64<<20; sent += 64 << 10 {
			s.data(strings.Repeat("x", 64<<10), false)
			r.loop.Step()
		}
		if !s.held {
			t.Fatal("the client was not stopped")
		}
		c.stream.Hold(false)
		r.until("the client to go on", func() bool { return !s.held })
		s.data("", true)
		r.until("the end", func() bool { return c.ended })

		c.say(200, false)
		r.until("the head", func() bool { return s.log.Len() > 0 })
		s.pending = message.HighWater + 1
		c.stream.SendData([]byte("abc"), false)
		x := s.recv.(*Exchange)
		r.until("the endpoint to be stopped", func() bool { return x.upHeld })
		s.pending = 0
		s.recv.Drained(s)
		if x.upHeld {
			t.Error("the endpoint was not let go on")
		}
		c.stream.SendData(nil, true)
		r.until("the response's end", func() bool { return s.over })
	})
}

func TestABodyIsHeldUntilThereIsAConnection(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.to()
		s := r.client(message.HTTP11, "PUT", "/", false)
		if !s.held {
			t.Fatal("the client goes on although nobody takes what it sends")
		}
		s.data("one read may still come", false)
		e := r.endpoint(false)
		r.up.Update(Parent{Backends: []Members{members(e)}})
		c := e.call(1)
		r.until("the client to go on", func() bool { return !s.held })
		s.data("", true)
		r.until("the end", func() bool { return c.ended })
		c.answer(200)
		s.wants("200 end\n")
	})
}

func TestATunnelPassesBytesBothWaysUntilBothEnd(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			e := r.endpoint(h2)
			m := members(e)
			m.Version = message.HTTP11
			if h2 {
				m.Version = message.HTTP2
			}
			r.serve(Parent{Backends: []Members{m}})
			s := r.client(message.HTTP2, "CONNECT", "", false)
			c := e.call(1)
			c.say(200, false)
			s.wants("200\n")
			s.data("ping", false)
			r.until("ping", func() bool { return strings.Contains(c.log.String(), "ping") })
			c.stream.SendData([]byte("pong"), true) // half closed
			r.until("pong, and the end", func() bool {
				got := strings.Replace(s.log.String(), "\n\"\" end", " end", 1)
				return got == "200\n\"pong\" end\n"
			})
			s.data("more", false)
			r.until("more", func() bool { return strings.Contains(c.log.String(), "more") })
			s.data("", true)
			r.until("the end", func() bool { return c.ended })
			if got := r.rec.last(); got != "CONNECT 200" {
				t.Errorf("recorded: %s", got)
			}
		})
	}
}

func TestAnUpgradeLeavesHTTP(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(false)
		m := members(e)
		m.Version = message.HTTP2 // which cannot carry it
		r.serve(Parent{Backends: []Members{m}})
		s := r.client(message.HTTP11, "GET", "/chat", true, "upgrade", "websocket")
		c := e.call(1)
		h := &message.Head{Status: 101, Upgrade: []byte("websocket"), Length: message.Unknown}
		c.stream.SendHead(h, false)
		s.wants("101\n")
		s.data("hi", false)
		r.until("hi", func() bool { return strings.Contains(c.log.String(), "hi") })
		r.sleep(time.Hour) // no timeout of HTTP's
		c.stream.SendData([]byte("there"), false)
		s.wants("101\n\"there\"\n")
		e.cut()
		r.until("the client to hear of it", func() bool { return s.aborted != 0 })
	})
}

func TestARuleChangesWhatPasses(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(false)
		path := "/v2"
		r.routed(route.Rule{Filters: []route.Filter{
			{Type: "RequestHeaderModifier", RequestHeaders: &route.HeaderModifier{Set: []route.Header{{Name: "x-team", Value: "cart"}}, Remove: []string{"x-debug"}}},
			{Type: "ResponseHeaderModifier", ResponseHeaders: &route.HeaderModifier{Add: []route.Header{{Name: "x-via", Value: "mesh"}}}},
			{Type: "URLRewrite", Rewrite: &route.URLRewrite{Hostname: "inner.shop", Path: &route.PathModifier{Type: "ReplaceFullPath", ReplaceFullPath: &path}}},
		}}, e)
		for range 2 {
			s := r.client(message.HTTP11, "GET", "/v1?q=1", true, "x-debug", "1")
			c := e.call(len(r.rec.results) + 1)
			if got := c.log.String(); got != "GET inner.shop /v2?q=1 [x-team: cart] end\n" {
				t.Errorf("the endpoint got %s", got)
			}
			c.answer(200)
			s.wants("200 [x-via: mesh] end\n")
			r.settle()
		}
	})
}

func TestARuleMayRedirect(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.routed(route.Rule{Filters: []route.Filter{{Type: "RequestRedirect", Redirect: &route.RequestRedirect{Hostname: "other.shop", StatusCode: 301}}}})
		s := r.get()
		s.wants("301 [location: http://other.shop:8080/cart] end\n")
		if got := r.rec.last(); got != "GET 301" {
			t.Errorf("recorded: %s", got)
		}
	})
}

func TestWeightsShareRequestsOut(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		a, b := r.endpoint(false), r.endpoint(false)
		one, three := int32(1), int32(3)
		tab, err := route.New(route.Config{Routes: []route.Route{{Kind: route.HTTP, Namespace: "shop", Name: "r", Rules: []route.Rule{{
			Backends: []route.BackendRef{{Name: "a", Port: 80, Weight: &one}, {Name: "b", Port: 80, Weight: &three}}}}}}})
		if err != nil {
			t.Fatal(err)
		}
		p := Parent{Table: tab}
		for i, name := range []string{"self", "a", "b"} {
			m := members([]*endpoint{a, a, b}[i])
			m.Name = name
			p.Backends = append(p.Backends, m)
		}
		r.serve(p)
		for range 200 {
			s := r.get()
			r.until("an answer", func() bool {
				for _, e := range []*endpoint{a, b} {
					if n := len(e.calls); n > 0 && !e.calls[n-1].stream.(interface{ Idle() bool }).Idle() {
						e.calls[n-1].answer(200)
					}
				}
				return s.over
			})
		}
		if n := len(a.calls); n < 25 || n > 80 || n+len(b.calls) != 200 {
			t.Errorf("of 200 requests, a quarter of which is 50, %d went to the first of two", n)
		}
	})
}

func TestAPanicEndsOneExchange(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(false)
		r.to(e)
		s := r.get()
		other := r.get()
		e.call(2)
		s.recv.(*Exchange).backend = nil // whatever uses it next panics
		for _, c := range e.calls {
			c.answer(200)
		}
		r.until("both to end", func() bool { return s.over && other.over })
		if s.aborted == 0 || other.log.String() != "200 end\n" || len(r.panics) != 1 {
			t.Errorf("the client got %q, another %q; %d panics were told of", s.log.String(), other.log.String(), len(r.panics))
		}
		r.panics = nil
		for _, x := range r.lane.free {
			if x.down != nil || x.spoilt {
				t.Error("what is left of it is used again")
			}
		}
	})
}

func TestABodyThatCameBeforeTheConnectionIsKeptUpToALimit(t *testing.T) {
	for _, size := range []int{64 << 10, 64<<10 + 1} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			r.annotated(retries5xx)
			s := r.client(message.HTTP11, "POST", "/", false)
			s.data(strings.Repeat("x", size), true)
			e := r.endpoint(false)
			p := *r.up.plan.Load()
			r.up.Update(Parent{Table: p.table, Backends: []Members{members(e)}})
			c := e.call(1)
			r.until("the body", func() bool { return c.ended })
			c.answer(503)
			r.settle()
			r.sleep(30 * time.Millisecond)
			if again := len(e.calls) == 2; again != (size == 64<<10) {
				t.Fatalf("%d bytes: sent again: %v", size, again)
			}
			if size == 64<<10 {
				e.call(2).answer(200)
			}
			r.until("the end", func() bool { return s.over })
		})
	}
}
