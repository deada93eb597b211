package l7

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2End writes one side of an HTTP/2 conversation with x/net's framer and
// encoder.
type h2End struct {
	out    bytes.Buffer
	framer *http2.Framer
	block  bytes.Buffer
	enc    *hpack.Encoder
}

func newH2End() *h2End {
	e := &h2End{}
	e.framer = http2.NewFramer(&e.out, nil)
	e.framer.AllowIllegalWrites = true
	e.enc = hpack.NewEncoder(&e.block)
	return e
}

// fields encodes pairs of names and values.
func (e *h2End) fields(pairs ...string) []byte {
	e.block.Reset()
	for i := 0; i < len(pairs); i += 2 {
		if err := e.enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]}); err != nil {
			panic(err)
		}
	}
	return bytes.Clone(e.block.Bytes())
}

// headers writes HEADERS.
func (e *h2End) headers(id uint32, end bool, pairs ...string) {
	must(e.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndStream: end, EndHeaders: true, BlockFragment: e.fields(pairs...)}))
}

func (e *h2End) data(id uint32, end bool, text string) {
	must(e.framer.WriteData(id, end, []byte(text)))
}
func (e *h2End) reset(id uint32, code http2.ErrCode) { must(e.framer.WriteRSTStream(id, code)) }

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// h2Script records a conversation of two ends.
type h2Script struct {
	talk           talk
	client, server *h2End
}

// newH2Script begins with the prefaces of both ends.
func newH2Script() *h2Script {
	x := &h2Script{client: newH2End(), server: newH2End()}
	x.client.out.WriteString(clientPreface)
	must(x.client.framer.WriteSettings())
	must(x.server.framer.WriteSettings())
	must(x.server.framer.WriteSettingsAck())
	x.step()
	return x
}

// step ends a step: what the client has written comes first.
func (x *h2Script) step() {
	if x.client.out.Len() > 0 {
		x.talk = append(x.talk, c(x.client.out.String()))
		x.client.out.Reset()
	}
	if x.server.out.Len() > 0 {
		x.talk = append(x.talk, s(x.server.out.String()))
		x.server.out.Reset()
	}
}

func (x *h2Script) then(e ...said) {
	x.step()
	x.talk = append(x.talk, e...)
}

var (
	getFields  = []string{":method", "GET", ":scheme", "http", ":path", "/", ":authority", "svc.example"}
	callFields = []string{":method", "POST", ":scheme", "http", ":path", "/t.Up/Send", ":authority", "svc.example", "content-type", "application/grpc", "te", "trailers"}
	grpcHead   = []string{":status", "200", "content-type", "application/grpc"}
)

func TestHTTP2(t *testing.T) {
	for _, tt := range []struct {
		name  string
		play  func(x *h2Script, cl, sv *h2End)
		want  string
		state State
		busy  bool
	}{
		{"a request and its response", func(x *h2Script, cl, sv *h2End) {
			cl.headers(1, true, getFields...)
			sv.headers(1, false, ":status", "200", "content-length", "2")
			sv.data(1, true, "ok")
		}, lines("> GET", "< GET 200 success"), State{}, false},
		{"a response that is a head only", func(x *h2Script, cl, sv *h2End) {
			cl.headers(1, true, getFields...)
			sv.headers(1, true, ":status", "503")
		}, lines("> GET", "< GET 503 failure"), State{}, false},
		{"no stream", func(x *h2Script, cl, sv *h2End) {}, "", State{}, false},
		{"a request that waits", func(x *h2Script, cl, sv *h2End) {
			cl.headers(1, true, getFields...)
		}, lines("> GET"), State{}, true},
		{"a request whose head is not over", func(x *h2Script, cl, sv *h2End) {
			must(cl.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true, BlockFragment: cl.fields(getFields...)}))
		}, "", State{}, true},
		{"streams that end in another order", func(x *h2Script, cl, sv *h2End) {
			for id := uint32(1); id < 200; id += 2 {
				cl.headers(id, true, ":method", "GET", ":path", fmt.Sprint("/", id))
			}
			x.step()
			for id := uint32(199); id < 200; id -= 2 {
				sv.headers(id, true, ":status", fmt.Sprint(200+id))
			}
		}, lines(strings.Repeat("> GET\n", 99)+"> GET", countdown(399, 201)), State{}, false},
		{"PUT with trailers", func(x *h2Script, cl, sv *h2End) {
			cl.headers(1, false, ":method", "PUT", ":path", "/")
			cl.data(1, false, "body")
			cl.headers(1, true, "x-sum", "1")
			sv.headers(1, false, ":status", "200")
			sv.data(1, false, "body")
			sv.headers(1, true, "x-sum", "2")
		}, lines("> PUT", "< PUT 200 success"), State{}, false},
		{"informational responses", func(x *h2Script, cl, sv *h2End) {
			cl.headers(1, true, getFields...)
			sv.headers(1, false, ":status", "103", "link", "x")
			sv.headers(1, false, ":status", "100")
			sv.headers(1, true, ":status", "404")
		}, lines("> GET", "< GET 404 success"), State{}, false},
		{"padding, priority and CONTINUATION", func(x *h2Script, cl, sv *h2End) {
			b := cl.fields(getFields...)
			must(cl.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, PadLength: 7, BlockFragment: b[:2], Priority: http2.PriorityParam{Weight: 3}}))
			must(cl.framer.WriteContinuation(1, false, b[2:3]))
			must(cl.framer.WriteContinuation(1, true, b[3:]))
			must(cl.framer.WriteDataPadded(1, true, []byte("x"), make([]byte, 200)))
			sv.headers(1, false, ":status", "200")
			must(sv.framer.WriteDataPadded(1, true, nil, make([]byte, 9)))
		}, lines("> GET", "< GET 200 success"), State{}, false},
		{"frames that mean nothing to an observer", func(x *h2Script, cl, sv *h2End) {
			must(cl.framer.WritePriority(3, http2.PriorityParam{StreamDep: 1}))
			must(cl.framer.WritePing(false, [8]byte{1}))
			must(sv.framer.WriteWindowUpdate(0, 99))
			must(sv.framer.WriteRawFrame(0xfa, 0xff, 7, []byte("grease")))
			must(sv.framer.WriteGoAway(1<<31-1, http2.ErrCodeNo, []byte("soon")))
			cl.headers(1, true, getFields...)
			sv.headers(1, true, ":status", "200")
			must(sv.framer.WriteGoAway(1, http2.ErrCodeNo, bytes.Repeat([]byte("x"), 5000)))
		}, lines("> GET", "< GET 200 success"), State{}, false},
		{"GOAWAY refuses what came after", func(x *h2Script, cl, sv *h2End) {
			cl.headers(1, true, getFields...)
			cl.headers(3, true, getFields...)
			cl.headers(5, false, getFields...)
			x.step()
			must(sv.framer.WriteGoAway(1, http2.ErrCodeNo, nil))
			x.step()
			cl.headers(7, true, getFields...)
			sv.headers(1, true, ":status", "200")
		}, lines("> GET", "> GET", "> GET", "> GET", "< GET 0 failure refused", "< GET 0 failure refused", "< GET 0 failure refused", "< GET 200 success"), State{}, false},
		{"promises that are none", func(x *h2Script, cl, sv *h2End) {
			must(cl.framer.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, EndHeaders: true, BlockFragment: cl.fields(getFields...)}))
			must(sv.framer.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 3, EndHeaders: true, BlockFragment: sv.fields(getFields...)}))
			must(sv.framer.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 0, EndHeaders: true, BlockFragment: sv.fields(getFields...)}))
			must(sv.framer.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 4, EndHeaders: true, BlockFragment: sv.fields(getFields...)}))
			must(sv.framer.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 4, EndHeaders: true, BlockFragment: sv.fields(getFields...)}))
			sv.headers(4, true, ":status", "200")
		}, lines("> GET", "< GET 200 success"), State{}, false},
		{"GOAWAY says where it begins to refuse", func(x *h2Script, cl, sv *h2End) {
			must(sv.framer.WriteGoAway(9, http2.ErrCodeNo, nil))
			must(sv.framer.WriteGoAway(2, http2.ErrCodeNo, nil))
			must(sv.framer.WriteGoAway(5, http2.ErrCodeNo, nil)) // too late to take that back
			x.step()
			cl.headers(1, true, getFields...)
			cl.headers(3, true, ":method", "PUT")
			x.step()
			sv.headers(1, true, ":status", "200")
		}, lines("> GET", "> PUT", "< PUT 0 failure refused", "< GET 200 success"), State{}, false},
		{"GOAWAY takes the stream it names", func(x *h2Script, cl, sv *h2End) {
			must(sv.framer.WriteGoAway(5, http2.ErrCodeNo, nil))
			x.step()
			cl.headers(5, true, getFields...)
			x.step()
			sv.headers(5, true, ":status", "200")
		}, lines("> GET", "< GET 200 success"), State{}, false},
		{"a client's GOAWAY refuses nothing", func(x *h2Script, cl, sv *h2End) {
			cl.headers(1, true, getFields...)
			must(cl.framer.WriteGoAway(0, http2.ErrCodeNo, nil))
			sv.headers(1, true, ":status", "200")
		}, lines("> GET", "< GET 200 success"), State{}, false},
		{"headers of streams that are closed or were never open", func(x *h2Script, cl, sv *h2End) {
			sv.headers(7, true, ":status", "200")
			cl.headers(2, true, getFields...)
			cl.headers(5, true, getFields...)
			sv.headers(5, true, ":status", "200")
			x.step()
			cl.headers(5, true, getFields...)
			cl.headers(3, true, getFields...)
		}, lines("> GET", "< GET 200 success"), State{}, false},
		{"half a HEADERS frame", func(x *h2Script, cl, sv *h2End) {
			cl.headers(1, true, getFields...)
			cl.out.Truncate(cl.out.Len() - 1)
		}, "", State{}, true},
		{"half a DATA frame of no stream", func(x *h2Script, cl, sv *h2End) {
			cl.data(1, false, "abc")
			cl.out.Truncate(cl.out.Len() - 1)
		}, "", State{}, false},
		{"a server push", func(x *h2Script, cl, sv *h2End) {
			cl.headers(1, true, getFields...)
			x.step()
			b := sv.fields(getFields...)
			must(sv.framer.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: b[:1]}))
			must(sv.framer.WriteContinuation(1, true, b[1:]))
			sv.headers(1, true, ":status", "200")
			sv.headers(2, false, ":status", "404")
			sv.data(2, true, "pushed")
			must(sv.framer.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 4, PadLength: 3, EndHeaders: true, BlockFragment: sv.fields(getFields...)}))
			x.step()
			cl.reset(4, http2.ErrCodeCancel)
		}, lines("> GET", "> GET", "> GET", "< GET 200 success", "< GET 404 success", "< GET 0 failure cancel"), State{}, false},
		{"resets", func(x *h2Script, cl, sv *h2End) {
			for id := uint32(1); id < 8; id += 2 {
				cl.headers(id, false, getFields...)
			}
			x.step()
			cl.reset(1, http2.ErrCodeCancel)
			x.step()
			sv.headers(1, true, ":status", "200") // was on its way
			sv.reset(1, http2.ErrCodeCancel)      // likewise
			sv.reset(3, http2.ErrCodeRefusedStream)
			sv.reset(5, http2.ErrCodeInternal)
			sv.headers(7, false, ":status", "200")
			sv.data(7, false, "half")
			sv.reset(7, http2.ErrCodeNo)
		}, lines("> GET", "> GET", "> GET", "> GET", "< GET 0 failure cancel", "< GET 0 failure refused", "< GET 0 failure reset", "< GET 200 failure reset"), State{}, false},
		{"a server that ends", func(x *h2Script, cl, sv *h2End) {
			cl.headers(1, true, getFields...)
			sv.headers(1, false, ":status", "200")
			x.then(serverFIN, clientFIN)
		}, lines("> GET", "< GET 200 failure eof"), State{}, false},
		{"a connection that is cut", func(x *h2Script, cl, sv *h2End) {
			cl.headers(1, true, getFields...)
			x.then(clientFIN, cut)
		}, lines("> GET", "< GET 0 failure aborted"), State{}, false},
		{"extended CONNECT", func(x *h2Script, cl, sv *h2End) {
			cl.headers(1, false, ":method", "CONNECT", ":protocol", "websocket", ":path", "/", ":authority", "a")
			sv.headers(1, false, ":status", "200")
			cl.data(1, false, "hello")
			sv.data(1, true, "hello")
			cl.data(1, true, "")
		}, lines("> CONNECT", "< CONNECT 200 success"), State{}, false},
		{"a table that SETTINGS enlarge", func(x *h2Script, cl, sv *h2End) {
			must(cl.framer.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 1 << 16}))
			cl.headers(1, true, getFields...)
			x.step()
			sv.enc.SetMaxDynamicTableSizeLimit(1 << 16)
			sv.enc.SetMaxDynamicTableSize(1 << 16)
			sv.headers(1, true, ":status", "299", "x", strings.Repeat("y", 5000))
			cl.headers(3, true, getFields...)
			x.step()
			sv.headers(3, true, ":status", "299", "x", strings.Repeat("y", 5000))
		}, lines("> GET", "> GET", "< GET 299 success", "< GET 299 success"), State{}, false},

		{"an answer before the client has finished", func(x *h2Script, cl, sv *h2End) { // and 19 streams beside it
			cl.headers(1, false, callFields...)
			cl.data(1, false, "\x00\x00\x00\x00\x0aaaaaaaaaaa")
			for id := uint32(3); id < 41; id += 2 {
				cl.headers(id, true, callFields...)
			}
			sv.headers(1, false, grpcHead...)
			sv.headers(1, true, "grpc-status", "8", "grpc-message", "quota")
			sv.reset(1, http2.ErrCodeNo)
			x.step()
			cl.data(1, false, "\x00\x00\x00\x00\x0aaaaaaaaaaa") // on its way
			for id := uint32(3); id < 41; id += 2 {
				sv.headers(id, false, grpcHead...)
				sv.headers(id, true, "grpc-status", "0")
			}
		}, lines(strings.Repeat("> POST\n", 19)+"> POST", "< POST 200 grpc 8 success", strings.Repeat("< POST 200 grpc 0 success\n", 18)+"< POST 200 grpc 0 success"), State{}, false},
		{"an answered stream stays open until the client ends", func(x *h2Script, cl, sv *h2End) {
			cl.headers(1, false, callFields...)
			sv.headers(1, true, append(grpcHead, "grpc-status", "0")...)
		}, lines("> POST", "< POST 200 grpc 0 success"), State{}, true},

		{"no SETTINGS first", func(x *h2Script, cl, sv *h2End) { x.talk = talk{s("HTTP/1.1 400 Bad Request\r\n")} }, "", State{Lost, ReasonMalformed}, true},
		{"no preface", func(x *h2Script, cl, sv *h2End) { x.talk = talk{c("PRI * HTTP/2.0\r\n\r\nSX")} }, "", State{Lost, ReasonMalformed}, true},
		{"a CONTINUATION of nothing", func(x *h2Script, cl, sv *h2End) { must(cl.framer.WriteContinuation(1, true, nil)) }, "", State{Lost, ReasonMalformed}, true},
		{"a frame inside a header block", func(x *h2Script, cl, sv *h2End) {
			must(cl.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1}))
			must(cl.framer.WritePing(false, [8]byte{}))
		}, "", State{Lost, ReasonMalformed}, true},
		{"a CONTINUATION of another stream", func(x *h2Script, cl, sv *h2End) {
			must(cl.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1}))
			must(cl.framer.WriteContinuation(3, true, nil))
		}, "", State{Lost, ReasonMalformed}, true},
		{"more padding than payload", func(x *h2Script, cl, sv *h2End) { must(cl.framer.WriteRawFrame(1, 0xc, 1, []byte{3, 0, 0})) }, "", State{Lost, ReasonMalformed}, true},
		{"a priority that is cut short", func(x *h2Script, cl, sv *h2End) { must(cl.framer.WriteRawFrame(1, 0x24, 1, []byte{3, 0, 0})) }, "", State{Lost, ReasonMalformed}, true},
		{"HEADERS on stream 0", func(x *h2Script, cl, sv *h2End) { must(cl.framer.WriteRawFrame(1, 4, 0, nil)) }, "", State{Lost, ReasonMalformed}, true},
		{"SETTINGS of a wrong size", func(x *h2Script, cl, sv *h2End) { must(cl.framer.WriteRawFrame(4, 0, 0, []byte("12345"))) }, "", State{Lost, ReasonMalformed}, true},
		{"RST_STREAM of a wrong size", func(x *h2Script, cl, sv *h2End) { must(cl.framer.WriteRawFrame(3, 0, 1, []byte("123"))) }, "", State{Lost, ReasonMalformed}, true},
		{"GOAWAY of a wrong size", func(x *h2Script, cl, sv *h2End) { must(cl.framer.WriteRawFrame(7, 0, 0, []byte("1234567"))) }, "", State{Lost, ReasonMalformed}, true},
		{"an index that no table has", func(x *h2Script, cl, sv *h2End) { must(cl.framer.WriteRawFrame(1, 5, 1, []byte{0xff, 0x00})) }, "", State{Lost, ReasonCompression}, true},
		{"a table larger than allowed", func(x *h2Script, cl, sv *h2End) {
			must(cl.framer.WriteRawFrame(1, 5, 1, []byte{0x3f, 0xe2, 0x1f})) // 4097
		}, "", State{Lost, ReasonCompression}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := newH2Script()
			tt.play(x, x.client, x.server)
			x.step()
			got := x.talk.observe(t, newH2)
			if d := cmp.Diff(tt.want, got.Record.String()); d != "" {
				t.Errorf("counted (-want +got):\n%s", d)
			}
			if got.State != tt.state || got.Idle == tt.busy || got.Passive != (tt.state.Phase != Reading) {
				t.Errorf("state %v, idle %v; want %v, %v", got.State, got.Idle, tt.state, !tt.busy)
			}
		})
	}
}

// countdown is the responses to GET with the statuses from down to to, by twos.
func countdown(from, to int) string {
	var l []string
	for n := from; n >= to; n -= 2 {
		word := "success"
		if n >= 500 {
			word = "failure"
		}
		l = append(l, fmt.Sprintf("< GET %d %s", n, word))
	}
	return strings.Join(l, "\n")
}

func TestGRPCIsCountedByItsStatus(t *testing.T) {
	for _, tt := range []struct {
		name string
		play func(sv *h2End)
		want string
	}{
		{"trailers only", func(sv *h2End) { sv.headers(1, true, append(grpcHead, "grpc-status", "7")...) }, "POST 200 grpc 7 failure"},
		{"ok in trailers", func(sv *h2End) {
			sv.headers(1, false, grpcHead...)
			sv.data(1, false, "\x00\x00\x00\x00\x00")
			sv.headers(1, true, "grpc-status", "0")
		}, "POST 200 grpc 0 success"},
		{"failure in trailers", func(sv *h2End) {
			sv.headers(1, false, grpcHead...)
			sv.data(1, false, "\x00\x00\x00\x00\x00")
			sv.headers(1, true, "grpc-status", "14")
		}, "POST 200 grpc 14 failure"},
		{"no status", func(sv *h2End) {
			sv.headers(1, false, grpcHead...)
			sv.data(1, true, "\x00\x00\x00\x00\x00")
		}, "POST 200 grpc -1 failure"},
		{"not gRPC", func(sv *h2End) {
			sv.headers(1, false, ":status", "200", "content-type", "text/plain")
			sv.data(1, true, "hello")
		}, "POST 200 success"},
		{"a status in a head that is not the end is none", func(sv *h2End) {
			sv.headers(1, false, append(grpcHead, "grpc-status", "0")...)
			sv.data(1, true, "")
		}, "POST 200 grpc -1 failure"},
		{"a parameter of the type", func(sv *h2End) {
			sv.headers(1, true, ":status", "200", "content-type", "application/grpc;charset=utf-8", "grpc-status", "5")
		}, "POST 200 grpc 5 success"},
		{"a code that is none", func(sv *h2End) { sv.headers(1, true, append(grpcHead, "grpc-status", "17")...) }, "POST 200 grpc 2 failure"},
		{"gRPC-Web with its status in the head", func(sv *h2End) {
			sv.headers(1, true, ":status", "200", "content-type", "application/grpc-web", "grpc-status", "13")
		}, "POST 200 grpc 13 failure"},
		{"gRPC-Web with its status in the body", func(sv *h2End) {
			sv.headers(1, false, ":status", "200", "content-type", "application/grpc-web-text")
			sv.data(1, true, "AAAA")
		}, "POST 200 success"},
		{"an HTTP error of something before the server", func(sv *h2End) { sv.headers(1, true, ":status", "503", "content-type", "text/html") }, "POST 503 failure"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := newH2Script()
			x.client.headers(1, true, callFields...)
			tt.play(x.server)
			x.step()
			if d := cmp.Diff(lines("> POST", "< "+tt.want), x.talk.observe(t, newH2).Record.String()); d != "" {
				t.Errorf("counted (-want +got):\n%s", d)
			}
		})
	}
}

func TestHTTP2Times(t *testing.T) {
	x := newH2Script() // steps 1 and 2
	x.client.headers(1, false, getFields...)
	x.step() // 3: the request
	x.server.headers(1, false, ":status", "200")
	x.step() // 4
	x.server.data(1, false, "a")
	x.step() // 5: first byte
	x.server.data(1, true, "b")
	x.step() // 6: end
	r := x.talk.run(newH2, everyByte).Record.Responses
	x = newH2Script()
	x.client.headers(1, true, getFields...)
	x.step()
	x.server.headers(1, true, ":status", "204")
	x.step()
	if q := x.talk.run(newH2, uncut).Record.Responses; len(q) != 1 || q[0].Latency != time.Second || !q[0].HasLatency {
		t.Errorf("%+v", q)
	}
	if len(r) != 1 || r[0].Latency != 2*time.Second || r[0].Total != 3*time.Second || !r[0].HasLatency {
		t.Errorf("%+v", r)
	}
}

func TestHTTP2Limits(t *testing.T) {
	lost := State{Lost, ReasonLimit}
	streams := func(n int) func(*h2Script) {
		return func(x *h2Script) {
			for i := range n {
				x.client.headers(1+uint32(2*i), false, ":method", "GET")
			}
		}
	}
	collide := func(x *h2Script) {
		for id, n := uint32(1), 0; n < 2*maxProbe; id += 2 {
			if id*0x9e3779b1>>18 == 0 {
				x.client.headers(id, false, ":method", "GET")
				n++
			}
		}
	}
	block := func(n int) func(*h2Script) {
		return func(x *h2Script) {
			b := make([]byte, n) // a field "x" whose value fills the block
			copy(b, []byte{0, 1, 'x', 0x7f})
			for i, v := 0, n-7-0x7f; i < 3; i, v = i+1, v>>7 {
				b[4+i] = byte(v) | 0x80
			}
			b[6] &= 0x7f
			must(x.client.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b[:n/2]}))
			must(x.client.framer.WriteContinuation(1, true, b[n/2:]))
		}
	}
	for _, tt := range []struct {
		name  string
		play  func(*h2Script)
		state State
	}{
		{"10 000 streams may be open", streams(maxStreams), State{}},
		{"10 001 streams may not", streams(maxStreams + 1), lost},
		{"streams chosen to collide are given up", collide, lost},
		{"a block of 70 000 bytes is read", block(70000), State{}},
		{"a block of 256 KiB is read", block(maxBlock), State{}},
		{"a block of more is not", block(maxBlock + 1), lost},
		{"512 CONTINUATION frames are read", func(x *h2Script) { continued(x, maxContinuations) }, State{}},
		{"513 are not", func(x *h2Script) { continued(x, maxContinuations+1) }, lost},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := newH2Script()
			tt.play(x)
			x.step()
			for _, cuts := range []func(int, int) []int{uncut, everyByte} {
				if got := x.talk.run(newH2, cuts); got.State != tt.state {
					t.Errorf("state %v, want %v", got.State, tt.state)
				}
			}
		})
	}
}

func continued(x *h2Script, n int) {
	must(x.client.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1}))
	for i := range n {
		must(x.client.framer.WriteContinuation(1, i == n-1, nil))
	}
}

func TestHTTP2GivesMemoryBack(t *testing.T) {
	h := NewH2(&record{})
	x := newH2Script()
	for i := range uint32(1000) {
		x.client.headers(2*i+1, true, getFields...)
		x.server.headers(2*i+1, true, ":status", "200")
	}
	x.client.headers(3001, true, "x", strings.Repeat("\x00", 20000))
	x.server.headers(3001, true, ":status", "200")
	x.step()
	x.talk.replay(h, everyByte)
	if !h.Idle() || h.streams.slots != nil || cap(h.sides[FromClient].kept) > keepBuffer {
		t.Errorf("idle %v; %d slots and %d bytes are kept", h.Idle(), len(h.streams.slots), cap(h.sides[FromClient].kept))
	}
}

func TestHTTP2KeepsNoBodies(t *testing.T) {
	x := newH2Script()
	x.client.headers(1, false, getFields...)
	x.client.data(1, false, strings.Repeat("x", 1<<20))
	must(x.client.framer.WriteGoAway(0, http2.ErrCodeNo, make([]byte, 1<<20)))
	must(x.client.framer.WriteRawFrame(0xfa, 0, 1, make([]byte, 1<<20)))
	x.step()
	h := NewH2(&record{})
	for b := []byte(x.talk[0].text + x.talk[2].text); len(b) > 0; {
		n := min(1000, len(b))
		h.Feed(FromClient, b[:n], 0)
		b = b[n:]
		if kept := cap(h.sides[FromClient].kept); kept > 1000 {
			t.Fatalf("%d bytes are kept", kept)
		}
	}
}

func TestUpgradeToHTTP2IsFollowed(t *testing.T) {
	x := newH2Script()
	x.talk = talk{
		c("GET / HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAQAA\r\n\r\n"),
		s("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"),
	}
	x.client.out.WriteString(clientPreface)
	must(x.client.framer.WriteSettings())
	must(x.server.framer.WriteSettings())
	x.server.enc.SetMaxDynamicTableSizeLimit(1 << 16)
	x.server.enc.SetMaxDynamicTableSize(1 << 16)
	x.step()
	x.server.headers(1, false, ":status", "200")
	x.server.data(1, true, "hello")
	x.client.headers(3, true, ":method", "PUT")
	x.client.headers(5, true, ":method", "GET")
	x.step()
	x.server.headers(3, true, ":status", "500")
	x.then(serverFIN)

	got := x.talk.observe(t, newH1)
	if d := cmp.Diff(lines("> GET", "> PUT", "> GET", "< GET 200 success", "< PUT 500 failure", "< GET 0 failure eof"), got.Record.String()); d != "" {
		t.Error(d)
	}
	if got.State != (State{}) || !got.Idle {
		t.Errorf("state %v, idle %v", got.State, got.Idle)
	}
	if r := got.Record.Responses[0]; r.Latency != 5*time.Second {
		t.Errorf("latency %v of the request that was upgraded, counted from its HTTP/1 head", r.Latency)
	}
}
