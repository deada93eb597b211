package h1_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/proxy/h1"
	"github.com/meshctl/meshctl/proxy/message"
)

// endpoint is a Client with the far end of its connection.
type endpoint struct {
	*h1.Client
	*wire
	tape  *tape
	idles int
	ends  []error
}

func (b *bench) dial() *endpoint {
	sock, w := b.pair(nil)
	e := &endpoint{wire: w, tape: &tape{}}
	e.Client = h1.NewClient(b.loop, sock, h1.Config{}, func(*h1.Client) { e.idles++ }, func(_ *h1.Client, err error) { e.ends = append(e.ends, err) })
	b.loop.Step()
	return e
}

// ask begins an exchange and lets the request go out.
func (e *endpoint) ask(method, fields string, end bool) message.Stream {
	h := message.Head{Method: []byte(method), Authority: []byte("shop.example"), Path: []byte("/p"), Version: message.HTTP11}
	if method == "CONNECT" {
		h.Path = nil
	}
	if !end {
		h.Length = message.Unknown
	}
	if p, ok := strings.CutPrefix(fields, "upgrade="); ok {
		h.Upgrade = []byte(p)
	}
	s := e.Open(e.tape)
	s.SendHead(&h, end)
	e.wire.b.loop.Step()
	return s
}

// outcome is what the middle hears of a response, and what became of the connection.
func outcome(b *bench, method, fields string, fin bool, pieces ...string) string {
	e := b.dial()
	defer e.wire.close()
	e.ask(method, fields, method != "CONNECT")
	for _, p := range pieces {
		e.send(p)
	}
	b.loop.Step()
	if fin {
		e.closeWrite()
	}
	out := e.tape.text()
	switch {
	case e.idles > 0 && len(e.ends) == 0:
		out += "idle\n"
	case len(e.ends) > 0:
		out += "over\n"
	}
	return out
}

func TestAResponseReadsTheSameHoweverItIsCut(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	b := newBench(t)
	for _, v := range []struct {
		name, method, fields, raw string
		fin                       bool
		want                      string
	}{
		{"a length", "GET", "", ok + "Content-Length: 2\r\nX: 1\r\n\r\nhi", false, "200 OK [X=1] len=2 end=false\n\"hi\"\nend\nidle\n"},
		{"nothing", "GET", "", ok + "Content-Length: 0\r\n\r\n", false, "200 OK len=0 end=true\nidle\n"},
		{"chunks", "GET", "", ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n1;x\r\n!\r\n0\r\n\r\n", false, "200 OK len=-1 end=false\n\"hi!\"\nend\nidle\n"},
		{"trailers", "GET", "", ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nGrpc-Status: 0\r\n\r\n", false, "200 OK len=-1 end=false\n\"hi\"\ntrailers [Grpc-Status=0]\nidle\n"},
		{"a body up to the FIN", "GET", "", ok + "\r\nhi", true, "200 OK len=-1 end=false\n\"hi\"\nend\nover\n"},
		{"no phrase", "GET", "", "HTTP/1.1 299 \r\nContent-Length: 0\r\n\r\n", false, "299  len=0 end=true\nidle\n"},
		{"no phrase and no space", "GET", "", "HTTP/1.1 299\r\nContent-Length: 0\r\n\r\n", false, "299  len=0 end=true\nidle\n"},
		{"HEAD with a length", "HEAD", "", ok + "Content-Length: 20\r\n\r\n", false, "200 OK len=20 end=true\nidle\n"},
		{"HEAD with chunks", "HEAD", "", ok + "Transfer-Encoding: chunked\r\n\r\n", false, "200 OK len=-1 end=true\nidle\n"},
		{"204 has no body", "GET", "", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", false, "204 No Content len=0 end=true\nidle\n"},
		{"304 has no body", "GET", "", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", false, "304 Not Modified len=5 end=true\nidle\n"},
		{"interim responses", "GET", "", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + ok + "Content-Length: 0\r\n\r\n", false,
			"100 Continue len=0 end=false\n103 Early Hints [Link=a] len=0 end=false\n200 OK len=0 end=true\nidle\n"},
		{"Connection: close", "GET", "", ok + "Connection: close\r\nContent-Length: 0\r\n\r\n", false, "200 OK len=0 end=true\nover\n"},
		{"HTTP/1.0 closes", "GET", "", "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", false, "200 OK 1.0 len=0 end=true\nover\n"},
		{"HTTP/1.0 keeps", "GET", "", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n", false, "200 OK 1.0 len=0 end=true\nidle\n"},
		{"hop-by-hop fields", "GET", "", ok + "Connection: x\r\nX: 1\r\nY: 2\r\nKeep-Alive: a\r\nUpgrade: h2\r\nContent-Length: 0\r\n\r\n", false, "200 OK [Y=2] len=0 end=true\nidle\n"},
		{"an upgrade", "GET", "upgrade=x", "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\nContent-Length: 5\r\n\r\nraw", true,
			"101 Switching upgrade=x len=-1 end=false\n\"raw\"\nend\n"},
		{"a refused upgrade", "GET", "upgrade=x", ok + "Content-Length: 0\r\n\r\n", false, "200 OK len=0 end=true\nidle\n"},
		{"an upgrade that nobody asked for", "GET", "", "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", false, "aborted 4\nover\n"},
		{"CONNECT", "CONNECT", "", ok + "Content-Length: 5\r\n\r\nraw", true, "200 OK len=-1 end=false\n\"raw\"\nend\n"},
		{"a refused CONNECT", "CONNECT", "", "HTTP/1.1 403 No\r\nContent-Length: 1\r\n\r\nx", false, "403 No len=1 end=false\n\"x\"\nend\nidle\n"},
		{"more than was asked for", "GET", "", ok + "Content-Length: 0\r\n\r\n" + ok + "Content-Length: 0\r\n\r\n", false, "200 OK len=0 end=true\nover\n"},
		{"a body cut short", "GET", "", ok + "Content-Length: 3\r\n\r\nhi", true, "200 OK len=3 end=false\n\"hi\"\naborted 6\nover\n"},
		{"chunks cut short", "GET", "", ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n", true, "200 OK len=-1 end=false\n\"hi\"\naborted 6\nover\n"},
		{"trailers cut short", "GET", "", ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n", true, "200 OK len=-1 end=false\n\"hi\"\naborted 6\nover\n"},
		{"a head cut short", "GET", "", ok, true, "aborted 6\nover\n"},
		{"no answer", "GET", "", "", true, "aborted 6\nover\n"},
		{"not HTTP", "GET", "", "220 mail.example ESMTP\r\n", false, "aborted 4\nover\n"},
		{"HTTP/2 settings", "GET", "", "\x00\x00\x00\x04\x00\x00\x00\x00\x00\r\n", false, "aborted 4\nover\n"},
		{"a later version", "GET", "", "HTTP/1.2 200 OK\r\n\r\n", false, "aborted 4\nover\n"},
		{"a status of two digits", "GET", "", "HTTP/1.1 20 OK\r\n\r\n", false, "aborted 4\nover\n"},
		{"a status above 599", "GET", "", "HTTP/1.1 600 X\r\n\r\n", false, "aborted 4\nover\n"},
		{"a status of four digits", "GET", "", "HTTP/1.1 2000\r\n\r\n", false, "aborted 4\nover\n"},
		{"NUL in the phrase", "GET", "", "HTTP/1.1 200 O\x00K\r\n\r\n", false, "aborted 4\nover\n"},
		{"length and chunks", "GET", "", ok + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", false, "aborted 4\nover\n"},
		{"two lengths", "GET", "", ok + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n", false, "aborted 4\nover\n"},
		{"another coding", "GET", "", ok + "Transfer-Encoding: gzip, chunked\r\n\r\n", false, "aborted 4\nover\n"},
		{"chunks in HTTP/1.0", "GET", "", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false, "aborted 4\nover\n"},
		{"bare LF", "GET", "", "HTTP/1.1 200 OK\nContent-Length: 0\n\n", false, "aborted 4\nover\n"},
		{"space before the colon", "GET", "", ok + "Content-Length : 0\r\n\r\n", false, "aborted 4\nover\n"},
		{"a folded line", "GET", "", ok + "X: a\r\n b\r\n\r\n", false, "aborted 4\nover\n"},
		{"a broken chunk", "GET", "", ok + "Transfer-Encoding: chunked\r\n\r\n1\r\nab", false, "200 OK len=-1 end=false\naborted 4\nover\n"},
	} {
		t.Run(v.name, func(t *testing.T) {
			if diff := cmp.Diff(v.want, outcome(b, v.method, v.fields, v.fin, v.raw)); diff != "" {
				t.Fatalf("%q in one piece (-want +got):\n%s", v.raw, diff)
			}
			for i := 1; i < len(v.raw); i++ {
				got := outcome(b, v.method, v.fields, v.fin, v.raw[:i], v.raw[i:])
				if diff := cmp.Diff(settled(v.want), settled(got)); diff != "" {
					t.Fatalf("%q cut at %d (-want +got):\n%s", v.raw, i, diff)
				}
			}
		})
	}
}

// settled takes away what depends on where a cut is: data that came before the
// fault, and the end of a connection that was idle for a moment when more came.
func settled(s string) string {
	if strings.Contains(s, "aborted") {
		lines := strings.Split(s, "\n")
		kept := lines[:0]
		for _, l := range lines {
			if !strings.HasPrefix(l, "\"") {
				kept = append(kept, l)
			}
		}
		s = strings.Join(kept, "\n")
	}
	return s
}

func TestARequestIsWrittenFromItsHeadOnly(t *testing.T) {
	field := func(name, value string) message.Field { return message.Field{Name: []byte(name), Value: []byte(value)} }
	base := func() message.Head {
		return message.Head{Version: message.HTTP11, Method: []byte("GET"), Authority: []byte("a"), Path: []byte("/")}
	}
	for _, v := range []struct {
		name string
		edit func(*message.Head)
		end  bool
		want string // empty: refused
	}{
		{"a plain one", func(h *message.Head) { h.Fields = []message.Field{field("X", "1"), field("y", "2")} }, true, "GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\ny: 2\r\n\r\n"},
		{"a method that means a body", func(h *message.Head) { h.Method = []byte("POST") }, true, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"},
		{"a length", func(h *message.Head) { h.Length = 3 }, false, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n"},
		{"no length", func(h *message.Head) { h.Length = message.Unknown }, false, "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"},
		{"no length and no body", func(h *message.Head) { h.Length = message.Unknown }, true, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"absolute form", func(h *message.Head) { h.Absolute, h.Scheme = true, []byte("http") }, true, "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"HTTP/1.0 without a host", func(h *message.Head) { h.Version, h.Authority = message.HTTP10, nil }, true, "GET / HTTP/1.0\r\n\r\n"},
		{"HTTP/1.0 with a host", func(h *message.Head) { h.Version = message.HTTP10 }, true, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"an upgrade", func(h *message.Head) { h.Upgrade = []byte("ws") }, true, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: ws\r\n\r\n"},
		{"te", func(h *message.Head) { h.Add("te", "trailers") }, true, "GET / HTTP/1.1\r\nHost: a\r\nte: trailers\r\nConnection: te\r\n\r\n"},
		{"CONNECT", func(h *message.Head) { h.Method, h.Authority, h.Path = []byte("CONNECT"), []byte("a:1"), nil }, false, "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"},
		{"framing and hop fields of the middle's", func(h *message.Head) {
			for _, n := range []string{"content-length", "Transfer-Encoding", "Host", "connection", "Upgrade", "keep-alive", "Proxy-Connection", "HTTP2-Settings"} {
				h.Add(n, "5")
			}
		}, true, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"LF in a value", func(h *message.Head) { h.Add("x", "1\nHost: b") }, true, ""},
		{"CR in a value", func(h *message.Head) { h.Add("x", "1\rb") }, true, ""},
		{"NUL in a value", func(h *message.Head) { h.Add("x", "1\x00b") }, true, ""},
		{"CRLF in a name", func(h *message.Head) { h.Add("x: 1\r\ny", "1") }, true, ""},
		{"a colon in a name", func(h *message.Head) { h.Add("content-length: 5, x", "1") }, true, ""},
		{"an empty name", func(h *message.Head) { h.Add("", "1") }, true, ""},
		{"a twin of a framing field", func(h *message.Head) { h.Add("content_length", "1") }, true, ""},
		{"a space in the path", func(h *message.Head) { h.Path = []byte("/a HTTP/1.1") }, true, ""},
		{"CRLF in the path", func(h *message.Head) { h.Path = []byte("/a\r\nx: 1") }, true, ""},
		{"an empty path", func(h *message.Head) { h.Path = nil }, true, ""},
		{"a space in the method", func(h *message.Head) { h.Method = []byte("GET /x") }, true, ""},
		{"CRLF in the authority", func(h *message.Head) { h.Authority = []byte("a\r\nx: 1") }, true, ""},
		{"CRLF in the upgrade", func(h *message.Head) { h.Upgrade = []byte("a\r\nx: 1") }, true, ""},
		{"an end before the length", func(h *message.Head) { h.Length = 3 }, true, ""},
	} {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t)
			e := b.dial()
			defer e.wire.close()
			h := base()
			v.edit(&h)
			e.Open(e.tape).SendHead(&h, v.end)
			if diff := cmp.Diff(v.want, e.read()); diff != "" {
				t.Errorf("the server got (-want +got):\n%s", diff)
			}
			if got := e.tape.text(); (v.want == "") != (got == "aborted 5\n") {
				t.Errorf("the middle heard %q", got)
			}
		})
	}
}
