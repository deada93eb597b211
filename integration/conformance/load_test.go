package conformance

import (
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/integration/built"
)

// fill writes to c until its peer has taken nothing for a while, and returns how
// much it took.
func fill(t *testing.T, c *net.TCPConn, most int) int {
	t.Helper()
	b := make([]byte, 64<<10)
	sum := 0
	for sum < most {
		c.SetWriteDeadline(time.Now().Add(700 * time.Millisecond))
		n, err := c.Write(b)
		sum += n
		if err != nil {
			break
		}
	}
	return sum
}

func TestASlowReaderStopsTheWriterAndCostsLittle(t *testing.T) {
	const readers, most = 4, 64 << 20
	t.Parallel()
	o := listen(t)
	p := built.Start(t, program, o.addr)
	before := built.RSS(t, p.PID())
	for range readers {
		_, server := through(t, p, o)
		// What the kernel holds on the way: the send buffers and receive buffers of
		// two connections, up to 4 and 6 MiB each (tcp_wmem and tcp_rmem, tcp(7)).
		if took := fill(t, server, most); took >= most {
			t.Fatalf("a reader that reads nothing has taken %d MiB", took>>20)
		}
	}
	// A pending read of 64 KiB each is what the relay may hold, and a pipe each.
	if grown := built.RSS(t, p.PID()) - before; grown > 2048 {
		t.Errorf("%d slow readers cost %d KiB", readers, grown)
	}
	for i, c := range p.Connections(t) {
		if c.BytesOut == 0 {
			t.Errorf("connection %d has passed nothing: this test looks at nothing", i)
		}
	}
}

func TestAnIdleConnectionCostsTwoDescriptorsAndLittleMemory(t *testing.T) {
	const idle = 2000
	eachKind(t, func(t *testing.T, p *built.Proxy, o *origin) {
		raiseDescriptors(t, 3*idle)
		o.serve(t, func(c *net.TCPConn) { io.Copy(c, c) })
		if err := echo(p, nil); err != nil { // what the first connection costs is none's
			t.Fatal(err)
		}
		p.Settled(t)
		rss, fds := built.RSS(t, p.PID()), built.Descriptors(t, p.PID())
		for range idle {
			c := dial(t, p.In)
			send(t, c, mark)
			receive(t, c, mark)
		}
		// The admin server's own connections come and go.
		if got := built.Descriptors(t, p.PID()) - fds; got < 2*idle-10 || got > 2*idle+10 {
			t.Errorf("%d idle connections hold %d descriptors, want 2 each", idle, got)
		}
		if each := float64(built.RSS(t, p.PID())-rss) / idle; each > 4 {
			t.Errorf("an idle connection costs %.1f KiB, want at most 4", each)
		}
	})
}

func TestDescriptorsComeBackAtOnce(t *testing.T) {
	o := listen(t)
	p := built.Start(t, program, o.addr)
	o.serve(t, func(c *net.TCPConn) { io.Copy(c, c) })
	before := built.Descriptors(t, p.PID())
	for i := range 200 {
		if err := echo(p, noise(uint64(i), 300_000)); err != nil { // enough for splice and its pipe
			t.Fatal(err)
		}
	}
	p.Settled(t)
	// Some pipes are kept for the next bulk stream.
	if after := built.Descriptors(t, p.PID()); after > before+40 {
		t.Errorf("%d descriptors are open after all connections are closed, %d before", after, before)
	}
}

// raiseDescriptors lets this process open n more.
func raiseDescriptors(t *testing.T, n uint64) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur < n {
		t.Fatalf("this test needs %d descriptors, the limit is %d", n, limit.Cur)
	}
}

func TestTheProxyOutlivesALackOfDescriptors(t *testing.T) {
	const limit, clients = 128, 400
	t.Parallel()
	o := listen(t)
	p := built.Start(t, program, o.addr)
	o.serve(t, func(c *net.TCPConn) { io.Copy(c, c) })
	if err := unix.Prlimit(p.PID(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: limit}, nil); err != nil {
		t.Fatal(err)
	}
	var waiting []*net.TCPConn
	for range clients {
		c := dial(t, p.In) // the kernel accepts what the proxy cannot
		send(t, c, mark)
		waiting = append(waiting, c)
	}
	time.Sleep(500 * time.Millisecond)
	if n := built.Descriptors(t, p.PID()); n < limit-1 {
		t.Fatalf("only %d descriptors of %d are taken: this test looks at nothing", n, limit)
	}
	before, began := built.CPU(t, p.PID()), time.Now()
	time.Sleep(1500 * time.Millisecond)
	if spent := built.CPU(t, p.PID()) - before; spent > time.Since(began)/10 {
		t.Errorf("while full the proxy has used %s of CPU in %s", spent, time.Since(began))
	}
	for _, c := range waiting {
		c.Close()
	}
	// Until the proxy has read the ends of those, there is still none to be had.
	err := echo(p, noise(5, 1000))
	for deadline := time.Now().Add(3 * time.Second); err != nil && time.Now().Before(deadline); err = echo(p, noise(5, 1000)) {
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		t.Errorf("after the lack of descriptors: %v", err)
	}
	if n := p.Sample(t).Sum("meshctl_accept_errors_total"); n == 0 {
		t.Error("no failed accept is counted")
	}
	if lines := strings.Count(p.Logged(t), "accepting failed"); lines == 0 || lines > 2 {
		t.Errorf("the log has %d lines of it, want one in 10 s", lines)
	}
}

func TestATargetThatNeverAnswersEndsAtTheConnectTimeout(t *testing.T) {
	t.Parallel()
	// A full backlog that nobody accepts from: further SYNs are dropped (listen(2)).
	l := listen(t)
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), 0) }); err != nil {
		t.Fatal(err)
	}
	for full := false; !full; {
		c, err := net.DialTimeout("tcp4", l.addr.String(), 500*time.Millisecond)
		if full = err != nil; !full {
			defer c.Close()
		}
	}
	p := built.Start(t, program, l.addr, "--connect-timeout", "700ms")
	c := dial(t, p.In)
	began := time.Now()
	send(t, c, mark)
	c.SetReadDeadline(time.Now().Add(patience))
	n, err := c.Read(make([]byte, 1))
	if took := time.Since(began); err == nil || took < 600*time.Millisecond {
		t.Errorf("the client reads %d bytes and %v after %s, want a reset after the timeout", n, err, took)
	}
	if n := p.Settled(t).Sum("tcp_close_total", `errno="ETIMEDOUT"`); n != 1 {
		t.Errorf("%v connections are counted as timed out, want 1", n)
	}
}

func TestTheProxyRefusesToBeItsOwnTarget(t *testing.T) {
	for _, port := range []uint16{4143, 4140, 4191} {
		p := built.Start(t, program, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port))
		if err := refused(p.In); err != nil {
			t.Errorf("port %d: %v", port, err)
		}
		if n := p.Sample(t).Sum("meshctl_refused_total", `reason="own_listener"`); n != 1 {
			t.Errorf("port %d: %v connections are refused, want 1", port, n)
		}
	}
}
