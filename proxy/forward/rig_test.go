package forward

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/detect"
	"github.com/meshctl/meshctl/proxy/metrics"
	"github.com/meshctl/meshctl/proxy/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a Forwarder on one loop that the test drives by hand, with real sockets
// around it and, under synctest, a fake clock:
//
//	client fds --> listener at | Forwarder | --> listener target (raw, of the test)
//
// Everything runs on the test's goroutine and no call blocks.
type rig struct {
	t        testing.TB
	loop     *conn.Loop
	listener *conn.Listener
	f        *Forwarder
	m        *metrics.Metrics
	memory   detect.Memory
	route    Route // what the router says
	refusal  error
	panics   bool
	at       netip.AddrPort // of the proxy
	target   netip.AddrPort
	targetFD int // -1: nobody listens
	log      bytes.Buffer
	fds      []int // of the test, closed at the end
}

// Route is the router: the same for every connection.
func (r *rig) Route(_, dst netip.AddrPort) (Route, error) {
	if r.panics {
		panic("router")
	}
	to := r.route
	to.Target = dst
	return to, r.refusal
}

// bubble runs a test on a rig with a fake clock. set may change the Config.
func bubble(t *testing.T, set func(*Config), test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newRig(t, set)) })
}

func newRig(t testing.TB, set func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, route: Route{Early: true}, m: metrics.New(metrics.Config{})}
	r.targetFD, r.target = r.listen(128)
	cfg := Config{DetectTimeout: 10 * time.Second, EarlyDialAfter: 250 * time.Millisecond, ConnectTimeout: time.Second, FixedTarget: r.target}
	if set != nil {
		set(&cfg)
	}
	var err error
	if r.loop, err = conn.NewLoop(); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	loops := []*conn.Loop{r.loop}
	r.f = New(cfg, metrics.Outbound, r, r.m, log, &r.memory, loops)
	fd, at := r.listen(128)
	r.at = at
	r.fds = slices.DeleteFunc(r.fds, func(x int) bool { return x == fd }) // the loop's now
	if r.listener, err = r.loop.Listen(fd, loops, r.f); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.end)
	return r
}

func (r *rig) end() {
	r.loop.Stop()
	if err := r.loop.Run(); err != nil {
		r.t.Error(err)
	}
	for _, fd := range r.fds {
		unix.Close(fd)
	}
}

func (r *rig) socket() int {
	r.t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	r.fds = append(r.fds, fd)
	return fd
}

func (r *rig) listen(backlog int) (int, netip.AddrPort) {
	r.t.Helper()
	fd := r.socket()
	r.listenAt(fd, netip.MustParseAddrPort("127.0.0.1:0"), backlog)
	at, err := conn.LocalAddr(fd)
	if err != nil {
		r.t.Fatal(err)
	}
	return fd, at
}

func (r *rig) listenAt(fd int, at netip.AddrPort, backlog int) {
	r.t.Helper()
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err := unix.Bind(fd, sockaddr(at)); err != nil {
		r.t.Fatal(err)
	}
	if err := unix.Listen(fd, backlog); err != nil {
		r.t.Fatal(err)
	}
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

// noTarget closes the target's listener: connections are refused from now on.
func (r *rig) noTarget() { r.hangUp(r.targetFD); r.targetFD = -1 }

// newTarget listens again.
func (r *rig) newTarget() {
	r.targetFD = r.socket()
	r.listenAt(r.targetFD, r.target, 16)
}

// deafTarget makes the target's kernel ignore SYNs: its backlog is full.
func (r *rig) deafTarget() {
	r.noTarget()
	r.targetFD = r.socket()
	r.listenAt(r.targetFD, r.target, 0)
	r.connect(r.target)
}

func (r *rig) connect(at netip.AddrPort) int {
	r.t.Helper()
	fd := r.socket()
	if err := unix.Connect(fd, sockaddr(at)); err != nil && err != unix.EINPROGRESS {
		r.t.Fatal(err)
	}
	return fd
}

// dial connects a client and lets the proxy take it.
func (r *rig) dial() int {
	r.t.Helper()
	had := r.f.Open()
	fd := r.connect(r.at)
	r.until("the proxy to take a connection", func() bool { return r.f.Open() > had })
	return fd
}

// server returns the server's end of the proxy's next connection to the target.
func (r *rig) server() int {
	r.t.Helper()
	fd := -1
	r.until("a connection to the target", func() (ok bool) {
		fd, ok = r.accepted()
		return ok
	})
	return fd
}

func (r *rig) accepted() (int, bool) {
	fd, _, err := unix.Accept4(r.targetFD, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if err != nil {
		return -1, false
	}
	r.fds = append(r.fds, fd)
	return fd, true
}

// noServer fails if the target has been dialed.
func (r *rig) noServer() {
	r.t.Helper()
	r.settle()
	if _, ok := r.accepted(); ok {
		r.t.Fatal("the target was dialed")
	}
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
		nap(200 * time.Microsecond)
	}
}

// settle gives loopback and the loop some real time to do what they may do.
func (r *rig) settle() {
	for range 5 {
		r.loop.Step()
		nap(200 * time.Microsecond)
	}
	r.loop.Step()
}

func nap(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil)
}

// sleep lets fake time pass.
func (r *rig) sleep(d time.Duration) {
	time.Sleep(d)
	r.settle()
}

func (r *rig) send(fd int, text string) {
	r.t.Helper()
	r.until("a socket to take bytes", func() bool {
		n, err := unix.Write(fd, []byte(text))
		if err != nil && err != unix.EAGAIN {
			r.t.Fatalf("writing: %v", err)
		}
		text = text[max(n, 0):]
		return text == ""
	})
	r.loop.Step()
}

// gets waits until exactly want has come.
func (r *rig) gets(fd int, want string) {
	r.t.Helper()
	var got []byte
	buf := make([]byte, 64<<10)
	r.until("bytes", func() bool {
		n, err := unix.Read(fd, buf)
		if n == 0 && err == nil || err != nil && err != unix.EAGAIN {
			r.t.Fatalf("got %q, then the end (%v); want %q", got, err, want)
		}
		got = append(got, buf[:max(n, 0)]...)
		return len(got) >= len(want)
	})
	if d := cmp.Diff(want, string(got)); d != "" {
		r.t.Fatal(d)
	}
}

// ends waits for the end of what fd reads: nil is a FIN.
func (r *rig) ends(fd int, want error) {
	r.t.Helper()
	var got []byte
	var end error
	buf := make([]byte, 4096)
	r.until("an end", func() bool {
		n, err := unix.Read(fd, buf)
		if err == unix.EAGAIN {
			return false
		}
		got = append(got, buf[:max(n, 0)]...)
		end = err
		return n <= 0
	})
	if len(got) > 0 || end != want {
		r.t.Fatalf("got %q and then %v, want the end and %v", got, end, want)
	}
}

// quiet fails if anything comes, even an end.
func (r *rig) quiet(fd int) {
	r.t.Helper()
	r.settle()
	buf := make([]byte, 4096)
	if n, err := unix.Read(fd, buf); err != unix.EAGAIN {
		r.t.Fatalf("not quiet: %q, %v", buf[:max(n, 0)], err)
	}
}

func (r *rig) fin(fd int) {
	r.t.Helper()
	if err := unix.Shutdown(fd, unix.SHUT_WR); err != nil {
		r.t.Fatal(err)
	}
	r.settle()
}

// hangUp closes fd: a FIN, or a RST if it has not read everything.
func (r *rig) hangUp(fd int) {
	r.t.Helper()
	if err := unix.Close(fd); err != nil {
		r.t.Fatal(err)
	}
	r.fds = slices.DeleteFunc(r.fds, func(x int) bool { return x == fd })
	r.settleIfRunning()
}

func (r *rig) settleIfRunning() {
	if r.loop != nil {
		r.settle()
	}
}

func (r *rig) rst(fd int) {
	r.t.Helper()
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		r.t.Fatal(err)
	}
	r.hangUp(fd)
}

// flow returns the newest connection.
func (r *rig) flow() *flow {
	r.t.Helper()
	fl := r.f.lanes[r.loop].first
	if fl == nil {
		r.t.Fatal("no connection is open")
	}
	return fl
}

// is checks what the newest connection was found to be.
func (r *rig) is(kind protocol.Kind, reason detect.Reason) {
	r.t.Helper()
	if fl := r.flow(); fl.kind != kind || fl.reason != reason {
		r.t.Errorf("protocol %s by %s, want %s by %s", fl.kind, fl.reason, kind, reason)
	}
}

// gone waits until no connection is left, and checks that nothing of them is.
func (r *rig) gone() {
	r.t.Helper()
	r.until("the end of all connections", func() bool { return r.f.Open() == 0 })
	if n := r.loop.Load(); n != 0 {
		r.t.Errorf("the load is %d with no connection", n)
	}
	if n := r.f.detecting.Load(); n != 0 {
		r.t.Errorf("%d connections are in detection although none is open", n)
	}
	if r.f.lanes[r.loop].first != nil {
		r.t.Error("a connection is still listed")
	}
}

// counts returns the lines of /metrics whose name begins with one of names,
// without what is the same everywhere.
func (r *rig) counts(names ...string) []string {
	r.t.Helper()
	w := httptest.NewRecorder()
	r.m.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	same := regexp.MustCompile(`\b(direction|target_\w+|tls|no_tls_reason|port)="[^"]*",?`)
	tidy := strings.NewReplacer("{}", "", ",}", "}")
	var lines []string
	for line := range strings.Lines(w.Body.String()) {
		for _, name := range names {
			if strings.HasPrefix(line, name) && !strings.HasSuffix(line, " 0\n") {
				lines = append(lines, tidy.Replace(same.ReplaceAllString(strings.TrimSpace(line), "")))
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// counted compares.
func (r *rig) counted(names []string, want ...string) {
	r.t.Helper()
	slices.Sort(want)
	if d := cmp.Diff(want, r.counts(names...)); d != "" {
		r.t.Errorf("metrics (-want +got):\n%s", d)
	}
}

// logged fails unless one line of the log holds all of the words.
func (r *rig) logged(words ...string) {
	r.t.Helper()
	for line := range strings.Lines(r.log.String()) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			return
		}
	}
	r.t.Errorf("no log line has %q:\n%s", words, r.log.String())
}

// openFDs counts the descriptors of this process.
func openFDs(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
