package forward

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/internal/listen"
	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/detect"
	"github.com/meshctl/meshctl/proxy/metrics"
)

// router sends every connection on with its zero Route.
type router struct{}

func (router) Route(_, dst netip.AddrPort) (Route, error) {
	return Route{Target: dst, Early: true}, nil
}

// TestConnectionsOfSeveralRunningLoopsAreServedAndListed runs loops as the
// product does, with real time and blocking clients.
func TestConnectionsOfSeveralRunningLoopsAreServedAndListed(t *testing.T) {
	echo := echoServer(t)
	var loops []*conn.Loop
	for range 3 {
		l, err := conn.NewLoop()
		if err != nil {
			t.Fatal(err)
		}
		loops = append(loops, l)
	}
	cfg := Config{DetectTimeout: 10 * time.Second, EarlyDialAfter: time.Second, ConnectTimeout: time.Second, FixedTarget: echo}
	f := New(cfg, metrics.Inbound, router{}, metrics.New(metrics.Config{}), slog.New(slog.DiscardHandler), &detect.Memory{}, loops)
	sockets := listen.Sockets{}
	if _, err := sockets.Open(listen.Inbound, []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}); err != nil {
		t.Fatal(err)
	}
	fd := sockets[listen.Inbound][0]
	at, err := conn.LocalAddr(fd)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range loops {
		if i > 0 {
			if fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.Listen(fd, loops, f); err != nil {
			t.Fatal(err)
		}
	}
	var running sync.WaitGroup
	for _, l := range loops {
		running.Go(func() {
			if err := l.Run(); err != nil {
				t.Error(err)
			}
		})
	}
	const clients = 30
	var open []net.Conn
	for i := range clients {
		open = append(open, talk(t, at, fmt.Sprintf("hello %d\n", i)))
	}
	if n := len(f.Connections()); n != clients || f.Open() != clients {
		t.Errorf("%d listed, %d open, want %d", n, f.Open(), clients)
	}
	for _, l := range loops {
		if l.Load() < clients/3-3 {
			t.Errorf("the loads are uneven: %d, %d, %d", loops[0].Load(), loops[1].Load(), loops[2].Load())
		}
	}
	for _, c := range open {
		c.Close()
	}
	for deadline := time.Now().Add(5 * time.Second); f.Open() > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if n := f.Open(); n != 0 {
		t.Errorf("%d connections open after their clients have gone", n)
	}
	for _, l := range loops {
		l.Stop()
	}
	running.Wait()
	if got := f.Connections(); len(got) != 0 {
		t.Errorf("listed after the end: %v", got)
	}
	f.Drain() // after the end: nothing
}

func talk(t *testing.T, at netip.AddrPort, line string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte(line)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(line))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != line {
		t.Fatalf("got %q, %v", got, err)
	}
	return c
}

// echoServer answers what it hears until the end of the test.
func echoServer(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return netip.MustParseAddrPort(l.Addr().String())
}
