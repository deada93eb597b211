package h2_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/h2"
	"github.com/meshctl/meshctl/proxy/message"
)

// runLoop runs a loop until the test ends.
func runLoop(t testing.TB) *conn.Loop {
	t.Helper()
	loop, err := conn.NewLoop()
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan error)
	go func() { over <- loop.Run() }()
	t.Cleanup(func() {
		loop.Stop()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
	return loop
}

// on calls f on the loop's goroutine and waits for it.
func on(t testing.TB, loop *conn.Loop, f func()) {
	t.Helper()
	done := make(chan struct{})
	if !loop.Post(func() { f(); close(done) }) {
		t.Fatal("the loop has ended")
	}
	<-done
}

// app is what a Server under test hands its streams to. It answers by path:
//
//	/        200 "ok" when the request has ended
//	/echo    200 and the body as it comes, trailers as trailers
//	/early   200 at once, whatever the request still says
//	/big     200 and 4 MiB, as fast as it is taken
//	/hold    nothing, and it takes no body
//	/silent  nothing
type app struct {
	events chan string // what streams were told, and the connection's end
}

func (a *app) tell(format string, args ...any) {
	select {
	case a.events <- fmt.Sprintf(format, args...):
	default:
	}
}

func (a *app) Open(message.Stream) message.Receiver { return &call{app: a} }

type call struct {
	app  *app
	path string
	left int // of a big answer
}

func (c *call) Head(s message.Stream, h *message.Head, end bool) {
	var fields strings.Builder
	for _, f := range h.Fields {
		fmt.Fprintf(&fields, " %s=%s", f.Name, f.Value)
	}
	c.path = string(h.Path)
	c.app.tell("%s %s://%s%s length %d end %v%s", h.Method, h.Scheme, h.Authority, h.Path, h.Length, end, fields.String())
	switch c.path {
	case "/echo":
		c.head(s, message.Unknown, end)
	case "/early":
		c.head(s, 5, false)
		s.SendData([]byte("early"), true)
	case "/big":
		c.left = 4 << 20
		c.head(s, int64(c.left), false)
		c.Drained(s)
	case "/hold":
		s.Hold(true)
	case "/":
		if end {
			c.ok(s)
		}
	}
}

func (c *call) head(s message.Stream, length int64, end bool) {
	h := message.Head{Status: 200, Length: length}
	s.SendHead(&h, end)
}

func (c *call) ok(s message.Stream) {
	c.head(s, 2, false)
	s.SendData([]byte("ok"), true)
}

func (c *call) Data(s message.Stream, b []byte, end bool) {
	switch c.path {
	case "/echo":
		s.SendData(b, end)
		s.Hold(s.Pending() > message.HighWater)
	case "/":
		if end {
			c.ok(s)
		}
	case "/hold":
		c.app.tell("%d held bytes", len(b))
	}
	if end {
		c.app.tell("end")
	}
}

func (c *call) Trailers(s message.Stream, h *message.Head) {
	c.app.tell("trailers")
	if c.path == "/echo" {
		s.SendTrailers(h)
	} else if c.path == "/" {
		c.ok(s)
	}
}

func (c *call) Aborted(_ message.Stream, code message.Code) { c.app.tell("aborted %d", code) }

func (c *call) Drained(s message.Stream) {
	if c.path == "/echo" {
		s.Hold(false)
	}
	for piece := make([]byte, 32<<10); c.left > 0 && s.Pending() <= message.HighWater; {
		c.left -= len(piece)
		s.SendData(piece, c.left == 0)
	}
}

// appServer accepts and serves an app.
type appServer struct {
	app   *app
	cfg   h2.Config
	last  *h2.Server
	socks []*conn.Socket
}

func (a *appServer) Accept(l *conn.Loop, c conn.Accepted) {
	sock := &conn.Socket{}
	if err := l.Attach(sock, c.FD, &downstream{}); err != nil {
		unix.Close(c.FD)
		return
	}
	a.socks = append(a.socks, sock)
	a.last = h2.NewServer(l, sock, a.cfg, a.app, func(err error) { a.app.tell("closed: %v", err) })
	a.last.Start(nil)
}

func (a *appServer) AcceptFailed(err error) { panic(err) }

// serveApp serves an app on loopback until the test ends.
func serveApp(t testing.TB, cfg h2.Config) (*appServer, *conn.Loop, netip.AddrPort) {
	t.Helper()
	loop := runLoop(t)
	fd, at, err := listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &appServer{app: &app{events: make(chan string, 1000)}, cfg: cfg}
	on(t, loop, func() { _, err = loop.Listen(fd, nil, a) })
	if err != nil {
		t.Fatal(err)
	}
	return a, loop, at
}

// wait returns the first event that begins with prefix.
func (a *app) wait(t testing.TB, prefix string) string {
	t.Helper()
	end := time.After(5 * time.Second)
	for {
		select {
		case e := <-a.events:
			if strings.HasPrefix(e, prefix) {
				return e
			}
		case <-end:
			t.Fatalf("nothing was told that begins with %q", prefix)
		}
	}
}

// peer speaks frames.
type peer struct {
	net.Conn
	*http2.Framer
	block bytes.Buffer
	enc   *hpack.Encoder
	dec   *hpack.Decoder
	mute  bool // acknowledge no SETTINGS
}

func newPeer(c net.Conn) *peer {
	p := &peer{Conn: c, Framer: http2.NewFramer(c, c)}
	p.AllowIllegalWrites, p.AllowIllegalReads = true, true
	p.enc, p.dec = hpack.NewEncoder(&p.block), hpack.NewDecoder(4096, nil)
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return p
}

// dialPeer is a client that has said the preface and SETTINGS.
func dialPeer(t testing.TB, at netip.AddrPort, settings ...http2.Setting) *peer {
	t.Helper()
	c, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	p := newPeer(c)
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := p.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	return p
}

// fields encodes a header block.
func (p *peer) fields(kv ...string) []byte {
	p.block.Reset()
	for i := 0; i+1 < len(kv); i += 2 {
		_ = p.enc.WriteField(hpack.HeaderField{Name: kv[i], Value: kv[i+1]})
	}
	return bytes.Clone(p.block.Bytes())
}

// request sends HEADERS of a request for a path.
func (p *peer) request(id uint32, end bool, path string, more ...string) {
	kv := append([]string{":method", "POST", ":scheme", "http", ":path", path, ":authority", "a.test"}, more...)
	p.head(id, end, kv...)
}

// head sends HEADERS; errors show when the answer is read.
func (p *peer) head(id uint32, end bool, kv ...string) {
	_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.fields(kv...), EndHeaders: true, EndStream: end})
}

// outcome reads until a stream or the connection ends and says how:
// "200 body", "RST code", "GOAWAY code", or "closed". Stream 0 waits for the
// connection's end. Other streams are passed over.
func (p *peer) outcome(id uint32) string {
	status, body := "", 0
	for {
		f, err := p.ReadFrame()
		if err != nil {
			var ne net.Error
			if errors.As(err, &ne) && ne.Timeout() {
				return "timeout"
			}
			return "closed"
		}
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			if f.ErrCode != http2.ErrCodeNo {
				return "GOAWAY " + f.ErrCode.String()
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == id {
				return "RST " + f.ErrCode.String()
			}
		case *http2.HeadersFrame:
			all, err := p.dec.DecodeFull(f.HeaderBlockFragment())
			if err != nil {
				return err.Error()
			}
			if f.StreamID == id && len(all) > 0 && all[0].Name == ":status" {
				status = all[0].Value
			}
			if f.StreamID == id && f.StreamEnded() {
				return fmt.Sprintf("%s %d", status, body)
			}
		case *http2.DataFrame:
			if f.StreamID == id {
				body += len(f.Data())
			}
			if f.StreamID == id && f.StreamEnded() {
				return fmt.Sprintf("%s %d", status, body)
			}
		case *http2.SettingsFrame:
			if !f.IsAck() && !p.mute {
				_ = p.WriteSettingsAck()
			}
		}
	}
}
