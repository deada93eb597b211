package proxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// refusedSoon waits until the listener is closed.
func refusedSoon(t *testing.T, addr string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return
		}
		if err == nil {
			c.Close()
		}
	}
	t.Error("still listening")
}

func TestADrainWaitsForOpaqueConnections(t *testing.T) {
	r := run(t, serve(t, echo), nil)
	c := dial(t, r.inbound())
	say(t, c, "before\r\n")
	expect(t, c, "before\r\n")
	r.cancel()
	refusedSoon(t, r.inbound())
	if status, _ := r.get("/ready"); status != http.StatusServiceUnavailable {
		t.Errorf("/ready while draining: %d", status)
	}
	r.metric("1", "meshctl_draining")
	say(t, c, "during\r\n")
	expect(t, c, "during\r\n")
	c.Close()
	if err := r.wait(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(r.log.String(), "msg=drained") {
		t.Error(r.log.String())
	}
}

func TestADrainClosesIdleHTTPAtOnceAndBusyHTTPAfterItsExchange(t *testing.T) {
	for name, h2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			r := run(t, web(t, release), nil)
			idle, busy := client(t, r.inbound(), h2), client(t, r.outbound(), h2)
			fetch(t, idle, "/")
			res, err := busy.Get("http://app.example/slow")
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if n := r.p.Open(); n != 2 {
				t.Fatalf("%d connections", n)
			}
			r.cancel()
			for deadline := time.Now().Add(5 * time.Second); r.p.Open() != 1; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%d connections are left, want the busy one", r.p.Open())
				}
			}
			close(release)
			if b, err := io.ReadAll(res.Body); err != nil || !strings.HasPrefix(string(b), name) {
				t.Errorf("the answer under way: %q, %v", b, err)
			}
			if err := r.wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTheGracePeriodEndsADrainWithRSTs(t *testing.T) {
	r := run(t, serve(t, echo), func(c *Config) { c.ShutdownGracePeriod = 50 * time.Millisecond })
	c := dial(t, r.inbound())
	say(t, c, "before\r\n")
	expect(t, c, "before\r\n")
	r.cancel()
	if err := r.wait(); err != nil {
		t.Error(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the cut stream ends with %v", err)
	}
	if !strings.Contains(r.log.String(), "did not complete in time") {
		t.Error(r.log.String())
	}
}

// TestASecondSignalEndsAtOnce even while all loops are saturated.
func TestASecondSignalEndsAtOnce(t *testing.T) {
	r := run(t, serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }), nil)
	flooding := make(chan error, 4)
	for range cap(flooding) {
		c := dial(t, r.inbound())
		say(t, c, "*1\r\n$4\r\nPING\r\n")
		go flood(c, flooding)
	}
	time.Sleep(50 * time.Millisecond)
	began := time.Now()
	if err := r.kill(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("took %s", took)
	}
	for range cap(flooding) {
		if err := <-flooding; err == nil {
			t.Error("a flood ended without an error")
		}
	}
}

func flood(c net.Conn, ended chan<- error) {
	b := make([]byte, 256<<10)
	for {
		if _, err := c.Write(b); err != nil {
			ended <- err
			return
		}
	}
}

func TestARunThatIsOverBeforeItBeginsServesNobody(t *testing.T) {
	cfg, _ := testConfig(serve(t, echo))
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.Shutdown()
	if err := p.Run(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestAConnectionInTheBacklogWhenADrainBeginsIsServed: it was promised.
func TestAConnectionInTheBacklogWhenADrainBeginsIsServed(t *testing.T) {
	cfg, _ := testConfig(serve(t, echo))
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var clients []net.Conn
	for range 100 {
		clients = append(clients, dial(t, p.cfg.InboundListen[0].String()))
	}
	for _, c := range clients {
		say(t, c, "hello\r\n")
	}
	p.Shutdown()
	done := make(chan error, 1)
	go func() { done <- p.Run(t.Context(), nil) }()
	for _, c := range clients {
		expect(t, c, "hello\r\n")
		c.Close()
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
