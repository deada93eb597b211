package conformance

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/meshctl/meshctl/integration/built"
)

func TestWhatClientsSayMakesNoSeries(t *testing.T) {
	const requests = 2000
	t.Parallel()
	p := built.Start(t, program, shop(t).addr)
	first := client(t, p.In, "HTTP/1")
	if _, err := get(first, "/"); err != nil {
		t.Fatal(err)
	}
	first.CloseIdleConnections()
	p.Settled(t)
	before := len(p.Sample(t))
	c := dial(t, p.In)
	r := bufio.NewReader(c)
	for i := range requests {
		send(t, c, fmt.Sprintf("VERB%d /p%d?q=%d HTTP/1.1\r\nHost: h%d.example\r\nUser-Agent: u%d\r\nForwarded: for=192.0.2.%d\r\nX-N%d: 1\r\n\r\n", i, i, i, i, i, i%256, i))
		c.SetReadDeadline(time.Now().Add(patience))
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		if n, err := io.Copy(io.Discard, resp.Body); err != nil || n == 0 {
			t.Fatalf("request %d: %d bytes, %v", i, n, err)
		}
	}
	c.Close()
	s := p.Settled(t)
	if added := len(s) - before; added > 20 {
		t.Errorf("%d requests have added %d series", requests, added)
	}
	if n := s.Sum("request_total"); n != requests+1 {
		t.Errorf("%v requests are counted, want %d", n, requests+1)
	}
}

func TestNamesInClientHellosAreBounded(t *testing.T) {
	const names = 300
	o := listen(t)
	o.serve(t, func(c *net.TCPConn) { io.Copy(io.Discard, c) })
	p := built.Start(t, program, o.addr)
	before := len(p.Sample(t))
	for i := range names {
		c := tls.Client(dial(t, p.In), &tls.Config{ServerName: fmt.Sprintf("n%d.shop.example", i)})
		c.SetDeadline(time.Now().Add(time.Second))
		go c.Handshake() // ends with its connection
	}
	for deadline := time.Now().Add(patience); p.Sample(t).Sum("meshctl_detect_total", `protocol="tls"`) < names; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not all hellos are counted")
		}
	}
	if added := len(p.Sample(t)) - before; added > 300 {
		t.Errorf("%d names have added %d series", names, added)
	}
}

func TestStatusesThatAServerInventsAreBounded(t *testing.T) {
	o := listen(t)
	o.serve(t, func(c *net.TCPConn) {
		r := bufio.NewReader(c)
		for code := 200; ; code = 200 + (code-199)%800 {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			req.Body.Close()
			fmt.Fprintf(c, "HTTP/1.1 %d Whatever\r\nContent-Length: 0\r\n\r\n", code)
		}
	})
	p := built.Start(t, program, o.addr)
	before := len(p.Sample(t))
	c := dial(t, p.In)
	r := bufio.NewReader(c)
	for i := range 800 {
		send(t, c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		c.SetReadDeadline(time.Now().Add(patience))
		if _, err := http.ReadResponse(r, nil); err != nil {
			t.Fatalf("response %d: %v", i, err)
		}
	}
	c.Close()
	s := p.Settled(t)
	if added := len(s) - before; added > 2500 {
		t.Errorf("800 statuses have added %d series", added)
	}
	if n := s.Sum("response_total"); n != 800 {
		t.Errorf("%v responses are counted, want 800", n)
	}
	// A code that does not exist is read as 5xx (RFC 9110, 15).
	if n := s.Sum("response_total", `classification="failure"`); n != 500 {
		t.Errorf("%v failures are counted, want the 500 of 500 and above", n)
	}
}

// forged are bytes that would be a log line, colours, or the end of a label, if
// they came out as they went in.
const forged = "\nlevel=ERROR msg=forged\x1b[31m\"} 1\r\n"

func TestNobodyWritesLinesIntoTheLog(t *testing.T) {
	for _, format := range []string{"plain", "json"} {
		t.Run(format, func(t *testing.T) {
			o := listen(t)
			o.serve(t, func(c *net.TCPConn) { io.Copy(io.Discard, c) })
			p := built.Start(t, program, o.addr, "--log-level", "debug", "--log-format", format, "--detect-timeout", "200ms")
			for _, first := range []string{
				// Waits for its rest and is shown in the log.
				"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + forged,
				"GET /" + strings.Repeat("\xff\xc2\x85\u2028", 9),
				"SSH-2.0-x" + forged,
				"GET / HTTP/1.1\r\nHost: " + forged + "\r\n",
				"GET /\x1b[31m HTTP/1.1\r\nUser-Agent: \x1b[31m\r\n\r\n",
			} {
				send(t, dial(t, p.In), first)
			}
			for deadline := time.Now().Add(patience); strings.Count(p.Logged(t), "timed out") < 2; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("the log does not show what has timed out:\n%s", p.Logged(t))
				}
			}
			checkLog(t, p.Logged(t), format)
			checkMetrics(t, p)
		})
	}
}

func checkLog(t *testing.T, log, format string) {
	t.Helper()
	for line := range strings.Lines(log) {
		line = strings.TrimSuffix(line, "\n")
		if strings.ContainsFunc(line, func(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == unicode.ReplacementChar }) {
			t.Errorf("a log line has control characters: %q", line)
		}
		if format == "json" {
			if !json.Valid([]byte(line)) {
				t.Errorf("a log line is no JSON: %q", line)
			}
			continue
		}
		if !strings.HasPrefix(line, "time=") || strings.HasPrefix(line, "level=ERROR") {
			t.Errorf("a log line that the proxy has not begun: %q", line)
		}
	}
}

// checkMetrics fails the test if a line of /metrics is none.
func checkMetrics(t *testing.T, p *built.Proxy) {
	t.Helper()
	for _, line := range p.Sample(t) {
		if strings.Contains(line, "forged") || strings.ContainsFunc(line, unicode.IsControl) {
			t.Errorf("a line of /metrics that a client has written: %q", line)
		}
	}
}
