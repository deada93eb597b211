package detect

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/meshctl/meshctl/proxy/protocol"
)

func FuzzSniff(f *testing.F) {
	for _, file := range append(stableFiles, "odd-methods.txt") {
		for _, s := range readStreams(f, file) {
			f.Add(s.bytes())
		}
	}
	f.Add(realHello(f, clientConfig("svc.example", "h2")))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := Sniff(b)
		if r.More != (r.Kind == protocol.Unknown) || r.More != (r.Reason == ReasonUnknown) {
			t.Errorf("neither open nor decided: %+v", r)
		}
		if r.More && len(b) >= MaxHead {
			t.Errorf("%d bytes and still asks for more", len(b))
		}
		if end := AtEnd(b); end.More || end.Kind == protocol.Unknown || !r.More && end != r {
			t.Errorf("at the end %+v, before %+v", end, r)
		}
		if (r.Kind == protocol.HTTP2) != bytes.HasPrefix(b, []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")) {
			t.Errorf("%+v", r)
		}
		agreesWithRequestParsers(t, b, r)
		agreesWithPrefixes(t, b, r)
	})
}

// requestLine is a second opinion on request, written another way.
var requestLine = regexp.MustCompile("^(?s)(?:\r?\n){0,4}([!#$%&'*+.^_`|~0-9A-Za-z-]+) [^\x00-\x20\x7f]+ HTTP/1[.][01][\r\n]")

// agreesWithRequestParsers holds r against the expression, and against net/http
// where that takes a target by the same rules, which is from the slash on.
func agreesWithRequestParsers(t *testing.T, b []byte, r Result) {
	t.Helper()
	if r.Kind == protocol.HTTP1 && !requestLine.MatchString(latin1(b)) {
		t.Errorf("http/1, but no request line: %q", b)
	}
	line, _, _ := bytes.Cut(b, []byte{'\n'})
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(string(line) + "\nHost: a\r\n\r\n")))
	if err != nil || len(line) >= MaxHead || len(line) == len(b) {
		return
	}
	if (req.Proto == "HTTP/1.0" || req.Proto == "HTTP/1.1") && (strings.HasPrefix(req.RequestURI, "/") || req.RequestURI == "*") && r.Kind != protocol.HTTP1 {
		t.Errorf("net/http reads %s %s %s, but %+v", req.Method, req.RequestURI, req.Proto, r)
	}
}

// latin1 makes a string with one rune a byte, for the expression.
func latin1(b []byte) string {
	rs := make([]rune, len(b))
	for i, c := range b {
		rs[i] = rune(c)
	}
	return string(rs)
}

// agreesWithPrefixes holds for every cut of b: a prefix waits or says what all
// of b says, unless the method is one nobody registered.
func agreesWithPrefixes(t *testing.T, b []byte, r Result) {
	t.Helper()
	odd := r.Kind == protocol.HTTP1 && !startsWithRegisteredMethod(b)
	for n := 0; n < len(b); n += 1 + len(b)/512 {
		p := Sniff(b[:n])
		if !p.More && p != r && !(odd && p.Kind == protocol.Opaque) {
			t.Fatalf("%q is %+v, but its first %d bytes are %+v", b, r, n, p)
		}
	}
}

func startsWithRegisteredMethod(b []byte) bool {
	m := requestLine.FindStringSubmatch(latin1(b))
	return m != nil && slices.Contains(slices.Concat(methods[:]...), m[1])
}

func FuzzClientHello(f *testing.F) {
	for _, cfg := range []*tls.Config{clientConfig("a.test", "h2", "http/1.1"), clientConfig(""), {ServerName: "old.test", MaxVersion: tls.VersionTLS12}} {
		sent := realHello(f, cfg)
		f.Add(sent[recordHeader+handshakeHeader:], uint16(0))
		f.Add(sent[recordHeader+handshakeHeader:], uint16(7))
	}
	f.Add(body(append(host("a.example"), alpn("h2", "a,b")...)), uint16(1))
	f.Add(body(nil), uint16(3))
	f.Fuzz(func(t *testing.T, helloBody []byte, size uint16) {
		m := message(helloBody)
		sizes := slices.Repeat([]int{int(size)}, min(len(m), 64))
		if size == 0 {
			sizes = nil
		}
		sent := records(m, sizes...)
		r := Sniff(sent)
		if r.More && len(helloBody) <= 0xffff {
			t.Fatalf("waits behind the end of its message: %d bytes", len(sent))
		}
		if r.Kind != protocol.TLS && (r.SNI != "" || r.ALPN != "") {
			t.Errorf("%+v", r)
		}
		if len(sent) >= MaxHead || !bytes.HasPrefix(helloBody, []byte{3, 3}) {
			return
		}
		if info := handshake(sent); info != nil {
			agreesWithServer(t, r, info)
		}
	})
}

// agreesWithServer holds r against what crypto/tls read from the same bytes.
func agreesWithServer(t *testing.T, r Result, info *tls.ClientHelloInfo) {
	t.Helper()
	if r.Kind != protocol.TLS {
		t.Fatalf("a server reads %q %q, but %+v", info.ServerName, info.SupportedProtos, r)
	}
	if r.SNI != "" && r.SNI != info.ServerName {
		t.Errorf("name %q, a server reads %q", r.SNI, info.ServerName)
	}
	if r.SNI == "" && plainName.MatchString(info.ServerName) {
		t.Errorf("no name, a server reads %q", info.ServerName)
	}
	var shown []string
	for _, p := range info.SupportedProtos {
		if plainProtocol.MatchString(p) && len(strings.Join(append(shown, p), ",")) <= maxALPN {
			shown = append(shown, p)
		}
	}
	if want := strings.Join(shown, ","); r.ALPN != want {
		t.Errorf("protocols %q, want %q of %q", r.ALPN, want, info.SupportedProtos)
	}
}

var (
	plainName     = regexp.MustCompile(`^([a-z0-9-]{1,63}[.]){0,3}[a-z][a-z0-9-]{0,20}$`)
	plainProtocol = regexp.MustCompile(`^[!-+\--~]+$`)
)

func FuzzName(f *testing.F) {
	for _, n := range readNamed(f) {
		f.Add(n.b, n.fromServer)
	}
	names := append(Names(), "")
	f.Fuzz(func(t *testing.T, b []byte, fromServer bool) {
		name := Name(b, fromServer)
		if !slices.Contains(names, name) {
			t.Errorf("%q is not in the set", name)
		}
		if again := Name(b[:min(len(b), maxNamed)], fromServer); again != name {
			t.Errorf("%q by more than %d bytes, else %q", name, maxNamed, again)
		}
	})
}
