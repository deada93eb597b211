package h2_test

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/h2"
)

// serveMiddle serves a middle in front of a server until the test ends.
func serveMiddle(t testing.TB, to netip.AddrPort, cfg h2.Config) (*middle, *conn.Loop, netip.AddrPort) {
	t.Helper()
	loop := runLoop(t)
	var m *middle
	var at netip.AddrPort
	var err error
	on(t, loop, func() { m, at, err = serve(loop, "127.0.0.1:0", to, cfg) })
	if err != nil {
		t.Fatal(err)
	}
	return m, loop, at
}

// scripted is a server that speaks frames by hand, one connection at a time.
func scripted(t testing.TB, script func(p *peer)) netip.AddrPort {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			first := make([]byte, len(http2.ClientPreface))
			if _, err := c.Read(first); err != nil {
				c.Close()
				continue
			}
			p := newPeer(c)
			_ = p.WriteSettings()
			script(p)
			c.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-over })
	return ln.Addr().(*net.TCPAddr).AddrPort()
}

// await reads frames until a request's HEADERS, and returns its stream.
func (p *peer) await() uint32 {
	for {
		f, err := p.ReadFrame()
		if err != nil {
			return 0
		}
		if f, ok := f.(*http2.HeadersFrame); ok {
			_, _ = p.dec.DecodeFull(f.HeaderBlockFragment())
			return f.StreamID
		}
	}
}

// linger reads until the other side is done, so that what was written arrives.
func (p *peer) linger() {
	_ = p.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	for {
		if _, err := p.ReadFrame(); err != nil {
			return
		}
	}
}

func TestWhatServersDoReachesTheClient(t *testing.T) {
	ok := func(p *peer, id uint32) { p.head(id, false, ":status", "200") }
	reset := func(code http2.ErrCode) func(p *peer, id uint32) {
		return func(p *peer, id uint32) { ok(p, id); _ = p.WriteRSTStream(id, code) }
	}
	for name, c := range map[string]struct {
		do   func(p *peer, id uint32)
		want string
	}{
		"a response":   {func(p *peer, id uint32) { ok(p, id); _ = p.WriteData(id, true, []byte("abc")) }, "200 3"},
		"a head alone": {func(p *peer, id uint32) { p.head(id, true, ":status", "404") }, "404 0"},
		"interim heads": {func(p *peer, id uint32) {
			p.head(id, false, ":status", "103", "link", "x")
			p.head(id, true, ":status", "201")
		}, "201 0"},
		"trailers": {func(p *peer, id uint32) { ok(p, id); p.head(id, true, "grpc-status", "0") }, "200 0"},
		"a length": {func(p *peer, id uint32) {
			p.head(id, false, ":status", "200", "content-length", "3")
			_ = p.WriteData(id, true, []byte("abc"))
		}, "200 3"},
		"304 with a length":        {func(p *peer, id uint32) { p.head(id, true, ":status", "304", "content-length", "3") }, "304 0"},
		"a reset before a head":    {func(p *peer, id uint32) { _ = p.WriteRSTStream(id, http2.ErrCodeInternal) }, "RST INTERNAL_ERROR"},
		"refused":                  {func(p *peer, id uint32) { _ = p.WriteRSTStream(id, http2.ErrCodeRefusedStream) }, "RST REFUSED_STREAM"},
		"reset: CANCEL":            {reset(http2.ErrCodeCancel), "RST CANCEL"},
		"reset: INTERNAL_ERROR":    {reset(http2.ErrCodeInternal), "RST INTERNAL_ERROR"},
		"reset: PROTOCOL_ERROR":    {reset(http2.ErrCodeProtocol), "RST PROTOCOL_ERROR"},
		"reset: ENHANCE_YOUR_CALM": {reset(http2.ErrCodeEnhanceYourCalm), "RST ENHANCE_YOUR_CALM"},
		"reset: NO_ERROR":          {reset(http2.ErrCodeNo), "RST NO_ERROR"},
		"reset: an unknown code":   {reset(0x77), "RST INTERNAL_ERROR"},
		"closed within a body":     {func(p *peer, id uint32) { ok(p, id); p.Close() }, "RST INTERNAL_ERROR"},
		"closed before a head":     {func(p *peer, _ uint32) { p.Close() }, "502 0"},
		"GOAWAY that spares it":    {func(p *peer, id uint32) { _ = p.WriteGoAway(id, 0, nil); p.head(id, true, ":status", "200") }, "200 0"},
		"GOAWAY that does not":     {func(p *peer, _ uint32) { _ = p.WriteGoAway(0, 0, nil) }, "RST REFUSED_STREAM"},
		"a push": {func(p *peer, id uint32) {
			_ = p.WritePushPromise(http2.PushPromiseParam{StreamID: id, PromiseID: 2, EndHeaders: true})
		}, "RST PROTOCOL_ERROR"},
		"no status":                   {func(p *peer, id uint32) { p.head(id, true, "x", "y") }, "RST PROTOCOL_ERROR"},
		"a bad status":                {func(p *peer, id uint32) { p.head(id, true, ":status", "20") }, "RST PROTOCOL_ERROR"},
		"status 101":                  {func(p *peer, id uint32) { p.head(id, true, ":status", "101") }, "RST PROTOCOL_ERROR"},
		"an interim head that ends":   {func(p *peer, id uint32) { p.head(id, true, ":status", "100") }, "RST PROTOCOL_ERROR"},
		"a pseudo-header of requests": {func(p *peer, id uint32) { p.head(id, true, ":status", "200", ":path", "/") }, "RST PROTOCOL_ERROR"},
		"a hop-by-hop field":          {func(p *peer, id uint32) { p.head(id, true, ":status", "200", "connection", "close") }, "RST PROTOCOL_ERROR"},
		"DATA before a head":          {func(p *peer, id uint32) { _ = p.WriteData(id, true, []byte("abc")) }, "RST PROTOCOL_ERROR"},
		"more than the length": {func(p *peer, id uint32) {
			p.head(id, false, ":status", "200", "content-length", "2")
			_ = p.WriteData(id, true, []byte("abc"))
		}, "RST PROTOCOL_ERROR"},
		"less than the length": {func(p *peer, id uint32) {
			p.head(id, false, ":status", "200", "content-length", "4")
			_ = p.WriteData(id, true, []byte("abc"))
		}, "RST PROTOCOL_ERROR"},
		"a body of 204": {func(p *peer, id uint32) {
			p.head(id, false, ":status", "204")
			_ = p.WriteData(id, true, []byte("abc"))
		}, "RST PROTOCOL_ERROR"},
		"no HTTP/2 at all": {func(p *peer, _ uint32) { fmt.Fprint(p.Conn, "HTTP/1.1 400 Bad Request\r\n\r\n") }, "RST PROTOCOL_ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := scripted(t, func(p *peer) {
				if id := p.await(); id != 0 {
					c.do(p, id)
					p.linger()
				}
			})
			_, _, at := serveMiddle(t, to, h2.Config{})
			p := dialPeer(t, at)
			p.request(1, true, "/")
			if got := p.outcome(1); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestAnEarlyAnswerIsNotLostForTheResetThatFollows(t *testing.T) {
	const others = 19
	to := scripted(t, func(p *peer) {
		for range others + 1 {
			id := p.await()
			if id == 0 {
				return
			}
			p.head(id, false, ":status", "200", "content-type", "application/grpc")
			if id == 1 {
				p.head(id, true, "grpc-status", "8", "grpc-message", "quota")
				_ = p.WriteRSTStream(id, http2.ErrCodeNo)
			}
		}
		time.Sleep(100 * time.Millisecond)
		for id := uint32(3); id < 3+2*others; id += 2 {
			_ = p.WriteData(id, false, []byte("alive"))
			p.head(id, true, "grpc-status", "0")
		}
		p.linger()
	})
	_, _, at := serveMiddle(t, to, h2.Config{})
	p := dialPeer(t, at)
	for id := uint32(1); id < 3+2*others; id += 2 {
		p.request(id, id != 1, "/t.Up/Send", "te", "trailers")
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() { // the client goes on sending
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				_ = p.WriteData(1, false, []byte("\x00\x00\x00\x00\x0aaaaaaaaaaa"))
			}
		}
	}()
	got := map[uint32]string{}
	for len(got) < others+1 {
		f, err := p.ReadFrame()
		if err != nil {
			t.Fatalf("after %v: %v", got, err)
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			fields, err := p.dec.DecodeFull(f.HeaderBlockFragment())
			if err != nil {
				t.Fatal(err)
			}
			if f.StreamEnded() {
				got[f.StreamID] = line(fields)
			}
		case *http2.RSTStreamFrame:
			if f.StreamID != 1 || f.ErrCode != http2.ErrCodeNo || got[1] == "" {
				t.Errorf("RST_STREAM %v of stream %d after %v", f.ErrCode, f.StreamID, got)
			}
		case *http2.GoAwayFrame:
			t.Errorf("GOAWAY %v", f.ErrCode)
		}
	}
	if got[1] != "grpc-status=8 grpc-message=quota" {
		t.Errorf("the early answer is %q", got[1])
	}
}

func line(fields []hpack.HeaderField) string {
	var all []string
	for _, f := range fields {
		all = append(all, f.Name+"="+f.Value)
	}
	return strings.Join(all, " ")
}

func TestAClientSendsWhatItWasGiven(t *testing.T) {
	type seen struct{ fields, settings string }
	got := make(chan seen, 1)
	to := scripted(t, func(p *peer) {
		var s seen
		for s.fields == "" {
			f, err := p.ReadFrame()
			if err != nil {
				return
			}
			switch f := f.(type) {
			case *http2.SettingsFrame:
				if !f.IsAck() {
					_ = f.ForeachSetting(func(one http2.Setting) error { s.settings += one.String() + " "; return nil })
				}
			case *http2.HeadersFrame:
				fields, _ := p.dec.DecodeFull(f.HeaderBlockFragment())
				s.fields = line(fields)
				p.head(f.StreamID, true, ":status", "200")
			}
		}
		got <- s
		p.linger()
	})
	_, _, at := serveMiddle(t, to, h2.Config{})
	p := dialPeer(t, at)
	p.request(1, false, "/x?y", "content-length", "3", "x-a", "b", "cookie", "c=d", "te", "trailers")
	s := <-got
	if want := ":method=POST :scheme=http :path=/x?y :authority=a.test content-length=3 x-a=b cookie=c=d te=trailers"; s.fields != want {
		t.Errorf("fields %s\nwant   %s", s.fields, want)
	}
	if want := "[ENABLE_PUSH = 0] [INITIAL_WINDOW_SIZE = 65536] [MAX_HEADER_LIST_SIZE = 98304] "; s.settings != want {
		t.Errorf("settings %s\nwant     %s", s.settings, want)
	}
}

func TestAServersLimitOfStreamsIsKept(t *testing.T) {
	const limit = 3
	most := make(chan int, 100)
	to := scripted(t, func(p *peer) {
		_ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: limit})
		var open []uint32
		for {
			id := p.await()
			if id == 0 {
				return
			}
			open = append(open, id)
			most <- len(open)
			if len(open) == limit { // never reached on a connection that is not full
				for _, id := range open {
					p.head(id, true, ":status", "200")
				}
				open = nil
			}
		}
	})
	_, loop, at := serveMiddle(t, to, h2.Config{})
	p := dialPeer(t, at)
	p.request(1, true, "/") // its connection learns the limit
	time.Sleep(50 * time.Millisecond)
	_ = loop
	for id := uint32(3); id < 3+2*8; id += 2 {
		p.request(id, true, "/")
	}
	for range limit {
		select {
		case n := <-most:
			if n > limit {
				t.Errorf("%d streams on a connection that takes %d", n, limit)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("requests do not arrive")
		}
	}
}

func TestTunnelsEndOneDirectionAtATime(t *testing.T) {
	connect := []string{":method", "CONNECT", ":authority", "db.test:3306"}
	for name, first := range map[string]bool{"the client ends first": true, "the server ends first": false} {
		t.Run(name, func(t *testing.T) {
			to := scripted(t, func(p *peer) {
				id := p.await()
				p.head(id, false, ":status", "200")
				if !first {
					_ = p.WriteData(id, true, []byte("greeting"))
				}
				heard := ""
				for {
					f, err := p.ReadFrame()
					if err != nil {
						return
					}
					if f, ok := f.(*http2.RSTStreamFrame); ok {
						t.Errorf("the server gets RST_STREAM %v", f.ErrCode)
					}
					if f, ok := f.(*http2.DataFrame); ok {
						heard += string(f.Data())
						if f.StreamEnded() {
							break
						}
					}
				}
				if first {
					_ = p.WriteData(id, true, []byte(heard))
				} else if heard != "many bytes" {
					t.Errorf("the server heard %q", heard)
				}
				p.linger()
			})
			_, loop, at := serveMiddle(t, to, h2.Config{})
			_ = loop
			p := dialPeer(t, at)
			p.head(1, false, connect...)
			said := false
			say := func() {
				_ = p.WriteData(1, false, []byte("many "))
				_ = p.WriteData(1, true, []byte("bytes"))
				said = true
			}
			want := "200 8"
			if first {
				say()
				want = "200 10"
			}
			if got := p.outcome(1); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			if !said {
				say()
				time.Sleep(50 * time.Millisecond)
			}
			p.request(3, true, "/") // the connection is well, whatever the script does
		})
	}
}
