package l7

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// factOf is what a field means, found in another way than the decoder does.
func factOf(f hpack.HeaderField) fact {
	r := fact{}
	switch f.Name {
	case ":status":
		r.kind = statusKind
		if n, err := strconv.ParseUint(f.Value, 10, 16); err == nil && len(f.Value) == 3 && n >= 100 {
			r.value = int16(n)
		}
	case ":method":
		r.kind, r.value = methodKind, int16(Other)
		for m := Get; m < Other; m++ {
			if m.String() == f.Value {
				r.value = int16(m)
			}
		}
	case "content-type":
		r.kind = contentKind
		v := strings.ToLower(f.Value)
		if v == "application/grpc" || len(v) > 16 && v[:16] == "application/grpc" && strings.ContainsAny(v[16:17], "+; \t") {
			r.value = int16(grpcContent)
		} else if len(f.Value) >= 20 && v[:16] == "application/grpc" && f.Value[16:20] == "-web" {
			r.value = int16(grpcWebContent)
		}
	case "grpc-status":
		r.kind, r.value = grpcStatusKind, 2
		if n, err := strconv.ParseUint(f.Value, 10, 16); err == nil && n <= 16 && len(f.Value) <= 2 {
			r.value = int16(n)
		}
	}
	return r
}

func TestTheStaticTableIsThatOfTheRFC(t *testing.T) {
	dec := hpack.NewDecoder(0, nil)
	for i := 1; i < len(staticFacts); i++ {
		f, err := dec.DecodeFull([]byte{0x80 | byte(i)})
		if err != nil {
			t.Fatal(err)
		}
		want := factOf(f[0])
		want.nameN = uint16(len(f[0].Name))
		if staticFacts[i] != want {
			t.Errorf("%d: %+v, want %+v for %v", i, staticFacts[i], want, f[0])
		}
	}
}

func TestTheDecoderKeepsUpWithAnEncoder(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	names := []string{":status", ":method", "content-type", "grpc-status", "date", "x-some-name", "accept", "te"}
	values := []string{"200", "404", "GET", "PATCH", "application/grpc", "application/grpc-web+x", "0", "13", "17", "trailers", strings.Repeat("long", 100), ""}
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	enc.SetMaxDynamicTableSizeLimit(maxTable)
	dec := newHPACKDecoder()
	dec.allow(maxTable)
	for i := range 5000 {
		block.Reset()
		if r.IntN(50) == 0 {
			enc.SetMaxDynamicTableSize(uint32(r.IntN(maxTable + 1)))
		}
		want := header{grpcStatus: -1}
		for range r.IntN(12) {
			f := hpack.HeaderField{Name: names[r.IntN(len(names))], Value: values[r.IntN(len(values))], Sensitive: r.IntN(9) == 0}
			if r.IntN(4) == 0 {
				f.Value = strconv.Itoa(r.IntN(1000))
			}
			if err := enc.WriteField(f); err != nil {
				t.Fatal(err)
			}
			want.add(factOf(f))
		}
		if got, ok := dec.decode(block.Bytes()); !ok || got != want {
			t.Fatalf("block %d: %+v, %v; want %+v", i, got, ok, want)
		}
	}
}

func TestALargestTableIsFollowed(t *testing.T) {
	dec := newHPACKDecoder()
	dec.allow(1 << 31)
	block := []byte{0x3f, 0xe1, 0xff, 0x03} // table size 65536
	for range 3 * maxTable / fieldCost {
		block = append(block, 0x40, 0, 0) // a field without name and value
	}
	if _, ok := dec.decode(block); !ok || dec.count != maxTable/fieldCost || len(dec.ring) != maxTable/fieldCost {
		t.Errorf("%v: %d fields in a ring of %d", ok, dec.count, len(dec.ring))
	}
	if _, ok := dec.decode([]byte{0x3f, 0xe2, 0xff, 0x03}); ok {
		t.Error("a table of 65537 bytes is followed")
	}
}

// FuzzHPACK reads the same blocks as x/net's decoder. What that accepts has to
// mean the same here, and to leave the same dynamic table.
func FuzzHPACK(f *testing.F) {
	f.Add([]byte{0x82, 0x86, 0x84}, []byte{0x40, 1, 'x', 1, 'y', 0xbe})
	f.Add([]byte{0x3f, 0xe1, 0xff, 0x03, 0x48, 0x82, 0x64, 0x02}, []byte{0xbe, 0x20, 0x5f, 0x10, 0x02, 'a', 'p'})
	f.Add([]byte("\x88\x5f\x8b\x1d\x75\xd0\x62\x0d\x26\x3d\x4c\x4d\x65\x64"), []byte("\x40\x88\x9a\xca\xc8\xb2\x12\x34\xda\x8f\x01\x37"))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		theirs := hpack.NewDecoder(defaultTable, nil)
		theirs.SetAllowedMaxDynamicTableSize(maxTable)
		ours := newHPACKDecoder()
		ours.allow(maxTable)
		for _, block := range [][]byte{first, second, first} {
			fields, err := theirs.DecodeFull(block)
			if err != nil {
				ours.decode(block) // any answer is good, but one there must be
				return
			}
			want := header{grpcStatus: -1}
			for _, f := range fields {
				want.add(factOf(f))
			}
			if got, ok := ours.decode(block); !ok || got != want {
				t.Fatalf("% x: %+v, %v; want %+v of %v", block, got, ok, want, fields)
			}
			sameTable(t, &ours, theirs)
		}
	})
}

// sameTable compares the dynamic tables, field by field.
func sameTable(t *testing.T, ours *hpackDecoder, theirs *hpack.Decoder) {
	t.Helper()
	for i := len(staticFacts); ; i++ {
		index := hpackInteger(0x80, 7, i)
		fields, err := theirs.DecodeFull(index)
		got, ok := ours.at(i)
		if ok != (err == nil) {
			t.Fatalf("index %d: %v here, %v there", i, ok, err)
		}
		if !ok {
			return
		}
		want := factOf(fields[0])
		want.nameN, want.valN = uint16(len(fields[0].Name)), uint16(len(fields[0].Value))
		if got != want {
			t.Fatalf("index %d: %+v, want %+v of %v", i, got, want, fields[0])
		}
	}
}

// hpackInteger encodes an integer (RFC 7541, 5.1).
func hpackInteger(first byte, bits, n int) []byte {
	mask := 1<<bits - 1
	if n < mask {
		return []byte{first | byte(n)}
	}
	b := []byte{first | byte(mask)}
	for n -= mask; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

func TestNamesAreKnownInEveryForm(t *testing.T) {
	for _, f := range []hpack.HeaderField{{Name: ":status", Value: "418"}, {Name: ":method", Value: "PUT"}, {Name: "content-type", Value: "application/grpc"}, {Name: "grpc-status", Value: "9"}, {Name: "content-typf", Value: "application/grpc"}} {
		want := header{grpcStatus: -1}
		want.add(factOf(f))
		for _, first := range []byte{0x00, 0x10, 0x40} {
			for _, coded := range []bool{false, true} {
				block := []byte{first}
				for _, text := range []string{f.Name, f.Value} {
					if coded {
						block = append(append(block, 0x80|byte(hpack.HuffmanEncodeLength(text))), hpack.AppendHuffmanString(nil, text)...)
					} else {
						block = append(append(block, byte(len(text))), text...)
					}
				}
				if first == 0x40 {
					block = append(block, 0xbe) // and once more from the dynamic table
				}
				d := newHPACKDecoder()
				if got, ok := d.decode(block); !ok || got != want {
					t.Errorf("% x: %+v, %v; want %+v", block, got, ok, want)
				}
			}
		}
	}
}

func TestTheDecoderRefusesWhatIsNoBlock(t *testing.T) {
	for name, block := range map[string]string{
		"index 0":                            "\x80",
		"an index beyond the tables":         "\xbe",
		"an index that is cut":               "\xff",
		"an index that goes on for ever":     "\xff\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",
		"an index of more than 28 bits":      "\xff\x80\x80\x80\x80\x01",
		"a name beyond the tables":           "\x7e\x00",
		"a name that is cut":                 "\x00\x05abc",
		"no name":                            "\x00",
		"a name that is no Huffman code":     "\x00\x81\x00\x00",
		"no value":                           "\x41",
		"a value that is cut":                "\x41\x05abc",
		"a value that is no Huffman code":    "\x41\x81\x00",
		"a table size that is cut":           "\x3f\x80",
		"a table larger than the peer allow": "\x3f\xe2\x1f",
	} {
		d := newHPACKDecoder()
		if h, ok := d.decode([]byte(block)); ok {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

func TestAFieldLargerThanTheTableEmptiesIt(t *testing.T) {
	d := newHPACKDecoder()
	block := append([]byte("\x3f\x45\x40\x01a\x01b"), "\x40\x01a\x7f\x00"...) // a table of 100 bytes
	block = append(block, strings.Repeat("x", 127)...)
	if _, ok := d.decode(block); !ok || d.count != 0 || d.size != 0 {
		t.Errorf("%v: %d fields, %d bytes", ok, d.count, d.size)
	}
}

func TestASmallerTableForgets(t *testing.T) {
	d := newHPACKDecoder()
	if _, ok := d.decode([]byte("\x40\x01a\x01b\xbe\x20")); !ok || d.count != 0 {
		t.Errorf("%v: %d fields in a table of size 0", ok, d.count)
	}
}
