package detect

import (
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/meshctl/meshctl/proxy/protocol"
)

// own is the identity of a proxy, as captured clients ask for it.
const own = "web.shop.serviceaccount.identity.linkerd.cluster.local"

// captured is a hello of testdata/mesh/hellos.txt.
type captured struct {
	who       string
	sni, alpn string
	bytes     []byte
}

func (c captured) result() Result {
	return Result{Kind: protocol.TLS, SNI: c.sni, ALPN: c.alpn, Reason: ReasonBytes}
}

func capturedHellos(t testing.TB) (all []captured) {
	t.Helper()
	text, err := os.ReadFile("../../testdata/mesh/hellos.txt")
	if err != nil {
		t.Fatal(err)
	}
	var c captured
	for line := range strings.SplitSeq(string(text), "\n") {
		switch {
		case strings.HasPrefix(line, "# "):
			c = captured{who: line[2:]}
		case strings.HasPrefix(line, "sni="):
			sni, alpn, ok := strings.Cut(strings.TrimSuffix(line[len("sni="):], ":"), " alpn=")
			if !ok {
				t.Fatalf("%s: %q", c.who, line)
			}
			c.sni, c.alpn = sni, alpn
			all = append(all, c)
		case line != "":
			b, err := hex.DecodeString(strings.TrimSpace(line))
			if err != nil || len(all) == 0 {
				t.Fatalf("%s: %q: %v", c.who, line, err)
			}
			last := &all[len(all)-1]
			last.bytes = append(last.bytes, b...)
		}
	}
	if len(all) < 10 {
		t.Fatalf("only %d hellos", len(all))
	}
	return all
}

// hello is the captured one whose description has the words.
func helloOf(t testing.TB, words string) captured {
	t.Helper()
	for _, c := range capturedHellos(t) {
		if strings.Contains(c.who, words) {
			return c
		}
	}
	t.Fatalf("no hello of %q", words)
	return captured{}
}

func TestHellosOfRealProgramsAreReadHoweverCut(t *testing.T) {
	several := 0
	for _, c := range capturedHellos(t) {
		if first, _ := fragmentSize(c.bytes); recordHeader+first < len(c.bytes) {
			several++ // records
		}
		for i, b := range splits(c.bytes) {
			if r := Sniff(b); r != c.result() {
				t.Errorf("%s, split %d: %+v", c.who, i, r)
			}
			waitsToTheLastByte(t, b)
		}
	}
	if several == 0 {
		t.Error("no program sent its hello in several records")
	}
}

// TestTheSplitterRowByRow holds the rows about TLS of the table of first bytes that
// the inbound proxy decides by.
func TestTheSplitterRowByRow(t *testing.T) {
	other, mine := helloOf(t, "crypto/tls, default, 1514"), helloOf(t, "to a proxy")
	size, _ := helloSize(other.bytes)
	m := assemble(other.bytes, size)
	padded := append(host("db.example"), extension(0x77)...)
	padded = append(host("db.example"), extension(0x77, make([]byte, 0x2001-len(message(body(padded))))...)...)
	old := bytes.Clone(other.bytes)
	old[recordHeader+handshakeHeader+1] = 1
	opaque := Result{Kind: protocol.Opaque, Reason: ReasonBytes}
	for _, tt := range []struct {
		row  string
		b    []byte
		want Result
		mine bool
	}{
		{"22: another's name", other.bytes, other.result(), false},
		{"23: in segments of 1 byte, to the last", other.bytes[:len(other.bytes)-1], Result{More: true}, false},
		{"24: in 2 records", records(m, len(m)/2), other.result(), false},
		{"24: a record for each byte", records(m, bytewise(m)...), other.result(), false},
		{"25: a record of 0x2001 bytes", records(message(body(padded))), other.result(), false},
		{"25: a record of 0x4001 bytes", []byte{22, 3, 1, 0x40, 1}, opaque, false},
		{"26: client_version 0x0301", old, opaque, false},
		{"26: of which the byte is enough", old[:recordHeader+handshakeHeader+2], opaque, false},
		{"27: our own name", mine.bytes, mine.result(), true},
		{"27: in other letters", bytes.Replace(mine.bytes, []byte("web.shop"), []byte("WEB.Shop"), 1), Result{Kind: protocol.TLS, SNI: strings.Replace(own, "web.shop", "WEB.Shop", 1), ALPN: mine.alpn, Reason: ReasonBytes}, true},
		{"28: \\x16\\x03\\x01\\x40 and silence", []byte{22, 3, 1, 0x40}, Result{More: true}, false},
	} {
		r := Sniff(tt.b)
		if r != tt.want || r.For(own) != tt.mine {
			t.Errorf("row %s: %+v, ours: %t", tt.row, r, r.For(own))
		}
		if r.Offers("transport.l5d.io/v1") != tt.mine {
			t.Errorf("row %s: offers a header: %t", tt.row, !tt.mine)
		}
		if tt.want.More {
			if r := AtEnd(tt.b); r != (Result{Kind: protocol.Opaque, Reason: ReasonCutAtEOF}) {
				t.Errorf("row %s, and a FIN: %+v", tt.row, r)
			}
		}
	}
}

func TestANameIsOursOnlyWhole(t *testing.T) {
	r := Result{Kind: protocol.TLS, SNI: own, ALPN: "h2,transport.l5d.io/v1"}
	for name, want := range map[string]bool{own: true, strings.ToUpper(own): true, own[1:]: false, own + ".": false, "": false} {
		if r.For(name) != want {
			t.Errorf("%q: %t", name, !want)
		}
	}
	for name, want := range map[string]bool{"h2": true, "transport.l5d.io/v1": true, "transport.l5d.io": false, "": false, "h2,transport.l5d.io/v1": false} {
		if r.Offers(name) != want {
			t.Errorf("%q: %t", name, !want)
		}
	}
	if (Result{Kind: protocol.TLS}).For("") || (Result{SNI: own}).For(own) || (Result{ALPN: "h2"}).Offers("h2") {
		t.Error("what is no TLS, or has no name, is ours")
	}
}

// FuzzSplitter cuts real hellos, changed, into records and segments: the answer is
// the same however it came, and a name is only found where a server would find it.
func FuzzSplitter(f *testing.F) {
	for _, c := range capturedHellos(f) {
		f.Add(c.bytes, uint16(0), uint16(1))
		f.Add(c.bytes, uint16(7), uint16(1448))
	}
	f.Fuzz(func(t *testing.T, sent []byte, record, segment uint16) {
		if len(sent) == 0 || sent[0] != recordHandshake || len(sent) > 8<<10 {
			return
		}
		whole := Sniff(sent)
		var segments [][]byte
		for b := sent; len(b) > 0; {
			n := min(len(b), 1+int(segment))
			segments, b = append(segments, b[:n]), b[n:]
		}
		if r := decide(segments); r != whole {
			t.Fatalf("%+v in segments of %d, %+v whole", r, 1+int(segment), whole)
		}
		if whole.Kind != protocol.TLS {
			return
		}
		size, _ := helloSize(sent)
		m := assemble(sent, size)
		sizes := []int{1 + int(record), 1}
		if r := Sniff(records(m, sizes...)); r != whole {
			t.Fatalf("%+v in other records, %+v as sent", r, whole)
		}
		if info := handshake(records(m)); info != nil {
			agreesWithServer(t, whole, info)
		}
	})
}
