package hpack

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	oracle "golang.org/x/net/http2/hpack"
)

func TestHuffmanDecodesWhatWasEncoded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	buf := make([]byte, 100)
	for range 2000 {
		text := make([]byte, r.IntN(100))
		for i := range text {
			text[i] = byte(r.Uint32() >> (24 + r.IntN(2))) // low ones more often
		}
		n, ok := DecodeHuffman(buf, oracle.AppendHuffmanString(nil, string(text)))
		if !ok || !bytes.Equal(buf[:n], text) {
			t.Fatalf("%q decoded as %q, %v", text, buf[:n], ok)
		}
	}
}

func TestHuffmanRefusesWhatIsNoCode(t *testing.T) {
	for _, b := range []string{
		"\xff",                 // a byte of padding
		"\x07\xff",             // '0' and more than a byte of padding
		"\x00",                 // '0' and padding of zeros
		"\x3f\xff\xff\xff\xff", // EOS after '7'
		"\xff\xff\xff\xff",     // EOS
	} {
		if n, ok := DecodeHuffman(nil, []byte(b)); ok {
			t.Errorf("% x decoded to %d bytes", b, n)
		}
	}
}

// decodeAll returns the fields of a block in the oracle's form.
func decodeAll(d *Decoder, block []byte) ([]oracle.HeaderField, error) {
	var all []oracle.HeaderField
	var f Field
	d.Begin(make([]byte, 64<<10))
	for {
		rest, found, err := d.Next(block, &f)
		if err != nil || !found {
			return all, err
		}
		all = append(all, oracle.HeaderField{Name: string(f.Name), Value: string(f.Value), Sensitive: f.Secret})
		block = rest
	}
}

// randomField is often one that was there before, and sometimes a large one.
func randomField(r *rand.Rand) oracle.HeaderField {
	names := []string{":status", ":path", "content-type", "x-one", "x-another-one", "accept", "te", "cookie", "via"}
	f := oracle.HeaderField{Name: names[r.IntN(len(names))], Value: fmt.Sprint("v", r.IntN(40))}
	switch r.IntN(20) {
	case 0:
		f.Name += fmt.Sprint(r.IntN(1000))
	case 1:
		f.Value = strings.Repeat("long", r.IntN(1200))
	case 2:
		f.Sensitive = true
	case 3:
		f.Value = "\xff\x00\x80" + f.Value
	}
	return f
}

func TestTheDecoderKeepsUpWithAnEncoder(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var block bytes.Buffer
	enc := oracle.NewEncoder(&block)
	dec := NewDecoder()
	for i := range 20000 {
		block.Reset()
		if r.IntN(50) == 0 {
			enc.SetMaxDynamicTableSize(uint32(r.IntN(TableSize + 1)))
		}
		var want []oracle.HeaderField
		for range r.IntN(12) {
			f := randomField(r)
			want = append(want, f)
			if err := enc.WriteField(f); err != nil {
				t.Fatal(err)
			}
		}
		got, err := decodeAll(&dec, block.Bytes())
		if err != nil {
			t.Fatalf("block %d: %v", i, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("block %d (-want +got):\n%s", i, d)
		}
		if c := cap(dec.table.text); c > 2*TableSize {
			t.Fatalf("block %d: the table holds %d bytes", i, c)
		}
	}
}

func TestBlocksThatAreNoCodeAreRefused(t *testing.T) {
	for name, b := range map[string]string{
		"index 0":                        "\x80",
		"index beyond the table":         "\xbe",
		"index that does not end":        "\xff\x80\x80",
		"index too large":                "\xff\xff\xff\xff\xff\x0f",
		"name index beyond the table":    "\x7f\x20\x01a",
		"value is cut":                   "\x04\x05ab",
		"no value":                       "\x04",
		"name is cut":                    "\x00\x7f",
		"size above the limit":           "\x3f\xe2\x1f",
		"size after a field":             "\x82\x20",
		"padding of a Huffman text":      "\x04\x81\x00",
		"EOS within a Huffman text":      "\x04\x84\xff\xff\xff\xff",
		"a Huffman name that is no code": "\x00\x81\x00\x00",
	} {
		dec := NewDecoder()
		if got, err := decodeAll(&dec, []byte(b)); err != ErrCompression {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestSizeUpdatesBeforeAllFieldsAreTaken(t *testing.T) {
	dec := NewDecoder()
	got, err := decodeAll(&dec, []byte("\x20\x3f\xe1\x1f\x82"))
	if err != nil || len(got) != 1 || got[0].Value != "GET" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestFieldsAreCheckedOnceAndTheVerdictStaysWithTheTable(t *testing.T) {
	for _, c := range []struct {
		name, value       string
		badName, badValue bool
		id                Name
	}{
		{"x-a", "plain", false, false, 0},
		{"x-a", "", false, false, 0},
		{"x-a", "in ner\tblank", false, false, 0},
		{"x-a", "caf\xc3\xa9", false, false, 0},
		{"x-a", " led", false, false, 0},
		{"x-a", "trailed\t", false, false, 0},
		{"x-a", "a\r\nb: c", false, true, 0},
		{"x-a", "a\x00", false, true, 0},
		{"x-a", "a\x7f", false, true, 0},
		{"X-a", "v", true, false, 0},
		{"", "v", true, false, 0},
		{":", "v", true, false, Pseudo},
		{"x a", "v", true, false, 0},
		{"x:a", "v", true, false, 0},
		{"x\xe9", "v", true, false, 0},
		{":path", "/x", false, false, Path},
		{":protocol", "x", false, false, Pseudo},
		{"content-length", "5", false, false, ContentLength},
		{"te", "trailers", false, false, TE},
		{"connection", "close", false, false, Connection},
		{"host", "a", false, false, Host},
	} {
		for _, coded := range []bool{false, true} {
			block := append([]byte{0x40}, text(c.name, coded)...)
			block = append(block, text(c.value, coded)...)
			block = append(block, 0xbe) // the same once more, by its index
			dec := NewDecoder()
			dec.Begin(make([]byte, TableSize))
			for rest, n := block, 0; n < 2; n++ {
				var f Field
				var found bool
				var err error
				if rest, found, err = dec.Next(rest, &f); !found || err != nil {
					t.Fatalf("%q: %q: found %v, %v", c.name, c.value, found, err)
				}
				if f.BadName != c.badName || f.BadValue != c.badValue || f.ID != c.id {
					t.Errorf("%q: %q, time %d: badName %v, badValue %v, id %d", c.name, c.value, n, f.BadName, f.BadValue, f.ID)
				}
				if want := len(c.name) + len(c.value) + 32; f.Size != want {
					t.Errorf("%q: %q: size %d, want %d", c.name, c.value, f.Size, want)
				}
			}
		}
	}
}

func text(s string, coded bool) []byte {
	if !coded {
		return appendText(nil, []byte(s))
	}
	b := oracle.AppendHuffmanString(nil, s)
	return append(appendInteger(nil, 0x80, 7, len(b)), b...)
}

func TestATextLargerThanTheScratchIsMarkedAndCounted(t *testing.T) {
	long := strings.Repeat("0", 3*TableSize) // 5 bits each
	block := append([]byte{0x40, 1, 'x'}, text(long, true)...)
	block = append(block, 0x82)
	dec := NewDecoder()
	dec.Begin(make([]byte, TableSize))
	var f Field
	rest, found, err := dec.Next(block, &f)
	if !found || err != nil || !f.Long || f.Size != len(long)+1+32 {
		t.Fatalf("found %v, %v: long %v, size %d", found, err, f.Long, f.Size)
	}
	if _, found, err = dec.Next(rest, &f); !found || err != nil || string(f.Value) != "GET" || f.Long {
		t.Errorf("after it: found %v, %v: %+v", found, err, f)
	}
}

func TestOthersReadWhatIsWritten(t *testing.T) {
	type hf = oracle.HeaderField
	var got []hf
	dec := oracle.NewDecoder(TableSize, func(f hf) { got = append(got, f) })
	var e Encoder
	e.Limit(TableSize + 1)
	if b := e.Begin(nil); len(b) != 0 {
		t.Errorf("a larger limit is acknowledged with % x", b)
	}
	e.Limit(100)
	b := e.Begin(nil)
	if string(b) != "\x20" {
		t.Errorf("a lower limit is acknowledged with % x", b)
	}
	b = AppendMethod(AppendMethod(b, []byte("GET")), []byte("PUT"))
	b = AppendScheme(AppendScheme(b, []byte("https")), []byte("gopher"))
	b = AppendPath(AppendPath(b, []byte("/")), []byte("/"+strings.Repeat("p", 300)))
	b = AppendAuthority(b, []byte("a.example"))
	want := []hf{{Name: ":method", Value: "GET"}, {Name: ":method", Value: "PUT"}, {Name: ":scheme", Value: "https"},
		{Name: ":scheme", Value: "gopher"}, {Name: ":path", Value: "/"}, {Name: ":path", Value: "/" + strings.Repeat("p", 300)},
		{Name: ":authority", Value: "a.example"}}
	for code := 100; code < 600; code++ {
		b = AppendStatus(b, code)
		want = append(want, hf{Name: ":status", Value: fmt.Sprint(code)})
	}
	for _, n := range []int64{0, 7, 10, 1 << 40, 1<<63 - 1} {
		b = AppendLength(b, n)
		want = append(want, hf{Name: "content-length", Value: fmt.Sprint(n)})
	}
	for i := 1; i <= staticSize; i++ {
		name := static[i].name
		n := NameOf([]byte(name))
		b = AppendField(b, []byte(name), []byte("v"), false)
		secret := n == Authorization || n == ProxyAuthorize || n == Cookie || n == SetCookie
		want = append(want, hf{Name: name, Value: "v", Sensitive: secret})
	}
	b = AppendField(b, []byte("X-Mixed-CASE"+strings.Repeat("Z", 100)), nil, true)
	want = append(want, hf{Name: "x-mixed-case" + strings.Repeat("z", 100), Sensitive: true})
	if _, err := dec.Write(b); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func FuzzDecoder(f *testing.F) {
	f.Add([]byte("\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"), []byte("\xbe"))
	f.Add([]byte("\x40\x01a\x01b"), []byte("\xbe\x7e\x01c\x20"))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		dec := NewDecoder()
		ref := oracle.NewDecoder(TableSize, nil)
		for _, b := range [][]byte{one, two} {
			got, err := decodeAll(&dec, b)
			want, werr := ref.DecodeFull(b)
			if werr != nil && err == nil && !lenient(b) {
				t.Fatalf("% x: accepted as %v, the oracle says %v", b, got, werr)
			}
			if err != nil || werr != nil {
				return
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("% x (-oracle +got):\n%s", b, d)
			}
		}
	})
}

// lenient reports that b may have an integer with needless zeros at its end,
// which RFC 7541 allows and the oracle bounds in another way.
func lenient(b []byte) bool { return bytes.Contains(b, []byte{0x80}) }

func BenchmarkDecodeAndEncode(b *testing.B) {
	var buf bytes.Buffer
	enc := oracle.NewEncoder(&buf)
	write := func() {
		for _, kv := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/pkg.Service/Method"},
			{":authority", "svc.ns.svc.cluster.local:8080"}, {"content-type", "application/grpc"}, {"user-agent", "grpc-go/1.85.0"},
			{"te", "trailers"}, {"grpc-timeout", "999m"}, {"x-request-id", "3f9c1d2e-0b7a-4a55-9d57-7a6f6f1c9f10"}} {
			_ = enc.WriteField(oracle.HeaderField{Name: kv[0], Value: kv[1]})
		}
	}
	write()
	dec := NewDecoder()
	scratch := make([]byte, 64<<10)
	if _, err := decodeAll(&dec, buf.Bytes()); err != nil {
		b.Fatal(err)
	}
	buf.Reset()
	write()
	block, out := buf.Bytes(), make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		out = out[:0]
		dec.Begin(scratch)
		var f Field
		for rest := block; ; {
			var found bool
			if rest, found, _ = dec.Next(rest, &f); !found {
				break
			}
			out = AppendField(out, f.Name, f.Value, f.Secret)
		}
	}
}

func TestNamesAreFoundByTheirText(t *testing.T) {
	want := map[string]Name{":authority": 1, ":method": 2, ":path": 4, ":scheme": 6, ":status": 8, "content-length": 28,
		"cookie": 32, "host": 38, "set-cookie": 55, "transfer-encoding": 57, "www-authenticate": 61,
		"connection": Connection, "keep-alive": KeepAlive, "proxy-connection": ProxyConnection, "te": TE, "upgrade": Upgrade,
		":protocol": Pseudo, ":": Pseudo, "": 0, "x": 0, "cookies": 0, "content-lengtx": 0, "Host": 0}
	for name, n := range want {
		if got := NameOf([]byte(name)); got != n {
			t.Errorf("%q is %d, want %d", name, got, n)
		}
	}
	for i := 1; i <= staticSize; i++ {
		if n := NameOf([]byte(static[i].name)); static[n].name != static[i].name || int(n) > i {
			t.Errorf("%d, %q, is %d", i, static[i].name, n)
		}
	}
	used, longest, run := 0, 0, 0
	for _, n := range names {
		if run++; n == 0 {
			run = 0
		} else {
			used++
		}
		longest = max(longest, run)
	}
	if used != 52+len(others) || longest > 8 {
		t.Errorf("%d names, the longest search is %d", used, longest)
	}
}
