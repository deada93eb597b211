package forward

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/detect"
	"github.com/meshctl/meshctl/proxy/l7"
	"github.com/meshctl/meshctl/proxy/protocol"
)

func TestASilentClientsTargetIsDialedAfterExactly250Milliseconds(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.dial()
		r.sleep(250*time.Millisecond - 1)
		r.noServer()
		r.sleep(1)
		r.server()
	})
}

func TestAServerThatSpeaksFirstMakesTheConnectionOpaqueAndIsRemembered(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		c := r.dial()
		r.sleep(250 * time.Millisecond)
		s := r.server()
		r.send(s, greeting)
		r.gets(c, greeting)
		r.is(protocol.Opaque, detect.ReasonServerFirst)
		r.send(c, "EHLO a\r\n")
		r.gets(s, "EHLO a\r\n")

		c = r.dial() // at once, from now on
		s = r.server()
		r.send(s, greeting)
		r.gets(c, greeting)
		r.is(protocol.Opaque, detect.ReasonServerFirst)
		r.counted([]string{"meshctl_"},
			`meshctl_detect_total{protocol="opaque",reason="server_first"} 2`,
			`meshctl_detected_protocol_connections_total{detected="smtp"} 2`,
			`meshctl_early_dials_total{outcome="server_first"} 2`,
			`meshctl_server_first_targets 1`)
	})
}

func TestTheGreetingOfARememberedServerMayComeWithItsHandshake(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.memory.Add(r.target, time.Now())
		c := r.connect(r.at)
		s := -1
		r.until("a connection to the target", func() (ok bool) { s, ok = r.accepted(); return ok })
		if _, err := unix.Write(s, []byte(greeting)); err != nil {
			t.Fatal(err)
		}
		r.gets(c, greeting)
	})
}

func TestOneHTTPRequestMakesTheMemoryForget(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.memory.Add(r.target, time.Now())
		r.m.SetServerFirstTargets(1)
		c := r.dial()
		s := r.server() // at once: it is remembered
		r.send(c, request)
		r.gets(s, request)
		r.is(protocol.HTTP1, detect.ReasonBytes)
		r.counted([]string{"meshctl_server_first", "meshctl_early"}, `meshctl_early_dials_total{outcome="client_first"} 1`)
		r.dial()
		r.noServer() // forgotten
	})
}

func TestARememberedTargetIsForgottenAfterItsTime(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.memory.Add(r.target, time.Now())
		time.Sleep(detect.DefaultMemoryTTL)
		r.dial()
		r.noServer()
	})
}

func TestAClientThatSpeaksFirstUsesTheConnectionThatIsThere(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		c := r.dial()
		r.sleep(time.Second)
		s := r.server()
		r.send(c, "GET /")
		r.quiet(s) // detection goes on as usual
		r.send(c, " HTTP/1.1\r\nHost: a\r\n\r\n")
		r.gets(s, request)
		r.noServer()
		r.is(protocol.HTTP1, detect.ReasonBytes)
		r.send(s, response)
		r.gets(c, response)
		r.counted([]string{"meshctl_early", "request_total", "tcp_open_total"},
			`meshctl_early_dials_total{outcome="client_first"} 1`, `request_total 1`,
			`tcp_open_total{peer="src"} 1`, `tcp_open_total{peer="dst"} 1`)
	})
}

func TestAServerThatAnswersHalfARequestIsNotRememberedAsSpeakingFirst(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		c := r.dial()
		r.sleep(time.Second)
		s := r.server()
		r.send(c, "GET /")
		r.send(s, "HTTP/1.1 408 Request Timeout\r\n\r\n")
		r.gets(c, "HTTP/1.1 408 Request Timeout\r\n\r\n")
		r.gets(s, "GET /")
		if r.memory.Has(r.target, time.Now()) {
			t.Error("remembered, although the client had begun")
		}
	})
}

func TestNoEarlyDialWhereTheRouterForbidsItOrItIsOff(t *testing.T) {
	for name, off := range map[string]bool{"router": false, "off": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(c *Config) {
				if off {
					c.EarlyDialAfter = 0
				}
			}, func(t *testing.T, r *rig) {
				r.route.Early = off
				r.memory.Add(r.target, time.Now())
				r.dial()
				r.sleep(10*time.Second - 1)
				r.noServer()
				r.sleep(1)
				r.server()
				r.is(protocol.Opaque, detect.ReasonTimeout)
			})
		})
	}
}

func TestAServerThatClosesTheEarlyConnectionEndsTheClients(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		c := r.dial()
		r.sleep(time.Second)
		s := r.server()
		r.fin(s)
		r.ends(c, nil)
		r.is(protocol.Opaque, detect.ReasonServerEnded)
		r.send(c, "too late?") // half closed: the client may still speak
		r.gets(s, "too late?")
		r.hangUp(c)
		r.ends(s, nil)
		r.gone()
		if r.memory.Len() != 0 {
			t.Error("a server that said nothing is remembered as speaking first")
		}
		r.counted([]string{"meshctl_early"}, `meshctl_early_dials_total{outcome="server_ended"} 1`)
	})
}

func TestAServerThatResetsTheEarlyConnectionResetsTheClients(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		c := r.dial()
		r.sleep(time.Second)
		r.rst(r.server())
		r.ends(c, unix.ECONNRESET)
		r.gone()
		r.counted([]string{"meshctl_early", "tcp_close_total", "outbound_tcp_detect_http_results"},
			`meshctl_early_dials_total{outcome="server_ended"} 1`,
			`outbound_tcp_detect_http_results_total{result="not_http"} 1`,
			`tcp_close_total{errno="ECONNRESET",peer="src"} 1`,
			`tcp_close_total{errno="ECONNRESET",peer="dst"} 1`)
	})
}

func TestAFailedEarlyDialIsNobodysBusinessUntilTheClientSpeaks(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.noTarget()
		c := r.dial()
		r.sleep(9 * time.Second)
		r.quiet(c)
		r.newTarget() // up by now
		r.send(c, request)
		s := r.server()
		r.gets(s, request)
		r.send(s, response)
		r.gets(c, response)
		r.is(protocol.HTTP1, detect.ReasonBytes)
		r.counted([]string{"meshctl_early", "outbound_tcp_errors"}, `meshctl_early_dials_total{outcome="failed"} 1`)
	})
}

func TestAFailedEarlyDialIsRepeatedAtTheDeadline(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.noTarget()
		c := r.dial()
		r.sleep(10*time.Second - 1)
		r.quiet(c)
		r.sleep(1)
		r.ends(c, unix.ECONNRESET) // refused again, and now it is told
		r.gone()
		r.logged("level=WARN", "connecting to the target failed", "connection refused", "reason=timeout")
	})
}

func TestAnEarlyDialThatGetsNoAnswerIsGivenUpInSilence(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.deafTarget()
		c := r.dial()
		r.sleep(250 * time.Millisecond)
		if l := r.flow().link; l != dialing {
			t.Fatalf("link %d: not dialing", l)
		}
		r.sleep(time.Second)
		if l := r.flow().link; l != failed {
			t.Fatalf("link %d: not given up after the connect timeout", l)
		}
		r.quiet(c)
		r.noTarget()
		r.newTarget()
		r.send(c, "EHLO a\r\n")
		r.gets(r.server(), "EHLO a\r\n")
	})
}

func TestAClientThatSpeaksWhileTheEarlyDialIsUnderWayWaitsForIt(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.deafTarget()
		c := r.dial()
		r.sleep(250 * time.Millisecond)
		r.sleep(750 * time.Millisecond)
		r.send(c, request)
		r.sleep(250*time.Millisecond - 1)
		r.quiet(c)
		if ph := r.flow().phase; ph != connecting {
			t.Fatalf("phase %d", ph)
		}
		r.sleep(1)
		r.ends(c, unix.ECONNRESET)
		r.gone()
	})
}

func TestAnEndWithoutBytesOverAnEarlyConnectionPassesOn(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		c := r.dial()
		r.sleep(time.Second)
		s := r.server()
		r.fin(c)
		r.ends(s, nil)
		r.send(s, "farewell") // it may have something to say
		r.gets(c, "farewell")
		r.hangUp(s)
		r.ends(c, nil)
		r.gone()
		r.counted([]string{"meshctl_early", "outbound_tcp_detect_http_results"},
			`meshctl_early_dials_total{outcome="eof"} 1`, `outbound_tcp_detect_http_results_total{result="error"} 1`)
	})
}

func TestAnEndWhileTheEarlyDialIsUnderWayEndsIt(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.deafTarget()
		c := r.dial()
		r.sleep(500 * time.Millisecond)
		r.fin(c)
		r.ends(c, nil)
		r.gone()
	})
}

func TestAnUnknownPeekChangesNothing(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		c := r.dial()
		r.sleep(time.Second)
		s := r.server()
		r.flow().serverReady(conn.Readable) // nothing there
		if r.flow().phase != detecting {
			t.Fatal("decided by an event without bytes")
		}
		r.send(c, request)
		r.gets(s, request)
		if ph := r.flow().observer.State().Phase; ph != l7.Reading {
			t.Errorf("the observer is %s", ph)
		}
	})
}
