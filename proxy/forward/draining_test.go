package forward

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/l7"
	"github.com/meshctl/meshctl/proxy/protocol"
)

func (r *rig) drain() {
	r.f.Drain()
	r.settle()
}

// exchange opens an HTTP/1 connection with one exchange behind it.
func (r *rig) exchange() (c, s int) {
	r.t.Helper()
	c = r.dial()
	r.send(c, request)
	s = r.server()
	r.gets(s, request)
	r.send(s, response)
	r.gets(c, response)
	return c, s
}

func TestAnIdleHTTPConnectionIsClosedAtOnceByADrain(t *testing.T) {
	t.Run("HTTP/1", func(t *testing.T) {
		bubble(t, nil, func(t *testing.T, r *rig) {
			c, s := r.exchange()
			r.drain()
			r.ends(c, nil)
			r.ends(s, nil)
			r.gone()
		})
	})
	t.Run("HTTP/2", func(t *testing.T) {
		bubble(t, nil, func(t *testing.T, r *rig) {
			c, s, client, server := r.h2Start(t)
			q := client.request(t, 1)
			r.send(c, q)
			r.gets(s, q)
			a := server.response(t, 1)
			r.send(s, a)
			r.gets(c, a)
			r.drain()
			r.ends(c, nil)
			r.ends(s, nil)
			r.gone()
		})
	})
}

func TestABusyHTTPConnectionClosesAfterItsExchange(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		c, s := r.exchange()
		r.send(c, request)
		r.gets(s, request)
		r.drain()
		r.sleep(time.Minute)
		r.quiet(c)
		r.send(s, response[:20])
		r.gets(c, response[:20])
		r.quiet(c)
		r.send(s, response[20:])
		r.gets(c, response[20:])
		r.ends(c, nil)
		r.ends(s, nil)
		r.gone()
		r.counted([]string{"response_total"}, `response_total{classification="success",status_code="200"} 2`)
	})
}

func TestAResponseThatItsClientHasNotTakenYetIsWaitedFor(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		c, s := r.exchange()
		r.send(c, request)
		r.gets(s, request)
		const size = 12_000_000 // more than all kernel buffers on the way
		head := "HTTP/1.1 200 OK\r\nContent-Length: 12000000\r\n\r\n"
		answer := head + strings.Repeat("0123456789ab", size/12)
		r.drain()
		sent, got := 0, 0
		buf := make([]byte, 32<<10)
		r.until("the answer", func() bool {
			n, _ := unix.Write(s, []byte(answer[sent:]))
			sent += max(n, 0)
			if sent == len(answer) || n < 0 { // slower than the server
				n, err := unix.Read(c, buf)
				got += max(n, 0)
				return n == 0 || err != nil && err != unix.EAGAIN
			}
			return false
		})
		if got != len(answer) {
			t.Errorf("%d of %d bytes", got, len(answer))
		}
		r.gone()
	})
}

// TestTheEndOfAResponseThatIsStillHeldIsWaitedFor: the observer has seen it whole,
// the client has not taken it.
func TestTheEndOfAResponseThatIsStillHeldIsWaitedFor(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		c, s := r.exchange()
		if err := errors.Join(unix.SetsockoptInt(r.flow().src.FD(), unix.SOL_SOCKET, unix.SO_SNDBUF, 4096),
			unix.SetsockoptInt(c, unix.SOL_SOCKET, unix.SO_RCVBUF, 4096)); err != nil {
			t.Fatal(err)
		}
		r.send(c, request)
		r.gets(s, request)
		r.drain()
		answer := "HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n" + strings.Repeat("0123456789", 6000)
		r.send(s, answer)
		r.until("a part of it to be held", func() bool { return r.flow().relay.Held() > 0 && r.flow().observer.Idle() })
		r.gets(c, answer)
		r.ends(c, nil)
		r.gone()
	})
}

func TestAnHTTP2ConnectionWithOpenStreamsIsWaitedFor(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		c, s, client, server := r.h2Start(t)
		for _, id := range []uint32{1, 3} {
			q := client.request(t, id)
			r.send(c, q)
			r.gets(s, q)
		}
		r.drain()
		r.quiet(c)
		first := server.response(t, 1)
		r.send(s, first)
		r.gets(c, first)
		r.quiet(c) // one is still open
		second := server.response(t, 3)
		r.send(s, second)
		r.gets(c, second)
		r.ends(c, nil)
		r.gone()
	})
}

// TestARequestThatIsThereWhenADrainBeginsIsServed: the drain runs before the
// event of the request.
func TestARequestThatIsThereWhenADrainBeginsIsServed(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		c, s := r.exchange()
		if _, err := unix.Write(c, []byte(request)); err != nil {
			t.Fatal(err)
		}
		nap(time.Millisecond)
		r.f.lanes[r.loop].drain()
		r.gets(s, request)
		r.send(s, response)
		r.gets(c, response)
		r.ends(c, nil)
		r.gone()
	})
}

func TestOpaqueConnectionsAndTunnelsAreLeftAlone(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		opaquePort(r)
		c := r.dial()
		s := r.server()
		r.drain()
		r.sleep(time.Minute)
		r.send(c, "still")
		r.gets(s, "still")
		r.send(s, "here")
		r.gets(c, "here")
		r.hangUp(c)
		r.ends(s, nil)
		r.hangUp(s)
		r.gone()
	})
}

func TestAConnectionTakenWhileDrainingClosesAfterItsFirstExchange(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.drain()
		c := r.dial() // it was in the backlog
		r.send(c, request)
		s := r.server()
		r.gets(s, request)
		r.send(s, response)
		r.gets(c, response)
		r.ends(c, nil)
		r.gone()
	})
}

// A panic stays in its connection, wherever it comes from.

// broken is an observer that panics in one of its methods, and in Abort.
type broken struct {
	l7.Observer
	in string
}

func (b *broken) Feed(from l7.Side, p []byte, now time.Duration) {
	if b.in == "feed" && from == l7.FromServer {
		panic("feed")
	}
	b.Observer.Feed(from, p, now)
}

func (b *broken) End(l7.Side, time.Duration) { panic("end") }
func (b *broken) Abort(time.Duration)        { panic("abort") }

func (b *broken) Idle() bool {
	if b.in == "idle" {
		panic("idle")
	}
	return b.Observer.Idle()
}

func (b *broken) State() l7.State {
	if b.in == "state" {
		panic("state")
	}
	return b.Observer.State()
}

func (b *broken) Passive() bool { return b.in == "state" || b.Observer.Passive() }

func TestAPanicEndsItsConnectionAndNoOther(t *testing.T) {
	for in, provoke := range map[string]func(r *rig, c, s int){
		"feed":  func(r *rig, _, s int) { r.send(s, response) },
		"end":   func(r *rig, c, _ int) { r.fin(c) },
		"abort": func(r *rig, _, s int) { r.rst(s) },
		"idle":  func(r *rig, _, _ int) { r.drain() },
		"state": func(r *rig, _, _ int) {
			r.f.lanes[r.loop].each(func(fl *flow) { fl.describe() })
		},
	} {
		t.Run(in, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				opaquePort(r)
				bystander := r.dial()
				its := r.server()
				r.route.Kind = protocol.Unknown
				r.f.observer = func(k protocol.Kind, rec l7.Recorder) l7.Observer {
					return &broken{Observer: newObserver(protocol.HTTP1, rec), in: in}
				}
				c := r.dial()
				r.send(c, request)
				s := r.server()
				r.gets(s, request)
				r.f.observer = newObserver
				provoke(r, c, s)
				r.ends(c, unix.ECONNRESET)
				r.until("one connection to be left", func() bool { return r.f.Open() == 1 && r.loop.Load() == 1 })
				r.counted([]string{"meshctl_panics"}, "meshctl_panics_total 1")
				r.logged("level=ERROR", "panic in a connection", "stack=")
				r.send(bystander, "unhurt")
				r.gets(its, "unhurt")
				r.hangUp(bystander)
				r.hangUp(its)
				r.gone()
			})
		})
	}
}

func TestAPanicOfTheRouterClosesTheConnection(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		before := openFDs(t)
		r.panics = true
		for range 3 {
			c := r.connect(r.at)
			r.ends(c, unix.ECONNRESET)
			r.hangUp(c)
		}
		r.gone()
		r.counted([]string{"meshctl_panics"}, "meshctl_panics_total 3")
		if after := openFDs(t); after != before {
			t.Errorf("%d descriptors before, %d after", before, after)
		}
		r.panics = false
		c := r.dial()
		r.send(c, request)
		r.gets(r.server(), request)
	})
}

func TestThePanicOfALaneIsTheProgramsOwn(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		defer func() {
			if recover() == nil {
				t.Error("swallowed")
			}
		}()
		r.f.lanes[r.loop].Panicked("boom", nil)
	})
}
