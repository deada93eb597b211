package forward

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/metrics"
	"github.com/meshctl/meshctl/proxy/protocol"
)

func opaquePort(r *rig) { r.route.Kind = protocol.Opaque }

func TestARefusedTargetIsToldWithARSTAtOnce(t *testing.T) {
	for name, sent := range map[string]string{"declared": "", "detected": request} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				r.noTarget()
				var c int
				if sent == "" {
					opaquePort(r)
					c = r.connect(r.at)
				} else {
					c = r.dial()
					r.send(c, sent)
				}
				r.ends(c, unix.ECONNRESET)
				r.gone()
				r.counted([]string{"outbound_tcp_errors", "tcp_open_total", "tcp_close_total"},
					`outbound_tcp_errors_total{error="i/o"} 1`, `tcp_open_total{peer="src"} 1`,
					`tcp_close_total{errno="ECONNREFUSED",peer="src"} 1`)
				r.logged("level=WARN", "connecting to the target failed", "connection refused")
			})
		})
	}
}

func TestAConnectThatGetsNoAnswerEndsAfterTheConnectTimeout(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.deafTarget()
		opaquePort(r)
		c := r.dial()
		r.sleep(time.Second - 1)
		r.quiet(c)
		r.sleep(1)
		r.ends(c, unix.ECONNRESET)
		r.gone()
		r.counted([]string{"outbound_tcp_errors", "tcp_close_total"}, `outbound_tcp_errors_total{error="i/o"} 1`,
			`tcp_close_total{errno="ETIMEDOUT",peer="src"} 1`)
	})
}

// TestARefusalThatComesLateIsToldToo: on a real network no connect(2) is over at
// once. The SYN that is sent again, a second later in real time, is refused.
func TestARefusalThatComesLateIsToldToo(t *testing.T) {
	bubble(t, func(c *Config) { c.ConnectTimeout = time.Hour }, func(t *testing.T, r *rig) {
		r.deafTarget()
		opaquePort(r)
		c := r.dial()
		r.quiet(c)
		r.noTarget()
		r.ends(c, unix.ECONNRESET)
		r.gone()
		r.counted([]string{"tcp_close_total"}, `tcp_close_total{errno="ECONNREFUSED",peer="src"} 1`)
	})
}

func TestAClientThatResetsWhileConnectingEndsTheAttempt(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.deafTarget()
		opaquePort(r)
		c := r.dial()
		r.settle()
		r.rst(c)
		r.gone()
		r.counted([]string{"tcp_close_total"}, `tcp_close_total{errno="ECONNRESET",peer="src"} 1`)
	})
}

func TestWhatAClientSendsAndEndsWhileConnectingArrives(t *testing.T) {
	bubble(t, func(c *Config) { c.ConnectTimeout = time.Hour }, func(t *testing.T, r *rig) {
		r.deafTarget()
		c := r.dial()
		r.send(c, request)
		r.send(c, "and more")
		r.fin(c)
		if ph := r.flow().phase; ph != connecting {
			t.Fatalf("phase %d", ph)
		}
		if _, ok := r.accepted(); !ok { // the filler: makes room
			t.Fatal("nothing in the backlog")
		}
		s := r.server() // the SYN is sent again within a second of real time
		r.gets(s, request+"and more")
		r.ends(s, nil)
	})
}

func TestARefusalOfTheRouterResetsAndIsCountedByItsWord(t *testing.T) {
	for word, refusal := range map[string]error{
		"own_listener": &Refusal{Reason: "own_listener"},
		"error":        errors.New("something else"),
	} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			r.refusal = refusal
			c := r.connect(r.at)
			r.ends(c, unix.ECONNRESET)
			r.noServer()
			r.gone()
			r.counted([]string{"meshctl_refused", "tcp_open", "tcp_close"}, `meshctl_refused_total{reason="`+word+`"} 1`)
			r.logged("level=WARN", "connection refused", "reason="+word)
		})
	}
}

func TestAConnectionThatWasNotRedirectedIsRefused(t *testing.T) {
	bubble(t, func(c *Config) { c.FixedTarget = netip.AddrPort{} }, func(t *testing.T, r *rig) {
		// Where conntrack is loaded it may give the listener's own address
		// instead: for that there is the router.
		r.refusal = &Refusal{Reason: reasonNotRedirected}
		c := r.connect(r.at)
		r.ends(c, unix.ECONNRESET)
		r.gone()
		r.counted([]string{"meshctl_refused"}, `meshctl_refused_total{reason="no_original_destination"} 1`)
	})
}

func TestARefusalSaysItsReason(t *testing.T) {
	if got := (&Refusal{Reason: "own_listener"}).Error(); got != "connection refused: own_listener" {
		t.Error(got)
	}
}

func TestAnIdleOpaqueConnectionEndsAfterTheIdleTimeout(t *testing.T) {
	bubble(t, func(c *Config) { c.IdleTimeout = time.Minute }, func(t *testing.T, r *rig) {
		opaquePort(r)
		c := r.dial()
		s := r.server()
		for range 5 { // traffic either way keeps it
			r.sleep(50 * time.Second)
			r.send(c, "x")
			r.gets(s, "x")
			r.sleep(50 * time.Second)
			r.send(s, "y")
			r.gets(c, "y")
		}
		r.sleep(time.Minute - 1)
		r.quiet(c)
		r.sleep(sweepEvery + time.Second)
		r.ends(c, unix.ECONNRESET)
		r.ends(s, unix.ECONNRESET)
		r.gone()
		r.counted([]string{"tcp_close_total"}, `tcp_close_total{errno="ETIMEDOUT",peer="src"} 1`, `tcp_close_total{errno="ETIMEDOUT",peer="dst"} 1`)
	})
}

func TestTheIdleTimeoutIsNotForHTTPNorOffByZero(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"HTTP": time.Minute, "opaque, off": 0} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(c *Config) { c.IdleTimeout = timeout }, func(t *testing.T, r *rig) {
				if timeout == 0 {
					opaquePort(r)
				}
				c := r.dial()
				r.send(c, request)
				s := r.server()
				r.gets(s, request)
				for range 100 {
					r.loop.Step()
					time.Sleep(time.Minute)
				}
				r.send(s, response)
				r.gets(c, response)
			})
		})
	}
}

func TestAHalfClosedConnectionEndsAfterTheHalfCloseTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		sent   string
		server bool // ends first
	}{"client first": {"ping", false}, "server first": {"ping", true}, "HTTP": {request, false}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(c *Config) { c.HalfCloseTimeout = time.Hour }, func(t *testing.T, r *rig) {
				client := r.dial()
				r.send(client, c.sent)
				s := r.server()
				r.gets(s, c.sent)
				ends, other := client, s
				if c.server {
					ends, other = s, client
				}
				for range 100 { // not half closed: no limit
					r.loop.Step()
					time.Sleep(time.Minute)
				}
				r.send(ends, "last")
				r.gets(other, "last")
				r.fin(ends)
				r.ends(other, nil)
				r.sleep(59 * time.Minute)
				r.send(other, "still here")
				r.gets(ends, "still here")
				r.sleep(59 * time.Minute)
				r.quiet(ends)
				r.sleep(2 * time.Minute)
				r.ends(ends, unix.ECONNRESET)
				r.gone()
			})
		})
	}
}

// TestAPeerThatVanishedEndsItsConnection: its kernel drops everything, and bytes
// are under way to it. Retransmissions take some real time.
func TestAPeerThatVanishedEndsItsConnection(t *testing.T) {
	for _, server := range []bool{false, true} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			r.f.vanishedAfter = 500 * time.Millisecond // real
			opaquePort(r)
			c := r.dial()
			s := r.server()
			gone, other := c, s
			if server {
				gone, other = s, c
			}
			nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
			if err := unix.SetsockoptSockFprog(gone, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing[0]}); err != nil {
				t.Fatal(err)
			}
			r.send(other, "anybody there?")
			r.until("the end of the connection", func() bool {
				time.Sleep(sweepEvery) // fake
				return r.f.Open() == 0
			})
			r.ends(other, unix.ECONNRESET)
			r.gone()
			r.counted([]string{"tcp_close_total"}, `tcp_close_total{errno="ETIMEDOUT",peer="src"} 1`, `tcp_close_total{errno="ETIMEDOUT",peer="dst"} 1`)
		})
	}
}

func TestAPeerThatDoesNotReadIsNotGivenUp(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.f.vanishedAfter = 0
		opaquePort(r)
		c := r.dial()
		s := r.server()
		b := make([]byte, 64<<10)
		r.until("all buffers to be full", func() bool {
			n, _ := unix.Write(s, b)
			return n < 0 && r.flow().relay.Held() > 0
		})
		for range 100 {
			time.Sleep(time.Minute)
			r.settle()
		}
		r.quiet(s)
		if _, err := unix.Read(c, b); err != nil {
			t.Errorf("reading at last: %v", err)
		}
	})
}

func TestADialedConnectionGetsKeepaliveOnceItIsNotShort(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		opaquePort(r)
		r.dial()
		r.server()
		on := func() int {
			v, err := unix.GetsockoptInt(r.flow().dst.FD(), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		r.sleep(2 * time.Second)
		if on() != 0 {
			t.Error("on at once")
		}
		for range 5 {
			r.sleep(time.Second)
		}
		if on() == 0 {
			t.Error("not on after 7 s")
		}
	})
}

func TestARSTPassesOnBothWays(t *testing.T) {
	for _, server := range []bool{false, true} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			opaquePort(r)
			c := r.dial()
			s := r.server()
			breaks, other, side := c, s, "client"
			if server {
				breaks, other, side = s, c, "server"
			}
			r.rst(breaks)
			r.ends(other, unix.ECONNRESET)
			r.gone()
			r.counted([]string{"tcp_close_total"}, `tcp_close_total{errno="ECONNRESET",peer="src"} 1`, `tcp_close_total{errno="ECONNRESET",peer="dst"} 1`)
			r.logged("level=DEBUG", "connection closed", "err=ECONNRESET", "broke="+side)
		})
	}
}

// TestARSTWaitsForWhatTheOtherSideHasNotGotYet: the relay's timer comes through
// the flow.
func TestARSTWaitsForWhatTheOtherSideHasNotGotYet(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		opaquePort(r)
		c := r.dial()
		s := r.server()
		answer := strings.Repeat("0123456789", 300_000) // more than a client's kernel takes unread
		sent := 0
		r.until("the proxy to have the answer", func() bool {
			n, _ := unix.Write(s, []byte(answer[sent:]))
			sent += max(n, 0)
			queued, err := unix.IoctlGetInt(s, unix.SIOCOUTQ)
			return sent == len(answer) && err == nil && queued == 0
		})
		r.rst(s)
		got := 0
		buf := make([]byte, 64<<10)
		var end error
		r.until("the whole answer", func() bool {
			time.Sleep(10 * time.Millisecond) // fake: the relay looks again
			n, err := unix.Read(c, buf)
			got += max(n, 0)
			if err != nil && err != unix.EAGAIN {
				end = err
			}
			return end != nil || n == 0
		})
		if got != len(answer) || end != unix.ECONNRESET {
			t.Errorf("got %d of %d bytes, then %v", got, len(answer), end)
		}
		r.gone()
	})
}

func TestWhatPassedIsCountedExactly(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		opaquePort(r)
		c := r.dial()
		s := r.server()
		r.send(c, strings.Repeat("q", 1000))
		r.gets(s, strings.Repeat("q", 1000))
		r.send(s, strings.Repeat("a", 70_000))
		r.gets(c, strings.Repeat("a", 70_000))
		names := []string{"tcp_open", "tcp_read", "tcp_write", "tcp_close", "tcp_connection_duration_ms_count", "tcp_connection_duration_ms_sum"}
		r.counted(names, // while it is open
			`tcp_open_total{peer="src"} 1`, `tcp_open_total{peer="dst"} 1`,
			`tcp_open_connections{peer="src"} 1`, `tcp_open_connections{peer="dst"} 1`,
			`tcp_read_bytes_total{peer="src"} 1000`, `tcp_write_bytes_total{peer="dst"} 1000`,
			`tcp_read_bytes_total{peer="dst"} 70000`, `tcp_write_bytes_total{peer="src"} 70000`)
		r.sleep(3 * time.Second)
		r.hangUp(c)
		r.hangUp(s)
		r.gone()
		r.counted(names,
			`tcp_open_total{peer="src"} 1`, `tcp_open_total{peer="dst"} 1`,
			`tcp_read_bytes_total{peer="src"} 1000`, `tcp_write_bytes_total{peer="dst"} 1000`,
			`tcp_read_bytes_total{peer="dst"} 70000`, `tcp_write_bytes_total{peer="src"} 70000`,
			`tcp_close_total{errno="",peer="src"} 1`, `tcp_close_total{errno="",peer="dst"} 1`,
			`tcp_connection_duration_ms_count{peer="src"} 1`, `tcp_connection_duration_ms_count{peer="dst"} 1`,
			`tcp_connection_duration_ms_sum{peer="src"} 3000`, `tcp_connection_duration_ms_sum{peer="dst"} 3000`)
		r.logged("level=DEBUG", "connection closed", "bytes_in=1000", "bytes_out=70000", "took=3s")
	})
}

func TestHeadBytesOfADetectedConnectionAreCountedOnce(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		c := r.dial()
		r.send(c, request[:5])
		r.send(c, request[5:])
		r.gets(r.server(), request)
		r.counted([]string{"tcp_read", "tcp_write"}, `tcp_read_bytes_total{peer="src"} 27`, `tcp_write_bytes_total{peer="dst"} 27`)
	})
}

func TestFailedAcceptsAreCountedAndSaidSeldom(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		for range 25 { // every half second for as long as it lasts
			r.f.AcceptFailed(unix.EMFILE)
			time.Sleep(500 * time.Millisecond)
		}
		r.counted([]string{"meshctl_accept"}, `meshctl_accept_errors_total{error="EMFILE"} 25`)
		if n := strings.Count(r.log.String(), "accepting failed"); n != 2 {
			t.Errorf("%d lines within 12.5 s, want one in 10 s", n)
		}
	})
}

func TestLinesThatAPeerCanCauseAreBounded(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.refusal = &Refusal{Reason: "own_listener"}
		for range 50 {
			r.ends(r.connect(r.at), unix.ECONNRESET)
		}
		if n := strings.Count(r.log.String(), "connection refused"); n > logBurst {
			t.Errorf("%d lines within a second, more than %d", n, logBurst)
		}
		r.log.Reset()
		r.sleep(time.Second)
		r.ends(r.connect(r.at), unix.ECONNRESET)
		r.logged("connection refused", "lines_left_out=")
	})
}

func TestErrorsHaveTheirNames(t *testing.T) {
	for err, want := range map[error]string{unix.EMFILE: "EMFILE", errors.New("else"): "EIO"} {
		if got := errnoName(err); got != want {
			t.Errorf("%v is called %s", err, got)
		}
	}
	if got := tlsLabels(metrics.Inbound).NoTLSReason; got != "no_tls_from_remote" {
		t.Error(got)
	}
}
