package h1_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/proxy/h1"
	"github.com/meshctl/meshctl/proxy/message"
)

// copied is a message as a Receiver heard it.
type copied struct {
	head     message.Head
	body     []byte
	trailers message.Head
	whole    bool
}

// listener hears messages and passes them on to a Stream at once.
type listener struct {
	got     []*copied
	to      func() message.Stream // for the next message
	next    message.Stream
	aborted bool
	answer  bool
}

func (l *listener) Open(message.Stream) message.Receiver { return l }

func (l *listener) Head(s message.Stream, h *message.Head, end bool) {
	c := &copied{whole: end}
	c.head.CopyFrom(h)
	l.got = append(l.got, c)
	if l.to != nil {
		l.next = l.to()
	}
	l.next.SendHead(h, end)
	l.ended(s, end && !h.Interim())
}

func (l *listener) last() *copied { return l.got[len(l.got)-1] }

func (l *listener) ended(s message.Stream, end bool) {
	if end && l.answer {
		answer(s)
	}
}

func (l *listener) Data(s message.Stream, b []byte, end bool) {
	l.last().body = append(l.last().body, b...)
	l.last().whole = end
	l.next.SendData(b, end)
	l.ended(s, end)
}

func (l *listener) Trailers(s message.Stream, h *message.Head) {
	l.last().trailers.CopyFrom(h)
	l.last().whole = true
	l.next.SendTrailers(h)
	l.ended(s, true)
}

func (l *listener) Aborted(_ message.Stream, c message.Code) {
	l.aborted = true
	if l.next != nil {
		l.next.Abort(c)
	}
}
func (l *listener) Drained(message.Stream) {}

// sink is the Receiver of an exchange whose answer does not matter.
type sink struct{}

func (sink) Head(message.Stream, *message.Head, bool) {}
func (sink) Data(message.Stream, []byte, bool)        {}
func (sink) Trailers(message.Stream, *message.Head)   {}
func (sink) Aborted(message.Stream, message.Code)     {}
func (sink) Drained(message.Stream)                   {}

// FuzzRequest sends bytes to a Server and passes what it takes for requests on.
// net/http has to read the bytes that leave as those requests and no others, and
// the bytes that came as the same messages.
func FuzzRequest(f *testing.F) {
	for _, v := range append(refused(), accepted...) {
		f.Add([]byte(v.raw), uint16(len(v.raw)/2))
	}
	b := newBench(f)
	f.Fuzz(func(t *testing.T, raw []byte, cut uint16) {
		if len(raw) > 8000 {
			return
		}
		b := &bench{t: t, loop: b.loop}
		var outs []*endpoint
		l := &listener{answer: true}
		l.to = func() message.Stream {
			e := b.dial()
			outs = append(outs, e)
			return e.Open(sink{})
		}
		sock, w := b.pair(nil)
		s := h1.NewServer(b.loop, sock, h1.Config{}, l, func(error) {})
		s.Start(nil)
		n := min(int(cut), len(raw))
		w.send(string(raw[:n]))
		w.send(string(raw[n:]))
		theirs := bufio.NewReader(bytes.NewReader(raw))
		same := true
		for i, c := range l.got {
			outs[i].read()
			judgeForwarded(t, raw, c, outs[i])
			same = same && judgeReceived(t, raw, c, theirs)
		}
		for _, e := range outs {
			e.wire.close()
		}
		w.close()
	})
}

// judgeForwarded looks at the bytes that left for a server.
func judgeForwarded(t *testing.T, raw []byte, c *copied, e *endpoint) {
	t.Helper()
	out := e.got.String()
	if out == "" && len(e.ends) > 0 {
		return // refused by the writer
	}
	rd := bufio.NewReader(strings.NewReader(out))
	req, err := http.ReadRequest(rd)
	if err != nil {
		if strings.Contains(err.Error(), "parse ") || strings.Contains(err.Error(), "invalid URI") {
			return // of a target that is no valid URI; it is passed on as it came
		}
		t.Fatalf("%q left as %q: %v", raw, out, err)
	}
	want := string(c.head.Path)
	if c.head.Absolute {
		if want == "*" {
			want = ""
		}
		want = string(c.head.Scheme) + "://" + string(c.head.Authority) + want
	} else if string(c.head.Method) == "CONNECT" {
		want = string(c.head.Authority)
	}
	if req.Method != string(c.head.Method) || req.RequestURI != want || c.head.Version != message.HTTP10 && !strings.EqualFold(req.Host, string(c.head.Authority)) {
		t.Fatalf("%q left as %q", raw, out)
	}
	if !c.whole && string(c.head.Method) != "CONNECT" {
		return
	}
	body, err := io.ReadAll(req.Body)
	if err != nil || !bytes.Equal(body, c.body) {
		t.Fatalf("%q left as %q: body %q, %v", raw, out, body, err)
	}
	if rest, _ := io.ReadAll(rd); len(rest) > 0 {
		t.Fatalf("%q left as %q with %q behind it", raw, out, rest)
	}
}

// judgeReceived compares with what net/http makes of the same bytes; it reports
// false when that cannot read them, which is its right.
func judgeReceived(t *testing.T, raw []byte, c *copied, rd *bufio.Reader) bool {
	t.Helper()
	for {
		if b, err := rd.Peek(2); err != nil || string(b) != "\r\n" {
			break
		}
		_, _ = rd.Discard(2)
	}
	req, err := http.ReadRequest(rd)
	if err != nil {
		return false
	}
	body, err := io.ReadAll(req.Body)
	if err != nil && c.whole {
		t.Fatalf("%q: body %q is whole to us, %v to net/http", raw, c.body, err)
	}
	if req.Method != string(c.head.Method) || !bytes.Equal(body, c.body) && c.whole {
		t.Fatalf("%q: %s with %q, net/http reads %s with %q", raw, c.head.Method, c.body, req.Method, body)
	}
	for name, values := range fieldsOf(c.head.Fields) {
		if name != "Te" && name != "Trailer" { // net/http takes Trailer out, too
			if diff := cmp.Diff(values, req.Header[name]); diff != "" {
				t.Fatalf("%q: field %s (-ours +net/http):\n%s", raw, name, diff)
			}
		}
	}
	return true
}

func fieldsOf(fields []message.Field) http.Header {
	h := http.Header{}
	for _, f := range fields {
		h.Add(string(f.Name), string(f.Value))
	}
	return h
}

// FuzzResponse sends bytes to a Client as the answer to a GET and passes what it
// hears on to a Server. Where net/http reads a whole response we may refuse it,
// but not read another; and what leaves it has to read as what we heard.
func FuzzResponse(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nx: 1\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
		"HTTP/1.0 200 OK\r\n\r\nhi", "HTTP/1.1 304 Not\r\nContent-Length: 3\r\n\r\n", "HTTP/1.1 200\r\nConnection: x, close\r\nx: 1\r\n\r\n",
	} {
		f.Add([]byte(s), uint16(len(s)/2))
	}
	b := newBench(f)
	f.Fuzz(func(t *testing.T, raw []byte, cut uint16) {
		if len(raw) > 8000 {
			return
		}
		b := &bench{t: t, loop: b.loop}
		down := &tape{}
		w, _, _ := b.serve(h1.Config{}, down)
		w.send(get(""))
		e := b.dial()
		l := &listener{next: down.stream}
		h := message.Head{Method: []byte("GET"), Path: []byte("/"), Authority: []byte("a")}
		e.Open(l).SendHead(&h, true)
		b.loop.Step()
		n := min(int(cut), len(raw))
		e.send(string(raw[:n]))
		e.send(string(raw[n:]))
		e.closeWrite()
		judgeResponse(t, raw, l, w.read())
		e.wire.close()
		w.close()
	})
}

func judgeResponse(t *testing.T, raw []byte, l *listener, out string) {
	t.Helper()
	if len(l.got) == 0 || l.aborted {
		return
	}
	c := l.last()
	if c.head.Interim() {
		return
	}
	ours, theirs := bufio.NewReader(strings.NewReader(out)), bufio.NewReader(bytes.NewReader(raw))
	read := func(rd *bufio.Reader) (*http.Response, []byte, error) {
		for {
			resp, err := http.ReadResponse(rd, nil)
			if err != nil {
				return nil, nil, err
			}
			if resp.StatusCode/100 == 1 {
				continue
			}
			b, err := io.ReadAll(resp.Body)
			return resp, b, err
		}
	}
	if out == "" {
		return // refused by the writer
	}
	resp, body, err := read(ours)
	if err != nil || resp.StatusCode != c.head.Status || !bytes.Equal(body, c.body) {
		t.Fatalf("%q left as %q: %q, %v", raw, out, body, err)
	}
	if rest, _ := io.ReadAll(ours); len(rest) > 0 {
		t.Fatalf("%q left as %q with %q behind it", raw, out, rest)
	}
	if resp, body, err = read(theirs); err == nil && (resp.StatusCode != c.head.Status || !bytes.Equal(body, c.body)) {
		t.Fatalf("%q: %d with %q, net/http reads %d with %q", raw, c.head.Status, c.body, resp.StatusCode, body)
	}
}
