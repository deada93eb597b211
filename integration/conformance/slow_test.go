package conformance

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/integration/built"
)

// sloth is a client that does one thing as slowly as it can.
type sloth struct {
	name   string
	start  string // sent at once
	drip   string // then one byte of it at a time, from the start again
	reader bool   // reads a few bytes at a time instead
}

func sloths() []sloth {
	return []sloth{
		{name: "a request line that does not end", start: "GET /stock", drip: "/7"},
		{name: "a head that does not end", start: "GET / HTTP/1.1\r\nHost: shop.example\r\n", drip: "X-Wait: 1\r\n"},
		{name: "a body that does not end", start: "POST / HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 100000\r\n\r\n", drip: "x"},
		{name: "a preface that does not end", start: "PRI * HTTP", drip: "/2.0\r\n\r\nSM\r\n\r"},
		{name: "a ClientHello that does not end", start: "\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03", drip: "\x00"},
		{name: "an answer that is not read", start: "GET /bytes/4000000 HTTP/1.1\r\nHost: shop.example\r\n\r\n", reader: true},
	}
}

func TestSlowClientsHarmNobody(t *testing.T) {
	const each, lasting = 100, 2500 * time.Millisecond
	t.Parallel()
	p := built.Start(t, program, shop(t).addr)
	before := built.RSS(t, p.PID())
	over := make(chan struct{})
	var group sync.WaitGroup
	var ended atomic.Int64
	for _, s := range sloths() {
		for range each {
			c := dial(t, p.In)
			group.Go(func() {
				if err := s.crawl(c, over); err != nil {
					ended.Add(1)
				}
			})
		}
	}
	probes, slowest := 0, time.Duration(0)
	for deadline := time.Now().Add(lasting); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		began := time.Now()
		body, err := get(client(t, p.In, "HTTP/1"), "/probe")
		if err != nil || body != "GET /probe 0" {
			t.Fatalf("an honest client gets %q (%v)", body, err)
		}
		probes++
		slowest = max(slowest, time.Since(began))
	}
	grown := built.RSS(t, p.PID()) - before
	close(over)
	group.Wait()
	t.Logf("%d slow clients, %d honest ones, the slowest after %s; %d KiB more", each*len(sloths()), probes, slowest, grown)
	if slowest > 3*time.Second {
		t.Errorf("an honest client was served after %s only", slowest)
	}
	if grown > each*len(sloths())*32 {
		t.Errorf("%d slow clients cost %d KiB", each*len(sloths()), grown)
	}
	if n := ended.Load(); n != 0 {
		t.Errorf("%d slow clients were cut within %s: they may take their time", n, lasting)
	}
}

// crawl goes on until over is closed.
func (s sloth) crawl(c *net.TCPConn, over <-chan struct{}) error {
	defer c.Close()
	if s.reader {
		narrow(c)
	}
	if _, err := io.WriteString(c, s.start); err != nil {
		return err
	}
	b := make([]byte, 32)
	for i := 0; ; i++ {
		select {
		case <-over:
			return nil
		case <-time.After(100 * time.Millisecond):
		}
		var err error
		switch {
		case s.reader:
			_, err = c.Read(b)
		case i < len(s.drip) || len(s.drip) < 3:
			_, err = io.WriteString(c, s.drip[i%len(s.drip):i%len(s.drip)+1])
		}
		if err != nil {
			return err
		}
	}
}

// narrow gives a socket the least receive buffer there is (socket(7), SO_RCVBUF).
func narrow(c *net.TCPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 2048) })
}
