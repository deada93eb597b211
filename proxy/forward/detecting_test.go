package forward

import (
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/detect"
	"github.com/meshctl/meshctl/proxy/protocol"
)

const (
	request  = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	response = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
	greeting = "220 mail.example ESMTP\r\n"
)

func noEarlyDial(c *Config) { c.EarlyDialAfter = 0 }

func TestADeclaredPortIsDialedAtOnceAndNotLookedAt(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.route.Kind = protocol.Opaque
		c := r.dial()
		s := r.server()
		r.is(protocol.Opaque, detect.ReasonDeclared)
		r.send(s, greeting)
		r.gets(c, greeting)
		r.send(c, request) // HTTP, but nobody counts it
		r.gets(s, request)
		r.counted([]string{"request_total", "outbound_tcp_protocol", "meshctl_detect"},
			`outbound_tcp_protocol_connections_total{protocol="opaq"} 1`,
			`meshctl_detected_protocol_connections_total{detected="smtp"} 1`)
	})
}

func TestTheFirstBytesDecide(t *testing.T) {
	for name, c := range map[string]struct {
		bytes string
		kind  protocol.Kind
	}{
		"HTTP/1": {request, protocol.HTTP1},
		"HTTP/2": {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", protocol.HTTP2},
		"SMTP":   {"EHLO a.example\r\n", protocol.Opaque},
		"Redis":  {"*1\r\n$4\r\nPING\r\n", protocol.Opaque},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				client := r.dial()
				r.noServer()
				r.send(client, c.bytes)
				r.gets(r.server(), c.bytes)
				r.is(c.kind, detect.ReasonBytes)
			})
		})
		t.Run(name+" before the proxy accepts", func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				client := r.connect(r.at)
				if _, err := unix.Write(client, []byte(c.bytes)); err != nil {
					t.Fatal(err)
				}
				r.gets(r.server(), c.bytes)
				r.is(c.kind, detect.ReasonBytes)
			})
		})
	}
}

func TestARequestLineInPiecesIsWaitedForWithoutDialing(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		c := r.dial()
		for _, piece := range []string{"G", "ET / HT", "TP/1.1"} {
			r.send(c, piece)
			r.sleep(3 * time.Second)
			r.noServer() // it has begun to speak: no early dial
		}
		r.send(c, "\r\nHost: a\r\n\r\n")
		s := r.server()
		r.gets(s, request)
		r.is(protocol.HTTP1, detect.ReasonBytes)
		r.send(s, response)
		r.gets(c, response)
		r.counted([]string{"request_total", "response_total"}, `request_total 1`,
			`response_total{classification="success",status_code="200"} 1`)
	})
}

func TestEveryCutOfARequestArrivesWhole(t *testing.T) {
	for cut := 1; cut < len(request); cut++ {
		bubble(t, nil, func(t *testing.T, r *rig) {
			c := r.dial()
			r.send(c, request[:cut])
			r.settle()
			r.send(c, request[cut:])
			s := r.server()
			r.gets(s, request)
			if r.is(protocol.HTTP1, detect.ReasonBytes); t.Failed() {
				t.Fatalf("cut at %d", cut)
			}
		})
	}
}

func TestDetectionEndsExactlyTenSecondsAfterAccept(t *testing.T) {
	for name, c := range map[string]struct {
		sent   string
		set    func(*Config)
		dialed bool // before the deadline
	}{
		"silent, no early dial":   {"", noEarlyDial, false},
		"silent, dialed early":    {"", nil, true},
		"part of a method":        {"G", nil, false},
		"part of a request":       {"POST /some/where HT", nil, false},
		"part of a ClientHello":   {"\x16\x03\x01\x02\x00\x01\x00", nil, false},
		"part of the h2 preface":  {"PRI * HTTP/2.0\r\n", nil, false},
		"empty lines and no more": {"\r\n\r\n", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, c.set, func(t *testing.T, r *rig) {
				client := r.dial()
				var s int
				r.sleep(100 * time.Millisecond)
				r.send(client, c.sent) // does not put the deadline off
				r.sleep(900 * time.Millisecond)
				if c.dialed {
					s = r.server()
				}
				r.sleep(9*time.Second - 1)
				if fl := r.flow(); fl.phase != detecting {
					t.Fatalf("decided early: %s by %s", fl.kind, fl.reason)
				}
				r.noServer()
				r.sleep(1)
				r.is(protocol.Opaque, detect.ReasonTimeout)
				if !c.dialed {
					s = r.server()
				}
				if c.sent != "" {
					r.gets(s, c.sent)
				}
				r.send(s, greeting)
				r.gets(client, greeting)
				r.send(client, "more")
				r.gets(s, "more")
				r.logged("level=INFO", "protocol detection timed out after 10s", "orig_dst="+r.target.String())
				r.counted([]string{"outbound_tcp_detect_http_results", "meshctl_detect_total", "meshctl_early", "meshctl_detecting"},
					append([]string{`meshctl_detect_total{protocol="opaque",reason="timeout"} 1`,
						`outbound_tcp_detect_http_results_total{result="read_timeout"} 1`}, earlyIf(c.dialed, "timeout")...)...)
			})
		})
	}
}

func earlyIf(dialed bool, outcome string) []string {
	if !dialed {
		return nil
	}
	return []string{`meshctl_early_dials_total{outcome="` + outcome + `"} 1`}
}

func TestAClientThatEndsWithoutAByteIsNotDialedFor(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		c := r.dial()
		r.fin(c)
		r.ends(c, nil)
		r.noServer()
		r.gone()
		r.counted([]string{"outbound_tcp_detect_http_results", "meshctl_detect_total", "tcp_close_total", "meshctl_early"},
			`outbound_tcp_detect_http_results_total{result="error"} 1`,
			`meshctl_detect_total{protocol="unknown",reason="eof"} 1`,
			`tcp_close_total{errno="",peer="src"} 1`)
	})
}

func TestAClientThatEndsIsDecidedFromWhatThereIs(t *testing.T) {
	for name, c := range map[string]struct {
		sent   string
		kind   protocol.Kind
		reason detect.Reason
	}{
		"too little":     {"GET / HT", protocol.Opaque, detect.ReasonCutAtEOF},
		"enough":         {"GET /index.html HT", protocol.HTTP1, detect.ReasonPrefixAtEOF},
		"a whole line":   {request, protocol.HTTP1, detect.ReasonBytes},
		"something else": {"hello?", protocol.Opaque, detect.ReasonBytes},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				client := r.dial()
				r.send(client, c.sent)
				r.fin(client)
				s := r.server()
				r.gets(s, c.sent)
				r.ends(s, nil)
				r.is(c.kind, c.reason)
				r.send(s, "the answer") // half closed: the answer still passes
				r.gets(client, "the answer")
				r.hangUp(s)
				r.ends(client, nil)
				r.gone()
			})
		})
	}
}

func TestBytesAndTheirFINInOneGoAreBothSeen(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		c := r.connect(r.at)
		if _, err := unix.Write(c, []byte("GET / HT")); err != nil {
			t.Fatal(err)
		}
		if err := unix.Shutdown(c, unix.SHUT_WR); err != nil {
			t.Fatal(err)
		}
		s := r.server() // no time passes: the FIN is not waited for
		r.gets(s, "GET / HT")
		r.ends(s, nil)
		r.is(protocol.Opaque, detect.ReasonCutAtEOF)
	})
}

func TestAClientThatResetsDuringDetectionEndsIt(t *testing.T) {
	for _, sent := range []string{"", "GE"} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			c := r.dial()
			if sent == "" {
				r.sleep(time.Second) // dialed early by now
			} else {
				r.send(c, sent)
			}
			r.rst(c)
			r.gone()
			if sent == "" {
				r.ends(r.server(), unix.ECONNRESET)
			} else {
				r.noServer()
			}
			if got := r.counts("tcp_close_total"); !strings.Contains(strings.Join(got, ""), `errno="ECONNRESET"`) {
				t.Errorf("closes: %q", got)
			}
			r.sleep(20 * time.Second) // its deadline was cancelled with it
			r.noServer()
			if strings.Contains(r.log.String(), "timed out") {
				t.Error(r.log.String())
			}
		})
	}
}

func TestMoreWaitingThanAllowedIsNotWaitedFor(t *testing.T) {
	bubble(t, func(c *Config) { c.MaxDetecting = 2; c.EarlyDialAfter = 0 }, func(t *testing.T, r *rig) {
		first, second := r.dial(), r.dial()
		r.noServer()
		third := r.dial()
		s := r.server()
		r.is(protocol.Opaque, detect.ReasonCrowded)
		r.send(s, greeting)
		r.gets(third, greeting)
		r.counted([]string{"meshctl_detecting"}, `meshctl_detecting_connections 2`)
		r.hangUp(first) // room for one
		fourth := r.dial()
		r.noServer()
		r.send(fourth, request)
		r.gets(r.server(), request)
		r.is(protocol.HTTP1, detect.ReasonBytes)
		r.hangUp(second)
		r.hangUp(fourth)
		r.hangUp(third)
		r.counted([]string{"meshctl_detecting"})
	})
}

func TestAHelloLargerThanOneReadIsHeldWhole(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		c := r.dial()
		// A handshake record that claims 16 KiB: waited for until it is there.
		head := "\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03"
		body := head + strings.Repeat("r", 16<<10-6)
		for i := 0; i < len(body); i += 4000 {
			r.send(c, body[i:min(i+4000, len(body))])
		}
		r.gets(r.server(), body)
		if k := r.flow().kind; k == protocol.Unknown || k.HTTP() {
			t.Errorf("served as %s", k)
		}
		if r.flow().head != nil {
			t.Error("the head is still held while relaying")
		}
	})
}

// hello is a net.Conn that keeps what a TLS client says first.
type hello struct {
	net.Conn
	said []byte
}

func (h *hello) Write(b []byte) (int, error) {
	h.said = append(h.said, b...)
	return 0, io.EOF
}

func TestTLSIsRelayedWithItsServerNameNoted(t *testing.T) {
	h := &hello{}
	_ = tls.Client(h, &tls.Config{ServerName: "db.example", NextProtos: []string{"h2", "http/1.1"}}).HandshakeContext(t.Context())
	bubble(t, nil, func(t *testing.T, r *rig) {
		c := r.dial()
		half := len(h.said) / 2
		r.send(c, string(h.said[:half]))
		r.sleep(time.Second)
		r.noServer()
		r.send(c, string(h.said[half:]))
		r.gets(r.server(), string(h.said))
		r.is(protocol.TLS, detect.ReasonBytes)
		if d := r.flow().describe(); d.SNI != "db.example" || d.ALPN != "h2,http/1.1" || d.Protocol != "tls" {
			t.Errorf("described as %+v", d)
		}
		r.counted([]string{"outbound_tcp_detect_http_results", "meshctl_detect_total"},
			`outbound_tcp_detect_http_results_total{result="not_http"} 1`, `meshctl_detect_total{protocol="tls",reason="bytes"} 1`)
	})
}

// TestClientsThatNeverEndTheirHelloDoNotTakeAllMemory: each may make the proxy
// hold 64 KiB; all together may not make it hold more than heldMost.
func TestClientsThatNeverEndTheirHelloDoNotTakeAllMemory(t *testing.T) {
	bubble(t, func(c *Config) { c.MaxDetecting = 10_000 }, func(t *testing.T, r *rig) {
		// A ClientHello of almost 64 KiB in four records, of which the end never comes.
		record := "\x16\x03\x01\x3f\xff"
		part := record + "\x01\x00\xff\x00\x03\x03" + strings.Repeat("r", 0x3fff-6)
		for range 2 {
			part += record + strings.Repeat("r", 0x3fff)
		}
		waiting := 0
		for range heldMost/len(part) + 20 {
			c := r.dial()
			r.send(c, part)
			r.until("all of it to be read", func() bool { return r.flow().bytes[0] == uint64(len(part)) })
			if r.flow().phase == detecting {
				waiting++
			}
		}
		if held := r.f.held.Load(); held > heldMost {
			t.Errorf("%d bytes are held", held)
		}
		if want := heldMost / len(part); waiting != want {
			t.Errorf("%d wait, want %d", waiting, want)
		}
		r.is(protocol.Opaque, detect.ReasonCrowded)
		last := r.dial() // what needs no patience is told apart as ever
		r.send(last, request)
		r.is(protocol.HTTP1, detect.ReasonBytes)
		for _, fd := range slices.Clone(r.fds) {
			if fd != r.targetFD {
				r.rst(fd)
			}
		}
		r.gone()
		if held := r.f.held.Load(); held != 0 {
			t.Errorf("%d bytes are held although no connection is open", held)
		}
	})
}
