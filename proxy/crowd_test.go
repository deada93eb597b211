package proxy

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestACrowdIsServedWhileEverythingIsWatched has clients of all kinds come and go
// while metrics and connections are read: with -race this is where loops, admin
// server and metrics meet.
func TestACrowdIsServedWhileEverythingIsWatched(t *testing.T) {
	r := run(t, serve(t, chatter), nil)
	var crowd sync.WaitGroup
	failed := make(chan error, 1000)
	for i := range 8 {
		crowd.Go(func() {
			for round := range 25 {
				if err := visit(r, i, round); err != nil {
					failed <- fmt.Errorf("client %d, round %d: %w", i, round, err)
				}
			}
		})
	}
	gone := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for path := "/metrics"; ; {
			select {
			case <-gone:
				return
			case <-time.After(time.Millisecond):
			}
			if status, _ := r.get(path); status != http.StatusOK {
				failed <- fmt.Errorf("%s: %d", path, status)
			}
			path = map[string]string{"/metrics": "/connections", "/connections": "/metrics"}[path]
		}
	})
	crowd.Wait()
	close(gone)
	watching.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	for deadline := time.Now().Add(5 * time.Second); r.p.Open() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are left", r.p.Open())
		}
	}
	for _, d := range []string{"inbound", "outbound"} {
		r.metric("0", "tcp_open_connections{", `direction="`+d+`"`, `peer="src"`)
		r.metric("100", "tcp_open_total{", `direction="`+d+`"`, `peer="src"`)
	}
}

// chatter answers HTTP/1 requests with fixed bytes and echoes everything else.
func chatter(c net.Conn) {
	b := make([]byte, 32<<10)
	for {
		n, err := c.Read(b)
		if err != nil {
			return
		}
		answer := b[:n]
		if b[0] == 'G' {
			answer = []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

// visit is one client: HTTP, text, bulk, or one that leaves with a RST.
func visit(r *running, i, round int) error {
	addr := r.inbound()
	if i%2 == 1 {
		addr = r.outbound()
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	switch (i/2 + round) % 4 {
	case 0:
		return exchange(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", len("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"))
	case 1:
		return exchange(c, "*1\r\n$4\r\nPING\r\n", len("*1\r\n$4\r\nPING\r\n"))
	case 2:
		return exchange(c, "\x00"+string(make([]byte, rand.IntN(300_000))), -1)
	default:
		if _, err := io.WriteString(c, "*1\r\n"); err != nil {
			return err
		}
		return c.(*net.TCPConn).SetLinger(0)
	}
}

// exchange sends a question and reads n bytes, or what was sent if n is -1.
func exchange(c net.Conn, question string, n int) error {
	if n < 0 {
		n = len(question)
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := io.WriteString(c, question)
		wrote <- err
	}()
	_, err := io.ReadFull(c, make([]byte, n))
	if err := errors.Join(err, <-wrote); err != nil && !errors.Is(err, syscall.EPIPE) {
		return err
	}
	return nil
}
