package h1_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/proxy/h1"
)

// verdict is what a Server makes of bytes: what the middle hears, then the
// status with which it refused what followed.
func verdict(b *bench, cfg h1.Config, pieces ...string) string {
	r := &tape{onEnd: answer}
	w, _, _ := b.serve(cfg, r)
	defer w.close()
	for _, p := range pieces {
		w.send(p)
	}
	out := r.text()
	for _, line := range strings.Split(w.read(), "\r\n") {
		if code, ok := strings.CutPrefix(line, "HTTP/1.1 "); ok && !strings.HasPrefix(code, "200") {
			out += code[:3] + "\n"
		}
	}
	return out
}

const hostLine = "Host: shop.example\r\n"

func get(fields string) string { return "GET /p HTTP/1.1\r\n" + hostLine + fields + "\r\n" }

func put(fields, body string) string {
	return "PUT /p HTTP/1.1\r\n" + hostLine + fields + "\r\n" + body
}

var accepted = []struct{ name, raw, want string }{
	{"a plain request", get(""), "GET |shop.example|/p len=0 end=true\n"},
	{"field order, case and inner space are kept", get("B: 1\r\na:\t x  y \t\r\nB:2\r\n"), "GET |shop.example|/p [B=1] [a=x  y] [B=2] len=0 end=true\n"},
	{"an empty value and bytes above 127", get("x:\r\ny: caf\xc3\xa9\r\n"), "GET |shop.example|/p [x=] [y=caf\xc3\xa9] len=0 end=true\n"},
	{"any token is a method", "m!x /p HTTP/1.1\r\n" + hostLine + "\r\n", "m!x |shop.example|/p len=0 end=true\n"},
	{"an empty line in front", "\r\n\r\n" + get(""), "GET |shop.example|/p len=0 end=true\n"},
	{"a length", put("Content-Length: 3\r\n", "abc"), "PUT |shop.example|/p len=3 end=false\n\"abc\"\nend\n"},
	{"a length of nothing", put("Content-Length: 0\r\n", ""), "PUT |shop.example|/p len=0 end=true\n"},
	{"leading zeros", put("Content-Length: 003\r\n", "abc"), "PUT |shop.example|/p len=3 end=false\n\"abc\"\nend\n"},
	{"chunks", put("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"), "PUT |shop.example|/p len=-1 end=false\n\"abc0123456789\"\nend\n"},
	{"an empty chunked body", put("transfer-encoding: Chunked\r\n", "0\r\n\r\n"), "PUT |shop.example|/p len=-1 end=false\n\"\"\nend\n"},
	{"chunk extensions are dropped", put("Transfer-Encoding: chunked\r\n", "03;a=\"b c\";d\r\nabc\r\n00;x\r\n\r\n"), "PUT |shop.example|/p len=-1 end=false\n\"abc\"\nend\n"},
	{"trailers, without those that would frame or route", put("Transfer-Encoding: chunked\r\nTrailer: x\r\n", "1\r\na\r\n0\r\nX: 1\r\nContent-Length: 5\r\nHost: b\r\nTransfer-Encoding: x\r\nY:\r\n\r\n"),
		"PUT |shop.example|/p [Trailer=x] len=-1 end=false\n\"a\"\ntrailers [X=1] [Y=]\n"},
	{"trailers that are all dropped", put("Transfer-Encoding: chunked\r\n", "0\r\nHost: b\r\n\r\n"), "PUT |shop.example|/p len=-1 end=false\n\"\"\nend\n"},
	{"absolute form, whose authority wins", "GET http://other.example:81/q?x HTTP/1.1\r\n" + hostLine + "\r\n", "GET http|other.example:81|/q?x absolute len=0 end=true\n"},
	{"absolute form without a path", "GET https://other.example HTTP/1.1\r\n" + hostLine + "\r\n", "GET https|other.example|/ absolute len=0 end=true\n"},
	{"absolute form with a query only", "GET http://other.example?x=1 HTTP/1.1\r\n" + hostLine + "\r\n", "GET http|other.example|/?x=1 absolute len=0 end=true\n"},
	{"absolute form of OPTIONS *", "OPTIONS http://other.example HTTP/1.1\r\n" + hostLine + "\r\n", "OPTIONS http|other.example|* absolute len=0 end=true\n"},
	{"asterisk form", "OPTIONS * HTTP/1.1\r\n" + hostLine + "\r\n", "OPTIONS |shop.example|* len=0 end=true\n"},
	{"asterisk form of UPnP", "M-SEARCH * HTTP/1.1\r\n" + hostLine + "\r\n", "M-SEARCH |shop.example|* len=0 end=true\n"},
	{"authority form", "CONNECT db.example:5432 HTTP/1.1\r\n" + hostLine + "\r\n", "CONNECT |db.example:5432| len=0 end=false\n"},
	{"a host of IPv6 and a port", "GET /p HTTP/1.1\r\nHost: [fd00::1]:8080\r\n\r\n", "GET |[fd00::1]:8080|/p len=0 end=true\n"},
	{"an empty host", "GET /p HTTP/1.1\r\nHost:\r\n\r\n", "GET ||/p len=0 end=true\n"},
	{"HTTP/1.0 needs no host", "GET /p HTTP/1.0\r\n\r\n", "GET ||/p 1.0 len=0 end=true\n"},
	{"expect", put("Expect: 100-Continue\r\nContent-Length: 1\r\n", "a"), "PUT |shop.example|/p expect [Expect=100-Continue] len=1 end=false\n\"a\"\nend\n"},
	{"expect means nothing in HTTP/1.0", "PUT /p HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\na", "PUT ||/p 1.0 len=1 end=false\n\"a\"\nend\n"},
	{"hop-by-hop fields and those that Connection names are dropped", get("Connection: x-One, close ,, Host\r\nX-one: 1\r\nx-two: 2\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\nX-ONE: 3\r\n"), "GET |shop.example|/p [x-two=2] len=0 end=true\n"},
	{"Connection cannot take the framing away", put("Connection: content-length\r\nContent-Length: 1\r\n", "a"), "PUT |shop.example|/p len=1 end=false\n\"a\"\nend\n"},
	{"of TE, trailers travel on", get("TE: gzip;q=1, Trailers\r\nConnection: TE\r\nx: 1\r\n"), "GET |shop.example|/p [x=1] [te=trailers] len=0 end=true\n"},
	{"TE without trailers does not", get("TE: deflate\r\n"), "GET |shop.example|/p len=0 end=true\n"},
	{"an upgrade", get("Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"), "GET |shop.example|/p upgrade=WebSocket len=0 end=true\n"},
	{"an upgrade that Connection does not name", get("Upgrade: websocket\r\n"), "GET |shop.example|/p len=0 end=true\n"},
	{"h2c and its settings", get("Connection: upgrade, http2-settings\r\nUpgrade: H2C\r\nHTTP2-Settings: AA\r\n"), "GET |shop.example|/p len=0 end=true\n"},
	{"h2c in a list", get("Connection: upgrade\r\nUpgrade: websocket, h2c\r\n"), "GET |shop.example|/p len=0 end=true\n"},
	{"two Upgrade lines", get("Connection: upgrade\r\nUpgrade: a\r\nUpgrade: b\r\n"), "GET |shop.example|/p len=0 end=true\n"},
	{"an upgrade in HTTP/1.0", "GET /p HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", "GET ||/p 1.0 len=0 end=true\n"},
	{"an upgrade with a body in front", put("Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n", "a"), "PUT |shop.example|/p len=1 end=false\n\"a\"\nend\n"},
	{"a container engine's stream may have one", put("Connection: upgrade\r\nUpgrade: tcp\r\nContent-Length: 1\r\n", "a"), "PUT |shop.example|/p upgrade=tcp len=1 end=false\n\"a\"\nend\n"},
	{"but not in chunks", put("Connection: upgrade\r\nUpgrade: tcp\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), "PUT |shop.example|/p len=-1 end=false\n\"\"\nend\n"},
	{"two in one go", get("") + put("Content-Length: 2\r\n", "ab") + get("x: 1\r\n"), "GET |shop.example|/p len=0 end=true\nPUT |shop.example|/p len=2 end=false\n\"ab\"\nend\nGET |shop.example|/p [x=1] len=0 end=true\n"},
	{"nothing behind a request to close", get("Connection: close\r\n") + get(""), "GET |shop.example|/p len=0 end=true\n"},
	{"nothing behind HTTP/1.0", "GET /p HTTP/1.0\r\n\r\n" + get(""), "GET ||/p 1.0 len=0 end=true\n"},
	{"HTTP/1.0 that keeps", "GET /p HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n" + get(""), "GET ||/p 1.0 len=0 end=true\nGET |shop.example|/p len=0 end=true\n"},
}

func refused() []struct{ name, raw, want string } {
	line := func(l string) string { return l + "\r\n" + hostLine + "\r\n" }
	chunked := func(body string) string { return put("Transfer-Encoding: chunked\r\n", body) }
	const open = "PUT |shop.example|/p len=-1 end=false\n"
	return []struct{ name, raw, want string }{
		{"no target", line("GET"), "400\n"},
		{"no version", line("GET /p"), "400\n"},
		{"HTTP/0.9", "GET /p\r\n", "400\n"},
		{"two spaces before the target", line("GET  /p HTTP/1.1"), "400\n"},
		{"two spaces behind it", line("GET /p  HTTP/1.1"), "400\n"},
		{"a space in the target", line("GET /p q HTTP/1.1"), "400\n"},
		{"a space at the end", line("GET /p HTTP/1.1 "), "400\n"},
		{"a tab", line("GET\t/p HTTP/1.1"), "400\n"},
		{"a method that is no token", line("G@T /p HTTP/1.1"), "400\n"},
		{"a space in front", line(" GET /p HTTP/1.1"), "400\n"},
		{"HTTP/1.2", line("GET /p HTTP/1.2"), "505\n"},
		{"HTTP/2.0", line("GET /p HTTP/2.0"), "505\n"},
		{"a long version", line("GET /p HTTP/1.10"), "400\n"},
		{"a version in small letters", line("GET /p http/1.1"), "400\n"},
		{"the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505\n"},
		{"its method", line("PRI * HTTP/1.1"), "400\n"},
		{"NUL in the target", line("GET /\x00 HTTP/1.1"), "400\n"},
		{"CR in the target", line("GET /\rp HTTP/1.1"), "400\n"},
		{"DEL in the target", line("GET /\x7f HTTP/1.1"), "400\n"},
		{"a fragment", line("GET /p#q HTTP/1.1"), "400\n"},
		{"authority form with GET", line("GET shop.example HTTP/1.1"), "400\n"},
		{"authority form and port with GET", line("GET shop.example:80 HTTP/1.1"), "400\n"},
		{"asterisk with GET", line("GET * HTTP/1.1"), "400\n"},
		{"user information", line("GET http://a@shop.example/ HTTP/1.1"), "400\n"},
		{"a scheme without an authority", line("GET http:///p HTTP/1.1"), "400\n"},
		{"a scheme that begins with a digit", line("GET 1http://a/ HTTP/1.1"), "400\n"},
		{"CONNECT without a port", line("CONNECT db.example HTTP/1.1"), "400\n"},
		{"CONNECT to an empty port", line("CONNECT db.example: HTTP/1.1"), "400\n"},
		{"CONNECT to no host", line("CONNECT :80 HTTP/1.1"), "400\n"},
		{"CONNECT to a path", line("CONNECT /p HTTP/1.1"), "400\n"},
		{"CONNECT to a URI", line("CONNECT http://a/ HTTP/1.1"), "400\n"},
		{"CONNECT in HTTP/1.0", line("CONNECT db.example:1 HTTP/1.0"), "400\n"},
		{"CONNECT with a length", "CONNECT a.example:1 HTTP/1.1\r\n" + hostLine + "Content-Length: 1\r\n\r\na", "400\n"},
		{"CONNECT with chunks", "CONNECT a.example:1 HTTP/1.1\r\n" + hostLine + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400\n"},
		{"bare LF behind the request line", "GET /p HTTP/1.1\n" + hostLine + "\r\n", "400\n"},
		{"bare LF in front", "\n" + get(""), "400\n"},
		{"bare LF behind a field", get("x: 1\ny: 2\r\n"), "400\n"},
		{"bare LF at the end", "GET /p HTTP/1.1\r\n" + hostLine + "\n", "400\n"},
		{"bare CR in a value", get("x: 1\ry: 2\r\n"), "400\n"},
		{"CR CR LF", get("x: 1\r\r\n"), "400\n"},
		{"NUL in a value", get("x: a\x00b\r\n"), "400\n"},
		{"a control byte in a value", get("x: a\x01b\r\n"), "400\n"},
		{"DEL in a value", get("x: a\x7fb\r\n"), "400\n"},
		{"NUL in a name", get("x\x00: a\r\n"), "400\n"},
		{"a byte above 127 in a name", get("\xe9: a\r\n"), "400\n"},
		{"space before the colon", get("x : a\r\n"), "400\n"},
		{"tab before the colon", get("x\t: a\r\n"), "400\n"},
		{"no colon", get("x\r\n"), "400\n"},
		{"an empty name", get(": a\r\n"), "400\n"},
		{"a folded line", get("x: a\r\n b\r\n"), "400\n"},
		{"a line folded with a tab", get("x: a\r\n\tb\r\n"), "400\n"},
		{"a fold before the first field", "GET /p HTTP/1.1\r\n " + hostLine + "\r\n", "400\n"},
		{"no Host", "GET /p HTTP/1.1\r\n\r\n", "400\n"},
		{"no Host in absolute form", "GET http://a/ HTTP/1.1\r\n\r\n", "400\n"},
		{"two Hosts", get("Host: shop.example\r\n"), "400\n"},
		{"a Host with a path", "GET /p HTTP/1.1\r\nHost: a/b\r\n\r\n", "400\n"},
		{"a Host with user information", "GET /p HTTP/1.1\r\nHost: u@a\r\n\r\n", "400\n"},
		{"a Host list", "GET /p HTTP/1.1\r\nHost: a b\r\n\r\n", "400\n"},
		{"a Host with a bad port", "GET /p HTTP/1.1\r\nHost: a:8x\r\n\r\n", "400\n"},
		{"a Host with an open bracket", "GET /p HTTP/1.1\r\nHost: [::1\r\n\r\n", "400\n"},
		{"length and chunks", put("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), "400\n"},
		{"chunks and length", put("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"), "400\n"},
		{"two lengths", put("Content-Length: 1\r\nContent-Length: 2\r\n", "ab"), "400\n"},
		{"two equal lengths", put("Content-Length: 1\r\nContent-Length: 1\r\n", "a"), "400\n"},
		{"a list of lengths", put("Content-Length: 1, 1\r\n", "a"), "400\n"},
		{"a signed length", put("Content-Length: +1\r\n", "a"), "400\n"},
		{"a negative length", put("Content-Length: -1\r\n", "a"), "400\n"},
		{"a hexadecimal length", put("Content-Length: 0x1\r\n", "a"), "400\n"},
		{"an empty length", put("Content-Length:\r\n", "a"), "400\n"},
		{"a length with a space", put("Content-Length: 1 1\r\n", "a"), "400\n"},
		{"a length above int64", put("Content-Length: 9223372036854775808\r\n", "a"), "400\n"},
		{"a twin of Content-Length", put("Content_Length: 1\r\n", "a"), "400\n"},
		{"a twin of Transfer-Encoding", put("transfer_encoding: chunked\r\n", "0\r\n\r\n"), "400\n"},
		{"a coding that is not chunked", put("Transfer-Encoding: gzip\r\n", ""), "501\n"},
		{"a coding before chunked", put("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), "501\n"},
		{"chunked twice", put("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"), "501\n"},
		{"chunked on two lines", put("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), "501\n"},
		{"chunked with a parameter", put("Transfer-Encoding: chunked;a=b\r\n", "0\r\n\r\n"), "501\n"},
		{"an empty coding", put("Transfer-Encoding:\r\n", ""), "501\n"},
		{"chunks in HTTP/1.0", "PUT /p HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400\n"},
		{"an empty chunk size", chunked("\r\na"), open + "aborted 4\n400\n"},
		{"a chunk size with a sign", chunked("+1\r\na"), open + "aborted 4\n400\n"},
		{"a chunk size with a prefix", chunked("0x1\r\na"), open + "aborted 4\n400\n"},
		{"a space before a chunk size", chunked(" 1\r\na"), open + "aborted 4\n400\n"},
		{"a space behind a chunk size", chunked("1 \r\na"), open + "aborted 4\n400\n"},
		{"a chunk size of 17 digits", chunked("00000000000000001\r\na"), open + "aborted 4\n400\n"},
		{"a chunk size above int64", chunked("8000000000000000\r\na"), open + "aborted 4\n400\n"},
		{"bare LF behind a chunk size", chunked("1\na"), open + "aborted 4\n400\n"},
		{"CR and no LF behind a chunk size", chunked("1\rab"), open + "aborted 4\n400\n"},
		{"CR and no LF behind a chunk", chunked("1\r\na\rb0\r\n\r\n"), open + "aborted 4\n400\n"},
		{"bare LF in a chunk extension", chunked("1;a\nb\r\na"), open + "aborted 4\n400\n"},
		{"NUL in a chunk extension", chunked("1;a\x00b\r\na"), open + "aborted 4\n400\n"},
		{"a long chunk extension", chunked("1;" + strings.Repeat("a", 257) + "\r\na"), open + "aborted 4\n400\n"},
		{"a folded trailer", chunked("0\r\nx: 1\r\n y\r\n\r\n"), open + "aborted 4\n400\n"},
		{"bare LF behind the last chunk", chunked("0\r\n\n"), open + "aborted 4\n400\n"},
		{"a trailer without a colon", chunked("0\r\nx\r\n\r\n"), open + "aborted 4\n400\n"},
		{"many connection options", get("Connection: " + strings.Repeat("x,", 17) + "\r\n"), "400\n"},
		{"a good request before a bad one", get("") + get("x : 1\r\n") + get(""), "GET |shop.example|/p len=0 end=true\n400\n"},
	}
}

func TestARequestReadsTheSameHoweverItIsCut(t *testing.T) {
	b := newBench(t)
	for _, v := range append(refused(), accepted...) {
		t.Run(v.name, func(t *testing.T) {
			if diff := cmp.Diff(v.want, verdict(b, h1.Config{}, v.raw)); diff != "" {
				t.Fatalf("%q in one piece (-want +got):\n%s", v.raw, diff)
			}
			for i := 1; i < len(v.raw); i++ {
				if diff := cmp.Diff(settled(v.want), settled(verdict(b, h1.Config{}, v.raw[:i], v.raw[i:]))); diff != "" {
					t.Fatalf("%q cut at %d (-want +got):\n%s", v.raw, i, diff)
				}
			}
			if diff := cmp.Diff(settled(v.want), settled(verdict(b, h1.Config{}, strings.Split(v.raw, "")...))); diff != "" {
				t.Fatalf("%q byte by byte (-want +got):\n%s", v.raw, diff)
			}
		})
	}
}

func TestLimitsOfARequestHeadAreKept(t *testing.T) {
	b := newBench(t)
	cfg := h1.Config{MaxHead: 1000, MaxFields: 10}
	long := func(n int) string { return strings.Repeat("a", n) }
	var many strings.Builder
	for i := range 9 {
		fmt.Fprintf(&many, "f%d: 1\r\n", i)
	}
	for _, v := range []struct{ name, raw, want string }{
		{"a head at the limit", get("x: " + long(1000-len(get("x: \r\n"))) + "\r\n"), "GET |"},
		{"a head above it", get("x: " + long(1001) + "\r\n"), "431\n"},
		{"a head that does not end", "GET /p HTTP/1.1\r\nx: " + long(1200), "431\n"},
		{"many short lines", "GET /p HTTP/1.1\r\n" + hostLine + strings.Repeat("x: 1\r\n", 300), "431\n"},
		{"a target that does not end", "GET /" + long(1200), "414\n"},
		{"a long target", "GET /" + long(1200) + " HTTP/1.1\r\n" + hostLine + "\r\n", "414\n"},
		{"as many fields as may be", get(many.String()), "GET |"},
		{"one field more", get(many.String() + "x: 1\r\n"), "431\n"},
		{"long trailers", put("Transfer-Encoding: chunked\r\n", "0\r\nx: "+long(1200)+"\r\n\r\n"), "PUT |shop.example|/p len=-1 end=false\naborted 4\n431\n"},
	} {
		t.Run(v.name, func(t *testing.T) {
			for _, pieces := range [][]string{{v.raw}, strings.Split(v.raw, "")} {
				if got := verdict(b, cfg, pieces...); !strings.HasPrefix(got, v.want) {
					t.Errorf("in %d pieces: %q, want %q", len(pieces), got, v.want)
				}
			}
		})
	}
}

func TestALargeHeadIsReadWhereTheLimitAllowsIt(t *testing.T) {
	b := newBench(t)
	value := strings.Repeat("b", 300_000)
	want := "GET |shop.example|/p [x=" + value + "] [y=1] len=0 end=true\n"
	if got := verdict(b, h1.Config{MaxHead: 1 << 20}, get("x: "+value+"\r\ny: 1\r\n")); got != want {
		t.Errorf("%d bytes heard, want %d", len(got), len(want))
	}
}
