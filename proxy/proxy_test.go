package proxy

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/internal/listen"
)

func TestAConfigThatCannotBeIsRefused(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for want, spoil := range map[string]func(*Config){
		"the early dial time is negative":     func(c *Config) { c.EarlyDialAfter = -1 },
		"the idle time is negative":           func(c *Config) { c.IdleTimeout = -1 },
		"the half-close time is negative":     func(c *Config) { c.HalfCloseTimeout = -1 },
		"the shutdown grace time is negative": func(c *Config) { c.ShutdownGracePeriod = -1 },
		"the detection timeout must be":       func(c *Config) { c.DetectTimeout = 0 },
		"the connect timeout must be":         func(c *Config) { c.ConnectTimeout = 0 },
		"in detection is negative":            func(c *Config) { c.MaxDetecting = -1 },
		"no log to write to":                  func(c *Config) { c.Log = nil },
		"neither an inbound nor an outbound":  func(c *Config) { c.InboundListen, c.OutboundListen = nil, nil },
	} {
		cfg := DefaultConfig()
		spoil(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q, want %q", err, want)
		}
	}
}

func TestAPortInUseIsSaidAndNothingStaysOpen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	at := netip.MustParseAddrPort(taken.Addr().String())
	for name, set := range map[string]func(*Config){
		"inbound":  func(c *Config) { c.InboundListen = append(c.InboundListen, at) },
		"outbound": func(c *Config) { c.OutboundListen = append(c.OutboundListen, at) },
		"admin":    func(c *Config) { c.AdminListen = append(c.AdminListen, at) },
	} {
		t.Run(name, func(t *testing.T) {
			before := openFDs(t)
			cfg, _ := testConfig(at)
			set(&cfg)
			p, err := New(cfg)
			if p != nil || !errors.Is(err, syscall.EADDRINUSE) {
				t.Fatalf("New: %v, %v", p, err)
			}
			if !strings.Contains(err.Error(), at.String()) || !strings.Contains(err.Error(), name) {
				t.Errorf("the error does not say which listener: %v", err)
			}
			if after := openFDs(t); after > before { // fewer: those of an earlier test's clients
				t.Errorf("%d descriptors before, %d after", before, after)
			}
		})
	}
}

func TestHTTPPassesBothDirectionsAndIsCounted(t *testing.T) {
	for name, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(name, func(t *testing.T) {
			r := run(t, web(t, nil), nil)
			for _, addr := range []string{r.inbound(), r.outbound()} {
				c := client(t, addr, h2)
				for range 5 {
					if got := fetch(t, c, "/"); got != name {
						t.Fatalf("served as %q", got)
					}
				}
				c.CloseIdleConnections()
			}
			for _, d := range []string{"inbound", "outbound"} {
				r.metric("5", "request_total{", `direction="`+d+`"`)
				r.metric("5", "response_total{", `direction="`+d+`"`, `classification="success"`, `status_code="200"`)
				r.metric("1", "tcp_open_total{", `direction="`+d+`"`, `peer="dst"`)
			}
		})
	}
}

func TestAServerThatSpeaksFirstIsHeardWithoutConfiguration(t *testing.T) {
	r := run(t, serve(t, mail), nil)
	for i, limit := range []time.Duration{2 * time.Second, 200 * time.Millisecond} {
		began := time.Now()
		c := dial(t, r.outbound())
		expect(t, c, "220 mail ESMTP\r\n")
		if took := time.Since(began); took > limit || i == 0 && took < 250*time.Millisecond {
			t.Errorf("connection %d: greeted after %s", i, took)
		}
		say(t, c, "EHLO a\r\n")
		expect(t, c, "250 EHLO a\r\n")
	}
	r.metric("2", "meshctl_early_dials_total{", `outcome="server_first"`)
}

func TestConnectionsAreListedAsTheyAre(t *testing.T) {
	r := run(t, serve(t, echo), nil)
	c := dial(t, r.inbound())
	say(t, c, "*1\r\n$4\r\nPING\r\n")
	expect(t, c, "*1\r\n$4\r\nPING\r\n")
	status, body := r.get("/connections")
	var listed []struct{ Direction, Client, Target, Protocol, Detected, Reason, State string }
	if err := json.Unmarshal([]byte(body), &listed); err != nil || status != http.StatusOK || len(listed) != 1 {
		t.Fatalf("%d, %v: %s", status, err, body)
	}
	got := listed[0]
	want := got
	want.Direction, want.Client, want.Protocol, want.Detected, want.Reason, want.State =
		"inbound", c.LocalAddr().String(), "opaque", "redis", "bytes", "relaying"
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestTheAdminServerSaysWhatRuns(t *testing.T) {
	r := run(t, serve(t, echo), func(c *Config) { c.Version = "v9.9.9" })
	for path, want := range map[string]string{
		"/live": "live", "/ready": "ready", "/config": `"detect_timeout": "10s"`, "/connections": "[", "/metrics": `version="v9.9.9"`,
	} {
		if status, body := r.get(path); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d, no %q in %s", path, status, want, body)
		}
	}
	if _, body := r.get("/config"); !strings.Contains(body, r.inbound()) {
		t.Errorf("/config does not say where it really listens: %s", body)
	}
	if status, _ := r.get("/debug/pprof/"); status != http.StatusNotFound {
		t.Errorf("profiles without being asked for: %d", status)
	}
}

func TestShutdownOverTheAdminServerCanBeSwitchedOff(t *testing.T) {
	r := run(t, serve(t, echo), func(c *Config) { c.NoAdminShutdown = true })
	if status, body := r.do(http.MethodPost, "/shutdown"); status != http.StatusNotFound {
		t.Errorf("%d: %s, want no such path", status, body)
	}
	if status, _ := r.get("/ready"); status != http.StatusOK {
		t.Errorf("it is not ready any more: %d", status)
	}
}

func TestShutdownOverTheAdminServerDrains(t *testing.T) {
	r := run(t, serve(t, echo), nil)
	if status, body := r.do(http.MethodPost, "/shutdown"); status != http.StatusOK {
		t.Errorf("%d: %s", status, body)
	}
	if err := r.wait(); err != nil {
		t.Error(err)
	}
	r.p.Shutdown() // again: nothing
	if _, err := net.Dial("tcp", r.inbound()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialing after the end: %v", err)
	}
}

func TestADestinationThatIsTheProxyItselfIsRefused(t *testing.T) {
	cfg, _ := testConfig(netip.AddrPort{})
	p, err := New(cfg) // to learn a free port
	if err != nil {
		t.Fatal(err)
	}
	own := p.cfg.InboundListen
	p.close()
	r := run(t, own[0], func(c *Config) { c.InboundListen = own })
	c, err := net.Dial("tcp", r.inbound())
	if err == nil {
		_, err = c.Read(make([]byte, 1))
		c.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) { // it may come before Dial is done
		t.Errorf("connecting in a circle: %v", err)
	}
	r.metric("1", "meshctl_refused_total{", `reason="own_listener"`)
}

func TestInheritedListenersAreServedInsteadOfTheConfiguredOnes(t *testing.T) {
	opened := listen.Sockets{}
	for _, name := range []string{listen.Inbound, listen.Outbound, listen.Admin} {
		if _, err := opened.Open(name, loopback()); err != nil {
			t.Fatal(err)
		}
	}
	inherited, err := listen.Inherited(opened.Handover())
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.55:9")} // cannot be listened on
	r := run(t, serve(t, echo), func(c *Config) {
		c.Inherited = inherited
		c.InboundListen, c.OutboundListen, c.AdminListen = elsewhere, elsewhere, elsewhere
	})
	for _, addr := range []string{r.inbound(), r.outbound()} {
		c := dial(t, addr)
		say(t, c, "hello\r\n")
		expect(t, c, "hello\r\n")
	}
	if status, _ := r.get("/ready"); status != http.StatusOK {
		t.Errorf("/ready: %d", status)
	}
}

func TestNothingIsLeftOpenAfterTheEnd(t *testing.T) {
	target := serve(t, echo)
	before := openFDs(t)
	r := run(t, target, nil)
	var clients []net.Conn
	for range 10 {
		c := dial(t, r.inbound())
		say(t, c, "hello\r\n")
		expect(t, c, "hello\r\n")
		clients = append(clients, c)
	}
	if err := r.kill(); err != nil {
		t.Error(err)
	}
	for _, c := range clients {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) && err != io.EOF {
			t.Errorf("a client's end: %v", err)
		}
		c.Close()
	}
	// The echo server's ends close as they see the proxy's go.
	after := 0
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if after = openFDs(t); after <= before {
			return
		}
	}
	t.Errorf("%d descriptors before, %d after", before, after)
}
