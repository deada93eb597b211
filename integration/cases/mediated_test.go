package cases

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/meshctl/meshctl/integration/built"
)

// serveOn serves with h on a port of loopback until the test ends.
func serveOn(t *testing.T, h http.HandlerFunc) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() { s.Close(); <-done })
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// Whoever can send requests must not be able to make series.
func TestWhatClientsWriteMakesNoSeries(t *testing.T) {
	t.Parallel()
	to := serveOn(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") })
	p := built.Start(t, program, to, "--intermediate")
	conn, err := net.Dial("tcp4", p.Out.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(60 * time.Second))
	in := bufio.NewReader(conn)
	ask := func(method, host string) {
		t.Helper()
		fmt.Fprintf(conn, "%s /p HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\n\r\n", method, host, host)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
	}
	ask("GET", "first.example")
	before := len(p.Sample(t))
	const hosts, methods = 2000, 500
	for i := range hosts {
		ask("GET", "t"+strconv.Itoa(i)+".tenant.example")
	}
	for i := range methods {
		ask("TOKEN"+strconv.Itoa(i), "first.example")
	}
	s := p.Sample(t)
	if len(s) > before+5 {
		t.Errorf("%d series, %d before", len(s), before)
	}
	if got := s.Sum("request_total"); got != 1+hosts+methods {
		t.Errorf("%v requests are counted, want %d", got, 1+hosts+methods)
	}
	for _, line := range s {
		if strings.Contains(line, "tenant") || strings.Contains(line, "TOKEN") {
			t.Errorf("what a client wrote is in %s", line)
		}
	}
}

// A port that is declared opaque is TCP, whatever is spoken on it: nothing is
// answered, parsed or counted as HTTP.
func TestHTTPOnAnOpaquePortIsTCP(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("x", 10_000)
	to := serveOn(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		io.WriteString(w, body)
	})
	p := built.Start(t, program, to, "--intermediate", "--opaque-ports", strconv.Itoa(int(to.Port())))
	conn, err := net.Dial("tcp4", p.Out.String())
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	const request = "GET / HTTP/1.1\r\nHost: till.example\r\nConnection: close\r\n\r\n"
	io.WriteString(conn, request)
	answer, err := io.ReadAll(conn)
	conn.Close()
	if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 200 OK\r\n")) || !bytes.HasSuffix(answer, []byte(body)) {
		t.Fatalf("%v: %.60q", err, answer)
	}
	s := p.Settled(t)
	for name, want := range map[string]float64{"request_total": 0, "response_total": 0} {
		if got := s.Sum(name); got != want {
			t.Errorf("%s is %v", name, got)
		}
	}
	if in, out := s.Sum("tcp_read_bytes_total", `peer="src"`), s.Sum("tcp_write_bytes_total", `peer="src"`); in != float64(len(request)) || out != float64(len(answer)) {
		t.Errorf("%v bytes in and %v out are counted, want %d and %d", in, out, len(request), len(answer))
	}
}

// earlyServer answers stream 1 with a status before its request has ended, and
// the others once theirs has.
func earlyServer(conn net.Conn) error {
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return err
	}
	f := http2.NewFramer(conn, conn)
	if err := f.WriteSettings(); err != nil {
		return err
	}
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	head := func(id uint32, end bool, pairs ...string) error {
		block.Reset()
		for i := 0; i < len(pairs); i += 2 {
			enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
		}
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: end})
	}
	first := uint32(0)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return nil // the proxy has gone
		}
		id := frame.Header().StreamID
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = f.WriteSettingsAck()
			}
		case *http2.DataFrame:
			switch {
			case first == 0 && !frame.StreamEnded(): // the one that goes on sending
				first = id
				err = head(id, false, ":status", "200", "content-type", "application/grpc")
				if err == nil {
					err = head(id, true, "grpc-status", "8", "grpc-message", "quota")
				}
				if err == nil {
					err = f.WriteRSTStream(id, http2.ErrCodeNo)
				}
			case frame.StreamEnded():
				err = head(id, false, ":status", "200", "content-type", "application/grpc")
				if err == nil {
					err = head(id, true, "grpc-status", "0")
				}
			}
		}
		if err != nil {
			return err
		}
	}
}

// A gRPC server that ends a call before its client has (RFC 9113, 8.1): the
// status arrives, no error takes its place, and other calls live on.
func TestAnEarlyGRPCStatusArrives(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			defer conn.Close()
			err = earlyServer(conn)
		}
		served <- err
	}()
	p := built.Start(t, program, l.Addr().(*net.TCPAddr).AddrPort(), "--intermediate")
	conn, err := net.Dial("tcp4", p.Out.String())
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	got := callEarly(t, conn)
	conn.Close()
	p.Signal(syscall.SIGKILL)
	if err := <-served; err != nil {
		t.Errorf("the server: %v", err)
	}
	if got[1] != "8 quota" {
		t.Errorf("the call that was ended early came to %q", got[1])
	}
	for id := uint32(3); id <= 39; id += 2 {
		if got[id] != "0 " {
			t.Errorf("call %d came to %q", id, got[id])
		}
	}
}

// callEarly makes 20 calls on one connection, of which the first does not end,
// and returns what each came to: its status and message, or an error code.
func callEarly(t *testing.T, conn net.Conn) map[uint32]string {
	t.Helper()
	f := http2.NewFramer(conn, conn)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	io.WriteString(conn, http2.ClientPreface)
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	f.WriteSettings()
	message := append([]byte{0, 0, 0, 0, 10}, "aaaaaaaaaa"...)
	for id := uint32(1); id <= 39; id += 2 {
		block.Reset()
		for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/t.Up/Send"}, {":authority", "till.example"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
			enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
		}
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
		f.WriteData(id, id != 1, message)
	}
	got := map[uint32]string{}
	for len(got) < 20 {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Errorf("after %d calls: %v", len(got), err)
			return got
		}
		id := frame.Header().StreamID
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				f.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame:
			if frame.StreamEnded() {
				fields := map[string]string{}
				for _, h := range frame.Fields {
					fields[h.Name] = h.Value
				}
				got[id] = fields["grpc-status"] + " " + fields["grpc-message"]
			}
		case *http2.RSTStreamFrame:
			if got[id] == "" {
				got[id] = frame.ErrCode.String()
			} else if frame.ErrCode != http2.ErrCodeNo {
				t.Errorf("after its status, stream %d is reset with %s", id, frame.ErrCode)
			}
		}
	}
	f.WriteData(1, false, message) // what was under way still comes
	return got
}
