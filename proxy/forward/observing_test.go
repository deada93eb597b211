package forward

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/detect"
	"github.com/meshctl/meshctl/proxy/l4"
	"github.com/meshctl/meshctl/proxy/l7"
	"github.com/meshctl/meshctl/proxy/protocol"
)

// spy is the observer of the product, and writes down what it is fed.
type spy struct {
	l7.Observer
	fed    [2][]byte
	ended  [2]int
	aborts int
}

func (s *spy) Feed(from l7.Side, b []byte, now time.Duration) {
	s.fed[from] = append(s.fed[from], b...)
	s.Observer.Feed(from, b, now)
}

func (s *spy) End(from l7.Side, now time.Duration) {
	s.ended[from]++
	s.Observer.End(from, now)
}

func (s *spy) Abort(now time.Duration) {
	s.aborts++
	s.Observer.Abort(now)
}

// spied puts a spy on the connections to come.
func (r *rig) spied() *spy {
	s := &spy{}
	r.f.observer = func(k protocol.Kind, rec l7.Recorder) l7.Observer {
		s.Observer = newObserver(k, rec)
		if s.Observer == nil {
			return nil
		}
		return s
	}
	return s
}

// h2Bytes writes frames of one end of an HTTP/2 connection.
type h2Bytes struct {
	out    bytes.Buffer
	framer *http2.Framer
	block  bytes.Buffer
	enc    *hpack.Encoder
}

func newH2Bytes() *h2Bytes {
	h := &h2Bytes{}
	h.framer = http2.NewFramer(&h.out, nil)
	h.enc = hpack.NewEncoder(&h.block)
	return h
}

func (h *h2Bytes) headers(t *testing.T, stream uint32, end bool, fields ...string) {
	t.Helper()
	h.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		if err := h.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndStream: end, EndHeaders: true, BlockFragment: h.block.Bytes()}); err != nil {
		t.Fatal(err)
	}
}

func (h *h2Bytes) settings(t *testing.T) {
	t.Helper()
	if err := h.framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
}

func (h *h2Bytes) take() string {
	defer h.out.Reset()
	return h.out.String()
}

func (h *h2Bytes) request(t *testing.T, stream uint32) string {
	h.headers(t, stream, true, ":method", "GET", ":scheme", "http", ":path", "/", ":authority", "a")
	return h.take()
}

func (h *h2Bytes) response(t *testing.T, stream uint32) string {
	h.headers(t, stream, true, ":status", "204")
	return h.take()
}

// h2Start connects over HTTP/2 and exchanges settings.
func (r *rig) h2Start(t *testing.T) (c, s int, client, server *h2Bytes) {
	t.Helper()
	client, server = newH2Bytes(), newH2Bytes()
	client.settings(t)
	server.settings(t)
	c = r.dial()
	hello := http2.ClientPreface + client.take()
	r.send(c, hello)
	s = r.server()
	r.gets(s, hello)
	hello = server.take()
	r.send(s, hello)
	r.gets(c, hello)
	return c, s, client, server
}

func TestTheObserverIsFedExactlyTheBytesOfAnHTTP1Connection(t *testing.T) {
	for cut := range request { // the head is read while detecting
		bubble(t, nil, func(t *testing.T, r *rig) {
			spy := r.spied()
			c := r.dial()
			if cut > 0 {
				r.send(c, request[:cut])
			}
			r.send(c, request[cut:])
			s := r.server()
			r.gets(s, request)
			r.send(s, response)
			r.gets(c, response)
			r.send(c, request+request) // pipelined
			r.gets(s, request+request)
			r.send(s, response[:10])
			r.send(s, response[10:]+response)
			r.gets(c, response+response)
			r.fin(c)
			r.ends(s, nil)
			r.hangUp(s)
			r.gone()
			want := [2][]byte{[]byte(strings.Repeat(request, 3)), []byte(strings.Repeat(response, 3))}
			if d := cmp.Diff(want, spy.fed); d != "" {
				t.Errorf("cut at %d: %s", cut, d)
			}
			if spy.ended != [2]int{1, 1} {
				t.Errorf("told of ends %v", spy.ended)
			}
			r.counted([]string{"request_total", "response_total"}, `request_total 3`, `response_total{classification="success",status_code="200"} 3`)
		})
	}
}

func TestTheObserverIsFedExactlyTheBytesOfAnHTTP2Connection(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		spy := r.spied()
		c, s, client, server := r.h2Start(t)
		r.is(protocol.HTTP2, detect.ReasonBytes)
		var up, down string
		for id := uint32(1); id < 20; id += 2 {
			q := client.request(t, id)
			r.send(c, q[:len(q)/2])
			r.send(c, q[len(q)/2:])
			r.gets(s, q)
			a := server.response(t, id)
			r.send(s, a)
			r.gets(c, a)
			up, down = up+q, down+a
		}
		if !strings.HasSuffix(string(spy.fed[l7.FromClient]), up) || !strings.HasPrefix(string(spy.fed[l7.FromClient]), http2.ClientPreface) ||
			!strings.HasSuffix(string(spy.fed[l7.FromServer]), down) {
			t.Error("fed something else than what passed")
		}
		r.counted([]string{"request_total", "response_total"}, `request_total 10`, `response_total{classification="success",status_code="204"} 10`)
	})
}

func TestLatencyIsFromTheRequestToTheFirstByteOfTheBody(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		c := r.dial()
		r.send(c, request)
		s := r.server()
		r.gets(s, request)
		r.sleep(30 * time.Millisecond)
		r.send(s, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nh")
		r.sleep(time.Second) // not part of it
		r.send(s, "i")
		r.gets(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
		r.counted([]string{"response_latency_ms_sum", "response_latency_ms_count"},
			`response_latency_ms_sum{status_code="200"} 30`, `response_latency_ms_count{status_code="200"} 1`)
	})
}

func TestACutExchangeIsAFailure(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		spy := r.spied()
		c := r.dial()
		r.send(c, request)
		s := r.server()
		r.gets(s, request)
		r.send(s, response[:len(response)-1])
		r.gets(c, response[:len(response)-1])
		r.rst(s)
		r.ends(c, unix.ECONNRESET)
		r.gone()
		if spy.aborts != 1 {
			t.Errorf("aborted %d times", spy.aborts)
		}
		r.counted([]string{"request_total", "response_total"}, `request_total 1`,
			`response_total{classification="failure",error="aborted",status_code="200"} 1`)
	})
}

func TestAnObserverThatLosesItsWayIsCountedOnceAndTrafficGoesOn(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		c := r.dial()
		r.send(c, request)
		s := r.server()
		r.gets(s, request)
		for range 5 {
			r.send(s, "this is no response\r\n")
			r.gets(c, "this is no response\r\n")
			r.send(c, "nor this a request\r\n")
			r.gets(s, "nor this a request\r\n")
		}
		r.counted([]string{"meshctl_observer_lost"}, `meshctl_observer_lost_total{protocol="http/1",reason="malformed"} 1`)
		if got := r.flow().describe().State; got != "lost" {
			t.Errorf("/connections says %q", got)
		}
		r.fin(c)
		r.ends(s, nil)
		r.hangUp(s)
		r.gone()
	})
}

func TestAfterAnUpgradeTheBytesAreNobodysBusiness(t *testing.T) {
	bubble(t, func(c *Config) { c.IdleTimeout = time.Minute }, func(t *testing.T, r *rig) {
		spy := r.spied()
		c := r.dial()
		q := "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
		r.send(c, q)
		s := r.server()
		r.gets(s, q)
		a := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
		r.send(s, a)
		r.gets(c, a)
		if got := r.flow().describe().State; got != "tunnel" {
			t.Errorf("/connections says %q", got)
		}
		fed := len(spy.fed[0]) + len(spy.fed[1])
		for range 3 {
			r.send(c, "frame")
			r.gets(s, "frame")
			r.sleep(10 * time.Minute) // an idle WebSocket lives on
		}
		if now := len(spy.fed[0]) + len(spy.fed[1]); now != fed {
			t.Error("a tunnel's bytes are still parsed")
		}
		if !r.flow().Splice(l4.Client) {
			t.Error("a tunnel may not be spliced")
		}
	})
}

func TestObservedBytesAreNotSpliced(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		spy := r.spied()
		c := r.dial()
		const size = 600_000
		head := "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 600000\r\n\r\n"
		r.send(c, head)
		s := r.server()
		r.gets(s, head)
		body := strings.Repeat("0123456789", size/10)
		sent, got := 0, 0
		buf := make([]byte, 64<<10)
		r.until("the body", func() bool {
			n, _ := unix.Write(c, []byte(body[sent:]))
			sent += max(n, 0)
			n, _ = unix.Read(s, buf)
			got += max(n, 0)
			return got == size
		})
		if fed := len(spy.fed[l7.FromClient]); fed != len(head)+size {
			t.Errorf("the observer saw %d of %d bytes", fed, len(head)+size)
		}
	})
}

func TestAConnectionIsDescribedAsItIs(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		c := r.dial()
		got := r.flow().describe()
		if got.State != "detecting" || got.Protocol != "unknown" || got.Reason != "unknown" || got.Target != r.target || !got.Client.IsValid() {
			t.Errorf("while detecting: %+v", got)
		}
		r.sleep(100 * time.Millisecond)
		r.send(c, request)
		s := r.server()
		r.gets(s, request)
		r.send(s, response)
		r.gets(c, response)
		r.sleep(400 * time.Millisecond)
		got = r.flow().describe()
		got.Client = got.Target
		want := got
		want.Direction, want.Protocol, want.Reason, want.State = "outbound", "http/1", "bytes", "relaying"
		want.Detected, want.BytesIn, want.BytesOut, want.Age = "", uint64(len(request)), uint64(len(response)), 500*time.Millisecond
		if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{})); d != "" {
			t.Error(d)
		}
		r.send(c, request) // and an opaque one, connecting
		r.deafTarget()
		opaquePort(r)
		r.dial()
		if got := r.flow().describe(); got.State != "connecting" || got.Protocol != "opaque" || got.Reason != "declared" {
			t.Errorf("while connecting: %+v", got)
		}
	})
}
