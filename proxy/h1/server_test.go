package h1_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/proxy/h1"
	"github.com/meshctl/meshctl/proxy/message"
)

// head is a response's head.
func head(status int, length int64, fields ...string) *message.Head {
	h := &message.Head{Status: status, Length: length}
	for i := 0; i < len(fields); i += 2 {
		h.Add(fields[i], fields[i+1])
	}
	return h
}

func TestAResponseIsFramedForItsClient(t *testing.T) {
	const get11, get10, keep10 = "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
	hi := func(h *message.Head) func(message.Stream) {
		return func(s message.Stream) { s.SendHead(h, false); s.SendData([]byte("hi"), true) }
	}
	none := func(h *message.Head) func(message.Stream) {
		return func(s message.Stream) { s.SendHead(h, true) }
	}
	for _, v := range []struct {
		name, request string
		send          func(message.Stream)
		want          string
		closed        bool
	}{
		{"a length", get11, hi(head(200, 2, "X", "1", "y", "2")), "HTTP/1.1 200 OK\r\nX: 1\r\ny: 2\r\nContent-Length: 2\r\n\r\nhi", false},
		{"no length", get11, hi(head(200, message.Unknown)), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", false},
		{"no length in HTTP/1.0", get10, hi(head(200, message.Unknown)), "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhi", true},
		{"no length in HTTP/1.0 that would keep", keep10, hi(head(200, message.Unknown)), "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhi", true},
		{"a length in HTTP/1.0", get10, hi(head(200, 2)), "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi", true},
		{"a length in HTTP/1.0 that keeps", keep10, hi(head(200, 2)), "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nhi", false},
		{"nothing", get11, none(head(404, 0)), "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", false},
		{"nothing of unknown length", get11, none(head(200, message.Unknown)), "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false},
		{"a phrase", get11, none(&message.Head{Status: 200, Phrase: []byte("Fine")}), "HTTP/1.1 200 Fine\r\nContent-Length: 0\r\n\r\n", false},
		{"a status without a phrase", get11, none(head(599, 0)), "HTTP/1.1 599 \r\nContent-Length: 0\r\n\r\n", false},
		{"204", get11, none(head(204, 0)), "HTTP/1.1 204 No Content\r\n\r\n", false},
		{"304", get11, none(head(304, 7)), "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", false},
		{"HEAD", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", none(head(200, 7)), "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", false},
		{"HEAD without a length", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", none(head(200, message.Unknown)), "HTTP/1.1 200 OK\r\n\r\n", false},
		{"a client that closes", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", none(head(200, 0)), "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", true},
		{"a middle that closes", get11, none(head(502, 0, "connection", "close")), "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", true},
		{"interim", get11, func(s message.Stream) {
			s.SendHead(head(103, 0, "Link", "a"), false)
			s.SendHead(head(200, 0), true)
		}, "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false},
		{"interim in HTTP/1.0", get10, func(s message.Stream) {
			s.SendHead(head(100, 0), false)
			s.SendHead(head(200, 0), true)
		}, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", true},
		{"trailers", get11, func(s message.Stream) {
			s.SendHead(head(200, message.Unknown), false)
			s.SendData([]byte("hi"), false)
			s.SendTrailers(head(0, 0, "grpc-status", "0"))
		}, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\ngrpc-status: 0\r\n\r\n", false},
		{"trailers behind a length are dropped", get11, func(s message.Stream) {
			s.SendHead(head(200, 2), false)
			s.SendData([]byte("hi"), false)
			s.SendTrailers(head(0, 0, "grpc-status", "0"))
		}, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", false},
		{"framing fields of the middle's are not written", get11, none(head(200, 0, "content-length", "9", "transfer-encoding", "x", "keep-alive", "y")), "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false},
		{"LF in a value", get11, none(head(200, 0, "x", "a\nb")), "", true},
		{"more than the length", get11, func(s message.Stream) {
			s.SendHead(head(200, 1), false)
			s.SendData([]byte("hi"), true)
		}, "", true},
		{"less than the length", get11, hi(head(200, 3)), "", true},
		{"data before a head", get11, func(s message.Stream) { s.SendData([]byte("hi"), true) }, "", true},
		{"101 that nobody asked for", get11, none(head(101, 0)), "", true},
		{"a body given up", get11, func(s message.Stream) {
			s.SendHead(head(200, 3), false)
			s.SendData([]byte("hi"), false)
			s.Abort(message.Closed)
		}, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi", true},
		{"given up before the head", get11, func(s message.Stream) { s.Abort(message.Closed) }, "", true},
	} {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t)
			w, s, ends := b.serve(h1.Config{}, &tape{onEnd: v.send})
			defer w.close()
			w.send(v.request)
			if diff := cmp.Diff(v.want, w.read()); diff != "" {
				t.Errorf("the client got (-want +got):\n%s", diff)
			}
			if closed := w.eof || w.err != nil; closed != v.closed || v.closed == s.Idle() {
				t.Errorf("closed %v, idle %v, want closed %v", closed, s.Idle(), v.closed)
			}
			if w.close(); len(*ends) != 1 {
				t.Errorf("ended was called %d times", len(*ends))
			}
		})
	}
}

func TestARequestBehindAnotherWaitsForItsResponse(t *testing.T) {
	b := newBench(t)
	r := &tape{}
	w, _, _ := b.serve(h1.Config{}, r)
	defer w.close()
	w.send(get("x: 1\r\n") + get("x: 2\r\n"))
	w.send(get("x: 3\r\n"))
	for _, n := range []string{"1", "2", "3"} {
		if got := r.text(); strings.Count(got, "GET") != 1 || !strings.Contains(got, "[x="+n+"]") {
			t.Fatalf("before response %s the middle had heard %q", n, got)
		}
		r.log.Reset()
		answer(r.stream)
		if got := w.take(); got != "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" {
			t.Fatalf("the client got %q", got)
		}
	}
}

func TestPipelinedRequestsOfAClientThatDoesNotReadWait(t *testing.T) {
	b := newBench(t)
	requests := 0
	var s *h1.Server
	r := &tape{onEnd: func(m message.Stream) {
		requests++
		m.SendHead(head(200, 4000), false)
		m.SendData(make([]byte, 4000), true)
	}}
	w, s, _ := b.serve(h1.Config{}, r)
	defer w.close()
	const total = 1000
	w.send(strings.Repeat(get(""), total))
	if held := s.Pending(); held > message.HighWater+5000 {
		t.Errorf("%d bytes of responses wait for the client", held)
	}
	if requests > 200 {
		t.Errorf("%d requests were taken from a client that reads nothing", requests)
	}
	for range 5000 {
		if w.take(); requests == total {
			return
		}
	}
	t.Errorf("only %d of %d requests were served once the client read", requests, total)
}

func TestAnEarlyResponseEndsTheConnectionAfterIt(t *testing.T) {
	b := newBench(t)
	r := &tape{onHead: func(s message.Stream, _ *message.Head, _ bool) { s.SendHead(head(413, 0), true) }}
	w, _, ends := b.serve(h1.Config{}, r)
	w.send(put("Content-Length: 1000000\r\n", strings.Repeat("x", 1000)))
	if got, want := w.read(), "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"; got != want || !w.eof {
		t.Errorf("the client got %q, end %v", got, w.eof)
	}
	w.send(strings.Repeat("y", 300_000)) // is read and dropped: no RST may overtake the response
	if got := r.text(); strings.Contains(got, `"x`) || w.err != nil {
		t.Errorf("the middle heard %q, the client %v", got, w.err)
	}
	if w.close(); len(*ends) != 1 || (*ends)[0] != nil {
		t.Errorf("ended: %v", *ends)
	}
}

func TestABodyThatIsRefusedAfterItsResponseBeganCutsTheResponse(t *testing.T) {
	b := newBench(t)
	r := &tape{onHead: func(s message.Stream, _ *message.Head, _ bool) { s.SendHead(head(200, message.Unknown), false) }}
	w, _, ends := b.serve(h1.Config{}, r)
	w.send(put("Transfer-Encoding: chunked\r\n", ""))
	w.send("x\r\n")
	if got := w.read(); strings.Count(got, "HTTP/1.1") != 1 || strings.Contains(got, "0\r\n\r\n") {
		t.Errorf("the client got %q", got)
	}
	var refusal *h1.Refusal
	if len(*ends) != 1 || !errors.As((*ends)[0], &refusal) || refusal.Status != 400 {
		t.Errorf("ended: %v", *ends)
	}
	if got := r.text(); !strings.HasSuffix(got, "aborted 4\n") {
		t.Errorf("the middle heard %q", got)
	}
}

func TestARefusalCanBeReadByAClientThatGoesOnSending(t *testing.T) {
	b := newBench(t)
	w, _, _ := b.serve(h1.Config{}, &tape{})
	w.send("GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("a", 1<<20) + "\r\n\r\n")
	got := w.read()
	want := "HTTP/1.1 431 Request Header Fields Too Large\r\nl5d-proxy-error: head too large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
	if got != want || !w.eof || w.err != nil {
		t.Errorf("the client got %q, end %v, %v", got, w.eof, w.err)
	}
	w.close()
}

func TestAClientThatIsGoneAbortsItsRequest(t *testing.T) {
	for _, v := range []struct {
		name, sent string
		half       bool
		leave      func(*wire)
		want       string
	}{
		{"closed while it waits", get(""), false, (*wire).close, "aborted 6"},
		{"FIN while it waits", get(""), false, (*wire).closeWrite, "aborted 6"},
		{"FIN behind the request at once", "", false, func(w *wire) { w.sendQuietly(get("")); w.closeWrite() }, "aborted 6"},
		{"FIN within the body", put("Content-Length: 5\r\n", "ab"), true, (*wire).closeWrite, "aborted 6"},
		{"FIN within chunks", put("Transfer-Encoding: chunked\r\n", "2\r\nab\r\n"), false, (*wire).closeWrite, "aborted 6"},
		{"closed while it waits, half-close allowed", get(""), true, (*wire).close, "aborted 6"},
		{"FIN while it waits, half-close allowed", get(""), true, (*wire).closeWrite, ""},
	} {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t)
			r := &tape{}
			w, _, ends := b.serve(h1.Config{HalfClose: v.half}, r)
			w.send(v.sent)
			v.leave(w)
			b.loop.Step()
			if got := r.text(); (v.want != "") != strings.Contains(got, "aborted 6\n") || (v.want != "") != (len(*ends) == 1) {
				t.Fatalf("the middle heard %q, %d ends", got, len(*ends))
			}
			if v.want == "" {
				answer(r.stream)
				if got := w.read(); got != "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" || !w.eof || len(*ends) != 1 {
					t.Errorf("after its FIN the client got %q, end %v", got, w.eof)
				}
			}
		})
	}
}

func TestDrainEndsIdleConnectionsAtOnceAndOthersAfterTheirResponse(t *testing.T) {
	b := newBench(t)
	idle, s, _ := b.serve(h1.Config{}, &tape{})
	s.Drain()
	if idle.read(); !idle.eof {
		t.Error("an idle connection stayed open")
	}
	r := &tape{}
	w, s, ends := b.serve(h1.Config{}, r)
	w.send(get(""))
	s.Drain()
	if w.read(); w.eof {
		t.Fatal("a busy connection was closed")
	}
	answer(r.stream)
	if got := w.read(); got != "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" || !w.eof || len(*ends) != 1 {
		t.Errorf("the client got %q, end %v, %d ends", got, w.eof, len(*ends))
	}
	r = &tape{}
	w, s, _ = b.serve(h1.Config{}, r)
	w.send(get(""))
	r.stream.SendHead(head(200, 2), false)
	s.Drain()
	r.stream.SendData([]byte("hi"), true)
	if got := w.read(); !strings.HasSuffix(got, "hi") || !w.eof {
		t.Errorf("drained within its response, the client got %q, end %v", got, w.eof)
	}
}

func TestATunnelCarriesBytesBothWaysAndEachFIN(t *testing.T) {
	upgrade := "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
	connect := "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"
	for _, v := range []struct {
		name, request string
		head          *message.Head
		want          string
	}{
		{"upgrade", upgrade, &message.Head{Status: 101, Upgrade: []byte("x")}, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"},
		{"CONNECT", connect, head(200, message.Unknown), "HTTP/1.1 200 OK\r\n\r\n"},
	} {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t)
			r := &tape{}
			w, _, ends := b.serve(h1.Config{}, r)
			w.send(v.request + "early")
			w.send("more")
			if strings.Contains(r.text(), "early") {
				t.Fatal("bytes passed before the server had agreed")
			}
			r.stream.SendHead(v.head, false)
			r.stream.SendData([]byte("down"), false)
			if got := w.take(); got != v.want+"down" {
				t.Fatalf("the client got %q", got)
			}
			w.send("GET / HTTP/1.1\r\n\r\n")
			w.closeWrite()
			if got := r.text(); !strings.HasSuffix(got, "\"earlymoreGET / HTTP/1.1\\r\\n\\r\\n\"\nend\n") {
				t.Fatalf("the middle heard %q", got)
			}
			r.stream.SendData([]byte("last"), false)
			if got := w.take(); got != "last" || w.eof || len(*ends) != 0 {
				t.Fatalf("after its FIN the client got %q, end %v", got, w.eof)
			}
			r.stream.SendData(nil, true)
			if w.read(); !w.eof || len(*ends) != 1 || (*ends)[0] != nil {
				t.Errorf("end %v, ended %v", w.eof, *ends)
			}
		})
	}
}

func TestAServerThatEndsATunnelFirstStillHearsTheClient(t *testing.T) {
	b := newBench(t)
	r := &tape{}
	w, _, ends := b.serve(h1.Config{}, r)
	w.send("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n")
	r.stream.SendHead(head(200, message.Unknown), false)
	r.stream.SendData(nil, true)
	if w.read(); !w.eof {
		t.Fatal("the FIN was not passed on")
	}
	w.send("upload")
	w.close()
	if got := r.text(); !strings.HasSuffix(got, "\"upload\"\nend\n") || len(*ends) != 1 {
		t.Errorf("the middle heard %q, %d ends", got, len(*ends))
	}
}

func TestARefusedTunnelIsAnOrdinaryResponse(t *testing.T) {
	b := newBench(t)
	r := &tape{}
	w, _, _ := b.serve(h1.Config{}, r)
	w.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n" + get("x: 2\r\n"))
	answer(r.stream)
	if w.read(); !strings.Contains(r.text(), "[x=2]") {
		t.Errorf("the request behind a refused upgrade was not read: %q", r.text())
	}
	w.close()
	r = &tape{}
	w, _, _ = b.serve(h1.Config{}, r)
	w.send("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n" + get("x: 2\r\n"))
	r.stream.SendHead(head(403, 0), true)
	if got := w.read(); !strings.Contains(got, "Connection: close") || !w.eof || strings.Contains(r.text(), "[x=2]") {
		t.Errorf("after a refused CONNECT the client got %q, the middle heard %q", got, r.text())
	}
	w.close()
}

func TestTimeoutsOfAConnection(t *testing.T) {
	cfg := h1.Config{HeadTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	for _, v := range []struct {
		name string
		do   func(*wire)
		// gone is when the client sees the end, or zero for not within two minutes.
		gone time.Duration
		want string
	}{
		{"nothing is sent", func(*wire) {}, 10 * time.Second, ""},
		{"a head that does not end", func(w *wire) { w.send("GET / HT") }, 10 * time.Second, "HTTP/1.1 408 "},
		{"a head that trickles", func(w *wire) { w.send("GET / HT"); time.Sleep(6 * time.Second); w.send("TP/1.1\r\n") }, 10 * time.Second, "HTTP/1.1 408 "},
		{"empty lines for ever", func(w *wire) { w.send("\r\n"); time.Sleep(6 * time.Second); w.send("\r\n") }, 10 * time.Second, ""},
		{"idle after a request", func(w *wire) { w.send(get("")) }, time.Minute, "HTTP/1.1 200 "},
		{"a second head that does not end", func(w *wire) { w.send(get("")); w.send("GET") }, 10 * time.Second, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 408 "},
		{"a response that takes its time", func(w *wire) { w.send("SLOW / HTTP/1.1\r\nHost: a\r\n\r\n") }, 0, ""},
	} {
		t.Run(v.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				slow := false
				r := &tape{
					onHead: func(_ message.Stream, h *message.Head, _ bool) { slow = string(h.Method) == "SLOW" },
					onEnd: func(s message.Stream) {
						if !slow {
							answer(s)
						}
					},
				}
				start := time.Now()
				w, _, ends := b.serve(cfg, r)
				v.do(w)
				for !w.eof && time.Since(start) < 2*time.Minute {
					time.Sleep(100 * time.Millisecond)
					w.read()
				}
				took := time.Since(start)
				if v.gone == 0 && w.eof || v.gone != 0 && (took < v.gone || took > v.gone+200*time.Millisecond) {
					t.Errorf("the end came after %v (eof %v), want %v", took, w.eof, v.gone)
				}
				if !strings.HasPrefix(w.read(), v.want) {
					t.Errorf("the client got %q", w.read())
				}
				w.close()
				if time.Sleep(3 * time.Second); len(*ends) != 1 {
					b.loop.Step()
				}
				if len(*ends) != 1 {
					t.Errorf("%d ends", len(*ends))
				}
			})
		})
	}
}

func TestAClientThatDoesNotLeaveAfterTheLastResponseIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		w, _, ends := b.serve(h1.Config{}, &tape{})
		w.send("nonsense\r\n")
		w.read()
		for range 30 {
			w.send("x")
			time.Sleep(100 * time.Millisecond)
			b.loop.Step()
		}
		if len(*ends) != 1 {
			t.Error("the connection is still there after 3 s")
		}
		w.close()
	})
}

func TestDataStopsWhenItIsHeldAndGoesOn(t *testing.T) {
	b := newBench(t)
	r := &tape{}
	w, _, _ := b.serve(h1.Config{}, r)
	w.send(put("Content-Length: 1000000\r\n", "x"))
	r.stream.Hold(true)
	w.sendQuietly(strings.Repeat("y", 50_000))
	b.loop.Step()
	b.loop.Step()
	if got := r.text(); strings.Contains(got, "y") {
		t.Errorf("data came while held: %d bytes", len(got))
	}
	r.stream.Hold(false)
	b.loop.Step()
	if got := strings.Count(r.text(), "y"); got != 50_000 {
		t.Errorf("%d bytes came after the hold", got)
	}
	r.stream.Hold(true)
	w.close()
	if r.stream.Hold(false); b.loop.Step() && !strings.Contains(r.text(), "aborted 6") {
		t.Errorf("the middle did not hear of the client's end")
	}
}

func TestASenderIsToldWhenASlowClientHasReadOn(t *testing.T) {
	b := newBench(t)
	r := &tape{}
	w, s, _ := b.serve(h1.Config{}, r)
	w.send(get(""))
	r.stream.SendHead(head(200, 10<<20), false)
	sent := 0
	for s.Pending() <= message.HighWater {
		r.stream.SendData(make([]byte, 32<<10), false)
		b.loop.Step()
		sent += 32 << 10
	}
	if s.Pending() > message.HighWater+32<<10 || strings.Contains(r.text(), "drained") {
		t.Fatalf("%d bytes pending, heard %q", s.Pending(), r.text())
	}
	got := len(w.take())
	for range 100 {
		got += len(w.take())
	}
	if strings.Count(r.text(), "drained") != 1 || s.Pending() != 0 {
		t.Errorf("heard %q, %d bytes pending", r.text(), s.Pending())
	}
	if want := sent + len("HTTP/1.1 200 OK\r\nContent-Length: 10485760\r\n\r\n"); got != want {
		t.Errorf("the client got %d bytes, want %d", got, want)
	}
	w.close()
}

func TestAPanicEndsItsConnectionOnly(t *testing.T) {
	b := newBench(t)
	r := &tape{onHead: func(message.Stream, *message.Head, bool) { panic("odd") }}
	w, _, ends := b.serve(h1.Config{}, r)
	other := &tape{onEnd: answer}
	w2, _, _ := b.serve(h1.Config{}, other)
	w.send(get(""))
	w.read()
	var p *h1.Panic
	if len(*ends) != 1 || !errors.As((*ends)[0], &p) || !strings.Contains(r.text(), "aborted 5") {
		t.Errorf("ended %v, the middle heard %q", *ends, r.text())
	}
	w2.send(get(""))
	if got := w2.read(); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Errorf("another connection got %q", got)
	}
	w.close()
	w2.close()
}

func TestAClientThatStallsIsGivenUp(t *testing.T) {
	const limit = time.Minute
	for _, v := range []struct {
		name string
		do   func(w *wire, r *tape)
		gone time.Duration // zero: not within five minutes
	}{
		{"a body that stops", func(w *wire, _ *tape) { w.send(put("Content-Length: 5\r\n", "ab")) }, limit},
		{"a body that trickles", func(w *wire, _ *tape) {
			w.send(put("Content-Length: 500\r\n", "ab"))
			for range 10 {
				time.Sleep(40 * time.Second)
				w.send("c")
			}
		}, 400*time.Second + limit},
		{"a body that is held", func(w *wire, r *tape) { w.send(put("Content-Length: 5\r\n", "ab")); r.stream.Hold(true) }, 0},
		{"a response that is not taken", func(w *wire, r *tape) {
			w.send(get(""))
			r.stream.SendHead(head(200, 10<<20), false)
			r.stream.SendData(make([]byte, 5<<20), false)
		}, limit},
		{"a server that thinks", func(w *wire, _ *tape) { w.send(put("Content-Length: 2\r\n", "ab")) }, 0},
		{"a tunnel at rest", func(w *wire, r *tape) {
			w.send("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n")
			r.stream.SendHead(head(200, 0), false)
		}, 0},
	} {
		t.Run(v.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				r := &tape{}
				start := time.Now()
				w, _, _ := b.serve(h1.Config{StallTimeout: limit}, r)
				v.do(w, r)
				for time.Since(start) < 10*time.Minute && !strings.Contains(r.text(), "aborted") {
					time.Sleep(time.Second)
					b.loop.Step()
				}
				took := time.Since(start)
				if v.gone == 0 && took < 10*time.Minute || v.gone != 0 && (took < v.gone || took > v.gone+3*time.Second) {
					t.Errorf("given up after %v, want %v", took, v.gone)
				}
				w.close()
			})
		})
	}
}

// late calls a stream at the end of the round in which it is over.
type late struct{ s message.Stream }

func (l late) Flush()               { l.s.Abort(message.Cancel) }
func (l late) Panicked(any, []byte) {}

func TestALateCallOfAnExchangeDoesNotHitTheNext(t *testing.T) {
	b := newBench(t)
	r := &tape{}
	n := 0
	r.onEnd = func(s message.Stream) {
		answer(s)
		if n++; n == 1 {
			b.loop.FlushSoon(late{s})
		}
	}
	w, _, _ := b.serve(h1.Config{}, r)
	w.send(get("") + get("") + get(""))
	if got := strings.Count(w.read(), "HTTP/1.1 200"); got != 3 || n != 3 {
		t.Errorf("%d responses to %d requests, want 3", got, n)
	}
	w.close()
}
