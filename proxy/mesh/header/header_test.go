package header

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// vector is a line of testdata/mesh/header.txt.
type vector struct {
	line  int
	mark  byte
	want  string
	bytes []byte
}

func vectors(t testing.TB) []vector {
	t.Helper()
	f, err := os.Open("../../../testdata/mesh/header.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []vector
	s := bufio.NewScanner(f)
	for line := 1; s.Scan(); line++ {
		text := s.Text()
		if text == "" || text[0] == '#' {
			continue
		}
		want, glued, ok := strings.Cut(text[1:], ":")
		if !ok {
			t.Fatalf("line %d: no colon", line)
		}
		out = append(out, vector{line, text[0], strings.TrimSpace(want), glue(t, line, glued)})
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	if len(out) < 50 {
		t.Fatalf("only %d vectors", len(out))
	}
	return out
}

// glue reads Go strings and hexadecimal digits up to a comment.
func glue(t testing.TB, line int, text string) (out []byte) {
	t.Helper()
	for text = strings.TrimSpace(text); text != "" && text[0] != '#'; text = strings.TrimSpace(text) {
		if text[0] == '"' {
			quoted, err := strconv.QuotedPrefix(text)
			if err != nil {
				t.Fatalf("line %d: %v", line, err)
			}
			s, err := strconv.Unquote(quoted)
			if err != nil {
				t.Fatalf("line %d: %v", line, err)
			}
			out, text = append(out, s...), text[len(quoted):]
			continue
		}
		digits, rest, _ := strings.Cut(text, " ")
		b, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatalf("line %d: %v", line, err)
		}
		out, text = append(out, b...), rest
	}
	return out
}

// words writes a header as the vectors do.
func words(h Header) string {
	out := fmt.Sprintf("port=%d", h.Port)
	if h.Name != "" {
		out += " name=" + h.Name
	}
	if h.Session != None {
		out += " session=" + h.Session.String()
	}
	if h.Detect {
		out += " detect"
	}
	return out
}

func TestTheVectorsAreReadAndWritten(t *testing.T) {
	for _, v := range vectors(t) {
		h, n, err := Parse(v.bytes)
		switch v.mark {
		case '=', '<':
			if err != nil || words(h) != v.want {
				t.Errorf("line %d: %s, %d, %v; want %s", v.line, words(h), n, err, v.want)
				continue
			}
			if v.mark == '=' && n != len(v.bytes) {
				t.Errorf("line %d: %d bytes taken of %d", v.line, n, len(v.bytes))
			}
			if written := h.Append([]byte("before")); (string(written) == "before"+string(v.bytes)) != (v.mark == '=') {
				t.Errorf("line %d: written as %x, read from %x", v.line, written, v.bytes)
			}
		case '?':
			if n != 0 || err != nil {
				t.Errorf("line %d: %d, %v; want to be asked for more", v.line, n, err)
			}
		case '!':
			if n != 0 || err == nil || !strings.Contains(err.Error(), v.want) || h != (Header{}) {
				t.Errorf("line %d: %s, %d, %v; want %q", v.line, words(h), n, err, v.want)
			}
		default:
			t.Errorf("line %d: unknown mark %q", v.line, v.mark)
		}
	}
}

func TestAHeaderMayComeInAnyPieces(t *testing.T) {
	for _, v := range vectors(t) {
		if v.mark == '!' {
			continue
		}
		_, n, _ := Parse(v.bytes)
		for cut := range len(v.bytes) {
			h, got, err := Parse(v.bytes[:cut])
			if err != nil || (cut < n || n == 0) != (got == 0) {
				t.Errorf("line %d cut at %d of %d: %v, %d, %v", v.line, cut, n, h, got, err)
			}
		}
	}
}

func TestThePayloadBehindAHeaderIsLeft(t *testing.T) {
	b := append(Header{Port: 80, Session: HTTP2}.Append(nil), "PRI * HTTP/2.0"...)
	_, n, err := Parse(b)
	if err != nil || string(b[n:]) != "PRI * HTTP/2.0" {
		t.Errorf("%q, %v", b[n:], err)
	}
}

func TestAWrongPrefaceIsToldAtTheFirstByteThatDiffers(t *testing.T) {
	for i := range len(Preface) {
		b := []byte(Preface)
		b[i] ^= 1
		if _, _, err := Parse(b[:i]); err != nil {
			t.Errorf("byte %d: refused too early: %v", i, err)
		}
		if _, _, err := Parse(b[:i+1]); !errors.Is(err, ErrPreface) {
			t.Errorf("byte %d: %v", i, err)
		}
	}
}

func TestAHeaderMayFillAReadersBuffer(t *testing.T) {
	b := Header{Port: 80}.Append(nil)
	// An unknown field of bytes fills it up: a tag of one byte, a length of three.
	b = protowire.AppendTag(b, 4, protowire.BytesType)
	b = protowire.AppendBytes(b, make([]byte, MaxSize-len(b)-3))
	if len(b) != MaxSize {
		t.Fatalf("built %d bytes", len(b))
	}
	copy(b[len(Preface):], []byte{0, 0, 0xff, 0xe5})
	if h, n, err := Parse(b); n != MaxSize || err != nil || h.Port != 80 {
		t.Errorf("%v, %d, %v", h, n, err)
	}
	if _, n, err := Parse(b[:MaxSize-1]); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

func TestANameHasItsLimit(t *testing.T) {
	for n, want := range map[int]bool{253: true, 254: false} {
		_, _, err := Parse(Header{Port: 80, Name: strings.Repeat("a", n)}.Append(nil))
		if (err == nil) != want {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestReadingAndWritingAllocateNothingWithoutAName(t *testing.T) {
	room := make([]byte, 0, 39)
	var err error
	if n := testing.AllocsPerRun(100, func() {
		b := Header{Port: 65535, Session: HTTP2, Detect: true}.Append(room)
		_, _, err = Parse(b)
	}); n != 0 || err != nil {
		t.Errorf("%v allocations, %v", n, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add(v.bytes)
		if len(v.bytes) > start {
			f.Add(v.bytes[start:])
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		check(t, b)
		if len(b) < 1<<16 { // the same bytes as the message of a good preface and length
			check(t, append([]byte(Preface+string([]byte{0, 0, byte(len(b) >> 8), byte(len(b))})), b...))
		}
	})
}

// check holds what is true of any bytes.
func check(t *testing.T, b []byte) {
	h, n, err := Parse(b)
	switch {
	case n < 0 || n > len(b) || n > MaxSize:
		t.Fatalf("%d bytes taken of %d", n, len(b))
	case err != nil && (n != 0 || h != Header{}):
		t.Fatalf("an error, and %v, %d", h, n)
	case err == nil && n == 0 && len(b) >= MaxSize:
		t.Fatalf("%d bytes, and more are wanted", len(b))
	case err == nil && n > 0 && h.Port == 0:
		t.Fatal("port 0")
	}
	if n == 0 {
		return
	}
	if _, short, err := Parse(b[:n-1]); short != 0 || err != nil {
		t.Fatalf("a header cut short: %d, %v", short, err)
	}
	again, m, err := Parse(h.Append(nil))
	if again != h || err != nil || m == 0 {
		t.Fatalf("%v written and read again: %v, %d, %v", h, again, m, err)
	}
}

func BenchmarkParse(b *testing.B) {
	bytes := Header{Port: 8080, Session: HTTP2}.Append(nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, n, _ := Parse(bytes); n == 0 {
			b.Fatal("not read")
		}
	}
}
