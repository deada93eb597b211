package forward

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/detect"
	"github.com/meshctl/meshctl/proxy/exchange"
	"github.com/meshctl/meshctl/proxy/protocol"
)

// over has connections go to these endpoints, and the requests of HTTP ones
// taken one by one.
func (r *rig) over(endpoints ...netip.AddrPort) {
	m := exchange.Members{Name: "shop/cart:80"}
	for _, a := range endpoints {
		m.Endpoints = append(m.Endpoints, exchange.Endpoint{Addr: a})
	}
	r.route.Up = exchange.NewUpstream(exchange.Parent{Backends: []exchange.Members{m}}, r.f.Lanes())
	r.route.Mediate = true
}

// receive reads what has come once it ends with last.
func (r *rig) receive(fd int, last string) string {
	r.t.Helper()
	var got strings.Builder
	buf := make([]byte, 64<<10)
	r.until("bytes that end with "+last, func() bool {
		n, err := unix.Read(fd, buf)
		if n == 0 && err == nil {
			r.t.Fatalf("an end after %q", got.String())
		}
		got.Write(buf[:max(n, 0)])
		return strings.HasSuffix(got.String(), last)
	})
	return got.String()
}

const (
	askAgain = "GET /a HTTP/1.1\r\nHost: cart.shop\r\nX-A: 1\r\n\r\n"
	answerOK = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
)

func TestRequestsOfOneConnectionGoToSeveralEndpoints(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		other, otherAt := r.listen(16)
		r.over(r.target, otherAt)
		c := r.dial()
		conns := map[int]int{} // requests by the fd of the endpoint's connection
		for range 20 {
			r.send(c, askAgain)
			r.until("a request", func() bool {
				for _, l := range []int{r.targetFD, other} {
					if fd, _, err := unix.Accept4(l, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC); err == nil {
						r.fds = append(r.fds, fd)
						conns[fd] = 0
					}
				}
				buf := make([]byte, 4096)
				for fd := range conns {
					if n, _ := unix.Read(fd, buf); n > 0 {
						if got := string(buf[:n]); got != askAgain {
							t.Fatalf("an endpoint got %q", got)
						}
						conns[fd]++
						r.send(fd, answerOK)
						return true
					}
				}
				return false
			})
			if got := r.receive(c, "ok"); got != answerOK {
				t.Fatalf("the client got %q", got)
			}
		}
		r.is(protocol.HTTP1, detect.ReasonBytes)
		if len(conns) != 2 {
			t.Errorf("connections and their requests: %v", conns)
		}
		r.counted([]string{"request_total", "response_total", "tcp_open_connections"},
			"request_total 20",
			`response_total{classification="success",status_code="200"} 20`,
			`tcp_open_connections{peer="dst"} 1`, `tcp_open_connections{peer="dst"} 1`, `tcp_open_connections{peer="src"} 1`)
		r.hangUp(c)
		r.gone()
	})
}

func TestAnEarlyConnectionServesTheFirstRequest(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.over(r.target)
		c := r.dial()
		r.sleep(250 * time.Millisecond)
		s := r.server() // dialed while the client was silent
		r.send(c, askAgain)
		if got := r.receive(s, "\r\n\r\n"); got != askAgain {
			t.Fatalf("the endpoint got %q", got)
		}
		r.send(s, answerOK)
		r.receive(c, "ok")
		r.noServer()
		r.hangUp(c)
		r.gone()
		r.sleep(5 * time.Second) // nobody uses it
		r.ends(s, nil)
		r.settle()
		if open := r.counts("tcp_open_connections"); len(open) != 0 {
			t.Errorf("left open: %v", open)
		}
	})
}

func TestAnEarlyAttemptThatIsNotThroughIsGivenUpForRequests(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.deafTarget()
		r.over(r.target)
		c := r.dial()
		r.sleep(250 * time.Millisecond)
		if r.flow().link != dialing {
			t.Fatal("the endpoint is not being dialed")
		}
		r.send(c, askAgain)
		r.sleep(time.Second)
		if got := r.receive(c, "\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 504 ") {
			t.Errorf("the client got %q", got)
		}
		r.hangUp(c)
		r.gone()
	})
}

func TestAnOpaqueConnectionTriesAnotherEndpoint(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		gone, goneAt := r.listen(1)
		r.hangUp(gone)
		also, alsoAt := r.listen(1)
		r.hangUp(also)
		r.over(goneAt, alsoAt, r.target)
		r.route.Kind = protocol.Opaque
		for range 10 {
			c := r.dial()
			r.send(c, "opaque")
			s := r.server()
			r.gets(s, "opaque")
			r.send(s, "yes")
			r.gets(c, "yes")
			r.hangUp(c)
			r.hangUp(s)
			r.gone()
		}
		r.over(goneAt, alsoAt)
		c := r.connect(r.at)
		r.ends(c, unix.ECONNRESET)
		r.gone()
	})
}

func TestOpaqueConnectionsAreSpread(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		other, otherAt := r.listen(64)
		r.over(r.target, otherAt)
		r.route.Kind = protocol.Opaque
		for range 20 {
			r.dial()
		}
		r.settle()
		count := func(l int) (n int) {
			for {
				fd, _, err := unix.Accept4(l, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
				if err != nil {
					return n
				}
				r.fds = append(r.fds, fd)
				n++
			}
		}
		a, b := count(r.targetFD), count(other)
		if a < 8 || b < 8 || a+b != 20 {
			t.Errorf("%d and %d of 20 connections", a, b)
		}
	})
}

func TestADeclaredHTTPPortTakesBothVersions(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.over(r.target)
		r.route.Kind = protocol.HTTP1
		c := r.dial()
		r.send(c, askAgain)
		s := r.server()
		r.receive(s, "\r\n\r\n")
		r.is(protocol.HTTP1, detect.ReasonDeclared)
		r.send(s, answerOK)
		r.receive(c, "ok")

		bad := r.dial() // what would be opaque elsewhere is a bad request here
		r.send(bad, "\x00\x01\x02")
		if r.send(bad, "\r\n\r\n"); !strings.HasPrefix(r.receive(bad, "\r\n\r\n"), "HTTP/1.1 400 ") {
			t.Error("not refused")
		}
		c2 := r.dial()
		r.send(c2, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
		r.settle()
		r.is(protocol.HTTP2, detect.ReasonDeclared)

		silent := r.dial()
		r.sleep(11 * time.Second) // longer than detection may take
		r.is(protocol.HTTP1, detect.ReasonDeclared)
		r.hangUp(silent)
		for _, fd := range []int{c, bad, c2} {
			r.hangUp(fd)
		}
		r.gone()
	})
}

func TestALineThatMeansToBeHTTPIsNoWayAroundRoutes(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		const bad = "GET  /x HTTP/1.1\r\nHost: a\r\n\r\n"
		relayed := r.dial() // where nothing is taken one by one it passes as it is
		r.send(relayed, bad)
		s := r.server()
		r.gets(s, bad)
		r.over(r.target)
		c := r.dial()
		r.send(c, bad)
		if got := r.receive(c, "\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
			t.Errorf("the client got %q", got)
		}
		c = r.dial()
		r.send(c, "GET key\r\n") // of another protocol
		s = r.server()
		r.gets(s, "GET key\r\n")
	})
}

func TestADrainLetsMediatedRequestsEnd(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.over(r.target)
		busy, idle := r.dial(), r.dial()
		r.send(idle, askAgain)
		s := r.server()
		r.receive(s, "\r\n\r\n")
		r.send(s, answerOK)
		r.receive(idle, "ok")
		r.send(busy, askAgain)
		r.receive(s, "\r\n\r\n") // over the same connection
		r.f.Drain()
		r.settle()
		r.ends(idle, nil)
		r.quiet(busy)
		r.send(s, answerOK)
		if got := r.receive(busy, "ok"); !strings.Contains(got, "Connection: close") {
			t.Errorf("the client got %q", got)
		}
		r.ends(busy, nil)
		r.hangUp(busy)
		r.hangUp(idle)
		r.gone()
	})
}

func TestAClientThatLeavesWhileItsRequestIsUnderWayIsCounted(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.over(r.target)
		c := r.dial()
		r.send(c, askAgain)
		s := r.server()
		r.receive(s, "\r\n\r\n")
		r.hangUp(c)
		r.gone()
		r.ends(s, unix.ECONNRESET) // at once: not a FIN, which could be the end of a request
		r.counted([]string{"request_total", "response_total"}, "request_total 1",
			`response_total{classification="failure",error="cancel"} 1`)
	})
}

// The client's kernel drops everything while a response is under way to it.
func TestAMediatedClientThatVanishedEndsItsConnection(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.f.vanishedAfter = 500 * time.Millisecond // real
		r.over(r.target)
		c := r.dial()
		r.send(c, askAgain)
		s := r.server()
		r.receive(s, "\r\n\r\n")
		nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
		if err := unix.SetsockoptSockFprog(c, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing[0]}); err != nil {
			t.Fatal(err)
		}
		r.send(s, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nanybody there?")
		for n := 0; n < 250 && r.f.Open() > 0; n++ { // less than any timeout of HTTP, and about 3 s of the kernel's
			time.Sleep(sweepEvery)
			nap(12 * time.Millisecond)
			r.settle()
		}
		if r.f.Open() != 0 {
			t.Fatal("the connection is still there")
		}
	})
}
