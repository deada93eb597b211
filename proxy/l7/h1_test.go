package l7

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	get     = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	ok2     = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	chunked = "Transfer-Encoding: chunked\r\n"
)

func TestHTTP1(t *testing.T) {
	reading := State{}
	for _, tt := range []struct {
		name  string
		talk  talk
		want  string
		state State
		busy  bool
	}{
		{"a request and its response", talk{c(get), s(ok2)}, lines("> GET", "< GET 200 success"), reading, false},
		{"keep-alive", talk{c(get), s(ok2), c("DELETE /x HTTP/1.1\r\n\r\n"), s("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")},
			lines("> GET", "> DELETE", "< GET 200 success", "< DELETE 503 failure"), reading, false},
		{"pipelining", talk{c(get + get + "HEAD / HTTP/1.1\r\n\r\n"), s(ok2 + ok2 + "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n")},
			lines("> GET", "> GET", "> HEAD", "< GET 200 success", "< GET 200 success", "< HEAD 200 success"), reading, false},
		{"a request that waits", talk{c(get)}, lines("> GET"), reading, true},
		{"half a request", talk{c("GET / HTTP/1.1\r\nHo")}, "", reading, true},
		{"empty lines before a request", talk{c("\r\n\n\r\n" + get + "\r\n"), s(ok2), c("\r\n")}, lines("> GET", "< GET 200 success"), reading, false},
		{"bare LF", talk{c("GET / HTTP/1.1\nHost: a\n\n"), s("HTTP/1.1 200 OK\nContent-Length: 1\n\nx")}, lines("> GET", "< GET 200 success"), reading, false},
		{"no reason phrase", talk{c(get), s("HTTP/1.1 204\r\n\r\n")}, lines("> GET", "< GET 204 success"), reading, false},
		{"an unknown method", talk{c("BREW /pot HTTP/1.1\r\n\r\n"), s("HTTP/1.1 418 Teapot\r\nContent-Length: 0\r\n\r\n")}, lines("> other", "< other 418 success"), reading, false},
		{"a method of every kind of letter, and HTTP/1.9", talk{c("az09AZ!~-BREW / HTTP/1.9\r\n\r\n"), s("HTTP/1.9 200 OK\r\nContent-Length: 0\r\n\r\n")}, lines("> other", "< other 200 success"), reading, false},
		{"a request body", talk{c("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nGET /"), s(ok2), c(get), s(ok2)},
			lines("> POST", "> GET", "< POST 200 success", "< GET 200 success"), reading, false},
		{"chunks with extensions and trailers", talk{
			c("POST / HTTP/1.1\r\n" + chunked + "\r\n3;a=\"b\"\r\nGET\r\n0B ;x\r\n /\r\n 012345\r\n0\r\nX: y\r\n\r\n"), s("HTTP/1.1 200 OK\r\n" + chunked + "\r\n2\r\nok\r\n0\r\n\r\n"), c(get), s(ok2)},
			lines("> POST", "> GET", "< POST 200 success", "< GET 200 success"), reading, false},
		{"chunk sizes in every digit", talk{c("POST / HTTP/1.1\r\n" + chunked + "\r\n9\r\n123456789\r\n0f\r\n123456789abcdef\r\nA\r\n123456789a\r\n00\r\n\r\n"), s(ok2)}, lines("> POST", "< POST 200 success"), reading, false},
		{"chunked after another coding", talk{c(get), s("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\ntransfer-encoding: Chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")}, lines("> GET", "< GET 200 success"), reading, false},
		{"no body in answer to HEAD", talk{c("HEAD / HTTP/1.1\r\n\r\n"), s("HTTP/1.1 200 OK\r\n" + chunked + "\r\n"), c(get), s(ok2)},
			lines("> HEAD", "> GET", "< HEAD 200 success", "< GET 200 success"), reading, false},
		{"no body with 204 and 304", talk{c(get + get), s("HTTP/1.1 204 No\r\n\r\nHTTP/1.1 304 Not\r\nContent-Length: 7\r\n\r\n")},
			lines("> GET", "> GET", "< GET 204 success", "< GET 304 success"), reading, false},
		{"informational responses", talk{c("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"), s("HTTP/1.1 100 Continue\r\n\r\n"), c("hi"), s("HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 103 Hints\r\n\r\n" + ok2)},
			lines("> POST", "< POST 200 success"), reading, false},
		{"an expectation that fails", talk{c("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"), s("HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n"), c("hi" + get), s(ok2)},
			lines("> POST", "> GET", "< POST 417 success", "< GET 200 success"), reading, false},
		{"a response that comes before the request ends", talk{c("POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nab"), s("HTTP/1.1 413 Large\r\nContent-Length: 0\r\n\r\n"), c("cd"), c(get), s(ok2)},
			lines("> POST", "> GET", "< POST 413 success", "< GET 200 success"), reading, false},
		{"an early response keeps the connection busy until the request ends", talk{c("POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nab"), s("HTTP/1.1 413 Large\r\nContent-Length: 0\r\n\r\n")},
			lines("> POST", "< POST 413 success"), reading, true},
		{"a refusal before the head is over", talk{c("GET / HTTP/1.1\r\nX: aaaaaaaaa"), s("HTTP/1.1 431 Large\r\nContent-Length: 0\r\n\r\n"), c("aaaa\r\n\r\n" + get), serverFIN},
			lines("> GET", "< GET 431 success"), reading, false},
		{"a refusal before the first line is over", talk{c("GE"), s("HTTP/1.1 408 Timeout\r\nConnection: close\r\n\r\nbye"), serverFIN}, lines("> ", "< 408 success"), reading, false},
		{"a body that FIN ends", talk{c("GET / HTTP/1.0\r\n\r\n"), s("HTTP/1.0 200 OK\r\n\r\nhello"), s(" world"), serverFIN}, lines("> GET", "< GET 200 success"), reading, false},
		{"a body that a cut ends", talk{c(get), s("HTTP/1.1 200 OK\r\n\r\nhello"), cut}, lines("> GET", "< GET 200 failure aborted"), reading, false},
		{"HTTP/1.0 asked, HTTP/1.1 chunked answered", talk{c("GET /nic HTTP/1.0\r\nHost: svc.example\r\n\r\n"), s("HTTP/1.1 200 OK\r\n" + chunked + "\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n")},
			lines("> GET", "< GET 200 success"), reading, false},
		{"HTTP/1.0 keep-alive", talk{c("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"), s("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx"), c(get), s(ok2)},
			lines("> GET", "> GET", "< GET 200 success", "< GET 200 success"), reading, false},
		{"the same length twice", talk{c("POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello" + get), s(ok2 + ok2)},
			lines("> POST", "> GET", "< POST 200 success", "< GET 200 success"), reading, false},
		{"a server that ends in a body", talk{c(get), s("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"), serverFIN}, lines("> GET", "< GET 200 failure eof"), reading, false},
		{"a server that ends in a chunk", talk{c(get), s("HTTP/1.1 200 OK\r\n" + chunked + "\r\n5\r\nhel"), serverFIN}, lines("> GET", "< GET 200 failure eof"), reading, false},
		{"a server that ends in a head", talk{c(get), s("HTTP/1.1 500 Err\r\nA: b\r\n"), serverFIN}, lines("> GET", "< GET 0 failure eof"), reading, false},
		{"a server that ends without a word", talk{c(get + get), serverFIN, clientFIN}, lines("> GET", "> GET", "< GET 0 failure eof", "< GET 0 failure eof"), reading, false},
		{"a client that half-closes and gets its answer", talk{c(get), clientFIN, s(ok2), serverFIN}, lines("> GET", "< GET 200 success"), reading, false},
		{"a request after the server's end", talk{c(get), s(ok2), serverFIN, c(get), clientFIN}, lines("> GET", "> GET", "< GET 200 success", "< GET 0 failure eof"), reading, false},
		{"bytes after a cut", talk{c(get), s("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"), cut, s("xxx"), c(get), serverFIN}, lines("> GET", "< GET 200 failure aborted"), reading, false},
		{"gRPC status in trailers", talk{c("POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"), s("HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\n" + chunked + "\r\n1\r\nx\r\n0\r\nGrpc-Status: 14\r\n\r\n")},
			lines("> POST", "< POST 200 grpc 14 failure"), reading, false},
		{"gRPC without status", talk{c(get), s("HTTP/1.1 200 OK\r\nContent-Type: application/grpc+proto\r\n" + chunked + "\r\n0\r\n\r\n")}, lines("> GET", "< GET 200 grpc -1 failure"), reading, false},
		{"gRPC-Web with its status in the body", talk{c(get), s("HTTP/1.1 200 OK\r\nContent-Type: application/grpc-web+proto\r\nContent-Length: 2\r\n\r\nok")}, lines("> GET", "< GET 200 success"), reading, false},
		{"a folded field that is none of ours", talk{c("GET / HTTP/1.1\r\nX: a\r\n Content-Length: 7\r\n\r\n"), s(ok2)}, lines("> GET", "< GET 200 success"), reading, false},
		{"long lines", talk{c("GET /" + strings.Repeat("a", 9000) + " HTTP/1.1\r\nCookie: " + strings.Repeat("b", 9000) + "\r\ncontent-type: " + strings.Repeat("c", 600) + "\r\n" + strings.Repeat("u", 600) + ": x\r\n\r\n"), s(ok2)},
			lines("> GET", "< GET 200 success"), reading, false},

		{"WebSocket", talk{c("GET /ws HTTP/1.1\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n"), s("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81\x05hello"), c("\x81\x85\x00"), s("HTTP/1.1"), cut},
			lines("> GET", "< GET 101 success"), State{Tunnel, ReasonUpgrade}, true},
		{"an upgrade after a body", talk{c("POST /exec HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 2\r\n\r\n{}"), s("HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.raw\r\nUpgrade: tcp\r\n\r\n"), c("ls\n"), clientFIN, s("a b\n"), serverFIN},
			lines("> POST", "< POST 101 success"), State{Tunnel, ReasonUpgrade}, true},
		{"an upgrade whose bytes come early", talk{c("GET / HTTP/1.1\r\nUpgrade: x\r\n\r\n"), c("early"), s("HTTP/1.1 101 S\r\n\r\n")}, lines("> GET", "< GET 101 success"), State{Tunnel, ReasonUpgrade}, true},
		{"an upgrade that is ignored", talk{c("GET /h HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"), s(ok2), c(get), s(ok2)},
			lines("> GET", "> GET", "< GET 200 success", "< GET 200 success"), reading, false},
		{"an upgrade that is ignored after its bytes came", talk{c("GET / HTTP/1.1\r\nUpgrade: x\r\n\r\n" + get), s(ok2)}, lines("> GET", "< GET 200 success"), State{Lost, ReasonFraming}, true},
		{"an upgrade that is declined before its body is over", talk{c("POST / HTTP/1.1\r\nUpgrade: x\r\nContent-Length: 4\r\n\r\nab"), s("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"), c("cd" + get), s(ok2)},
			lines("> POST", "> GET", "< POST 403 success", "< GET 200 success"), reading, false},
		{"CONNECT", talk{c("CONNECT h:443 HTTP/1.1\r\n\r\n"), c("\x16\x03\x01"), s("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), s("\x16\x03"), c("GET")}, lines("> CONNECT", "< CONNECT 200 success"), State{Tunnel, ReasonConnect}, true},
		{"CONNECT answered by HTTP/1.0", talk{c("CONNECT h:443 HTTP/1.0\r\n\r\n"), s("HTTP/1.0 299 OK\r\n\r\n")}, lines("> CONNECT", "< CONNECT 299 success"), State{Tunnel, ReasonConnect}, true},
		{"CONNECT that is refused", talk{c("CONNECT h:443 HTTP/1.1\r\n\r\n"), s("HTTP/1.1 407 Auth\r\nContent-Length: 2\r\n\r\nno"), c(get), s(ok2)},
			lines("> CONNECT", "> GET", "< CONNECT 407 success", "< GET 200 success"), reading, false},

		{"a length and a coding", talk{c("POST / HTTP/1.1\r\nContent-Length: 5\r\n" + chunked + "\r\n0\r\n\r\n")}, "", State{Lost, ReasonFraming}, true},
		{"two lengths", talk{c("POST /x HTTP/1.1\r\nContent-Length: 44\r\nContent-Length: 5\r\n\r\nhello" + get)}, "", State{Lost, ReasonFraming}, true},
		{"two lengths in an answer", talk{c(get), s("HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nhello")}, lines("> GET"), State{Lost, ReasonFraming}, true},
		{"no length and a coding", talk{c("POST / HTTP/1.1\r\nContent-Length: 0\r\n" + chunked + "\r\n0\r\n\r\n")}, "", State{Lost, ReasonFraming}, true},
		{"a folded coding", talk{c("POST / HTTP/1.1\r\n" + chunked + " x\r\n\r\n")}, "", State{Lost, ReasonFraming}, true},
		{"a folded upgrade", talk{c("POST / HTTP/1.1\r\nUpgrade: h2\r\n\tc\r\n\r\n")}, "", State{Lost, ReasonFraming}, true},
		{"a folded content type", talk{c(get), s("HTTP/1.1 200 OK\r\nContent-Type:\r\n application/grpc\r\n\r\n")}, lines("> GET"), State{Lost, ReasonFraming}, true},
		{"a folded gRPC status", talk{c(get), s("HTTP/1.1 200 OK\r\nGrpc-Status: 1\r\n 2\r\n\r\n")}, lines("> GET"), State{Lost, ReasonFraming}, true},
		{"a list of lengths", talk{c("POST / HTTP/1.1\r\nContent-Length: 5, 5\r\n\r\n")}, "", State{Lost, ReasonFraming}, true},
		{"a signed length", talk{c("POST / HTTP/1.1\r\nContent-Length: +5\r\n\r\n")}, "", State{Lost, ReasonFraming}, true},
		{"an empty length", talk{c("POST / HTTP/1.1\r\nContent-Length: \r\n\r\n")}, "", State{Lost, ReasonFraming}, true},
		{"an endless length", talk{c("POST / HTTP/1.1\r\nContent-Length: 9223372036854775808\r\n\r\n")}, "", State{Lost, ReasonFraming}, true},
		{"a blank before the colon", talk{c("POST / HTTP/1.1\r\nContent-Length : 5\r\n\r\n")}, "", State{Lost, ReasonFraming}, true},
		{"a folded length", talk{c("POST / HTTP/1.1\r\nContent-Length: 5\r\n 5\r\n\r\n")}, "", State{Lost, ReasonFraming}, true},
		{"a coding that is not chunked", talk{c("POST / HTTP/1.1\r\nTransfer-Encoding: identity\r\n\r\n")}, "", State{Lost, ReasonFraming}, true},
		{"chunked that is not last", talk{c("POST / HTTP/1.1\r\nTransfer-Encoding: chunked, gzip\r\n\r\n")}, "", State{Lost, ReasonFraming}, true},
		{"chunked twice", talk{c("POST / HTTP/1.1\r\n" + chunked + chunked + "\r\n")}, "", State{Lost, ReasonFraming}, true},
		{"chunked in HTTP/1.0", talk{c("POST / HTTP/1.0\r\n" + chunked + "\r\n")}, "", State{Lost, ReasonFraming}, true},
		{"a chunk line with a bare LF", talk{c("POST / HTTP/1.1\r\n" + chunked + "\r\n5\nhello\r\n0\r\n\r\n")}, lines("> POST"), State{Lost, ReasonFraming}, true},
		{"a chunk longer than its size", talk{c("POST / HTTP/1.1\r\n" + chunked + "\r\n4\r\nhello\r\n0\r\n\r\n")}, lines("> POST"), State{Lost, ReasonMalformed}, true},
		{"a chunk without a size", talk{c("POST / HTTP/1.1\r\n" + chunked + "\r\n;x\r\n")}, lines("> POST"), State{Lost, ReasonMalformed}, true},
		{"a chunk of more than 2^60", talk{c("POST / HTTP/1.1\r\n" + chunked + "\r\n1000000000000000\r\n")}, lines("> POST"), State{Lost, ReasonLimit}, true},
		{"a size with more than a size", talk{c("POST / HTTP/1.1\r\n" + chunked + "\r\n5 5\r\n")}, lines("> POST"), State{Lost, ReasonMalformed}, true},
		{"no request line", talk{c("hello\r\n")}, "", State{Lost, ReasonMalformed}, true},
		{"no method", talk{c(" / HTTP/1.1\r\n\r\n")}, "", State{Lost, ReasonMalformed}, true},
		{"no target", talk{c("GET  HTTP/1.1\r\n")}, "", State{Lost, ReasonMalformed}, true},
		{"HTTP/2 told as HTTP/1", talk{c("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")}, "", State{Lost, ReasonMalformed}, true},
		{"a method that is no token", talk{c("G(T / HTTP/1.1\r\n\r\n")}, "", State{Lost, ReasonMalformed}, true},
		{"no status line", talk{c(get), s("hello\r\n")}, lines("> GET"), State{Lost, ReasonMalformed}, true},
		{"a status line of another protocol", talk{c(get), s("HTTX/1.1 200 OK\r\n")}, lines("> GET"), State{Lost, ReasonMalformed}, true},
		{"a status line without its first blank", talk{c(get), s("HTTP/1.1x200 OK\r\n")}, lines("> GET"), State{Lost, ReasonMalformed}, true},
		{"a status line that is cut short", talk{c(get), s("HTTP/1.1 20\r\n")}, lines("> GET"), State{Lost, ReasonMalformed}, true},
		{"a version that is no digit", talk{c("GET / HTTP/1.x\r\n\r\n")}, "", State{Lost, ReasonMalformed}, true},
		{"a version that is no digit in an answer", talk{c(get), s("HTTP/1.x 200 OK\r\n")}, lines("> GET"), State{Lost, ReasonMalformed}, true},
		{"a status of four digits", talk{c(get), s("HTTP/1.1 2000 OK\r\n")}, lines("> GET"), State{Lost, ReasonMalformed}, true},
		{"a field without colon", talk{c("GET / HTTP/1.1\r\ncontent-length 5\r\n\r\n")}, "", State{Lost, ReasonMalformed}, true},
		{"a response to nothing", talk{s(ok2)}, "", State{Lost, ReasonUnsolicited}, true},
		{"a second response", talk{c(get), s(ok2 + ok2)}, lines("> GET", "< GET 200 success"), State{Lost, ReasonUnsolicited}, true},
		{"101 to the first of two requests", talk{c("GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nUpgrade: x\r\n\r\n"), s("HTTP/1.1 101 S\r\n\r\n")}, lines("> GET", "> GET"), State{Lost, ReasonMalformed}, true},
		{"a cut after the observer was lost", talk{c(get), s("hello\r\n"), cut}, lines("> GET"), State{Lost, ReasonMalformed}, true},
		{"a status below 100", talk{c(get), s("HTTP/1.1 099 OK\r\n")}, lines("> GET"), State{Lost, ReasonMalformed}, true},
		{"a status that is no number", talk{c(get), s("HTTP/1.1 2x0 OK\r\n")}, lines("> GET"), State{Lost, ReasonMalformed}, true},
		{"an empty coding", talk{c("POST / HTTP/1.1\r\nTransfer-Encoding: \r\n\r\n")}, "", State{Lost, ReasonFraming}, true},
		{"a coding too long to be read", talk{c("POST / HTTP/1.1\r\nTransfer-Encoding: " + strings.Repeat("x, ", 200) + "chunked\r\n\r\n")}, "", State{Lost, ReasonFraming}, true},
		{"a length too long to be read", talk{c("POST / HTTP/1.1\r\nContent-Length: " + strings.Repeat("0", 600) + "5\r\n\r\n")}, "", State{Lost, ReasonFraming}, true},
		{"101 that nobody asked for", talk{c(get), s("HTTP/1.1 101 S\r\n\r\n")}, lines("> GET"), State{Lost, ReasonMalformed}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.talk.observe(t, newH1)
			if d := cmp.Diff(tt.want, got.Record.String()); d != "" {
				t.Errorf("counted (-want +got):\n%s", d)
			}
			if got.State != tt.state || got.Idle == tt.busy || got.Passive != (tt.state.Phase != Reading) {
				t.Errorf("state %v, idle %v; want %v, %v", got.State, got.Idle, tt.state, !tt.busy)
			}
		})
	}
}

func TestHTTP1Times(t *testing.T) {
	for _, tt := range []struct {
		name           string
		talk           talk
		latency, total time.Duration
		said           bool
	}{
		{"latency ends with the first byte of the body", talk{c("GET / HT"), c("TP/1.1\r\n\r\n"), s("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"), s("o"), s("k")}, 2 * time.Second, 3 * time.Second, true},
		{"latency ends with the first byte of a chunk", talk{c(get), s("HTTP/1.1 200 OK\r\n" + chunked + "\r\n"), s("1\r\n"), s("x"), s("\r\n0\r\n\r\n")}, 3 * time.Second, 4 * time.Second, true},
		{"latency is all there is without a body", talk{c(get), s("HTTP/1.1 204 No"), s("\r\n\r\n")}, 2 * time.Second, 2 * time.Second, true},
		{"100 Continue is no first byte", talk{c("PUT / HTTP/1.1\r\nContent-Length: 1\r\n\r\n"), s("HTTP/1.1 100 C\r\n\r\n"), c("x"), s(ok2)}, 3 * time.Second, 3 * time.Second, true},
		{"no response, no latency", talk{c(get), cut}, 0, time.Second, false},
		{"half a response has a latency", talk{c(get), s("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no"), cut}, time.Second, 2 * time.Second, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := tt.talk.run(newH1, uncut).Record.Responses
			if len(r) != 1 || r[0].Latency != tt.latency || r[0].Total != tt.total || r[0].HasLatency != tt.said {
				t.Errorf("%+v; want latency %v (%v), total %v", r, tt.latency, tt.said, tt.total)
			}
		})
	}
}

func TestHTTP1Limits(t *testing.T) {
	field := func(n int) string { return "X: " + strings.Repeat("a", n-5) + "\r\n" }
	head := func(fields string) talk {
		return talk{c("GET / HTTP/1.1\r\n" + fields + "\r\n"), s(ok2)}
	}
	lost := State{Lost, ReasonLimit}
	for _, tt := range []struct {
		name  string
		talk  talk
		state State
	}{
		{"a field of 70 000 bytes is read", head(field(70000)), State{}},
		{"a field of 600 000 bytes is read", head(field(600000)), State{}},
		{"a field of 4 000 000 bytes is not", head(field(4000000)), lost},
		{"a head of 1 MiB is read", head(field(maxHead - 18)), State{}},
		{"a head of 1 MiB and a byte is not", head(field(maxHead - 17)), lost},
		{"1000 fields are read", head(strings.Repeat("X: y\r\n", maxFields)), State{}},
		{"1001 fields are not", head(strings.Repeat("X: y\r\n", maxFields+1)), lost},
		{"1001 trailers are not", talk{c("PUT / HTTP/1.1\r\n" + chunked + "\r\n0\r\n" + strings.Repeat("X: y\r\n", maxFields+1))}, lost},
		{"64 requests may wait", talk{c(strings.Repeat(get, maxOpen)), s(strings.Repeat(ok2, maxOpen))}, State{}},
		{"65 requests may not", talk{c(strings.Repeat(get, maxOpen+1))}, lost},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, cuts := range []func(int, int) []int{uncut, everyByte} {
				if got := tt.talk.run(newH1, cuts); got.State != tt.state {
					t.Errorf("state %v, want %v", got.State, tt.state)
				}
			}
		})
	}
}

func TestHTTP1BoundsWhatItKeeps(t *testing.T) {
	h := NewH1(&record{})
	h.Feed(FromClient, []byte("GET /"), 0)
	for range 1000 {
		h.Feed(FromClient, []byte(strings.Repeat("a", 1000)), 0)
	}
	if n := cap(h.flows[FromClient].cut.start); n > 2*maxKeep || h.Passive() {
		t.Errorf("%d bytes are kept of a long line, passive %v", n, h.Passive())
	}
}

func TestAPipeliningClientReusesTheQueue(t *testing.T) {
	h := NewH1(&record{})
	h.Feed(FromClient, []byte(get), 0)
	for range 1000 {
		h.Feed(FromClient, []byte(get), 0)
		h.Feed(FromServer, []byte(ok2), 0)
	}
	if n := cap(h.open.items); n > 8 {
		t.Errorf("room for %d requests, with two that wait", n)
	}
}

func TestTheWordsOfObservers(t *testing.T) {
	got := fmt.Sprint(FromClient, FromServer, Reading, Tunnel, Lost, NoMethod, Get, Other)
	if want := "client server reading tunnel lost  GET other"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
