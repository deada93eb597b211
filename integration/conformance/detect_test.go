package conformance

import (
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/built"
)

const answer = "\x00any answer\xff\r\n"

// play sends an opening through p, checks that the origin gets the same bytes and
// the client the origin's, and returns what the proxy says of the connection and
// how long after connecting the origin was reached.
func (v opening) play(t *testing.T, p *built.Proxy, o *origin, within time.Duration) (built.Connection, time.Duration) {
	t.Helper()
	began := time.Now() // before the proxy's own clock
	c := dial(t, p.In)
	for i, part := range v.parts {
		if i > 0 {
			time.Sleep(min(gap, 200*time.Millisecond/time.Duration(len(v.parts))))
		}
		send(t, c, part)
	}
	s := o.take(t, within)
	took := time.Since(began)
	receive(t, s, strings.Join(v.parts, ""))
	said := p.Connection(t, local(c))
	send(t, s, answer)
	receive(t, c, answer)
	c.CloseWrite()
	receiveEnd(t, s)
	s.Close()
	receiveEnd(t, c)
	return said, took
}

// A wait would last 30 s here, three times as long as the test's patience.
func TestWhatCanBeToldFromTheBytesIsToldAtOnce(t *testing.T) {
	o := listen(t)
	p := built.Start(t, program, o.addr, "--detect-timeout", "30s")
	for _, v := range all(t) {
		t.Run(v.want+" "+v.name, func(t *testing.T) {
			said, _ := v.play(t, p, o, patience)
			if said.Protocol != v.want || said.SNI != v.sni || said.Reason != "bytes" {
				t.Errorf("the connection is %q with SNI %q because of %q, want %q, %q and bytes", said.Protocol, said.SNI, said.Reason, v.want, v.sni)
			}
		})
	}
}

func TestOnAnOpaquePortNothingIsLookedAt(t *testing.T) {
	o := listen(t)
	p := built.Start(t, program, o.addr, "--detect-timeout", "30s", "--opaque-ports", portOf(o))
	for _, v := range append(all(t), undecided(t)...) {
		t.Run(v.name, func(t *testing.T) {
			said, _ := v.play(t, p, o, patience)
			if said.Protocol != "opaque" || said.Reason != "declared" || said.SNI != "" {
				t.Errorf("the connection is %q with SNI %q because of %q, want opaque because declared", said.Protocol, said.SNI, said.Reason)
			}
		})
	}
}

func TestOnAnOpaquePortTheServerIsDialedBeforeAByte(t *testing.T) {
	o := listen(t)
	p := built.Start(t, program, o.addr, "--detect-timeout", "30s", "--early-dial-after", "0", "--opaque-ports", portOf(o))
	c := dial(t, p.In)
	s := o.take(t, patience)
	send(t, s, answer)
	receive(t, c, answer)
}

func TestWhatCannotBeToldWaitsAndThenPasses(t *testing.T) {
	const timeout = time.Second
	for _, v := range undecided(t) {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			o := listen(t)
			p := built.Start(t, program, o.addr, "--detect-timeout", timeout.String())
			said, took := v.play(t, p, o, timeout+patience)
			if said.Protocol != "opaque" || said.Reason != "timeout" {
				t.Errorf("the connection is %q because of %q, want opaque because of the timeout", said.Protocol, said.Reason)
			}
			if took < timeout-100*time.Millisecond { // a loop's clock is that of its round
				t.Errorf("the origin was reached after %s, before the timeout", took)
			}
			if line := "protocol detection timed out after 1s"; !strings.Contains(p.Logged(t), line) {
				t.Errorf("the log has no %q:\n%s", line, p.Logged(t))
			}
		})
	}
}

func TestAServerThatSpeaksFirstIsHeardWithoutWaitingForTheTimeout(t *testing.T) {
	o := listen(t)
	p := built.Start(t, program, o.addr, "--detect-timeout", "30s")
	for _, round := range []string{"the first time", "once it is known"} {
		c := dial(t, p.In)
		s := o.take(t, patience)
		send(t, s, "220 shop.example ready\r\n")
		receive(t, c, "220 shop.example ready\r\n")
		send(t, c, "EHLO till\r\n")
		receive(t, s, "EHLO till\r\n")
		if said := p.Connection(t, local(c)); said.Protocol != "opaque" || said.Reason != "server_first" || said.Detected != "smtp" {
			t.Errorf("%s the connection is %q (%s) because of %q", round, said.Protocol, said.Detected, said.Reason)
		}
		c.Close()
		s.Close()
	}
	if n := p.Sample(t).Sum("meshctl_server_first_targets"); n != 1 {
		t.Errorf("%v targets are known to speak first, want 1", n)
	}
}

func TestWithoutEarlyDialSilenceEndsAtTheTimeout(t *testing.T) {
	t.Parallel()
	o := listen(t)
	p := built.Start(t, program, o.addr, "--detect-timeout", "1s", "--early-dial-after", "0")
	c := dial(t, p.In)
	o.none(t, 700*time.Millisecond)
	s := o.take(t, patience)
	send(t, s, answer)
	receive(t, c, answer)
	if said := p.Connection(t, local(c)); said.Reason != "timeout" {
		t.Errorf("the reason is %q, want timeout", said.Reason)
	}
}

func TestAClientThatLeavesWithoutAByteIsNotDialedFor(t *testing.T) {
	o := listen(t)
	p := built.Start(t, program, o.addr, "--early-dial-after", "0")
	c := dial(t, p.In)
	c.CloseWrite()
	receiveEnd(t, c)
	o.none(t, 200*time.Millisecond)
}

func TestTheEndOfTheClientsSideDecidesFromWhatThereIs(t *testing.T) {
	o := listen(t)
	p := built.Start(t, program, o.addr, "--detect-timeout", "30s")
	for _, v := range []struct{ sent, protocol, reason string }{
		{"GET /st", "opaque", "cut_at_eof"},
		{"GET /stock/7 HTTP", "http/1", "prefix_at_eof"},
		{"PRI * HTTP/2.0\r\n", "http/2", "prefix_at_eof"},
		{"\x16\x03\x01\x02", "opaque", "cut_at_eof"},
	} {
		c := dial(t, p.In)
		send(t, c, v.sent)
		c.CloseWrite()
		s := o.take(t, patience)
		receive(t, s, v.sent)
		receiveEnd(t, s)
		if said := p.Connection(t, local(c)); said.Protocol != v.protocol || said.Reason != v.reason {
			t.Errorf("%q is %q because of %q, want %q because of %q", v.sent, said.Protocol, said.Reason, v.protocol, v.reason)
		}
		send(t, s, answer)
		s.Close()
		receive(t, c, answer)
		receiveEnd(t, c)
	}
}
