package h2_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/meshctl/meshctl/proxy/h2"
)

// flood sends until it has sent all or the connection is gone, while another
// goroutine reads how it ends.
func flood(t *testing.T, p *peer, n int, one func(i int) error) string {
	t.Helper()
	p.mute = true // the reader may not write between the flood's frames
	end := make(chan string, 1)
	go func() { end <- p.outcome(0) }()
	sent := 0
	for ; sent < n; sent++ {
		if one(sent) != nil {
			break
		}
	}
	_ = p.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	return <-end
}

func TestFloodsEndTheirConnection(t *testing.T) {
	const calm = "GOAWAY ENHANCE_YOUR_CALM"
	a, _, at := serveApp(t, h2.Config{})
	for name, c := range map[string]struct {
		n     int
		first func(p *peer)
		one   func(p *peer, i int) error
	}{
		"rapid reset": {300, nil, func(p *peer, i int) error {
			p.request(uint32(2*i+1), true, "/silent")
			return p.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel)
		}},
		"resets by the other side": {300, nil, func(p *peer, i int) error {
			p.request(uint32(2*i+1), true, "/silent")
			return p.WriteWindowUpdate(uint32(2*i+1), 0)
		}},
		"requests that are malformed": {300, nil, func(p *peer, i int) error {
			p.request(uint32(2*i+1), true, "")
			return nil
		}},
		"streams beyond the limit": {600, nil, func(p *peer, i int) error {
			p.request(uint32(2*i+1), false, "/silent")
			return nil
		}},
		"PING":         {7000, nil, func(p *peer, _ int) error { return p.WritePing(false, [8]byte{}) }},
		"PING answers": {7000, nil, func(p *peer, _ int) error { return p.WritePing(true, [8]byte{}) }},
		"SETTINGS":     {2000, nil, func(p *peer, _ int) error { return p.WriteSettings() }},
		"PRIORITY": {7000, nil, func(p *peer, i int) error {
			return p.WritePriority(uint32(2*(i%1000)+1), http2.PriorityParam{Weight: uint8(i)})
		}},
		"unknown frames": {7000, nil, func(p *peer, _ int) error { return p.WriteRawFrame(99, 0, 0, nil) }},
		"empty DATA": {2000, func(p *peer) { p.request(1, false, "/silent") }, func(p *peer, _ int) error {
			return p.WriteData(1, false, nil)
		}},
		"DATA on a closed stream": {7000, func(p *peer) { p.request(1, false, "/early") }, func(p *peer, _ int) error {
			return p.WriteData(1, false, nil)
		}},
		"WINDOW_UPDATE": {7000, func(p *peer) { p.request(1, false, "/silent") }, func(p *peer, _ int) error {
			return p.WriteWindowUpdate(1, 1)
		}},
		"a window opened byte by byte": {7000, func(p *peer) {
			_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			p.request(1, true, "/big")
		}, func(p *peer, _ int) error { return p.WriteWindowUpdate(1, 1) }},
		"empty CONTINUATION": {2000, func(p *peer) {
			_ = p.WriteRawFrame(http2.FrameHeaders, 0, 1, p.fields(raw...))
		}, func(p *peer, _ int) error { return p.WriteContinuation(1, false, nil) }},
		"CONTINUATION": {2000, func(p *peer) {
			_ = p.WriteRawFrame(http2.FrameHeaders, 0, 1, p.fields(raw...))
		}, func(p *peer, _ int) error {
			return p.WriteContinuation(1, false, p.fields("x-a", strings.Repeat("z", 900)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := dialPeer(t, at)
			if c.first != nil {
				c.first(p)
			}
			if got := flood(t, p, c.n, func(i int) error { return c.one(p, i) }); got != calm {
				t.Errorf("%s, want %s", got, calm)
			}
			p.Close()
			a.app.wait(t, "closed: ")
		})
	}
}

func TestWhatHonestClientsDoIsNoFlood(t *testing.T) {
	_, _, at := serveApp(t, h2.Config{})
	for name, one := range map[string]func(p *peer, id uint32){
		"requests": func(p *peer, id uint32) { p.request(id, true, "/") },
		"a PING, a priority and a window for each request": func(p *peer, id uint32) {
			_ = p.WritePing(false, [8]byte{})
			_ = p.WritePriority(id, http2.PriorityParam{Weight: 1})
			p.request(id, true, "/")
			_ = p.WriteWindowUpdate(0, 100)
		},
		"early answers": func(p *peer, id uint32) {
			p.request(id, false, "/early")
			_ = p.WriteData(id, false, []byte("not wanted"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := dialPeer(t, at)
			_ = p.SetDeadline(time.Now().Add(30 * time.Second))
			for i := range 3000 {
				one(p, uint32(2*i+1))
				if got := p.outcome(uint32(2*i + 1)); !strings.HasPrefix(got, "200 ") {
					t.Fatalf("request %d: %s", i, got)
				}
			}
		})
	}
}

// heap is what is in use after a collection.
func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func TestAnswersThatAreNotReadTakeBoundedMemory(t *testing.T) {
	_, _, at := serveApp(t, h2.Config{})
	before := heap()
	p := dialPeer(t, at, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	for i := range 200 {
		p.request(uint32(2*i+1), true, "/big")
	}
	time.Sleep(300 * time.Millisecond)
	if grown := heap() - before; grown > 12<<20 {
		t.Errorf("200 answers of 4 MiB that wait hold %d KiB", grown>>10)
	}
	_ = p.WriteWindowUpdate(1, 4<<20) // one of them can be had
	_ = p.WriteWindowUpdate(0, 8<<20)
	if got := p.outcome(1); got != "200 4194304" {
		t.Error(got)
	}
}

func TestHeadsThatAreTooLargeAreAnswered(t *testing.T) {
	_, _, at := serveApp(t, h2.Config{})
	for name, c := range map[string]struct {
		size  int
		want  string
		lives bool
	}{
		"70 000 bytes":    {70_000, "200 2", true},
		"120 000 bytes":   {120_000, "431 0", true},
		"600 000 bytes":   {600_000, "431 0", false},
		"4 000 000 bytes": {4_000_000, "431 0", false},
	} {
		t.Run(name, func(t *testing.T) {
			p := dialPeer(t, at)
			block := p.fields(with("x-auth", strings.Repeat("~", c.size))...) // no shorter with Huffman
			before := heap()
			p.mute = true
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				_ = p.WriteRawFrame(http2.FrameHeaders, 1, 1, block[:16384])
				for block = block[16384:]; len(block) > 0; {
					n := min(16384, len(block))
					if p.WriteContinuation(1, n == len(block), block[:n]) != nil {
						return
					}
					block = block[n:]
				}
			}()
			if got := p.outcome(1); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			<-sent
			if c.lives {
				p.request(3, true, "/")
				if got := p.outcome(3); got != "200 2" {
					t.Errorf("the next request: %s", got)
				}
			} else if got := p.outcome(0); got != "GOAWAY ENHANCE_YOUR_CALM" {
				t.Errorf("then %s", got)
			}
			if grown := heap() - before; grown > 8<<20 {
				t.Errorf("%d KiB more", grown>>10)
			}
		})
	}
}

func TestAFieldOfTheTableRepeatedIsCountedEachTime(t *testing.T) {
	_, _, at := serveApp(t, h2.Config{})
	before := heap()
	p := dialPeer(t, at)
	block := p.fields(with("x-bomb", strings.Repeat("z", 3900))...)
	for len(block) < 16000 {
		block = append(block, 0xbe) // the newest field once more
	}
	_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true, EndStream: true})
	if got := p.outcome(1); got != "431 0" {
		t.Error(got)
	}
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("%d KiB more", grown>>10)
	}
	p.request(3, true, "/")
	if got := p.outcome(3); got != "200 2" {
		t.Errorf("the next request: %s", got)
	}
}
