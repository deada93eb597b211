package h2_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/meshctl/meshctl/proxy/h2"
)

var raw = []string{":method", "POST", ":scheme", "http", ":path", "/", ":authority", "a.test"}

func with(kv ...string) []string { return append(append([]string(nil), raw...), kv...) }

// swapped is raw with another value, or without the field if that is "-".
func swapped(kv ...string) []string {
	var out []string
	for i := 0; i < len(raw); i += 2 {
		v := raw[i+1]
		for j := 0; j < len(kv); j += 2 {
			if kv[j] == raw[i] {
				v = kv[j+1]
			}
		}
		if v != "-" {
			out = append(out, raw[i], v)
		}
	}
	return out
}

func TestHeadsOfRequests(t *testing.T) {
	const malformed = "RST PROTOCOL_ERROR"
	_, _, at := serveApp(t, h2.Config{})
	for name, c := range map[string]struct {
		head []string
		want string
	}{
		"plain":                       {raw, "200 2"},
		"te trailers":                 {with("te", "trailers"), "200 2"},
		"te Trailers":                 {with("te", "Trailers"), "200 2"},
		"te else":                     {with("te", "gzip"), malformed},
		"connection":                  {with("connection", "close"), malformed},
		"keep-alive":                  {with("keep-alive", "timeout=5"), malformed},
		"proxy-connection":            {with("proxy-connection", "close"), malformed},
		"transfer-encoding":           {with("transfer-encoding", "chunked"), malformed},
		"upgrade":                     {with("upgrade", "websocket"), malformed},
		"upper case":                  {with("X-Up", "a"), malformed},
		"blank in a name":             {with("x a", "a"), malformed},
		"colon in a name":             {with("x:a", "a"), malformed},
		"empty name":                  {with("", "a"), malformed},
		"CR in a value":               {with("x-a", "a\rb"), malformed},
		"LF in a value":               {with("x-a", "a\nb"), malformed},
		"NUL in a value":              {with("x-a", "a\x00b"), malformed},
		"blank before a value":        {with("x-a", " a"), "200 2"},
		"tab after a value":           {with("x-a", "a\t"), "200 2"},
		"empty value":                 {with("x-a", ""), "200 2"},
		"no method":                   {swapped(":method", "-"), malformed},
		"empty method":                {swapped(":method", ""), malformed},
		"blank in a method":           {swapped(":method", "GET /x"), malformed},
		"own method":                  {swapped(":method", "M-SEARCH"), "200 2"},
		"no scheme":                   {swapped(":scheme", "-"), malformed},
		"scheme with more":            {swapped(":scheme", "http://b.test/?"), malformed},
		"no path":                     {swapped(":path", "-"), malformed},
		"empty path":                  {swapped(":path", ""), malformed},
		"absolute path":               {swapped(":path", "http://b.test/"), malformed},
		"blank in a path":             {swapped(":path", "/x HTTP/1.1"), malformed},
		"CRLF in a path":              {swapped(":path", "/x\r\nx: y"), malformed},
		"fragment in a path":          {swapped(":path", "/x#y"), malformed},
		"asterisk of POST":            {swapped(":path", "*"), malformed},
		"no authority":                {swapped(":authority", "-"), malformed},
		"host for authority":          {append(swapped(":authority", "-"), "host", "a.test"), "200 2"},
		"host and authority agree":    {with("host", "A.test"), "200 2"},
		"host and authority differ":   {with("host", "b.test"), malformed},
		"two hosts":                   {with("host", "a.test", "host", "a.test"), malformed},
		"user in authority":           {swapped(":authority", "u@a.test"), malformed},
		"blank in authority":          {swapped(":authority", "a.test x"), malformed},
		"authority of IPv6":           {swapped(":authority", "[::1]:80"), "200 2"},
		"pseudo-header twice":         {with(":path", "/x"), malformed},
		"pseudo-header late":          {append(append([]string{}, raw[:6]...), "x-a", "b", ":authority", "a.test"), malformed},
		"pseudo-header unknown":       {append([]string{":x", "y"}, raw...), malformed},
		"protocol without permission": {append([]string{":protocol", "websocket"}, raw...), malformed},
		"status in a request":         {append([]string{":status", "200"}, raw...), malformed},
		"length with a sign":          {with("content-length", "+0"), malformed},
		"length twice":                {with("content-length", "0", "content-length", "0"), malformed},
		"length as a list":            {with("content-length", "0, 0"), malformed},
		"length without a body":       {with("content-length", "1"), malformed},
		"length zero":                 {with("content-length", "0"), "200 2"},
		"CONNECT with a path":         {swapped(":method", "CONNECT"), malformed},
		"CONNECT without a port":      {swapped(":method", "CONNECT", ":path", "-", ":scheme", "-"), malformed},
	} {
		t.Run(name, func(t *testing.T) {
			p := dialPeer(t, at)
			p.head(1, true, c.head...)
			if got := p.outcome(1); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			p.head(3, true, raw...) // the connection lives on
			if got := p.outcome(3); got != "200 2" {
				t.Errorf("the next request: %s", got)
			}
		})
	}
}

func TestARequestArrivesAsItWasSent(t *testing.T) {
	a, _, at := serveApp(t, h2.Config{})
	for _, c := range []struct {
		end  bool
		head []string
		want string
	}{
		{true, with("x-a", "b", "accept", "c"), "POST http://a.test/ length 0 end true x-a=b accept=c"},
		{true, with("x-a", " \tb c\t ", "x-b", " "), "POST http://a.test/ length 0 end true x-a=b c x-b="},
		{false, with("content-length", "7"), "POST http://a.test/ length 7 end false"},
		{false, raw, "POST http://a.test/ length -1 end false"},
		{true, with("cookie", "a=1", "x", "y", "cookie", "b=2", "cookie", "c=3"), "POST http://a.test/ length 0 end true cookie=a=1; b=2; c=3 x=y"},
		{true, append(swapped(":authority", "-"), "host", "h.test"), "POST http://h.test/ length 0 end true"},
		{true, swapped(":method", "OPTIONS", ":path", "*"), "OPTIONS http://a.test* length 0 end true"},
		{false, swapped(":method", "CONNECT", ":path", "-", ":scheme", "-", ":authority", "b.test:443"), "CONNECT ://b.test:443 length -1 end false"},
		{true, swapped(":method", "CONNECT", ":path", "-", ":scheme", "-", ":authority", "b.test:443"), "CONNECT ://b.test:443 length -1 end false"},
	} {
		p := dialPeer(t, at)
		p.head(1, c.end, c.head...)
		if got := a.app.wait(t, c.head[1]); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestBodiesAreHeldToTheirLength(t *testing.T) {
	const malformed = "RST PROTOCOL_ERROR"
	_, _, at := serveApp(t, h2.Config{})
	for name, c := range map[string]struct {
		length  string
		data    []string
		trailer []string
		want    string
	}{
		"none said":              {"", []string{"abc"}, nil, "200 2"},
		"as said":                {"3", []string{"abc"}, nil, "200 2"},
		"as said in pieces":      {"3", []string{"a", "", "bc"}, nil, "200 2"},
		"as said, then trailers": {"3", []string{"abc"}, []string{"x-t", "1"}, "200 2"},
		"longer":                 {"2", []string{"abc"}, nil, malformed},
		"longer in a piece":      {"2", []string{"ab", "c"}, nil, malformed},
		"shorter":                {"4", []string{"abc"}, nil, malformed},
		"shorter, trailers":      {"4", []string{"abc"}, []string{"x-t", "1"}, malformed},
		"trailers with a pseudo": {"", []string{"abc"}, []string{":path", "/"}, malformed},
		"trailers with a length": {"", []string{"abc"}, []string{"content-length", "3"}, malformed},
		"trailers with a coding": {"", []string{"abc"}, []string{"transfer-encoding", "chunked"}, malformed},
		"trailers with a host":   {"", []string{"abc"}, []string{"host", "a.test"}, malformed},
	} {
		t.Run(name, func(t *testing.T) {
			p := dialPeer(t, at)
			if c.length == "" {
				p.head(1, false, raw...)
			} else {
				p.head(1, false, with("content-length", c.length)...)
			}
			for i, d := range c.data {
				_ = p.WriteDataPadded(1, c.trailer == nil && i == len(c.data)-1, []byte(d), make([]byte, i*7))
			}
			if c.trailer != nil {
				p.head(1, true, c.trailer...)
			}
			if got := p.outcome(1); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestFramesThatBreakTheRules(t *testing.T) {
	_, _, at := serveApp(t, h2.Config{MaxStreams: 3})
	frame := func(p *peer, k http2.FrameType, flags http2.Flags, id uint32, b string) {
		_ = p.WriteRawFrame(k, flags, id, []byte(b))
	}
	for name, c := range map[string]struct {
		do   func(p *peer)
		of   uint32
		want string
	}{
		"DATA on stream 0":       {func(p *peer) { frame(p, http2.FrameData, 0, 0, "a") }, 0, "GOAWAY PROTOCOL_ERROR"},
		"DATA on an idle stream": {func(p *peer) { frame(p, http2.FrameData, 0, 1, "a") }, 0, "GOAWAY PROTOCOL_ERROR"},
		"DATA all padding":       {func(p *peer) { p.request(1, false, "/"); frame(p, http2.FrameData, 8, 1, "\x02ab") }, 0, "timeout"},
		"DATA padded beyond":     {func(p *peer) { p.request(1, false, "/"); frame(p, http2.FrameData, 8, 1, "\x03ab") }, 0, "GOAWAY PROTOCOL_ERROR"},
		"DATA padded and empty":  {func(p *peer) { p.request(1, false, "/"); frame(p, http2.FrameData, 8, 1, "") }, 0, "GOAWAY PROTOCOL_ERROR"},
		"DATA after the end":     {func(p *peer) { p.request(1, true, "/silent"); frame(p, http2.FrameData, 0, 1, "a") }, 1, "RST STREAM_CLOSED"},
		"DATA after a reset": {func(p *peer) {
			p.request(1, false, "/silent")
			_ = p.WriteRSTStream(1, 8)
			frame(p, http2.FrameData, 0, 1, "a")
		}, 1, "RST STREAM_CLOSED"},
		"HEADERS after the end":       {func(p *peer) { p.request(1, true, "/silent"); p.request(1, true, "/") }, 1, "RST STREAM_CLOSED"},
		"HEADERS after a reset":       {func(p *peer) { p.request(1, false, "/silent"); _ = p.WriteRSTStream(1, 8); p.request(1, true, "/") }, 0, "GOAWAY STREAM_CLOSED"},
		"HEADERS on an even stream":   {func(p *peer) { p.request(2, true, "/") }, 0, "GOAWAY PROTOCOL_ERROR"},
		"HEADERS with a lower number": {func(p *peer) { p.request(5, true, "/"); p.request(3, true, "/") }, 0, "GOAWAY PROTOCOL_ERROR"},
		"HEADERS twice without end":   {func(p *peer) { p.request(1, false, "/"); p.head(1, false, "x", "y") }, 1, "RST PROTOCOL_ERROR"},
		"HEADERS of itself": {func(p *peer) {
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.fields(raw...), EndHeaders: true, EndStream: true, Priority: http2.PriorityParam{StreamDep: 1}})
		}, 1, "RST PROTOCOL_ERROR"},
		"HEADERS that do not decode":      {func(p *peer) { frame(p, http2.FrameHeaders, 5, 1, "\x80") }, 0, "GOAWAY COMPRESSION_ERROR"},
		"HEADERS padded beyond":           {func(p *peer) { frame(p, http2.FrameHeaders, 13, 1, "\x05\x82") }, 0, "GOAWAY PROTOCOL_ERROR"},
		"HEADERS shorter than a priority": {func(p *peer) { frame(p, http2.FrameHeaders, 0x25, 1, "\x00\x00") }, 0, "GOAWAY FRAME_SIZE_ERROR"},
		"a fourth stream": {func(p *peer) {
			for id := uint32(1); id <= 7; id += 2 {
				p.request(id, false, "/silent")
			}
		}, 7, "RST REFUSED_STREAM"},
		"CONTINUATION alone":              {func(p *peer) { frame(p, http2.FrameContinuation, 4, 1, "\x82") }, 0, "GOAWAY PROTOCOL_ERROR"},
		"PING within a block":             {func(p *peer) { frame(p, http2.FrameHeaders, 1, 1, "\x82"); _ = p.WritePing(false, [8]byte{}) }, 0, "GOAWAY PROTOCOL_ERROR"},
		"unknown frame within a block":    {func(p *peer) { frame(p, http2.FrameHeaders, 1, 1, "\x82"); frame(p, 99, 0, 1, "") }, 0, "GOAWAY PROTOCOL_ERROR"},
		"CONTINUATION of another":         {func(p *peer) { frame(p, http2.FrameHeaders, 1, 1, "\x82"); frame(p, http2.FrameContinuation, 4, 3, "") }, 0, "GOAWAY PROTOCOL_ERROR"},
		"unknown frame":                   {func(p *peer) { frame(p, 99, 0xff, 77, "whatever"); p.request(1, true, "/") }, 1, "200 2"},
		"reserved bit":                    {func(p *peer) { p.request(1, false, "/"); frame(p, http2.FrameData, 1, 1|1<<31, "a") }, 1, "200 2"},
		"PRIORITY of a wrong size":        {func(p *peer) { p.request(1, false, "/"); frame(p, http2.FramePriority, 0, 1, "abcd") }, 1, "RST FRAME_SIZE_ERROR"},
		"PRIORITY on stream 0":            {func(p *peer) { frame(p, http2.FramePriority, 0, 0, "abcde") }, 0, "GOAWAY PROTOCOL_ERROR"},
		"PRIORITY of itself":              {func(p *peer) { frame(p, http2.FramePriority, 0, 1, "\x00\x00\x00\x01\x00") }, 1, "RST PROTOCOL_ERROR"},
		"RST_STREAM of a wrong size":      {func(p *peer) { p.request(1, false, "/"); frame(p, http2.FrameRSTStream, 0, 1, "abc") }, 0, "GOAWAY FRAME_SIZE_ERROR"},
		"RST_STREAM on stream 0":          {func(p *peer) { _ = p.WriteRSTStream(0, 8) }, 0, "GOAWAY PROTOCOL_ERROR"},
		"RST_STREAM on an idle stream":    {func(p *peer) { _ = p.WriteRSTStream(1, 8) }, 0, "GOAWAY PROTOCOL_ERROR"},
		"SETTINGS on a stream":            {func(p *peer) { frame(p, http2.FrameSettings, 0, 1, "") }, 0, "GOAWAY PROTOCOL_ERROR"},
		"SETTINGS of a wrong size":        {func(p *peer) { frame(p, http2.FrameSettings, 0, 0, "abc") }, 0, "GOAWAY FRAME_SIZE_ERROR"},
		"SETTINGS acknowledged with more": {func(p *peer) { frame(p, http2.FrameSettings, 1, 0, "abcdef") }, 0, "GOAWAY FRAME_SIZE_ERROR"},
		"ENABLE_PUSH 2":                   {func(p *peer) { _ = p.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 2}) }, 0, "GOAWAY PROTOCOL_ERROR"},
		"INITIAL_WINDOW_SIZE too large":   {func(p *peer) { _ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31}) }, 0, "GOAWAY FLOW_CONTROL_ERROR"},
		"INITIAL_WINDOW_SIZE overflows": {func(p *peer) {
			p.request(1, true, "/silent")
			_ = p.WriteWindowUpdate(1, 1<<31-1-65535)
			_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 65536})
		}, 0, "GOAWAY FLOW_CONTROL_ERROR"},
		"MAX_FRAME_SIZE 0":                  {func(p *peer) { _ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize}) }, 0, "GOAWAY PROTOCOL_ERROR"},
		"MAX_FRAME_SIZE 2^24":               {func(p *peer) { _ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 24}) }, 0, "GOAWAY PROTOCOL_ERROR"},
		"unknown setting":                   {func(p *peer) { _ = p.WriteSettings(http2.Setting{ID: 0xff, Val: 1}); p.request(1, true, "/") }, 1, "200 2"},
		"PUSH_PROMISE":                      {func(p *peer) { frame(p, http2.FramePushPromise, 4, 1, "\x00\x00\x00\x02") }, 0, "GOAWAY PROTOCOL_ERROR"},
		"PING on a stream":                  {func(p *peer) { frame(p, http2.FramePing, 0, 1, "12345678") }, 0, "GOAWAY PROTOCOL_ERROR"},
		"PING of a wrong size":              {func(p *peer) { frame(p, http2.FramePing, 0, 0, "1234567") }, 0, "GOAWAY FRAME_SIZE_ERROR"},
		"GOAWAY on a stream":                {func(p *peer) { frame(p, http2.FrameGoAway, 0, 1, "12345678") }, 0, "GOAWAY PROTOCOL_ERROR"},
		"GOAWAY too short":                  {func(p *peer) { frame(p, http2.FrameGoAway, 0, 0, "1234567") }, 0, "GOAWAY FRAME_SIZE_ERROR"},
		"WINDOW_UPDATE of zero":             {func(p *peer) { _ = p.WriteWindowUpdate(0, 0) }, 0, "GOAWAY PROTOCOL_ERROR"},
		"WINDOW_UPDATE of zero on a stream": {func(p *peer) { p.request(1, false, "/"); _ = p.WriteWindowUpdate(1, 0) }, 1, "RST PROTOCOL_ERROR"},
		"WINDOW_UPDATE overflows":           {func(p *peer) { _ = p.WriteWindowUpdate(0, 1<<31-1) }, 0, "GOAWAY FLOW_CONTROL_ERROR"},
		"WINDOW_UPDATE overflows a stream":  {func(p *peer) { p.request(1, false, "/"); _ = p.WriteWindowUpdate(1, 1<<31-1) }, 1, "RST FLOW_CONTROL_ERROR"},
		"WINDOW_UPDATE on an idle stream":   {func(p *peer) { _ = p.WriteWindowUpdate(1, 1) }, 0, "GOAWAY PROTOCOL_ERROR"},
		"WINDOW_UPDATE of a wrong size":     {func(p *peer) { frame(p, http2.FrameWindowUpdate, 0, 0, "abc") }, 0, "GOAWAY FRAME_SIZE_ERROR"},
		"a frame too large":                 {func(p *peer) { p.request(1, false, "/"); frame(p, http2.FrameData, 0, 1, strings.Repeat("a", 16385)) }, 0, "GOAWAY FRAME_SIZE_ERROR"},
		"more than a stream's window": {func(p *peer) {
			p.request(1, false, "/hold")
			for range 5 {
				frame(p, http2.FrameData, 0, 1, strings.Repeat("a", 16384))
			}
		}, 1, "RST FLOW_CONTROL_ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := dialPeer(t, at)
			c.do(p)
			if c.want == "timeout" {
				_ = p.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			}
			if got := p.outcome(c.of); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestAConnectionThatDoesNotBeginAsHTTP2IsEnded(t *testing.T) {
	a, _, at := serveApp(t, h2.Config{})
	for _, first := range []string{
		"GET / HTTP/1.1\r\n\r\n",
		http2.ClientPreface[:23] + "x",
		http2.ClientPreface + "\x00\x00\x00\x06\x00\x00\x00\x00\x00", // a PING
		http2.ClientPreface + "\x00\x00\x00\x04\x01\x00\x00\x00\x00", // an acknowledgment
	} {
		c, err := net.Dial("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, first); err != nil {
			t.Fatal(err)
		}
		p := newPeer(c)
		if got := p.outcome(0); got != "GOAWAY PROTOCOL_ERROR" {
			t.Errorf("%q: %s", first, got)
		}
		c.Close()
		a.app.wait(t, "closed: ")
	}
}

func TestEveryCutOfAConversationMeansTheSame(t *testing.T) {
	_, _, at := serveApp(t, h2.Config{})
	var said strings.Builder
	r, w := net.Pipe()
	p := newPeer(w)
	go func() {
		_ = p.WriteSettings()
		_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.fields(with("x-long", strings.Repeat("v", 100))...), PadLength: 9})
		_ = p.WriteContinuation(1, true, p.fields("x-more", "m"))
		_ = p.WriteDataPadded(1, false, []byte("some body"), make([]byte, 11))
		_ = p.WritePing(false, [8]byte{1})
		_ = p.WriteRawFrame(77, 0, 0, []byte("unknown"))
		p.head(1, true, "x-t", "v")
		w.Close()
	}()
	if _, err := io.Copy(&said, r); err != nil {
		t.Fatal(err)
	}
	all := http2.ClientPreface + said.String()
	for cut := 1; cut < len(all); cut++ {
		c, err := net.Dial("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, all[:cut])
		time.Sleep(200 * time.Microsecond)
		_, _ = io.WriteString(c, all[cut:])
		if got := newPeer(c).outcome(1); got != "200 2" {
			t.Errorf("cut at %d: %s", cut, got)
		}
		c.Close()
	}
}
