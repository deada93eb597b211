package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/lab"
)

type layer uint8

const (
	opaqueLayer layer = iota // the contender relays TCP
	http1Layer
	http2Layer
)

// Ports of the backends in the pod.
const (
	http1Port  = 8080
	http2Port  = 8081
	echoPort   = 8082 // sends back what comes
	sourcePort = 8083 // sends without end
	greetPort  = 8084 // sends a line and waits
	oncePort   = 8085 // sends back one byte and closes
)

// figures are what one measurement gives, by unit.
type figures map[string]float64

// load is one kind of work.
type load struct {
	name      string
	layer     layer
	port      uint16
	proxyOnly bool // there is nothing to measure without a proxy
	run       func(b *bench, t *testing.T, r *running) figures
}

// Units of figures. Of those in lowerIsBetter less is better.
const (
	perSecond   = "requests/s"
	connections = "connections/s"
	gigabits    = "Gbit/s"
	cpuRequests = "CPU s per 100k requests"
	cpuConns    = "CPU s per 100k connections"
	cpuBytes    = "CPU s per GB"
	kibEach     = "KiB per idle connection"
	fdEach      = "descriptors per idle connection"
	readyMS     = "ms from exec to ready"
	idleMiB     = "MiB when idle"
	firstByte   = "us to the server's first byte"
)

func lowerIsBetter(unit string) bool {
	return unit != perSecond && unit != connections && unit != gigabits
}

func loads() []load {
	return []load{
		{name: "http1", layer: http1Layer, port: http1Port, run: requests(64, 1)},
		{name: "http2", layer: http2Layer, port: http2Port, run: requests(8, 32)},
		{name: "bulk1", port: sourcePort, run: bulk(1)},
		{name: "bulk64", port: sourcePort, run: bulk(64)},
		{name: "connect", port: oncePort, run: connect},
		{name: "idle", port: echoPort, proxyOnly: true, run: idle},
		{name: "start", port: echoPort, proxyOnly: true, run: startUp},
		{name: "first-byte", port: greetPort, run: greeted},
	}
}

// measure starts a contender and puts the load on it.
func (b *bench) measure(t *testing.T, l load, c contender) figures {
	r := b.start(t, l, c)
	defer func() {
		if t.Failed() && r.Process != nil {
			t.Logf("the log of %s:\n%s", c.name, r.Log())
		}
		r.stop(t)
	}()
	if err := b.reachable(backend(l)); err != nil {
		t.Fatalf("%s behind %s: %v", l.name, c.name, err)
	}
	return l.run(b, t, r)
}

// reachable waits until a connection to a backend is accepted.
func (b *bench) reachable(to netip.AddrPort) (err error) {
	for range 100 {
		var c *net.TCPConn
		if c, err = b.dial(to); err == nil {
			c.SetLinger(0)
			return c.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

func (b *bench) dial(to netip.AddrPort) (*net.TCPConn, error) {
	return b.net.Peer.Dial(lab.Owner{}, netip.AddrPort{}, to, 5*time.Second)
}

// spent adds the contender's CPU time for a number of units to m.
func spent(t *testing.T, m figures, r *running, before time.Duration, unit string, n float64) {
	if r.Process != nil && n > 0 {
		m[unit] = (r.cpu(t) - before).Seconds() / n
	}
}

var (
	done     = regexp.MustCompile(`requests: .* (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout`)
	finished = regexp.MustCompile(`finished in [^,]*, ([0-9.]+) req/s`)
)

// requests has h2load ask for a page over and over.
func requests(clients, streams int) func(*bench, *testing.T, *running) figures {
	return func(b *bench, t *testing.T, r *running) figures {
		port, args := http2Port, []string{"-t1", "-c" + strconv.Itoa(clients), "-m" + strconv.Itoa(streams)}
		if streams == 1 {
			port, args = http1Port, append(args, "--h1")
		}
		url := fmt.Sprintf("http://%s/", netip.AddrPortFrom(lab.PodV4, uint16(port)))
		b.h2load(t, append(args, "-n", strconv.Itoa(clients*streams*4), url)) // warm up
		before := r.cpu(t)
		out := b.h2load(t, append(args, fmt.Sprintf("-D%dms", b.length.Milliseconds()), url))
		m := figures{}
		counts, rate := done.FindStringSubmatch(out), finished.FindStringSubmatch(out)
		if counts == nil || rate == nil || counts[2] != "0" || counts[3] != "0" {
			t.Fatalf("h2load has failed requests, or says nothing known:\n%s", out)
		}
		n, _ := strconv.ParseFloat(counts[1], 64)
		m[perSecond], _ = strconv.ParseFloat(rate[1], 64)
		spent(t, m, r, before, cpuRequests, n/100_000)
		return m
	}
}

func (b *bench) h2load(t *testing.T, args []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), b.length+30*time.Second)
	defer cancel()
	cmd := b.net.Peer.Command(ctx, "h2load", args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("h2load %v: %v\n%s", args, err, out.String())
	}
	return out.String()
}

// bulk reads what a source sends, over n connections.
func bulk(n int) func(*bench, *testing.T, *running) figures {
	return func(b *bench, t *testing.T, r *running) figures {
		var conns []*net.TCPConn
		for range n {
			c, err := b.dial(netip.AddrPortFrom(lab.PodV4, sourcePort))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			conns = append(conns, c)
		}
		b.drink(conns, b.length/4) // warm up
		before, began := r.cpu(t), time.Now()
		sum := float64(b.drink(conns, b.length))
		m := figures{gigabits: sum * 8 / 1e9 / time.Since(began).Seconds()}
		spent(t, m, r, before, cpuBytes, sum/1e9)
		return m
	}
}

// drink reads all connections for a time and returns how many bytes came.
func (b *bench) drink(conns []*net.TCPConn, d time.Duration) int64 {
	var sum atomic.Int64
	var group sync.WaitGroup
	deadline := time.Now().Add(d)
	for _, c := range conns {
		c.SetReadDeadline(deadline)
		group.Go(func() {
			buf := make([]byte, 256<<10)
			for {
				n, err := c.Read(buf)
				sum.Add(int64(n))
				if err != nil {
					return
				}
			}
		})
	}
	group.Wait()
	return sum.Load()
}

// connect opens a connection, sends a byte, reads it back and the end, and closes.
func connect(b *bench, t *testing.T, r *running) figures {
	const workers = 16
	to := netip.AddrPortFrom(lab.PodV4, oncePort)
	var n atomic.Int64
	failed := make(chan error, workers)
	before, began := r.cpu(t), time.Now()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			// The thread stays in the namespace for all of a worker's connections.
			err := b.net.Peer.Do(func() error {
				for time.Since(began) < b.length {
					if err := once(to); err != nil {
						return err
					}
					n.Add(1)
				}
				return nil
			})
			if err != nil {
				failed <- err
			}
		})
	}
	group.Wait()
	took := time.Since(began)
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
	m := figures{connections: float64(n.Load()) / took.Seconds()}
	spent(t, m, r, before, cpuConns, float64(n.Load())/100_000)
	return m
}

// idle holds connections on which a byte has passed each way.
func idle(b *bench, t *testing.T, r *running) figures {
	const n = 1000
	hold := func(count int) {
		for range count {
			c, err := b.dial(netip.AddrPortFrom(lab.PodV4, echoPort))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			c.SetDeadline(time.Now().Add(10 * time.Second))
			if _, err := c.Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	hold(10) // what the first ones cost is none's
	kib, descriptors := r.footprint(t)
	hold(n)
	time.Sleep(100 * time.Millisecond)
	kibAfter, descriptorsAfter := r.footprint(t)
	return figures{kibEach: (kibAfter - kib) / n, fdEach: (descriptorsAfter - descriptors) / n}
}

// startUp tells how long the start took, which has been measured already.
func startUp(_ *bench, t *testing.T, r *running) figures {
	time.Sleep(100 * time.Millisecond)
	kib, _ := r.footprint(t)
	return figures{readyMS: float64(r.ready.Microseconds()) / 1000, idleMiB: kib / 1024}
}

// greeted waits for a server's greeting on new connections, one after the other.
func greeted(b *bench, t *testing.T, _ *running) figures {
	var each []float64
	to := netip.AddrPortFrom(lab.PodV4, greetPort)
	for began := time.Now(); time.Since(began) < b.length || len(each) < 10; {
		err := b.net.Peer.Do(func() error {
			start := time.Now()
			c, err := net.Dial("tcp4", to.String())
			if err != nil {
				return err
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(5 * time.Second))
			_, err = c.Read(make([]byte, 64))
			each = append(each, float64(time.Since(start).Nanoseconds())/1000)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(each)
	return figures{firstByte: each[len(each)/2]}
}

// backends starts what stands behind the contenders.
func (b *bench) backends(t *testing.T) {
	if _, err := exec.LookPath("h2load"); err != nil {
		t.Fatal(err)
	}
	b.web(t)
	block := make([]byte, 256<<10)
	b.serve(t, echoPort, func(c net.Conn) { io.Copy(c, c) })
	b.serve(t, sourcePort, func(c net.Conn) {
		for {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	})
	b.serve(t, greetPort, func(c net.Conn) {
		io.WriteString(c, "220 ready\r\n")
		io.Copy(io.Discard, c)
	})
	b.serveOnce(t, oncePort)
}
