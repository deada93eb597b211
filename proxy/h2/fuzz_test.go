package h2_test

import (
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/h2"
	"github.com/meshctl/meshctl/proxy/message"
)

// frames makes bytes that are more often frames than random bytes are: every
// four of them choose a type, flags, a stream and a length; the payload
// follows as it is.
func frames(b []byte) []byte {
	var out []byte
	for len(b) >= 4 {
		k, flags, id, n := b[0]%11, b[1]&0x2d, b[2]%8, min(int(b[3]), len(b)-4)
		out = append(out, 0, byte(n>>8), byte(n), k, flags, 0, 0, 0, id)
		out = append(out, b[4:4+n]...)
		b = b[4+n:]
	}
	return append(out, b...)
}

// silentPair is a connected pair of sockets: one for a loop, one for the test.
func silentPair(t testing.TB) (fd int, other net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	fds, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	a := ln.Addr().(*net.TCPAddr).AddrPort()
	if err := unix.Connect(fds, &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}); err != nil {
		t.Fatal(err)
	}
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.SetNonblock(fds, true)
	return fds, c
}

// FuzzServer has a server read frames. Whatever they are, it neither panics nor
// grows; and unless it has ended the connection, it still answers a PING.
func FuzzServer(f *testing.F) {
	f.Add([]byte("\x04\x00\x00\x00\x01\x05\x01\x07\x82\x86\x84\x41\x01a\x00\x00\x01\x00\x03ab"), uint8(3))
	f.Add([]byte("\x04\x00\x00\x06\x00\x04\x00\x00\x00\x01\x01\x05\x03\x06\x82\x86\x84\x41\x01a"), uint8(1))
	f.Add([]byte("\x04\x00\x00\x00\x01\x01\x01\x02\x82\x86\x09\x04\x01\x03\x84\x41\x01a\x08\x00\x01\x04\x00\x00\x00\x05"), uint8(200))
	f.Fuzz(func(t *testing.T, script []byte, cut uint8) {
		fd, c := silentPair(t)
		defer c.Close()
		loop, err := conn.NewLoop()
		if err != nil {
			t.Fatal(err)
		}
		over := make(chan error, 1)
		ended := make(chan error, 1)
		a := &app{events: make(chan string, 100)}
		loop.Post(func() {
			sock := &conn.Socket{}
			if err := loop.Attach(sock, fd, &downstream{}); err != nil {
				ended <- err
				return
			}
			s := h2.NewServer(loop, sock, h2.Config{MaxStreams: 4}, a, func(err error) { ended <- err })
			s.Start(nil)
		})
		go func() { over <- loop.Run() }()
		defer func() {
			loop.Stop()
			<-over
		}()

		said := append([]byte(http2.ClientPreface), frames(script)...)
		at := min(int(cut), len(said))
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = c.Write(said[:at])
		runtime.Gosched()
		_, _ = c.Write(said[at:])
		// What is cut is completed by zeros, an unfinished block ends there.
		_, _ = c.Write(make([]byte, 300))
		_ = c.(*net.TCPConn).CloseWrite()
		if n, err := io.Copy(io.Discard, c); n > 10<<20 || isTimeout(err) {
			t.Fatalf("%d bytes came, %v", n, err)
		}
		select {
		case err := <-ended:
			noPanic(t, err)
		case <-time.After(5 * time.Second):
			t.Fatal("the connection does not end")
		}
	})
}

// noPanic fails for a panic, which otherwise ends no more than its connection.
func noPanic(t *testing.T, err error) {
	if err != nil && strings.HasPrefix(err.Error(), "panic: ") {
		t.Fatal(err)
	}
}

func isTimeout(err error) bool {
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}

// FuzzClient has a client with four requests open read frames.
func FuzzClient(f *testing.F) {
	f.Add([]byte("\x04\x00\x00\x00\x01\x05\x01\x01\x88\x01\x05\x03\x01\x88\x03\x00\x05\x04\x00\x00\x00\x08"), uint8(3))
	f.Add([]byte("\x04\x00\x00\x00\x01\x04\x01\x01\x88\x00\x00\x01\x05hello\x00\x01\x01\x00\x07\x00\x00\x08\x00\x00\x00\x03\x00\x00\x00\x00"), uint8(20))
	f.Fuzz(func(t *testing.T, script []byte, cut uint8) {
		fd, c := silentPair(t)
		defer c.Close()
		loop, err := conn.NewLoop()
		if err != nil {
			t.Fatal(err)
		}
		over := make(chan error, 1)
		ended := make(chan error, 1)
		told := make(chan int, 1)
		r := &counting{}
		loop.Post(func() {
			sock := &conn.Socket{}
			if err := loop.Attach(sock, fd, &downstream{}); err != nil {
				ended <- err
				return
			}
			cl := h2.NewClient(loop, sock, h2.Config{}, nil, func(_ *h2.Client, err error) { told <- r.ends; ended <- err })
			cl.Start()
			for i := range 4 {
				h := message.Head{Method: []byte("POST"), Path: []byte("/"), Authority: []byte("a"), Length: message.Unknown}
				s := cl.Open(r)
				s.SendHead(&h, i%2 == 0)
				s.SendData(make([]byte, 1000), false)
			}
		})
		go func() { over <- loop.Run() }()
		defer func() {
			loop.Stop()
			<-over
		}()
		said := frames(script)
		at := min(int(cut), len(said))
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = c.Write(said[:at])
		runtime.Gosched()
		_, _ = c.Write(said[at:])
		_ = c.(*net.TCPConn).CloseWrite()
		if n, err := io.Copy(io.Discard, c); n > 1<<20 || isTimeout(err) {
			t.Fatalf("%d bytes came, %v", n, err)
		}
		select {
		case err := <-ended:
			noPanic(t, err)
			if n := <-told; n != 4 {
				t.Fatalf("%d of 4 requests were told of their end", n)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("the connection does not end")
		}
	})
}

// counting counts ends; a stream has one, and hears nothing after it.
type counting struct {
	ends int
	over map[message.Stream]bool
}

func (c *counting) hear(s message.Stream, end bool) {
	if c.over[s] {
		panic("told of something after the end")
	}
	if end {
		if c.over == nil {
			c.over = map[message.Stream]bool{}
		}
		c.over[s] = true
		c.ends++
	}
}

func (c *counting) Head(s message.Stream, _ *message.Head, end bool) { c.hear(s, end) }
func (c *counting) Data(s message.Stream, _ []byte, end bool)        { c.hear(s, end) }
func (c *counting) Trailers(s message.Stream, _ *message.Head)       { c.hear(s, true) }
func (c *counting) Aborted(s message.Stream, _ message.Code)         { c.hear(s, true) }
func (c *counting) Drained(s message.Stream)                         { c.hear(s, false) }
