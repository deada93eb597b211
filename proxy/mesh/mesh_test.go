package mesh

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/identity"
	"github.com/meshctl/meshctl/proxy/identity/authority"
	"github.com/meshctl/meshctl/proxy/mesh/header"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source is an identity.Source whose certificate a test replaces.
type source struct {
	now atomic.Pointer[identity.Snapshot]
}

func (s *source) Current() (*identity.Snapshot, error) {
	if c := s.now.Load(); c != nil {
		return c, nil
	}
	return nil, identity.ErrWaiting
}
func (s *source) Changed(func())        {}
func (s *source) Stats() identity.Stats { return identity.Stats{} }
func (s *source) Close() error          { return nil }

func ca(t *testing.T) *authority.Authority {
	t.Helper()
	a, err := authority.New("cluster.local", time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// member is a Mesh with a certificate for name of a.
func member(t *testing.T, a *authority.Authority, name string) (*Mesh, *source) {
	t.Helper()
	s := &source{}
	s.now.Store(snapshot(t, a, name))
	return New(s), s
}

func snapshot(t *testing.T, a *authority.Authority, name string) *identity.Snapshot {
	t.Helper()
	l, err := a.Issue(authority.Request{Names: []string{name}, Life: 30 * time.Minute}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	n, err := identity.NewSnapshot(l.TLS(), l.Anchors, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// end is one end of a connection on a loop.
type end struct {
	t     *testing.T
	sock  conn.Socket
	sess  *Session
	err   error
	done  bool
	shake *Handshake
	got   []byte
	errno syscall.Errno
	over  bool // the end was read
}

func (e *end) finished(s *Session, err error) {
	e.sess, e.err, e.done = s, err, true
	if err == nil {
		e.sock.Handle(e)
	}
}

func (e *end) Ready(*conn.Socket, conn.Events) {}

func (e *end) Panicked(v any, stack []byte) { e.t.Errorf("%v\n%s", v, stack) }

// read takes what is there.
func (e *end) read() {
	for !e.over && e.errno == 0 && e.sock.Open() {
		n, errno := e.sock.Read(e.sock.Loop().Scratch)
		switch {
		case errno == unix.EAGAIN:
			return
		case errno != 0:
			e.errno = errno
		case n == 0:
			e.over = true
		}
		e.got = append(e.got, e.sock.Loop().Scratch[:n]...)
	}
}

// rig is a connected pair of sockets on one loop.
type rig struct {
	t              *testing.T
	loop           *conn.Loop
	client, server *end
}

func newRig(t *testing.T) *rig {
	t.Helper()
	loop, err := conn.NewLoop()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { loop.Stop(); _ = loop.Run() })
	r := &rig{t: t, loop: loop}
	r.connect()
	return r
}

// connect makes a new pair.
func (r *rig) connect() {
	r.t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	defer l.Close()
	r.client, r.server = &end{t: r.t}, &end{t: r.t}
	if _, e := r.loop.Dial(&r.client.sock, netip.MustParseAddrPort(l.Addr().String()), r.client); e != 0 {
		r.t.Fatal(e)
	}
	c, err := l.Accept()
	if err != nil {
		r.t.Fatal(err)
	}
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		r.t.Fatal(err)
	}
	fd, err := unix.Dup(int(f.Fd()))
	f.Close()
	c.Close()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		r.t.Fatal(err)
	}
	if err := r.loop.Attach(&r.server.sock, fd, r.server); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for began := time.Now(); !ok(); {
		if time.Since(began) > 20*time.Second {
			r.t.Fatalf("waited in vain for %s", what)
		}
		if !r.loop.Step() {
			r.t.Fatal("the loop has ended")
		}
	}
}

var at = netip.MustParseAddrPort("10.0.0.9:8080")

const (
	web = "web.default.serviceaccount.identity.linkerd.cluster.local"
	db  = "db.default.serviceaccount.identity.linkerd.cluster.local"
)

// shake has both ends shake hands, directly.
func (r *rig) shake(from, to *Mesh, want string) {
	r.t.Helper()
	r.server.shake = to.Server(&r.server.sock, nil, true, r.server, r.server.finished)
	r.client.shake = from.Client(&r.client.sock, at, Endpoint{ID: want, ServerName: want, Port: 4143}, header.Header{Port: 8080}, r.client, r.client.finished)
	r.until("the handshake", func() bool { return r.client.done && r.server.done })
}

func TestTwoProxiesKnowEachOtherAndTheSecondTimeWithoutAFullHandshake(t *testing.T) {
	a := ca(t)
	from, _ := member(t, a, web)
	to, s := member(t, a, db)
	r := newRig(t)
	for i, resumed := range []bool{false, true, true} {
		r.shake(from, to, db)
		if r.client.err != nil || r.server.err != nil {
			t.Fatal(r.client.err, r.server.err)
		}
		want := [2]Peer{{ID: db, ALPN: header.ALPN, Resumed: resumed}, {ID: web, ALPN: header.ALPN, Resumed: resumed}}
		if got := [2]Peer{r.client.sess.Peer(), r.server.sess.Peer()}; got != want {
			t.Errorf("%d: %+v", i, got)
		}
		hello := string(header.Header{Port: 8080}.Append(nil))
		r.until("the header", func() bool { r.server.read(); return string(r.server.got) == hello })
		r.client.read() // the ticket
		r.client.sock.Close()
		r.until("the end", func() bool { r.server.read(); return r.server.over })
		r.server.sock.Close()
		r.connect()
	}
	s.now.Store(snapshot(t, a, db)) // a session must not outlive what it was verified with
	r.shake(from, to, db)
	if r.client.sess.Peer().Resumed {
		t.Error("a session was resumed with a certificate that has been replaced")
	}
}

func TestBytesComeThroughWholeBothWaysWhileTheOtherSideIsSlow(t *testing.T) {
	a := ca(t)
	from, _ := member(t, a, web)
	to, _ := member(t, a, db)
	r := newRig(t)
	r.shake(from, to, db)
	hello := len(header.Header{Port: 8080}.Append(nil))
	r.until("the header", func() bool { r.server.read(); return len(r.server.got) == hello })
	r.server.got = nil
	want := make([]byte, 8<<20)
	for i := range want {
		want[i] = byte(i * 7 >> 3)
	}
	for _, way := range [][2]*end{{r.client, r.server}, {r.server, r.client}} {
		src, dst := way[0], way[1]
		sent, blocked := 0, 0
		for round := 0; sent < len(want); round++ {
			n, e := src.sock.WriteTwo(want[sent:min(sent+100, len(want))], want[min(sent+100, len(want)):min(sent+70_000, len(want))])
			sent += n
			if src.sess.Pending() > recordMost+1024 {
				t.Fatalf("%d bytes kept", src.sess.Pending())
			}
			if e == unix.EAGAIN || n == 0 {
				blocked++
				dst.read()
				r.loop.Step()
			} else if e != 0 {
				t.Fatal(e)
			}
		}
		if blocked == 0 {
			t.Error("the writer was never held up")
		}
		r.until("all of it", func() bool { dst.read(); return len(dst.got) >= len(want) })
		if !bytes.Equal(dst.got, want) {
			t.Error("other bytes came")
		}
	}
}

// Who is told that less than all was taken waits for room, which makes no event
// where there is room.
func TestAWriteTakesAllThatThereIsRoomFor(t *testing.T) {
	a := ca(t)
	from, _ := member(t, a, web)
	to, _ := member(t, a, db)
	for _, c := range [][2]int{{4, 25_000}, {0, 25_000}, {25_000, 0}, {20_000, 20_000}, {recordMost, 4}, {recordMost - 1, 4}, {4, recordMost - 4}} {
		r := newRig(t)
		r.shake(from, to, db)
		want := bytes.Repeat([]byte("x"), c[0]+c[1])
		if n, e := r.client.sock.WriteTwo(want[:c[0]], want[c[0]:]); n != len(want) || e != 0 || r.client.sess.Pending() > 0 {
			t.Errorf("%v: took %d, %v, keeps %d", c, n, e, r.client.sess.Pending())
		}
		r.until("all", func() bool { r.server.read(); return bytes.HasSuffix(r.server.got, want) })
	}
}

func TestAnEndPassesAloneAndABreakIsNone(t *testing.T) {
	a := ca(t)
	from, _ := member(t, a, web)
	to, _ := member(t, a, db)
	r := newRig(t)
	r.shake(from, to, db)
	r.client.sock.Write([]byte("question"))
	r.client.sock.CloseWrite()
	r.until("question and end", func() bool { r.server.read(); return r.server.over })
	if !strings.HasSuffix(string(r.server.got), "question") {
		t.Errorf("%q", r.server.got)
	}
	r.server.sock.Write([]byte("answer"))
	r.server.sock.Close()
	r.until("answer and end", func() bool { r.client.read(); return r.client.over })
	if string(r.client.got) != "answer" {
		t.Errorf("%q", r.client.got)
	}
	r.client.sock.Close()

	r.connect()
	r.shake(from, to, db)
	r.client.sock.Write([]byte("que"))
	r.client.sock.RawCloseWrite() // as somebody in between could
	r.until("a break", func() bool { r.server.read(); return r.server.over || r.server.errno != 0 })
	if r.server.over || r.server.errno != unix.ECONNRESET {
		t.Errorf("a FIN without close_notify: end %v, errno %v", r.server.over, r.server.errno)
	}
}

func TestWhatAClosedSocketKeepsStillGoesOut(t *testing.T) {
	a := ca(t)
	from, _ := member(t, a, web)
	to, _ := member(t, a, db)
	r := newRig(t)
	r.shake(from, to, db)
	piece, sent := bytes.Repeat([]byte("x"), 64<<10), 0
	for {
		n, e := r.server.sock.Write(piece)
		sent += n
		if e == unix.EAGAIN {
			break
		}
	}
	if r.server.sess.Pending() == 0 {
		t.Fatal("nothing is kept")
	}
	r.server.sock.Close()
	if r.server.sock.Open() {
		t.Error("still open")
	}
	r.until("all and the end", func() bool { r.client.read(); return r.client.over || r.client.errno != 0 })
	if len(r.client.got) != sent || r.client.errno != 0 {
		t.Errorf("%d of %d bytes, errno %v", len(r.client.got), sent, r.client.errno)
	}
}

func TestPeekLeavesTheBytes(t *testing.T) {
	a := ca(t)
	from, _ := member(t, a, web)
	to, _ := member(t, a, db)
	r := newRig(t)
	r.shake(from, to, db)
	var b [1]byte
	if n, e := r.client.sock.Peek(b[:]); n != 0 || e != unix.EAGAIN {
		t.Errorf("nothing was sent: %d, %v", n, e)
	}
	r.server.sock.Write([]byte("220 mail\r\n"))
	r.until("a byte", func() bool { n, _ := r.client.sock.Peek(b[:]); return n == 1 })
	r.until("all", func() bool { r.client.read(); return string(r.client.got) == "220 mail\r\n" })
}

func TestWhoIsNotWhoTheyHaveToBeGetsNowhere(t *testing.T) {
	a, other := ca(t), ca(t)
	good, _ := member(t, a, web)
	server, _ := member(t, a, db)
	stranger, _ := member(t, other, web)
	waiting := New(&source{})
	for name, c := range map[string]struct {
		from, to *Mesh
		want     string
		says     string
	}{
		"another server":       {good, server, web, "web.default"},
		"a server of another":  {stranger, server, db, ""},
		"no certificate here":  {waiting, server, db, identity.ErrWaiting.Error()},
		"no certificate there": {good, waiting, db, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.server.shake = c.to.Server(&r.server.sock, nil, true, r.server, r.server.finished)
			r.client.shake = c.from.Client(&r.client.sock, at, Endpoint{ID: c.want, ServerName: c.want, Port: 4143}, header.Header{Port: 1}, r.client, r.client.finished)
			r.until("one end to give up", func() bool {
				if r.client.done && r.client.err != nil && r.client.sock.Open() {
					r.client.sock.Close()
				}
				if r.server.done && r.server.err != nil && r.server.sock.Open() {
					r.server.sock.Close()
				}
				if r.client.done && r.client.err == nil { // TLS 1.3: the client is done before the server has looked at it
					r.client.read()
				}
				return r.server.done && r.server.err != nil || r.client.done && (r.client.err != nil || r.client.errno != 0)
			})
			err := errors.Join(r.client.err, r.server.err)
			if r.server.err == nil && r.server.done {
				t.Error("the server has served")
			}
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
			r.client.shake.GiveUp()
			r.server.shake.GiveUp()
		})
	}
}

func TestDirectConnectionsHaveToShowACertificateAndAgreeOnAHeader(t *testing.T) {
	a := ca(t)
	to, _ := member(t, a, db)
	leaf := snapshot(t, a, web).Certificate()
	for name, c := range map[string]struct {
		cfg    *tls.Config
		direct bool
		says   string // "": it is let in
	}{
		"no certificate":         {&tls.Config{NextProtos: []string{header.ALPN}}, true, errNoCertificate.Error()},
		"no header":              {&tls.Config{Certificates: []tls.Certificate{*leaf}}, true, errNoHeader.Error()},
		"both":                   {&tls.Config{Certificates: []tls.Certificate{*leaf}, NextProtos: []string{header.ALPN}}, true, ""},
		"neither, to a port":     {&tls.Config{}, false, ""},
		"TLS 1.2":                {&tls.Config{MaxVersion: tls.VersionTLS12}, false, "version"},
		"its own protocol there": {&tls.Config{NextProtos: []string{"h2"}}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.server.shake = to.Server(&r.server.sock, nil, c.direct, r.server, r.server.finished)
			cfg := c.cfg.Clone()
			cfg.InsecureSkipVerify, cfg.ServerName = true, db
			r.client.shake = begin(&r.client.sock, nil, func(w *wire) (*tls.Conn, verifier, error) {
				return tls.Client(w, cfg), func(tls.ConnectionState) (Peer, error) { return Peer{}, nil }, nil
			}, r.client, r.client.finished)
			r.until("the server's word", func() bool { return r.server.done })
			switch {
			case c.says == "" && r.server.err != nil:
				t.Error(r.server.err)
			case c.says != "" && (r.server.err == nil || !strings.Contains(r.server.err.Error(), c.says)):
				t.Errorf("%v", r.server.err)
			}
			r.client.shake.GiveUp()
		})
	}
}

// A hello may come in pieces of any size, and some of it may have been read.
func TestAHandshakeInPiecesAndOneThatIsGivenUp(t *testing.T) {
	a := ca(t)
	to, _ := member(t, a, db)
	r := newRig(t)
	mine, theirs := net.Pipe()
	defer mine.Close()
	go func() {
		c := tls.Client(theirs, &tls.Config{InsecureSkipVerify: true, ServerName: db})
		_ = c.Handshake()
		theirs.Close()
	}()
	hello := make([]byte, 4096)
	n, err := mine.Read(hello)
	if err != nil {
		t.Fatal(err)
	}
	r.server.shake = to.Server(&r.server.sock, hello[:3], false, r.server, r.server.finished)
	for _, b := range hello[3:n] {
		r.client.sock.RawWrite([]byte{b})
		r.loop.Step()
	}
	buf := make([]byte, 1)
	r.until("the answer", func() bool { n, _ := r.client.sock.RawRead(buf); return n == 1 })
	if r.server.done {
		t.Error("done before the client was")
	}
	r.server.shake.GiveUp()
	r.server.shake.GiveUp()
	r.server.sock.Close()
	r.until("the end", func() bool {
		_, e := r.client.sock.RawRead(hello)
		return e != 0 && e != unix.EAGAIN || !r.server.sock.Open()
	})
	if r.server.done {
		t.Error("done was called after GiveUp")
	}
}
