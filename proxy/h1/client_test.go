package h1_test

import (
	"strings"
	"testing"

	"github.com/meshctl/meshctl/proxy/h1"
	"github.com/meshctl/meshctl/proxy/message"
)

const empty200 = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

func TestAnExchangeAtATime(t *testing.T) {
	b := newBench(t)
	e := b.dial()
	defer e.wire.close()
	for n := 1; n <= 3; n++ {
		e.ask("GET", "", true)
		if e.Open(&tape{}) != nil {
			t.Fatal("a second stream was opened beside the first")
		}
		if e.Fresh() != (n == 1) {
			t.Errorf("exchange %d: fresh %v", n, e.Fresh())
		}
		e.send(empty200)
		if e.idles != n || len(e.ends) != 0 {
			t.Fatalf("after exchange %d: idle %d times, ended %v", n, e.idles, e.ends)
		}
	}
	e.Close()
	if b.loop.Step(); len(e.ends) != 1 || e.ends[0] != nil {
		t.Errorf("closed: ended %v", e.ends)
	}
	if e.read(); !e.eof {
		t.Error("the server sees no end")
	}
}

func TestAServerThatEndsAnIdleConnection(t *testing.T) {
	for _, v := range []struct {
		name string
		do   func(*endpoint)
		err  bool
	}{
		{"with a FIN", func(e *endpoint) { e.closeWrite() }, false},
		{"with a response to nothing", func(e *endpoint) { e.send("HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n") }, true},
	} {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t)
			e := b.dial()
			defer e.wire.close()
			e.ask("GET", "", true)
			e.send(empty200)
			v.do(e)
			if b.loop.Step(); len(e.ends) != 1 || (e.ends[0] != nil) != v.err {
				t.Fatalf("ended %v", e.ends)
			}
			if e.Open(e.tape) != nil {
				t.Error("an ended connection can be used")
			}
		})
	}
}

func TestWhatTheMiddleLearnsOfALostConnection(t *testing.T) {
	for _, v := range []struct {
		name  string
		used  bool // had carried an exchange before
		do    func(b *bench, e *endpoint)
		want  string
		stale bool
	}{
		{"new, no answer", false, func(_ *bench, e *endpoint) { e.ask("GET", "", true); e.closeWrite() }, "aborted 6\n", false},
		{"reused, no answer", true, func(_ *bench, e *endpoint) { e.ask("GET", "", true); e.closeWrite() }, "aborted 6\n", true},
		{"reused, the answer had begun", true, func(_ *bench, e *endpoint) { e.ask("GET", "", true); e.send("HTT"); e.closeWrite() }, "aborted 6\n", false},
		{"closed by the server just before", true, func(b *bench, e *endpoint) {
			e.quit()
			e.ask("GET", "", true)
			b.loop.Step()
		}, "aborted 2\n", true},
		{"a response that came before its request", true, func(b *bench, e *endpoint) {
			e.sendQuietly(empty200)
			e.ask("GET", "", true)
			b.loop.Step()
		}, "aborted 2\n", true},
	} {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t)
			e := b.dial()
			if v.used {
				e.ask("GET", "", true)
				e.send(empty200)
				e.tape.log.Reset()
			}
			v.do(b, e)
			if got := e.tape.text(); !strings.HasSuffix(got, v.want) || strings.Contains(got, "200") {
				t.Errorf("heard %q, want %q", got, v.want)
			}
			if e.Stale() != v.stale || len(e.ends) != 1 {
				t.Errorf("stale %v, want %v; %d ends", e.Stale(), v.stale, len(e.ends))
			}
			e.wire.close()
		})
	}
}

func TestAnEarlyResponseIsReadThoughTheRequestCannotBeSent(t *testing.T) {
	b := newBench(t)
	e := b.dial()
	s := e.ask("PUT", "", false)
	e.read()
	e.sendQuietly("HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno")
	e.wire.close() // what is sent from here on meets EPIPE
	for range 3 {
		s.SendData(make([]byte, 10_000), false)
		b.loop.Step()
	}
	if got := e.tape.text(); !strings.HasSuffix(got, "\"no\"\nend\n") || len(e.ends) != 1 {
		t.Errorf("heard %q, %d ends", got, len(e.ends))
	}
}

func TestAnEarlyResponseEndsAConnectionThatHasNotTakenItsRequest(t *testing.T) {
	b := newBench(t)
	e := b.dial()
	s := e.ask("PUT", "", false)
	e.send(empty200)
	s.SendData([]byte("late"), true)
	if b.loop.Step(); e.idles != 0 || len(e.ends) != 1 {
		t.Errorf("idle %d times, %d ends", e.idles, len(e.ends))
	}
	if got := e.read(); strings.Contains(got, "late") {
		t.Errorf("the server got %q", got)
	}
	e.wire.close()
}

func TestAnAbortedRequestIsNeverEndedCleanly(t *testing.T) {
	b := newBench(t)
	e := b.dial()
	s := e.ask("PUT", "", false)
	s.SendData([]byte("part"), false)
	b.loop.Step()
	s.Abort(message.Cancel)
	b.loop.Step()
	if got := e.read(); strings.Contains(got, "0\r\n\r\n") || len(e.ends) != 1 {
		t.Errorf("the server got %q, %d ends", got, len(e.ends))
	}
	if got := e.tape.text(); got != "" {
		t.Errorf("the middle heard %q after it had given up", got)
	}
	e.wire.close()
}

func TestWhatIsSentBeforeTheAnswerToCONNECTWaitsForIt(t *testing.T) {
	for _, v := range []struct {
		name, answer string
		early        bool
	}{
		{"granted", "HTTP/1.1 200 OK\r\n\r\n", true},
		{"refused", "HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n", false},
	} {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t)
			e := b.dial()
			s := e.ask("CONNECT", "", false)
			s.SendData([]byte("early"), true)
			if e.read(); strings.Contains(e.got.String(), "early") || s.Pending() != 5 {
				t.Fatalf("before the answer the server got %q, %d bytes pending", e.got.String(), s.Pending())
			}
			e.send(v.answer)
			if e.read(); strings.HasSuffix(e.got.String(), "early") != v.early || v.early && !e.eof {
				t.Errorf("the server got %q, end %v", e.got.String(), e.eof)
			}
			e.wire.close()
			if b.loop.Step(); len(e.ends) != 1 {
				t.Errorf("%d ends", len(e.ends))
			}
		})
	}
}

func TestAClientTunnelPassesEachFIN(t *testing.T) {
	b := newBench(t)
	e := b.dial()
	s := e.ask("GET", "upgrade=x", true)
	e.send("HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhello")
	s.SendData([]byte("up"), true)
	if got := e.read(); !strings.HasSuffix(got, "\r\n\r\nup") || !e.eof {
		t.Fatalf("the server got %q, end %v", got, e.eof)
	}
	e.send(" again")
	e.closeWrite()
	if b.loop.Step(); !strings.HasSuffix(e.tape.text(), "\"hello again\"\nend\n") || len(e.ends) != 1 || e.idles != 0 {
		t.Errorf("heard %q, %d ends, idle %d times", e.tape.text(), len(e.ends), e.idles)
	}
	e.wire.close()
}

func TestAPanicOfTheMiddleEndsTheConnectionToTheServer(t *testing.T) {
	b := newBench(t)
	e := b.dial()
	e.tape.onHead = func(message.Stream, *message.Head, bool) { panic("odd") }
	e.ask("GET", "", true)
	e.send(empty200)
	if len(e.ends) != 1 || e.idles != 0 {
		t.Fatalf("ended %v, idle %d times", e.ends, e.idles)
	}
	if _, ok := e.ends[0].(*h1.Panic); !ok {
		t.Errorf("ended %v", e.ends[0])
	}
	e.wire.close()
}

func TestAPoolHearsAtOnceOfAnIdleConnectionThatEnded(t *testing.T) {
	b := newBench(t)
	e := b.dial()
	e.ask("GET", "", true)
	e.send(empty200)
	if e.Close(); len(e.ends) != 1 {
		t.Error("Close returned before ended was called")
	}
	if b.loop.Step(); len(e.ends) != 1 {
		t.Errorf("%d ends", len(e.ends))
	}
	e.wire.close()
}
