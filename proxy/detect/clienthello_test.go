package detect

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/proxy/protocol"
)

// recorded is one end of a connection whose other end has said all it will say:
// it reads that, and keeps what is written.
type recorded struct {
	net.Conn
	said  *bytes.Reader
	wrote bytes.Buffer
}

func record(said []byte) *recorded { return &recorded{said: bytes.NewReader(said)} }

func (c *recorded) Read(b []byte) (int, error)       { return c.said.Read(b) }
func (c *recorded) Write(b []byte) (int, error)      { return c.wrote.Write(b) }
func (c *recorded) SetWriteDeadline(time.Time) error { return nil }
func (c *recorded) Close() error                     { return nil }

// realHello is what crypto/tls sends first: one record, one ClientHello.
func realHello(t testing.TB, cfg *tls.Config) []byte {
	t.Helper()
	c := record(nil)
	if err := tls.Client(c, cfg).Handshake(); !errors.Is(err, io.EOF) {
		t.Fatalf("handshake with nobody: %v", err)
	}
	return c.wrote.Bytes()
}

func clientConfig(name string, protos ...string) *tls.Config {
	return &tls.Config{ServerName: name, InsecureSkipVerify: name == "", NextProtos: protos}
}

// records puts message into handshake records of the given sizes, the last one
// taking the rest.
func records(message []byte, sizes ...int) []byte {
	var out []byte
	for _, n := range append(sizes, len(message)) {
		n = min(n, len(message))
		for m := min(n, maxFragment); m > 0; m = min(n, maxFragment) {
			out = append(out, recordHandshake, 3, 1, byte(m>>8), byte(m))
			out = append(out, message[:m]...)
			message, n = message[m:], n-m
		}
	}
	return out
}

// bytewise is a size of 1 for every byte of message.
func bytewise(message []byte) []int {
	sizes := make([]int, len(message))
	for i := range sizes {
		sizes[i] = 1
	}
	return sizes
}

// message is a ClientHello with its header around the given body.
func message(body []byte) []byte {
	n := len(body)
	return append([]byte{typeClientHello, byte(n >> 16), byte(n >> 8), byte(n)}, body...)
}

// vector prefixes b with its length in n bytes.
func vector(n int, b ...byte) []byte {
	out := make([]byte, n, n+len(b))
	for i := range n {
		out[i] = byte(len(b) >> (8 * (n - 1 - i)))
	}
	return append(out, b...)
}

func extension(kind byte, b ...byte) []byte {
	return append([]byte{0, kind}, vector(2, b...)...)
}

// body is that of a small ClientHello; nil extensions leave the field out.
func body(extensions []byte) []byte {
	b := append([]byte{3, 3}, make([]byte, 32)...)
	b = append(b, vector(1)...)
	b = append(b, vector(2, 0x13, 0x01)...)
	b = append(b, vector(1, 0)...)
	if extensions != nil {
		b = append(b, vector(2, extensions...)...)
	}
	return b
}

func host(name string) []byte {
	entry := append([]byte{nameTypeHost}, vector(2, []byte(name)...)...)
	return extension(extServerName, vector(2, entry...)...)
}

func alpn(names ...string) []byte {
	var list []byte
	for _, n := range names {
		list = append(list, vector(1, []byte(n)...)...)
	}
	return extension(extALPN, vector(2, list...)...)
}

func TestRealClientHellosAreTLSHoweverCut(t *testing.T) {
	plain := clientConfig("svc.example", "h2", "http/1.1")
	plain.CurvePreferences = []tls.CurveID{tls.X25519}
	quantum := clientConfig("svc.example", "h2", "http/1.1")
	quantum.CurvePreferences = []tls.CurveID{tls.X25519MLKEM768, tls.X25519}
	old := clientConfig("old.example")
	old.MaxVersion = tls.VersionTLS12
	many := clientConfig("svc.example")
	for range 400 {
		many.NextProtos = append(many.NextProtos, strings.Repeat("p", 100))
	}
	tests := []struct {
		name string
		cfg  *tls.Config
		want Result
		min  int // bytes of the hello
	}{
		{"X25519", plain, Result{SNI: "svc.example", ALPN: "h2,http/1.1"}, 200},
		{"ML-KEM, more than a segment", quantum, Result{SNI: "svc.example", ALPN: "h2,http/1.1"}, 1449},
		{"TLS 1.2", old, Result{SNI: "old.example"}, 100},
		{"no name", clientConfig(""), Result{}, 200},
		{"more than two records", many, Result{SNI: "svc.example", ALPN: strings.Repeat("p", 100)}, 2 * maxFragment},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.Kind, tt.want.Reason = protocol.TLS, ReasonBytes
			sent := realHello(t, tt.cfg)
			if len(sent) < tt.min {
				t.Fatalf("%d bytes are no test of this", len(sent))
			}
			for i, b := range splits(sent) {
				if r := Sniff(b); r != tt.want {
					t.Errorf("split %d: %+v, want %+v", i, r, tt.want)
				}
				waitsToTheLastByte(t, b)
				if r := Sniff(append(bytes.Clone(b), "early data"...)); r != tt.want {
					t.Errorf("split %d with bytes behind it: %+v", i, r)
				}
			}
		})
	}
}

// splits returns sent as it is and with its message cut into other records,
// as far as these fit under the bound.
func splits(sent []byte) [][]byte {
	size, _ := helloSize(sent)
	m := assemble(sent, size)
	all := [][]byte{sent}
	for _, sizes := range [][]int{nil, {1}, {3}, {4}, {5, 1}, {40}, {1, 1, 1, 1, 1, 1, 100}, {len(m) / 2}, {len(m) - 1}, bytewise(m)} {
		if b := records(m, sizes...); len(b) <= MaxHead {
			all = append(all, b)
		}
	}
	return all
}

// waitsToTheLastByte holds for every cut of b: no proper prefix is decided.
func waitsToTheLastByte(t *testing.T, b []byte) {
	t.Helper()
	step := 1 + len(b)/4096 // every byte of what real clients send
	for n := 0; n < len(b); n += step {
		if r := Sniff(b[:n]); !r.More {
			t.Fatalf("decided after %d of %d bytes: %+v", n, len(b), r)
		}
		if r := AtEnd(b[:n]); r.Kind != protocol.Opaque {
			t.Fatalf("at the end after %d of %d bytes: %+v", n, len(b), r)
		}
	}
	if r := Sniff(b[:len(b)-1]); !r.More {
		t.Fatalf("decided one byte early: %+v", r)
	}
}

// handshake lets crypto/tls read sent as a server would, and returns what it
// understood; nil if it refused.
func handshake(sent []byte) *tls.ClientHelloInfo {
	var info *tls.ClientHelloInfo
	stop := errors.New("seen enough")
	cfg := &tls.Config{GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
		info = i
		return nil, stop
	}}
	tls.Server(record(sent), cfg).Handshake()
	return info
}

func TestAServerReadsTheSameNameAndProtocols(t *testing.T) {
	for _, cfg := range []*tls.Config{clientConfig("a.test", "h2"), clientConfig("b.test"), clientConfig("", "acme-tls/1")} {
		sent := realHello(t, cfg)
		info, r := handshake(sent), Sniff(sent)
		if info == nil {
			t.Fatalf("crypto/tls refuses its own hello for %q", cfg.ServerName)
		}
		if r.SNI != info.ServerName || r.ALPN != strings.Join(info.SupportedProtos, ",") {
			t.Errorf("%+v, a server reads %q %q", r, info.ServerName, info.SupportedProtos)
		}
	}
}

func TestHelloIsReadForWhatItSays(t *testing.T) {
	grease := []byte{0x0a, 0x0a, 0, 1, 0}
	ech := append([]byte{0xfe, 0x0d}, vector(2, bytes.Repeat([]byte{7}, 186)...)...)
	join := func(bs ...[]byte) []byte { return bytes.Join(bs, nil) }
	long := strings.Repeat("x", 100)
	tests := []struct {
		name      string
		ext       []byte
		sni, alpn string
	}{
		{"no extensions field, as TLS 1.2 allows", nil, "", ""},
		{"no extension in it", []byte{}, "", ""},
		{"name", host("a.example"), "a.example", ""},
		{"name with an underscore", host("_dmarc.a_b.example"), "_dmarc.a_b.example", ""},
		{"one label", host("db"), "db", ""},
		{"a label of digits", host("10.example"), "10.example", ""},
		{"digits at the end", host("pod.0"), "pod.0", ""},
		{"case is kept", host("A.Example"), "A.Example", ""},
		{"GREASE around", join(grease, host("a.example"), alpn("\x0a\x0a", "h2"), grease), "a.example", "h2"},
		{"ECH shows the outer name", join(ech, host("front.example")), "front.example", ""},
		{"IPv4 is no name", host("192.0.2.1"), "", ""},
		{"IPv6 is no name", host("2001:db8::1"), "", ""},
		{"trailing dot", host("a.example."), "", ""},
		{"empty label", host("a..example"), "", ""},
		{"leading dot", host(".example"), "", ""},
		{"empty name", host(""), "", ""},
		{"label of 63", host(long[:63] + ".example"), long[:63] + ".example", ""},
		{"label of 64", host(long[:64] + ".example"), "", ""},
		{"name over 253", host(strings.Repeat("a.", 130) + "b"), "", ""},
		{"line feed in the name", host("a\n.example"), "", ""},
		{"NUL in the name", host("a.example\x00"), "", ""},
		{"bytes over 127", host("b\xfccher.example"), "", ""},
		{"other name type", extension(extServerName, vector(2, append([]byte{9}, vector(2, 'x')...)...)...), "", ""},
		{"protocols", alpn("h2", "http/1.1"), "", "h2,http/1.1"},
		{"a comma in a protocol", alpn("a,b", "h2"), "", "h2"},
		{"a line feed in a protocol", alpn("a\nb", "h2"), "", "h2"},
		{"bytes over 127 in a protocol", alpn("h\xe9", "h2"), "", "h2"},
		{"the first of two names", extension(extServerName, vector(2, []byte("\x00\x00\x01a\x00\x00\x01b")...)...), "a", ""},
		{"too much to show", alpn(long, long, "h2"), "", long + ",h2"},
	}
	for _, tt := range tests {
		b := records(message(body(tt.ext)))
		want := Result{Kind: protocol.TLS, SNI: tt.sni, ALPN: tt.alpn, Reason: ReasonBytes}
		if r := Sniff(b); r != want {
			t.Errorf("%s: %+v, want %+v", tt.name, r, want)
		}
	}
}

func TestMalformedHelloIsOpaqueOnceItIsWhole(t *testing.T) {
	good := body(host("a.example"))
	tests := map[string][]byte{
		"empty body":                          {},
		"only a version":                      {3, 3},
		"cut in the random":                   good[:20],
		"cut in the cipher suites":            good[:37],
		"cut in the extensions":               good[:len(good)-1],
		"a byte behind the extensions":        append(bytes.Clone(good), 0),
		"odd cipher suites":                   append(append([]byte{3, 3}, make([]byte, 33)...), 0, 3, 1, 2, 3, 1, 0),
		"session id over the end":             append(append([]byte{3, 3}, make([]byte, 32)...), 200, 1),
		"extension over the end":              body([]byte{0, 0, 0, 9, 1}),
		"half an extension header":            body([]byte{0, 0, 0}),
		"empty server_name":                   body(extension(extServerName)),
		"empty list of names":                 body(extension(extServerName, 0, 0)),
		"name over the end of its list":       body(extension(extServerName, 0, 4, 0, 0, 9, 'a')),
		"a byte behind the list of names":     body(extension(extServerName, 0, 4, 0, 0, 1, 'a', 0)),
		"empty list of protocols":             body(extension(extALPN, 0, 0)),
		"empty protocol":                      body(extension(extALPN, 0, 1, 0)),
		"protocol over the end of its list":   body(extension(extALPN, 0, 2, 9, 'a')),
		"a byte behind the list of protocols": body(extension(extALPN, 0, 2, 1, 'a', 0)),
	}
	for name, body := range tests {
		for _, b := range [][]byte{records(message(body)), records(message(body), 2, 1)} {
			if r := Sniff(b); r.Kind != protocol.Opaque || r.SNI != "" || r.ALPN != "" {
				t.Errorf("%s: %+v", name, r)
			}
			everyPrefixWaitsOrAgrees(t, name, b, "opaque")
		}
	}
}

func TestRecordSizesAtTheirBounds(t *testing.T) {
	ext := append(host("a.example"), extension(0x77, make([]byte, 40000)...)...)
	big := message(body(ext))
	exact := append(host("a.example"), extension(0x77)...)
	exact = append(host("a.example"), extension(0x77, make([]byte, 8193-len(message(body(exact))))...)...)
	tests := []struct {
		name string
		b    []byte
		want protocol.Kind
	}{
		{"one record of 8193 bytes", records(message(body(exact))), protocol.TLS},
		{"three records of up to 2^14 bytes", records(big), protocol.TLS},
		{"records of SSL 3.0 and TLS 1.3", withVersions(records(big), 0, 4), protocol.TLS},
		{"second record of version 3.5", withVersions(records(big), 1, 5), protocol.Opaque},
		{"one record of more than 2^14", oneRecord(big[:handshakeHeader+maxFragment]), protocol.Opaque},
		{"records that together pass 64 KiB", records(big, bytewise(big)...)[:MaxHead], protocol.Opaque},
		{"an empty record in the middle", append(records(big[:10]), append([]byte{22, 3, 1, 0, 0}, records(big[10:])...)...), protocol.Opaque},
		{"another content type in the middle", append(records(big[:10]), append([]byte{20, 3, 1, 0, 1, 1}, records(big[10:])...)...), protocol.Opaque},
		{"a second message in the last record", oneRecord(append(message(body(nil)), 1)), protocol.Opaque},
	}
	for _, tt := range tests {
		if r := Sniff(tt.b); r.Kind != tt.want {
			t.Errorf("%s: %+v, want %v", tt.name, r, tt.want)
		}
	}
}

// withVersions sets the minor versions of the first records of b.
func withVersions(b []byte, minors ...byte) []byte {
	for at := 0; len(minors) > 0; minors = minors[1:] {
		b[at+2] = minors[0]
		at += recordHeader + int(b[at+3])<<8 + int(b[at+4])
	}
	return b
}

// oneRecord puts all of m in one record, whatever its size.
func oneRecord(m []byte) []byte {
	return append([]byte{22, 3, 1, byte(len(m) >> 8), byte(len(m))}, m...)
}
