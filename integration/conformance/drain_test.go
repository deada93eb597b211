package conformance

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/built"
)

// stops are the ways to ask a proxy to end.
func stops(t *testing.T) map[string]func(*built.Proxy) {
	return map[string]func(*built.Proxy){
		"SIGTERM":        func(p *built.Proxy) { p.Signal(syscall.SIGTERM) },
		"SIGINT":         func(p *built.Proxy) { p.Signal(os.Interrupt) },
		"POST /shutdown": func(p *built.Proxy) { post(t, p.Admin, http.StatusOK) },
	}
}

func post(t *testing.T, admin netip.AddrPort, want int) {
	t.Helper()
	resp, err := http.Post("http://"+admin.String()+"/shutdown", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != want {
		t.Fatalf("POST /shutdown: %s, want %d", resp.Status, want)
	}
}

func TestADrainLosesNothing(t *testing.T) {
	for name, stop := range stops(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drainUnderLoad(t, stop)
		})
	}
}

// drainUnderLoad has exchanges of both versions open when the proxy is stopped,
// and one connection of each that is idle.
func drainUnderLoad(t *testing.T, stop func(*built.Proxy)) {
	const each = 20
	p := built.Start(t, program, shop(t).addr)
	idle := []*net.TCPConn{idleHTTP1(t, p), idleHTTP2(t, p)}
	var group sync.WaitGroup
	results := make(chan error, 2*each)
	h2 := client(t, p.In, "HTTP/2")
	if _, err := get(h2, "/"); err != nil { // one connection for all
		t.Fatal(err)
	}
	for _, c := range []*http.Client{client(t, p.In, "HTTP/1"), h2} {
		for range each {
			group.Go(func() {
				body, err := get(c, "/wait/1200")
				if err == nil && body != "waited" {
					err = fmt.Errorf("the body is %q", body)
				}
				results <- err
			})
		}
	}
	open := func() float64 { s := p.Sample(t); return s.Sum("request_total") - s.Sum("response_total") }
	for deadline := time.Now().Add(patience); open() < 2*each; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("only %v exchanges are open", open())
		}
	}
	began := time.Now()
	stop(p)
	for i, c := range idle {
		if _, _, err := readAll(c); err != nil {
			t.Errorf("the idle connection of HTTP/%d ends with %v", i+1, err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the idle connection of HTTP/%d was closed after %s", i+1, took)
		}
	}
	if c, err := net.DialTimeout("tcp4", p.In.String(), time.Second); err == nil {
		c.Close()
		t.Error("a new connection was accepted in the drain")
	}
	group.Wait()
	last := time.Now()
	close(results)
	for err := range results {
		if err != nil {
			t.Errorf("an exchange that was open: %v", err)
		}
	}
	if code, err := p.Ended(patience); err != nil || code != 0 {
		t.Errorf("the exit code is %d (%v), want 0", code, err)
	}
	if took := time.Since(last); took > 2*time.Second {
		t.Errorf("the process has ended %s after its last exchange", took)
	}
}

// idleHTTP1 opens a connection on which one exchange has ended.
func idleHTTP1(t *testing.T, p *built.Proxy) *net.TCPConn {
	t.Helper()
	c := dial(t, p.In)
	send(t, c, "HEAD /status/204 HTTP/1.1\r\nHost: shop.example\r\n\r\n")
	skipTo(t, c, "\r\n\r\n")
	return c
}

// idleHTTP2 opens a connection with settings exchanged and no stream.
func idleHTTP2(t *testing.T, p *built.Proxy) *net.TCPConn {
	t.Helper()
	c := dial(t, p.In)
	send(t, c, preface+"\x00\x00\x00\x04\x01\x00\x00\x00\x00") // and an ACK of the server's
	skipTo(t, c, "\x00\x00\x00\x04\x01\x00\x00\x00\x00")       // its ACK
	time.Sleep(20 * time.Millisecond)
	return c
}

// skipTo reads c until end has come.
func skipTo(t *testing.T, c net.Conn, end string) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	var got strings.Builder
	b := make([]byte, 1)
	for !strings.HasSuffix(got.String(), end) {
		if _, err := c.Read(b); err != nil {
			t.Fatalf("after %q: %v", got.String(), err)
		}
		got.Write(b)
	}
}

func TestAnOpaqueConnectionMayLiveUntilTheGracePeriodEnds(t *testing.T) {
	t.Parallel()
	o := listen(t)
	p := built.Start(t, program, o.addr, "--shutdown-grace-period", "2s")
	client, server := through(t, p, o)
	began := time.Now()
	p.Signal(syscall.SIGTERM)
	for range 5 {
		time.Sleep(200 * time.Millisecond)
		send(t, client, "still")
		receive(t, server, "still")
	}
	code, err := p.Ended(patience)
	if err != nil || code != 0 {
		t.Errorf("the exit code is %d (%v), want 0", code, err)
	}
	if took := time.Since(began); took < 1900*time.Millisecond {
		t.Errorf("the process has ended after %s, before its grace period", took)
	}
	if !strings.Contains(p.Logged(t), "graceful shutdown did not complete in time") {
		t.Errorf("the log does not say that the grace period is over:\n%s", p.Logged(t))
	}
	if _, _, err := readAll(client); err == nil {
		t.Error("a connection that was cut looks as if it had ended well")
	}
}

func TestADrainEndsWithTheLastOpaqueConnection(t *testing.T) {
	o := listen(t)
	p := built.Start(t, program, o.addr)
	client, server := through(t, p, o)
	p.Signal(syscall.SIGTERM)
	time.Sleep(200 * time.Millisecond)
	send(t, server, answer)
	receive(t, client, answer)
	client.Close()
	receiveEnd(t, server)
	server.Close()
	if code, err := p.Ended(patience); err != nil || code != 0 {
		t.Errorf("the exit code is %d (%v), want 0", code, err)
	}
}

func TestASecondSignalEndsAtOnce(t *testing.T) {
	o := listen(t)
	p := built.Start(t, program, o.addr)
	client, _ := through(t, p, o)
	p.Signal(syscall.SIGTERM)
	for !strings.Contains(p.Logged(t), "draining") {
		time.Sleep(5 * time.Millisecond)
	}
	if code, err := p.Ended(300 * time.Millisecond); err == nil {
		t.Fatalf("the process has ended with %d though a connection is open", code)
	}
	p.Signal(syscall.SIGTERM)
	if code, err := p.Ended(patience); err != nil || code != 0 {
		t.Errorf("the exit code is %d (%v), want 0", code, err)
	}
	if _, _, err := readAll(client); err == nil {
		t.Error("a connection that was cut looks as if it had ended well")
	}
}

func TestWhileDrainingTheProxyIsLiveButNotReady(t *testing.T) {
	o := listen(t)
	p := built.Start(t, program, o.addr)
	through(t, p, o)
	p.Signal(syscall.SIGTERM)
	for !strings.Contains(p.Logged(t), "draining") {
		time.Sleep(5 * time.Millisecond)
	}
	for path, want := range map[string]int{"/live": 200, "/ready": 503, "/metrics": 200} {
		resp, err := http.Get("http://" + p.Admin.String() + path)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, resp.Status, want)
		}
		if path == "/metrics" && !strings.Contains(string(b), "meshctl_draining 1") {
			t.Error("meshctl_draining is not 1")
		}
	}
}

func TestOnlyLoopbackMayAskForAShutdownAndOnlyByPOST(t *testing.T) {
	p := built.Start(t, program, listen(t).addr)
	for _, v := range []struct {
		method, host, origin string
		want                 int
	}{
		{"GET", "", "", http.StatusMethodNotAllowed},
		{"POST", "till.shop.example", "", http.StatusForbidden},        // a name that points here
		{"POST", "", "http://till.shop.example", http.StatusForbidden}, // a page in a browser
		{"PUT", "", "", http.StatusMethodNotAllowed},
	} {
		req, err := http.NewRequest(v.method, "http://"+p.Admin.String()+"/shutdown", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = v.host
		if v.origin != "" {
			req.Header.Set("Origin", v.origin)
			req.Header.Set("Sec-Fetch-Site", "cross-site")
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != v.want {
			t.Errorf("%s with host %q and origin %q: %s, want %d", v.method, v.host, v.origin, resp.Status, v.want)
		}
	}
	if n := p.Sample(t).Sum("meshctl_draining"); n != 0 {
		t.Error("the proxy drains")
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestAFinishedJobIsNotKeptAlive: the application is done and asks for the end
// while an idle HTTP connection, an opaque one whose far end never closes, and a
// call in flight are open. Asking again does not prolong the wait.
func TestAFinishedJobIsNotKeptAlive(t *testing.T) {
	t.Parallel()
	const grace = 2 * time.Second
	o := listen(t)
	o.serve(t, func(c *net.TCPConn) {
		first := make([]byte, 1)
		if _, err := io.ReadFull(c, first); err != nil {
			return
		}
		rest := make([]byte, 1<<16)
		n, _ := c.Read(rest)
		switch {
		case first[0] == mark[0]:
			io.Copy(io.Discard, c) // never closes by itself
			return
		case strings.Contains(string(rest[:n]), "/slow"):
			time.Sleep(grace / 2)
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")
		io.Copy(io.Discard, c)
	})
	p := built.Start(t, program, o.addr, "--shutdown-grace-period", grace.String())
	idle, opaque, busy := dial(t, p.In), dial(t, p.In), dial(t, p.In)
	send(t, idle, "GET /fast HTTP/1.1\r\nHost: a\r\n\r\n")
	skipTo(t, idle, "done")
	send(t, opaque, mark)
	send(t, busy, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
	for p.Sample(t).Sum("request_total") < 2 || len(p.Connections(t)) < 3 {
		time.Sleep(5 * time.Millisecond)
	}
	began := time.Now()
	post(t, p.Admin, http.StatusOK)
	receiveEnd(t, idle)
	if took := time.Since(began); took > grace/2 {
		t.Errorf("the idle connection was closed after %s", took)
	}
	skipTo(t, busy, "done")
	receiveEnd(t, busy)
	post(t, p.Admin, http.StatusOK)
	code, err := p.Ended(grace + patience)
	if err != nil || code != 0 {
		t.Errorf("the exit code is %d (%v), want 0", code, err)
	}
	if took := time.Since(began); took < grace-100*time.Millisecond || took > grace+time.Second {
		t.Errorf("the process has ended after %s, want its grace period of %s and at most a second more", took, grace)
	}
}
