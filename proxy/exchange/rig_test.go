package exchange

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/h1"
	"github.com/meshctl/meshctl/proxy/h2"
	"github.com/meshctl/meshctl/proxy/message"
	"github.com/meshctl/meshctl/proxy/route"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a lane on a loop that the test drives by hand, under a fake clock. The
// client's stream is made up; connections to endpoints are real ones, to servers
// on the same loop, of which the test sees streams, too:
//
//	stream (client) -> Exchange -> pool -> loopback -> h1/h2.Server -> call
type rig struct {
	t      *testing.T
	loop   *conn.Loop
	lane   *Lane
	up     *Upstream
	rec    recorder
	opener message.Opener
	fds    []int
	panics []any
}

// bubble runs a test on a rig. set may change the Config.
func bubble(t *testing.T, set func(*Config), test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t}
		var err error
		if r.loop, err = conn.NewLoop(); err != nil {
			t.Fatal(err)
		}
		cfg := Config{}
		if set != nil {
			set(&cfg)
		}
		r.lane = NewLanes(cfg, []*conn.Loop{r.loop})[0]
		r.lane.Panicked = func(v any, _ []byte) { r.panics = append(r.panics, v) }
		t.Cleanup(r.end)
		test(t, r)
	})
}

func (r *rig) end() {
	r.loop.Stop()
	if err := r.loop.Run(); err != nil {
		r.t.Error(err)
	}
	for _, fd := range r.fds {
		unix.Close(fd)
	}
	if len(r.panics) > 0 {
		r.t.Errorf("panics: %v", r.panics)
	}
	if r.lane.open != 0 && !r.t.Failed() {
		r.t.Errorf("%d exchanges are still open", r.lane.open)
	}
}

// to makes the Upstream: one backend without routes, of these endpoints.
func (r *rig) to(ends ...*endpoint) { r.serve(Parent{Backends: []Members{members(ends...)}}) }

func members(ends ...*endpoint) Members {
	m := Members{Name: "shop/cart:80"}
	for _, e := range ends {
		m.Endpoints = append(m.Endpoints, Endpoint{Addr: e.at})
	}
	return m
}

func (r *rig) serve(p Parent) {
	r.up = NewUpstream(p, []*Lane{r.lane})
	r.opener = r.lane.Serve(Client{Upstream: r.up, Port: 8080, Recorder: &r.rec})
}

// routed makes the Upstream of a rule that every request comes under.
func (r *rig) routed(rule route.Rule, ends ...*endpoint) {
	r.t.Helper()
	r.serve(r.parent(rule, ends...))
}

func (r *rig) parent(rule route.Rule, ends ...*endpoint) Parent {
	r.t.Helper()
	t, err := route.New(route.Config{Routes: []route.Route{{Kind: route.HTTP, Namespace: "shop", Name: "r", Rules: []route.Rule{rule}}}})
	if err != nil {
		r.t.Fatal(err)
	}
	return Parent{Table: t, Backends: []Members{members(ends...)}}
}

// until steps the loop until ok, in real time.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for n := 0; ; n++ {
		r.loop.Step()
		if ok() {
			return
		}
		if n > 20_000 {
			r.t.Fatalf("waited in vain for %s", what)
		}
		nap()
	}
}

// settle gives loopback and the loop some real time to do what they may do.
func (r *rig) settle() {
	for range 4 {
		r.loop.Step()
		nap()
	}
	r.loop.Step()
}

func nap() {
	ts := unix.NsecToTimespec(int64(100 * time.Microsecond))
	_ = unix.Nanosleep(&ts, nil)
}

// sleep lets fake time pass.
func (r *rig) sleep(d time.Duration) {
	time.Sleep(d)
	r.settle()
}

// recorder writes down what is recorded.
type recorder struct {
	requested int
	results   []Result
}

func (r *recorder) Requested([]byte) { r.requested++ }

func (r *recorder) Responded(res Result) {
	res.Method = append([]byte(nil), res.Method...)
	r.results = append(r.results, res)
}

// last is the last Result, in short.
func (r *recorder) last() string {
	if len(r.results) == 0 {
		return "none"
	}
	res := r.results[len(r.results)-1]
	s := fmt.Sprintf("%s %d", res.Method, res.Status)
	if res.GRPC {
		s += fmt.Sprintf(" grpc=%d", res.GRPCStatus)
	}
	if res.Retries > 0 {
		s += fmt.Sprintf(" retries=%d", res.Retries)
	}
	if res.Failure != 0 {
		s += " " + res.Failure.String()
	}
	if res.Aborted {
		s += " aborted"
	}
	return s
}

// stream is a client's.
type stream struct {
	r       *rig
	version message.Version
	recv    message.Receiver
	log     strings.Builder
	pending int
	held    bool
	aborted message.Code
	over    bool
}

// client begins a request. fields are name, value, name, value.
func (r *rig) client(v message.Version, method, path string, end bool, fields ...string) *stream {
	s := &stream{r: r, version: v}
	h := &message.Head{Version: v, Method: []byte(method), Authority: []byte("cart.shop"), Path: []byte(path), Length: message.Unknown}
	if method == "CONNECT" {
		h.Authority = []byte("cart.shop:443")
	}
	if v == message.HTTP2 {
		h.Scheme = []byte("http")
	}
	if end {
		h.Length = 0
	}
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i] == "upgrade" {
			h.Upgrade = []byte(fields[i+1])
			continue
		}
		h.Add(fields[i], fields[i+1])
	}
	s.recv = r.opener.Open(s)
	s.recv.Head(s, h, end)
	return s
}

func (r *rig) get() *stream { return r.client(message.HTTP11, "GET", "/cart", true) }

func (s *stream) data(b string, end bool) { s.recv.Data(s, []byte(b), end) }
func (s *stream) gone()                   { s.recv.Aborted(s, message.Closed) }

func (s *stream) SendHead(h *message.Head, end bool) {
	fmt.Fprintf(&s.log, "%d", h.Status)
	for _, f := range h.Fields {
		if string(f.Name) != "Date" && string(f.Name) != "date" {
			fmt.Fprintf(&s.log, " [%s: %s]", f.Name, f.Value)
		}
	}
	s.ended(end)
}

func (s *stream) ended(end bool) {
	if end {
		s.over = true
		s.log.WriteString(" end")
	}
	s.log.WriteString("\n")
}

func (s *stream) SendData(b []byte, end bool) {
	if len(b) > 100 {
		fmt.Fprintf(&s.log, "%d bytes", len(b))
	} else {
		fmt.Fprintf(&s.log, "%q", b)
	}
	s.ended(end)
}

func (s *stream) SendTrailers(h *message.Head) {
	s.log.WriteString("trailers")
	for _, f := range h.Fields {
		fmt.Fprintf(&s.log, " [%s: %s]", f.Name, f.Value)
	}
	s.ended(true)
}

func (s *stream) Abort(c message.Code) {
	s.aborted, s.over = c, true
	fmt.Fprintf(&s.log, "abort %d\n", c)
}

func (s *stream) Pending() int             { return s.pending }
func (s *stream) Hold(h bool)              { s.held = h }
func (s *stream) Version() message.Version { return s.version }

// wants waits until the client has got exactly this.
func (s *stream) wants(want string) {
	s.r.t.Helper()
	for n := 0; n < 3000 && s.log.String() != want; n++ {
		s.r.loop.Step()
		nap()
	}
	if got := s.log.String(); got != want {
		s.r.t.Fatalf("the client got\n%swant\n%s", got, want)
	}
}

// endpoint is a server on the rig's loop.
type endpoint struct {
	r     *rig
	at    netip.AddrPort
	h2    bool
	fd    int
	calls []*call
	socks []*conn.Socket
}

// call is one request as an endpoint has got it.
type call struct {
	stream  message.Stream
	head    message.Head
	log     strings.Builder
	ended   bool
	aborted message.Code
}

func (r *rig) socket() int {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	} else {
		r.t.Fatal(err)
	}
	return fd
}

func (r *rig) listen(at string, backlog int) (int, netip.AddrPort) {
	r.t.Helper()
	fd, a := r.socket(), netip.MustParseAddrPort(at)
	err := unix.Bind(fd, &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())})
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err == nil {
		a, err = conn.LocalAddr(fd)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return fd, a
}

// endpoint starts a server.
func (r *rig) endpoint(h2 bool) *endpoint {
	r.t.Helper()
	e := &endpoint{r: r, h2: h2}
	e.fd, e.at = r.listen("127.0.0.1:0", 64)
	if _, err := r.loop.Listen(e.fd, []*conn.Loop{r.loop}, e); err != nil {
		r.t.Fatal(err)
	}
	return e
}

// refusing is an endpoint where nobody listens. rise starts its server.
func (r *rig) refusing() *endpoint {
	fd, at := r.listen("127.0.0.1:0", 1)
	unix.Close(fd)
	return &endpoint{r: r, at: at}
}

func (e *endpoint) rise() {
	e.fd, _ = e.r.listen(e.at.String(), 64)
	if _, err := e.r.loop.Listen(e.fd, []*conn.Loop{e.r.loop}, e); err != nil {
		e.r.t.Fatal(err)
	}
}

// deaf is an endpoint whose kernel ignores SYNs: its backlog is full.
func (r *rig) deaf() *endpoint {
	fd, at := r.listen("127.0.0.1:0", 0)
	filler := r.socket()
	r.fds = append(r.fds, fd, filler)
	_ = unix.Connect(filler, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())})
	nap()
	return &endpoint{r: r, at: at}
}

func (e *endpoint) Accept(l *conn.Loop, c conn.Accepted) {
	sock := new(conn.Socket)
	e.socks = append(e.socks, sock)
	if err := l.Attach(sock, c.FD, nil); err != nil {
		e.r.t.Fatal(err)
	}
	if e.h2 {
		h2.NewServer(l, sock, h2.Config{}, e, func(error) {}).Start(nil)
	} else {
		h1.NewServer(l, sock, h1.Config{IdleTimeout: time.Hour}, e, func(error) {}).Start(nil)
	}
}

func (e *endpoint) AcceptFailed(err error) { e.r.t.Error(err) }

// cut resets all connections.
func (e *endpoint) cut() {
	for _, s := range e.socks {
		s.Reset()
	}
	e.socks = nil
}

func (e *endpoint) Open(s message.Stream) message.Receiver {
	c := &call{stream: s}
	e.calls = append(e.calls, c)
	return c
}

// call waits for the endpoint's n-th request.
func (e *endpoint) call(n int) *call {
	e.r.t.Helper()
	e.r.until(fmt.Sprintf("request %d", n), func() bool { return len(e.calls) >= n })
	return e.calls[n-1]
}

func (c *call) Head(_ message.Stream, h *message.Head, end bool) {
	c.head.CopyFrom(h)
	fmt.Fprintf(&c.log, "%s %s %s", h.Method, h.Authority, h.Path)
	for _, f := range h.Fields {
		fmt.Fprintf(&c.log, " [%s: %s]", f.Name, f.Value)
	}
	c.note(end)
}

func (c *call) note(end bool) {
	c.ended = c.ended || end
	if end {
		c.log.WriteString(" end")
	}
	c.log.WriteString("\n")
}

func (c *call) Data(_ message.Stream, b []byte, end bool) {
	if len(b) > 100 {
		fmt.Fprintf(&c.log, "%d bytes", len(b))
	} else {
		fmt.Fprintf(&c.log, "%q", b)
	}
	c.note(end)
}

func (c *call) Trailers(_ message.Stream, h *message.Head) {
	c.log.WriteString("trailers")
	for _, f := range h.Fields {
		fmt.Fprintf(&c.log, " [%s: %s]", f.Name, f.Value)
	}
	c.note(true)
}

func (c *call) Aborted(_ message.Stream, code message.Code) { c.aborted = code }
func (c *call) Drained(message.Stream)                      {}

// answer ends the request with an empty response. fields are name, value.
func (c *call) answer(status int, fields ...string) { c.say(status, true, fields...) }

func (c *call) say(status int, end bool, fields ...string) {
	h := &message.Head{Status: status, Length: message.Unknown}
	if end {
		h.Length = 0
	}
	for i := 0; i+1 < len(fields); i += 2 {
		h.Add(fields[i], fields[i+1])
	}
	c.stream.SendHead(h, end)
}

func trailers(fields ...string) *message.Head {
	h := &message.Head{}
	for i := 0; i+1 < len(fields); i += 2 {
		h.Add(fields[i], fields[i+1])
	}
	return h
}
