package conformance

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/built"
)

// mark is what clients send first here: no HTTP, known from its first byte.
const mark = "\x00mark\n"

// eachKind runs a test with a proxy that finds out what passes and with one that
// is told that the port is opaque.
func eachKind(t *testing.T, test func(t *testing.T, p *built.Proxy, o *origin)) {
	for _, kind := range []string{"detected", "declared opaque"} {
		t.Run(kind, func(t *testing.T) {
			o := listen(t)
			var flags []string
			if kind != "detected" {
				flags = []string{"--opaque-ports", portOf(o)}
			}
			test(t, built.Start(t, program, o.addr, flags...), o)
		})
	}
}

// through opens a connection through p and returns its two ends, after the mark.
func through(t *testing.T, p *built.Proxy, o *origin) (client, server *net.TCPConn) {
	t.Helper()
	client = dial(t, p.In)
	send(t, client, mark)
	server = o.take(t, patience)
	receive(t, server, mark)
	return client, server
}

// noise is n bytes that no end can take for others.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	var key [32]byte
	key[0] = byte(seed)
	rand.NewChaCha8(key).Read(b)
	return b
}

// readAll reads to the end of c, reports how it ended and what the bytes were.
func readAll(c net.Conn) (sum [32]byte, n int64, err error) {
	c.SetReadDeadline(time.Now().Add(3 * patience))
	h := sha256.New()
	n, err = io.Copy(h, c)
	return [32]byte(h.Sum(nil)), n, err
}

func TestBothDirectionsCarryTheSameBytesAtOnce(t *testing.T) {
	eachKind(t, func(t *testing.T, p *built.Proxy, o *origin) {
		client, server := through(t, p, o)
		up, down := noise(1, 12<<20), noise(2, 17<<20+1)
		var group sync.WaitGroup
		for _, way := range []struct {
			name     string
			from, to *net.TCPConn
			bytes    []byte
		}{{"up", client, server, up}, {"down", server, client, down}} {
			group.Go(func() {
				way.from.SetWriteDeadline(time.Now().Add(3 * patience))
				if _, err := way.from.Write(way.bytes); err != nil {
					t.Errorf("%s: %v", way.name, err)
				}
				way.from.CloseWrite()
			})
			group.Go(func() {
				sum, n, err := readAll(way.to)
				if err != nil || sum != sha256.Sum256(way.bytes) {
					t.Errorf("%s: %d of %d bytes have come, or others (%v)", way.name, n, len(way.bytes), err)
				}
			})
		}
		group.Wait()
		client.Close()
		server.Close()
		s := p.Settled(t)
		for _, c := range []struct {
			name, peer string
			want       int
		}{
			{"tcp_read_bytes_total", "src", len(mark) + len(up)}, {"tcp_write_bytes_total", "dst", len(mark) + len(up)},
			{"tcp_read_bytes_total", "dst", len(down)}, {"tcp_write_bytes_total", "src", len(down)},
		} {
			if got := s.Sum(c.name, `direction="inbound"`, `peer="`+c.peer+`"`); got != float64(c.want) {
				t.Errorf("%s of %s is %v, want %d", c.name, c.peer, got, c.want)
			}
		}
	})
}

func TestAClientMayEndItsSideAndStillBeAnswered(t *testing.T) {
	eachKind(t, func(t *testing.T, p *built.Proxy, o *origin) {
		client, server := through(t, p, o)
		client.CloseWrite()
		receiveEnd(t, server)
		time.Sleep(100 * time.Millisecond)
		late := noise(3, 700_000)
		go server.Write(late) // ends with the connection at the latest
		got := make([]byte, len(late))
		client.SetReadDeadline(time.Now().Add(patience))
		if n, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, late) {
			t.Fatalf("%d of %d bytes have come, or others (%v)", n, len(late), err)
		}
		server.Close()
		receiveEnd(t, client)
	})
}

func TestAServerMayEndItsSideAndStillBeSentTo(t *testing.T) {
	eachKind(t, func(t *testing.T, p *built.Proxy, o *origin) {
		client, server := through(t, p, o)
		send(t, server, answer)
		server.CloseWrite()
		receive(t, client, answer)
		receiveEnd(t, client)
		time.Sleep(100 * time.Millisecond)
		late := noise(4, 700_000)
		go func() { client.Write(late); client.Close() }()
		if sum, n, err := readAll(server); err != nil || sum != sha256.Sum256(late) {
			t.Fatalf("%d of %d bytes have come, or others (%v)", n, len(late), err)
		}
	})
}

func TestAResetStaysAReset(t *testing.T) {
	eachKind(t, func(t *testing.T, p *built.Proxy, o *origin) {
		for _, who := range []string{"client", "server"} {
			client, server := through(t, p, o)
			from, to := client, server
			if who == "server" {
				from, to = server, client
			}
			send(t, from, answer)
			receive(t, to, answer)
			from.SetLinger(0) // Close sends a RST (socket(7))
			from.Close()
			if _, _, err := readAll(to); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("after the %s's RST the other end reads %v, want a reset", who, err)
			}
		}
		client, server := through(t, p, o)
		client.CloseWrite()
		receiveEnd(t, server)
		server.SetLinger(0)
		server.Close()
		if _, _, err := readAll(client); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("after a RST in answer to a FIN the client reads %v, want a reset", err)
		}
		if n := p.Settled(t).Sum("tcp_close_total", `errno="ECONNRESET"`, `peer="src"`); n != 3 {
			t.Errorf("%v connections are counted as reset, want 3", n)
		}
	})
}

func TestBytesBeforeAResetAreNotLost(t *testing.T) {
	o := listen(t)
	p := built.Start(t, program, o.addr)
	// The server answers, then resets because of unread bytes (RFC 2525, 2.17).
	client, server := through(t, p, o)
	send(t, client, "never read")
	time.Sleep(50 * time.Millisecond)
	send(t, server, answer)
	receive(t, client, answer)
	server.Close()
	if _, _, err := readAll(client); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client reads %v, want a reset", err)
	}
}

func TestSmallMessagesAreNotHeldBack(t *testing.T) {
	eachKind(t, func(t *testing.T, p *built.Proxy, o *origin) {
		client, server := through(t, p, o)
		const rounds = 100
		began := time.Now()
		for range rounds {
			for _, way := range [][2]*net.TCPConn{{client, server}, {server, client}} {
				send(t, way[0], "1")
				time.Sleep(200 * time.Microsecond) // a segment of its own
				send(t, way[0], "2")
				receive(t, way[1], "12")
			}
		}
		// Nagle's algorithm would hold the second byte back until the first is
		// acknowledged, which takes up to 40 ms when no answer carries it along.
		if each := time.Since(began) / rounds; each > 25*time.Millisecond {
			t.Errorf("a round takes %s", each)
		}
	})
}

func TestARefusedTargetResetsTheClientAtOnce(t *testing.T) {
	eachKind(t, func(t *testing.T, p *built.Proxy, o *origin) {
		o.Close() // its port refuses from here on
		for range 3 {
			began := time.Now()
			if err := refused(p.In); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("the client was told after %s", took)
			}
		}
		if n := p.Settled(t).Sum("inbound_tcp_errors_total"); n != 3 {
			t.Errorf("%v errors are counted, want 3", n)
		}
	})
}

// refused connects, sends the mark and returns nil if a RST comes at any point of
// that. The kernel tells of it once: to the connect, the write or the read.
func refused(to netip.AddrPort) error {
	c, err := net.DialTimeout("tcp4", to.String(), patience)
	if err != nil {
		return unlessReset(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, mark); err != nil {
		return unlessReset(err)
	}
	_, err = c.Read(make([]byte, 1))
	return unlessReset(err)
}

func unlessReset(err error) error {
	if isReset(err) {
		return nil
	}
	return fmt.Errorf("the client sees %v, want a reset", err)
}

func TestABurstOfConnectionsIsServedWhole(t *testing.T) {
	eachKind(t, func(t *testing.T, p *built.Proxy, o *origin) {
		const clients = 1000
		o.serve(t, func(c *net.TCPConn) { io.Copy(c, c) })
		var group sync.WaitGroup
		for i := range clients {
			group.Go(func() {
				if err := echo(p, noise(uint64(i), 9000)); err != nil {
					t.Errorf("client %d: %v", i, err)
				}
			})
		}
		group.Wait()
		s := p.Settled(t)
		if got := s.Sum("tcp_open_total", `peer="src"`); got != clients {
			t.Errorf("%v connections are counted, want %d", got, clients)
		}
		if got := s.Sum("tcp_read_bytes_total", `peer="dst"`); got != clients*float64(len(mark)+9000) {
			t.Errorf("%v bytes are counted back, want %d", got, clients*(len(mark)+9000))
		}
	})
}

// echo sends the mark and b through p to a server that sends back what it gets.
func echo(p *built.Proxy, b []byte) error {
	c, err := net.DialTimeout("tcp4", p.In.String(), patience)
	if err != nil {
		return err
	}
	defer c.Close()
	b = append([]byte(mark), b...)
	c.SetDeadline(time.Now().Add(3 * patience))
	if _, err := c.Write(b); err != nil {
		return err
	}
	got := make([]byte, len(b))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if !bytes.Equal(got, b) {
		return errors.New("other bytes have come back")
	}
	return nil
}
