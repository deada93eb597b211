package h2_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/meshctl/meshctl/proxy/h2"
)

func TestTimeouts(t *testing.T) {
	const short = 60 * time.Millisecond
	const never = -1
	for name, c := range map[string]struct {
		cfg    h2.Config
		do     func(p *peer)
		closed string
	}{
		"no stream":          {h2.Config{IdleTimeout: short}, func(*peer) {}, "closed: connection was idle"},
		"no stream any more": {h2.Config{IdleTimeout: short}, func(p *peer) { p.request(1, true, "/") }, "closed: connection was idle"},
		"a header block that goes on": {h2.Config{HeadTimeout: short}, func(p *peer) {
			_ = p.WriteRawFrame(http2.FrameHeaders, 1, 1, []byte("\x82"))
		}, "closed: header block took too long: ENHANCE_YOUR_CALM"},
		"a frame that is cut": {h2.Config{HeadTimeout: short}, func(p *peer) {
			_, _ = p.Write([]byte("\x00\x00\x08\x06"))
		}, "closed: header block took too long: ENHANCE_YOUR_CALM"},
		"a frame that drips": {h2.Config{HeadTimeout: short}, func(p *peer) {
			for _, b := range []byte("\x00\x00\x50\x01\x05\x00\x00\x00\x01" + strings.Repeat("\x82", 0x50)) {
				if _, err := p.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(short / 20)
			}
		}, "closed: header block took too long: ENHANCE_YOUR_CALM"},
		"a client that is gone": {h2.Config{PingAfter: short, PingTimeout: short}, func(p *peer) { p.request(1, false, "/silent") }, "closed: connection timed out"},
		"an answer without window": {h2.Config{StallTimeout: short, PingAfter: never, IdleTimeout: 3 * short}, func(p *peer) {
			_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			p.request(1, true, "/big")
		}, "closed: connection was idle"},
		"answers that are not read": {h2.Config{StallTimeout: short, PingAfter: never}, func(p *peer) {
			_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
			_ = p.WriteWindowUpdate(0, 1<<30)
			for id := uint32(1); id < 100; id += 2 {
				p.request(id, true, "/big")
			}
		}, "closed: connection timed out"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, _, at := serveApp(t, c.cfg)
			p := dialPeer(t, at)
			begun := time.Now()
			c.do(p)
			if got := a.app.wait(t, "closed: "); got != c.closed {
				t.Errorf("%s, want %s", got, c.closed)
			}
			if took := time.Since(begun); took < short {
				t.Errorf("after %v already", took)
			}
		})
	}
}

func TestAPrefaceThatDripsIsTimedOut(t *testing.T) {
	a, _, at := serveApp(t, h2.Config{HeadTimeout: 50 * time.Millisecond})
	c, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() {
		for i := range http2.ClientPreface {
			_, _ = io.WriteString(c, http2.ClientPreface[i:i+1])
			time.Sleep(10 * time.Millisecond)
		}
	}()
	a.app.wait(t, "closed: header block took too long")
}

func TestAClientThatAnswersPingsIsKept(t *testing.T) {
	a, _, at := serveApp(t, h2.Config{PingAfter: 20 * time.Millisecond, PingTimeout: 20 * time.Millisecond})
	p := dialPeer(t, at)
	p.request(1, false, "/silent")
	pings := 0
	for pings < 5 {
		f, err := p.ReadFrame()
		if err != nil {
			t.Fatalf("after %d pings: %v", pings, err)
		}
		if f, ok := f.(*http2.PingFrame); ok && !f.IsAck() {
			pings++
			_ = p.WritePing(true, f.Data)
		}
	}
	a.app.wait(t, "POST")
}

func TestDrainLetsWhatIsUnderWayFinish(t *testing.T) {
	a, loop, at := serveApp(t, h2.Config{})
	p := dialPeer(t, at)
	p.request(1, false, "/")
	a.app.wait(t, "POST")
	on(t, loop, func() { a.last.Drain() })
	p.request(3, true, "/") // sent before the warning was read
	if got := p.outcome(3); got != "200 2" {
		t.Errorf("a request that crossed the warning: %s", got)
	}
	if err := p.WritePing(true, [8]byte{}); err != nil { // the warning was read
		t.Fatal(err)
	}
	p.request(5, true, "/")
	_ = p.WriteData(1, true, []byte("rest"))
	if got := p.outcome(1); got != "200 2" {
		t.Errorf("a request that was open: %s", got)
	}
	if got := p.outcome(5); got != "closed" {
		t.Errorf("a request after the last: %s", got)
	}
	p.Close()
	if got := a.app.wait(t, "closed: "); got != "closed: <nil>" {
		t.Error(got)
	}
}

func TestDrainEndsAnIdleConnectionAtOnce(t *testing.T) {
	a, loop, at := serveApp(t, h2.Config{})
	p := dialPeer(t, at)
	p.request(1, true, "/")
	if got := p.outcome(1); got != "200 2" {
		t.Fatal(got)
	}
	begun := time.Now()
	on(t, loop, func() { a.last.Drain() })
	for {
		f, err := p.ReadFrame()
		if err != nil {
			break
		}
		if f, ok := f.(*http2.PingFrame); ok {
			_ = p.WritePing(true, f.Data)
		}
	}
	if took := time.Since(begun); took > 500*time.Millisecond {
		t.Errorf("after %v", took)
	}
	p.Close()
	a.app.wait(t, "closed: <nil>")
}

func TestCloseAbortsTheStreams(t *testing.T) {
	a, loop, at := serveApp(t, h2.Config{})
	p := dialPeer(t, at)
	p.request(1, false, "/silent")
	a.app.wait(t, "POST")
	on(t, loop, func() {
		if a.last.Streams() != 1 {
			t.Errorf("%d streams", a.last.Streams())
		}
		a.last.Close()
	})
	a.app.wait(t, "aborted")
	if got := p.outcome(1); got != "closed" {
		t.Error(got)
	}
}

func TestAClientThatGoesAbortsItsStreams(t *testing.T) {
	a, _, at := serveApp(t, h2.Config{})
	for _, reset := range []bool{false, true} {
		p := dialPeer(t, at)
		p.request(1, false, "/silent")
		a.app.wait(t, "POST")
		if reset {
			_ = p.Conn.(*net.TCPConn).SetLinger(0)
		}
		p.Close()
		a.app.wait(t, "aborted 6")
		a.app.wait(t, "closed: ")
	}
}

func TestAHeldStreamTakesOneWindow(t *testing.T) {
	a, _, at := serveApp(t, h2.Config{StreamWindow: 4096})
	p := dialPeer(t, at)
	p.request(1, false, "/hold")
	_ = p.WriteData(1, false, make([]byte, 4096))
	held := 0
	for held < 4096 {
		var n int
		if _, err := fscan(a.app.wait(t, ""), &n); err == nil {
			held += n
		}
	}
	_ = p.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	for {
		f, err := p.ReadFrame()
		if err != nil {
			break
		}
		if f, ok := f.(*http2.WindowUpdateFrame); ok && f.StreamID == 1 {
			t.Errorf("a held stream's window is opened by %d", f.Increment)
		}
	}
}

func fscan(s string, n *int) (int, error) { return fmt.Sscanf(s, "%d held", n) }
