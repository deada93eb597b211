package l7

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// seeds adds the conversations of the tables, the bytes of each side in a row.
func seeds(f *testing.F, talks ...talk) {
	for _, t := range talks {
		b := t.sides()
		f.Add(b[FromClient], b[FromServer])
	}
}

// counted runs an observer over what the client, then the server says, cut and
// uncut, and returns the methods and the statuses that ended well.
func counted(t *testing.T, make func(Recorder) Observer, client, server []byte) (methods []Method, statuses []int, end State) {
	x := talk{c(string(client)), s(string(server)), serverFIN, clientFIN}
	got := x.run(make, uncut)
	if cut := x.run(make, everyByte); !reflect.DeepEqual(got, cut) {
		t.Fatalf("-whole +cut:\n%s", cmp.Diff(got, cut))
	}
	if got.State.Phase != Lost && len(got.Record.Requests) != len(got.Record.Responses) {
		t.Fatalf("%d requests, %d responses", len(got.Record.Requests), len(got.Record.Responses))
	}
	for _, q := range got.Record.Requests {
		methods = append(methods, q.Method)
	}
	for _, p := range got.Record.Responses {
		if p.Err == "" {
			statuses = append(statuses, p.Status)
		}
	}
	return methods, statuses, got.State
}

// netHTTP reads the same with net/http. It is false if net/http does not read
// it to the end.
func netHTTP(client, server []byte) (methods []Method, statuses []int, ok bool) {
	cr, sr := bufio.NewReader(bytes.NewReader(client)), bufio.NewReader(bytes.NewReader(server))
	var reqs []*http.Request
	for {
		q, err := http.ReadRequest(cr)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, nil, false
		}
		if _, err := io.Copy(io.Discard, q.Body); err != nil {
			return nil, nil, false
		}
		methods = append(methods, parseMethod([]byte(q.Method)))
		reqs = append(reqs, q)
		if q.Method == "CONNECT" || q.Header["Upgrade"] != nil {
			break // what follows may be anything
		}
	}
	for len(reqs) > 0 {
		p, err := http.ReadResponse(sr, reqs[0])
		if err != nil {
			_, err := sr.ReadByte()
			return methods, statuses, err == io.EOF
		}
		if p.StatusCode < 200 && p.StatusCode != 101 {
			continue
		}
		statuses = append(statuses, p.StatusCode)
		if p.StatusCode == 101 || reqs[0].Method == "CONNECT" && p.StatusCode < 300 {
			return methods, statuses, true
		}
		if _, err := io.Copy(io.Discard, p.Body); err != nil {
			return nil, nil, false
		}
		reqs = reqs[1:]
	}
	return methods, statuses, true
}

func h1Seeds() []talk {
	return []talk{
		talk{c(get + "PUT /x HTTP/1.1\r\nHost: b\r\n" + chunked + "\r\n3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n" + get), s(ok2 + "HTTP/1.1 100 C\r\n\r\nHTTP/1.1 204 No\r\nX: y\r\n\r\nHTTP/1.0 500 E\r\n\r\nto the end")},
		talk{c("HEAD / HTTP/1.0\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 3\r\nHost: a\r\n\r\nabcCONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n\x16\x03"), s("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nHTTP/1.1 304 N\r\n" + chunked + "\r\nHTTP/1.1 200 OK\r\n\r\nabc")},
		talk{c("GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"), s("HTTP/1.1 101 S\r\nUpgrade: websocket\r\n\r\n\x81\x00")},
		talk{c(get), s("HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\n" + chunked + "\r\n1\r\na\r\n0\r\ngrpc-status: 3\r\n\r\n")},
		talk{c("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\nX: a\r\n  folded\r\n\r\nabc"), s("HTTP/1.1 413 No\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n")},
	}
}

// FuzzH1Observer compares with net/http's reading of the same bytes. Where that
// takes the whole and the observer is not lost, they agree.
func FuzzH1Observer(f *testing.F) {
	seeds(f, h1Seeds()...)
	f.Fuzz(func(t *testing.T, client, server []byte) {
		methods, statuses, end := counted(t, newH1, client, server)
		if end.Phase == Lost {
			return
		}
		wantMethods, wantStatuses, ok := netHTTP(client, server)
		if !ok {
			return
		}
		if d := cmp.Diff(wantMethods, methods); d != "" {
			t.Fatalf("methods (-net/http +observer):\n%s", d)
		}
		if d := cmp.Diff(wantStatuses, statuses); d != "" {
			t.Fatalf("statuses (-net/http +observer):\n%s", d)
		}
	})
}

// h2Model is what x/net's framer makes of a conversation.
type h2Model struct {
	methods  []Method
	statuses []int
	open     map[uint32]*h2ModelStream
	newest   uint32
}

type h2ModelStream struct {
	status               int
	clientDone, answered bool
}

// read reads one side. It is false if x/net finds anything wrong.
func (m *h2Model) read(from Side, b []byte) bool {
	fr := http2.NewFramer(io.Discard, bytes.NewReader(b))
	fr.MaxHeaderListSize = 1 << 30
	fr.ReadMetaHeaders = hpack.NewDecoder(defaultTable, nil)
	fr.ReadMetaHeaders.SetAllowedMaxDynamicTableSize(maxTable)
	for {
		frame, err := fr.ReadFrame()
		if err != nil {
			return err == io.EOF
		}
		id := frame.Header().StreamID
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			if frame.Truncated {
				return false
			}
			m.headers(from, id, frame)
		case *http2.DataFrame:
			if frame.StreamEnded() {
				m.end(from, id)
			}
		case *http2.RSTStreamFrame:
			delete(m.open, id)
		case *http2.PushPromiseFrame, *http2.GoAwayFrame:
			return false // not modelled
		}
	}
}

func (m *h2Model) headers(from Side, id uint32, f *http2.MetaHeadersFrame) {
	st := m.open[id]
	if st == nil && from == FromClient && id%2 == 1 && id > m.newest {
		m.newest = id
		st = &h2ModelStream{}
		m.open[id] = st
		method := NoMethod
		if v := f.PseudoValue("method"); v != "" {
			method = parseMethod([]byte(v))
		}
		m.methods = append(m.methods, method)
	}
	if st != nil && from == FromServer && st.status == 0 {
		n := int(parseStatus([]byte(f.PseudoValue("status"))))
		if n >= 200 || f.StreamEnded() {
			st.status = n
		}
	}
	if f.StreamEnded() {
		m.end(from, id)
	}
}

func (m *h2Model) end(from Side, id uint32) {
	st := m.open[id]
	if st == nil {
		return
	}
	if from == FromClient {
		st.clientDone = true
	} else if !st.answered {
		st.answered = true
		m.statuses = append(m.statuses, st.status)
	}
	if st.clientDone && st.answered {
		delete(m.open, id)
	}
}

func h2Seeds() []talk {
	plain := newH2Script()
	plain.client.headers(1, true, getFields...)
	plain.client.headers(3, false, callFields...)
	plain.client.data(3, true, "hello")
	plain.client.headers(5, false, callFields...)
	plain.client.reset(5, http2.ErrCodeCancel)
	plain.client.headers(7, false, callFields...)
	plain.client.headers(7, true, "x", "y")
	plain.server.headers(3, false, grpcHead...)
	plain.server.data(3, false, "hello")
	plain.server.headers(3, true, "grpc-status", "0")
	plain.server.headers(1, false, ":status", "103")
	plain.server.headers(1, true, ":status", "404")
	plain.step()
	parts := newH2Script()
	b := parts.client.fields(getFields...)
	must(parts.client.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true, PadLength: 3, BlockFragment: b[:3]}))
	must(parts.client.framer.WriteContinuation(1, true, b[3:]))
	must(parts.client.framer.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 1 << 16}))
	parts.server.headers(1, false, ":status", "500")
	must(parts.server.framer.WriteDataPadded(1, true, []byte("x"), make([]byte, 3)))
	parts.step()
	return []talk{plain.talk, parts.talk}
}

// FuzzH2Observer compares with what x/net's framer and decoder make of the same
// bytes. Where those find nothing wrong and the observer is not lost, they agree.
func FuzzH2Observer(f *testing.F) {
	seeds(f, h2Seeds()...)
	f.Fuzz(func(t *testing.T, client, server []byte) {
		methods, statuses, end := counted(t, newH2, client, server)
		m := h2Model{open: map[uint32]*h2ModelStream{}}
		if end.Phase == Lost || !bytes.HasPrefix(client, []byte(clientPreface)) {
			return
		}
		if !m.read(FromClient, client[len(clientPreface):]) || !m.read(FromServer, server) {
			return
		}
		if d := cmp.Diff(m.methods, methods); d != "" {
			t.Fatalf("methods (-x/net +observer):\n%s", d)
		}
		if d := cmp.Diff(m.statuses, statuses); d != "" {
			t.Fatalf("statuses (-x/net +observer):\n%s", d)
		}
	})
}

// sides are the bytes of each side of a talk in a row.
func (t talk) sides() (b [2][]byte) {
	for _, e := range t {
		switch e.what {
		case 'C':
			b[FromClient] = append(b[FromClient], e.text...)
		case 'S':
			b[FromServer] = append(b[FromServer], e.text...)
		}
	}
	return b
}

func TestTheFuzzersSeedsAreReadOnBothSides(t *testing.T) {
	for i, x := range h1Seeds() {
		b := x.sides()
		_, _, end := counted(t, newH1, b[FromClient], b[FromServer])
		if _, got, ok := netHTTP(b[FromClient], b[FromServer]); !ok || len(got) == 0 || end.Phase == Lost {
			t.Errorf("HTTP/1 seed %d: net/http %v %v, observer %v", i, got, ok, end)
		}
	}
	for i, x := range h2Seeds() {
		b := x.sides()
		m := h2Model{open: map[uint32]*h2ModelStream{}}
		_, _, end := counted(t, newH2, b[FromClient], b[FromServer])
		if !m.read(FromClient, b[FromClient][len(clientPreface):]) || !m.read(FromServer, b[FromServer]) || len(m.statuses) == 0 || end.Phase == Lost {
			t.Errorf("HTTP/2 seed %d: x/net %v, observer %v", i, m.statuses, end)
		}
	}
}
