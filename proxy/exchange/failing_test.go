package exchange

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/message"
	"github.com/meshctl/meshctl/proxy/route"
)

// grpc begins a gRPC request.
func (r *rig) grpc() *stream {
	return r.client(message.HTTP2, "POST", "/shop.Cart/Add", true, "content-type", "application/grpc+proto")
}

// TestEveryFailureHasItsAnswer is the table of answers that stand for an
// endpoint's: status, gRPC status, and whether the client's connection ends.
func TestEveryFailureHasItsAnswer(t *testing.T) {
	limit := func(r *rig, f func(*Config)) { f(&r.lane.cfg) }
	for _, v := range []struct {
		name   string
		make   func(r *rig)
		after  time.Duration
		text   string
		status string
		grpc   string
		fatal  bool
	}{
		{"connection refused", func(r *rig) { r.to(r.refusing()) }, 0, "connecting to the endpoint failed", "502", "14", true},
		{"connecting takes too long", func(r *rig) { r.to(r.deaf()) }, time.Second, "connecting to the endpoint timed out", "504", "4", true},
		{"no endpoint for long", func(r *rig) { r.to() }, 3 * time.Second, "no endpoint is ready", "504", "4", true},
		{"too many under way", func(r *rig) { r.to(); limit(r, func(c *Config) { c.MaxInFlight = 0 }) }, 0, "too many requests in flight", "503", "14", true},
		{"too many wait", func(r *rig) { r.to(); limit(r, func(c *Config) { c.MaxQueue = 0 }) }, 0, "too many requests in flight", "503", "14", true},
		{"the route's time is over", func(r *rig) {
			p := r.parent(route.Rule{Timeouts: &route.TimeoutSpec{Request: "2s"}}, r.endpoint(false))
			p.Backends[0].Version = message.HTTP11
			r.serve(p)
		}, 2 * time.Second, "timed out", "504", "4", false},
		{"no rule", func(r *rig) {
			r.routed(route.Rule{Matches: []route.Match{{Method: "PATCH"}}})
		}, 0, "no route found for request", "404", "5", false},
		{"no backend with a weight", func(r *rig) {
			none := int32(0)
			r.routed(route.Rule{Backends: []route.BackendRef{{Name: "a", Port: 80, Weight: &none}}})
		}, 0, "route has no backend", "500", "13", false},
	} {
		t.Run(v.name, func(t *testing.T) {
			extra := "[l5d-proxy-error: " + v.text + "]"
			closing := ""
			if v.fatal {
				extra += " [l5d-proxy-connection: close]"
				closing = " [connection: close]"
			}
			for _, grpc := range []bool{false, true} {
				bubble(t, nil, func(t *testing.T, r *rig) {
					v.make(r)
					var s *stream
					want := v.status + " " + extra + closing + " end\n"
					recorded := "GET " + v.status + " " + v.text
					if grpc {
						s = r.grpc()
						want = "200 [content-type: application/grpc] [grpc-status: " + v.grpc + "] [grpc-message: " + v.text + "] " + extra + " end\n"
						recorded = "POST 200 grpc=" + v.grpc + " " + v.text
					} else {
						s = r.get()
					}
					if v.after > 0 {
						r.sleep(v.after - time.Millisecond)
						if s.log.Len() > 0 {
							t.Fatalf("too early: %s", s.log.String())
						}
						r.sleep(time.Millisecond)
					}
					s.wants(want)
					if got := r.rec.last(); got != recorded || r.rec.requested != 1 || len(r.rec.results) != 1 {
						t.Errorf("recorded: %s (%d, %d)", got, r.rec.requested, len(r.rec.results))
					}
				})
			}
		})
	}
}

func TestAnEndpointThatEndsBeforeItAnswersIsA502(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(false)
		r.to(e)
		s := r.client(message.HTTP11, "POST", "/", true)
		e.call(1)
		e.cut()
		s.wants("502 [l5d-proxy-error: endpoint closed the connection] [l5d-proxy-connection: close] [connection: close] end\n")
	})
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(true)
		r.to(e)
		s := r.grpc()
		e.call(1)
		e.cut()
		s.wants("200 [content-type: application/grpc] [grpc-status: 14] [grpc-message: endpoint closed the connection] " +
			"[l5d-proxy-error: endpoint closed the connection] [l5d-proxy-connection: close] end\n")
	})
}

func TestAResponseThatIsCutNeverLooksWhole(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(false)
		r.to(e)
		s := r.get()
		c := e.call(1)
		c.say(200, false)
		c.stream.SendData([]byte("half"), false)
		s.wants("200\n\"half\"\n")
		e.cut()
		r.until("the client to hear of it", func() bool { return s.over })
		if s.aborted == 0 {
			t.Errorf("the client got %s", s.log.String())
		}
		if got := r.rec.last(); got != "GET 200 endpoint closed the connection aborted" {
			t.Errorf("recorded: %s", got)
		}
	})
	bubble(t, nil, func(t *testing.T, r *rig) { // a gRPC client is told in trailers
		e := r.endpoint(true)
		r.to(e)
		s := r.grpc()
		c := e.call(1)
		c.say(200, false, "content-type", "application/grpc")
		c.stream.SendData([]byte("half"), false)
		s.wants("200 [content-type: application/grpc]\n\"half\"\n")
		e.cut()
		s.wants("200 [content-type: application/grpc]\n\"half\"\ntrailers [grpc-status: 14] [grpc-message: endpoint closed the connection] end\n")
		if got := r.rec.last(); got != "POST 200 grpc=14 endpoint closed the connection aborted" {
			t.Errorf("recorded: %s", got)
		}
	})
}

func TestAnotherEndpointIsTriedWhenOneCannotBeConnectedTo(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		good := r.endpoint(false)
		r.to(r.refusing(), r.refusing(), r.refusing(), good)
		for i := range 20 {
			s := r.get()
			good.call(i + 1).answer(200)
			s.wants("200 end\n")
		}
		bad := r.refusing()
		r.to(r.refusing(), bad)
		s := r.get()
		r.until("the end", func() bool { return s.over })
		if !strings.HasPrefix(s.log.String(), "502 ") {
			t.Errorf("with none left: %s", s.log.String())
		}
	})
}

func TestRequestsFailAtOnceWhenNoEndpointWasReadyForLong(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.to()
		first := r.get()
		r.sleep(2 * time.Second)
		second := r.get()
		r.sleep(time.Second + time.Millisecond)
		if !first.over || !second.over {
			t.Fatal("they wait on after 3 s")
		}
		if third := r.get(); !third.over {
			t.Fatal("a request waits although the ones before it did in vain")
		}
		e := r.endpoint(false)
		r.up.Update(Parent{Backends: []Members{members(e)}})
		s := r.get()
		e.call(1).answer(200)
		s.wants("200 end\n")
		r.up.Update(Parent{Backends: []Members{members()}})
		if again := r.get(); again.over {
			t.Fatal("after an endpoint was reached, requests wait again")
		} else {
			again.gone()
		}
	})
}

func TestAWaitingRequestHearsOfNewEndpoints(t *testing.T) {
	t.Run("from an update", func(t *testing.T) {
		bubble(t, nil, func(t *testing.T, r *rig) {
			r.to()
			s := r.get()
			r.sleep(time.Second)
			e := r.endpoint(false)
			r.up.Update(Parent{Backends: []Members{members(e)}})
			e.call(1).answer(200)
			s.wants("200 end\n")
		})
	})
	t.Run("under another name", func(t *testing.T) {
		bubble(t, nil, func(t *testing.T, r *rig) {
			r.to()
			s := r.get()
			e := r.endpoint(false)
			m := members(e)
			m.Name = "shop/cart:81"
			r.up.Update(Parent{Backends: []Members{m}})
			e.call(1).answer(200)
			s.wants("200 end\n")
		})
	})
	t.Run("that nobody else asks for", func(t *testing.T) {
		bubble(t, nil, func(t *testing.T, r *rig) {
			r.to()
			var e *endpoint
			r.up.Fresh = func() {
				if e != nil && r.up.Endpoints() == 0 {
					r.up.Update(Parent{Backends: []Members{members(e)}})
				}
			}
			s := r.get()
			e = r.endpoint(false)
			r.sleep(200 * time.Millisecond)
			e.call(1).answer(200)
			s.wants("200 end\n")
		})
	})
}

func TestARouteTimesOut(t *testing.T) {
	for _, v := range []struct {
		name       string
		annotation [2]string
		body       bool // the response has begun
		after      time.Duration
	}{
		{"the whole", [2]string{"timeout.linkerd.io/request", "2s"}, false, 2 * time.Second},
		{"the whole, while the response comes", [2]string{"timeout.linkerd.io/request", "2s"}, true, 2 * time.Second},
		{"the response", [2]string{"timeout.linkerd.io/response", "1s"}, false, time.Second},
		{"silence", [2]string{"timeout.linkerd.io/idle", "500ms"}, false, 500 * time.Millisecond},
		{"silence within the response", [2]string{"timeout.linkerd.io/idle", "500ms"}, true, 500 * time.Millisecond},
	} {
		t.Run(v.name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				e := r.endpoint(false)
				tab, err := route.New(route.Config{Annotations: map[string]string{v.annotation[0]: v.annotation[1]}})
				if err != nil {
					t.Fatal(err)
				}
				r.serve(Parent{Table: tab, Backends: []Members{members(e)}})
				s := r.get()
				c := e.call(1)
				if v.body {
					c.say(200, false)
					s.wants("200\n")
				}
				r.sleep(v.after - time.Millisecond)
				if s.over {
					t.Fatalf("too early: %s", s.log.String())
				}
				r.sleep(time.Millisecond)
				if !s.over || v.body != (s.aborted != 0) {
					t.Fatalf("the client got %s", s.log.String())
				}
				if !v.body && !strings.HasPrefix(s.log.String(), "504 [l5d-proxy-error: timed out] end") {
					t.Errorf("the client got %s", s.log.String())
				}
				r.until("the endpoint to hear of it", func() bool { return c.aborted != 0 })
			})
		})
	}
	t.Run("not while something comes", func(t *testing.T) {
		bubble(t, nil, func(t *testing.T, r *rig) {
			e := r.endpoint(false)
			tab, _ := route.New(route.Config{Annotations: map[string]string{"timeout.linkerd.io/idle": "500ms"}})
			r.serve(Parent{Table: tab, Backends: []Members{members(e)}})
			s := r.get()
			c := e.call(1)
			c.say(200, false)
			for range 10 {
				r.sleep(400 * time.Millisecond)
				c.stream.SendData([]byte("."), false)
				r.settle()
			}
			c.stream.SendData(nil, true)
			r.until("the end", func() bool { return s.over })
			if s.aborted != 0 {
				t.Error("a response that goes on was cut")
			}
		})
	})
}

func TestAResetPassesAsItWas(t *testing.T) {
	for _, begun := range []bool{false, true} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			e := r.endpoint(true)
			r.to(e)
			s := r.grpc()
			c := e.call(1)
			if begun {
				c.say(200, false, "content-type", "application/grpc")
				r.until("the head", func() bool { return s.log.Len() > 0 })
			}
			c.stream.Abort(message.Cancel)
			r.until("the reset", func() bool { return s.aborted != 0 })
			if s.aborted != message.Cancel {
				t.Errorf("the client was reset with %d", s.aborted)
			}
		})
	}
	bubble(t, nil, func(t *testing.T, r *rig) { // HTTP/1 has no resets
		e := r.endpoint(true)
		m := members(e)
		m.Version = message.HTTP2
		r.serve(Parent{Backends: []Members{m}})
		s := r.get()
		e.call(1).stream.Abort(message.Cancel)
		r.until("an answer", func() bool { return s.over })
		if !strings.HasPrefix(s.log.String(), "502 ") {
			t.Errorf("the client got %s", s.log.String())
		}
	})
}

// deafen has the kernel drop whatever comes for the endpoint's connections, as
// if its machine were gone (socket(7), SO_ATTACH_FILTER).
func (e *endpoint) deafen() {
	nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	for _, s := range e.socks {
		if err := unix.SetsockoptSockFprog(s.FD(), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing[0]}); err != nil {
			e.r.t.Fatal(err)
		}
	}
}

func TestAnEndpointWhoseMachineHasVanishedIsGivenUp(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.lane.vanishedAfter = 500 * time.Millisecond // the kernel's time is real
		e := r.endpoint(false)
		r.to(e)
		s := r.client(message.HTTP11, "POST", "/", false)
		e.call(1)
		e.deafen()
		s.data("anybody there?", true)
		for n := 0; n < 250 && !s.over; n++ { // less than any timeout of HTTP, and about 3 s of the kernel's
			time.Sleep(time.Second)
			for range 100 {
				nap()
			}
			r.settle()
		}
		if !strings.HasPrefix(s.log.String(), "502 ") {
			t.Errorf("the client got %s", s.log.String())
		}
	})
}
