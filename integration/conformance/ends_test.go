package conformance

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"
)

// patience bounds what should take no time at all, on a machine that is busy with
// other tests. Where a wait is what is tested, it is many times longer than this.
const patience = 10 * time.Second

// origin is the server behind a proxy.
type origin struct {
	*net.TCPListener
	addr netip.AddrPort
}

// listen opens an origin on a free port of loopback; it closes with the test.
func listen(t testing.TB) *origin {
	t.Helper()
	l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &origin{TCPListener: l, addr: l.Addr().(*net.TCPAddr).AddrPort()}
}

// take accepts one connection within a time.
func (o *origin) take(t testing.TB, within time.Duration) *net.TCPConn {
	t.Helper()
	o.SetDeadline(time.Now().Add(within))
	c, err := o.AcceptTCP()
	if err != nil {
		t.Fatalf("nothing has reached the origin within %s: %v", within, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// none fails the test if a connection comes within a time.
func (o *origin) none(t testing.TB, within time.Duration) {
	t.Helper()
	o.SetDeadline(time.Now().Add(within))
	if c, err := o.AcceptTCP(); err == nil {
		c.Close()
		t.Errorf("a connection has reached the origin within %s", within)
	}
}

// serve gives every connection to handle, each on a goroutine of its own, until
// the test's end, and joins them. handle's connection is closed after it.
func (o *origin) serve(t testing.TB, handle func(*net.TCPConn)) {
	t.Helper()
	s := &serving{open: map[*net.TCPConn]bool{}}
	s.group.Go(func() { s.accept(o, handle) })
	t.Cleanup(func() {
		o.Close()
		s.cut()
		s.group.Wait()
	})
}

type serving struct {
	group sync.WaitGroup
	mu    sync.Mutex
	open  map[*net.TCPConn]bool
	over  bool
}

func (s *serving) accept(o *origin, handle func(*net.TCPConn)) {
	for {
		c, err := o.AcceptTCP()
		if err != nil {
			return // closed by the test's end
		}
		if !s.add(c) {
			return
		}
		s.group.Go(func() {
			defer s.remove(c)
			handle(c)
		})
	}
}

func (s *serving) add(c *net.TCPConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		c.Close()
		return false
	}
	s.open[c] = true
	return true
}

func (s *serving) remove(c *net.TCPConn) {
	c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// cut ends the connections that are left.
func (s *serving) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for c := range s.open {
		c.Close()
	}
}

// dial connects to a proxy; the connection closes with the test.
func dial(t testing.TB, to netip.AddrPort) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout("tcp4", to.String(), patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// local is a connection's own address.
func local(c net.Conn) netip.AddrPort { return c.LocalAddr().(*net.TCPAddr).AddrPort() }

// send writes all of b.
func send(t testing.TB, c net.Conn, b string) {
	t.Helper()
	c.SetWriteDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, b); err != nil {
		t.Fatalf("writing %d bytes: %v", len(b), err)
	}
}

// receive reads as many bytes as want has, and compares them.
func receive(t testing.TB, c net.Conn, want string) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	b := make([]byte, len(want))
	n, err := io.ReadFull(c, b)
	if err != nil {
		t.Fatalf("after %d of %d bytes (%.60q): %v", n, len(want), b[:n], err)
	}
	if string(b) != want {
		t.Fatalf("received %.200q, want %.200q", b, want)
	}
}

// receiveEnd reads the peer's FIN and nothing before it.
func receiveEnd(t testing.TB, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	b := make([]byte, 64)
	if n, err := c.Read(b); n > 0 || !errors.Is(err, io.EOF) {
		t.Fatalf("read %q and %v, want the end", b[:n], err)
	}
}

// portOf is an origin's port in digits.
func portOf(o *origin) string { return strconv.Itoa(int(o.addr.Port())) }
