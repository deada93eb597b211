package detect

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/meshctl/meshctl/proxy/protocol"
)

// stream is one line of testdata/firstbytes.
type stream struct {
	where    string // file:line
	all, end string // verdict of Sniff and of AtEnd over all bytes
	segments [][]byte
}

func (s stream) bytes() []byte { return bytes.Join(s.segments, nil) }

// word is a Result as testdata/firstbytes writes it.
func word(r Result) string {
	if r.More {
		return "more"
	}
	return r.Kind.String()
}

func readStreams(t testing.TB, file string) []stream {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../testdata/firstbytes", file))
	if err != nil {
		t.Fatal(err)
	}
	var all []stream
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		s := stream{where: fmt.Sprintf("%s:%d", file, i+1)}
		s.all, line, _ = strings.Cut(line, " ")
		s.end, line, _ = strings.Cut(line, " ")
		for line = strings.TrimSpace(line); line != "" && line[0] != '#'; {
			q, err := strconv.QuotedPrefix(line)
			if err != nil {
				t.Fatalf("%s: %v at %s", s.where, err, line)
			}
			seg, _ := strconv.Unquote(q)
			s.segments = append(s.segments, []byte(seg))
			line = strings.TrimSpace(line[len(q):])
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		t.Fatalf("%s: no stream", file)
	}
	return all
}

// decide reads as the loop does: growing prefixes, until no more is asked for.
func decide(segments [][]byte) Result {
	var b []byte
	r := Sniff(nil)
	for _, s := range segments {
		if !r.More {
			break
		}
		b = append(b, s...)
		r = Sniff(b)
	}
	return r
}

// stableFiles hold the streams whose verdict must not depend on cuts.
var stableFiles = []string{"http.txt", "undecided.txt", "opaque.txt"}

func TestFirstBytesAreToldApartWhole(t *testing.T) {
	for _, file := range append(stableFiles, "odd-methods.txt") {
		for _, s := range readStreams(t, file) {
			b := s.bytes()
			if got := word(Sniff(b)); got != s.all {
				t.Errorf("%s: Sniff(%q) = %s, want %s", s.where, b, got, s.all)
			}
			if got := word(AtEnd(b)); got != s.end {
				t.Errorf("%s: AtEnd(%q) = %s, want %s", s.where, b, got, s.end)
			}
		}
	}
}

func TestSegmentsAsSentGiveTheSameVerdict(t *testing.T) {
	for _, file := range stableFiles {
		for _, s := range readStreams(t, file) {
			if got := word(decide(s.segments)); got != s.all {
				t.Errorf("%s: %q = %s, want %s", s.where, s.segments, got, s.all)
			}
		}
	}
}

func TestCutsNeverChangeTheVerdict(t *testing.T) {
	for _, file := range stableFiles {
		for _, s := range readStreams(t, file) {
			everyPrefixWaitsOrAgrees(t, s.where, s.bytes(), s.all)
		}
	}
}

// everyPrefixWaitsOrAgrees holds for all ways of cutting b at once: whichever
// prefixes the loop gets to see, the first that does not wait says want.
func everyPrefixWaitsOrAgrees(t *testing.T, where string, b []byte, want string) {
	t.Helper()
	for n := range len(b) {
		if got := word(Sniff(b[:n])); got != "more" && got != want {
			t.Fatalf("%s: Sniff(%q) = %s, but all of it is %s", where, b[:n], got, want)
		}
	}
}

func TestOddMethodCutInItsLineIsOpaqueOrWaitsButNeverAnotherProtocol(t *testing.T) {
	for _, s := range readStreams(t, "odd-methods.txt") {
		b := s.bytes()
		line := bytes.LastIndexByte(b[:bytes.Index(b, []byte(" HTTP/1."))+len(" HTTP/1.1")], ' ')
		for n := range line {
			if got := word(Sniff(b[:n])); got != "more" && got != "opaque" {
				t.Errorf("%s: Sniff(%q) = %s", s.where, b[:n], got)
			}
		}
	}
}

func TestOpaqueIsSaidAtTheFirstByteThatCannotBelong(t *testing.T) {
	tests := []struct {
		b    string
		want int // bytes needed
	}{
		{"GET foo\r\n", len("GET foo\r")},
		{"OPTIONS rtsp://a RTSP/1.0\r\n", len("OPTIONS rtsp://a R")},
		{"CONNECT {\"verbose\":false}\r\n", len("CONNECT {")},
		{"CONNECT\naccept-version:1.2", len("CONNECT\n")},
		{"GET / HTTP/2.0\r\n", len("GET / HTTP/2")},
		{"GET / HTTP/1.2\r\n", len("GET / HTTP/1.2")},
		{"GET\t/", len("GET\t")},
		{"GET  /", len("GET  ")},
		{"PRI * HTTP/2.0\r\n\r\nXX", len("PRI * HTTP/2.0\r\n\r\nX")},
		{"SSH-2.0-x\r\n", len("SS")},
		{"JRMI", 1},
		{"\r\n\r\n\x00\r\nQUIT\n", 5},
		{"\n\n\n\n\n", 5},
		{"\x16\x03\x05", 3},
		{"\x16\x03\x01\x01\x00\x02", 6},
		{"\x16\x03\x01\x20\x01\x01\x00\x00\x2b\x03\x03", 9},
		{"\x16\x03\x01\x01\x00\x01\x00\x00\xfc\x03\x02", 11},
	}
	for _, tt := range tests {
		got := 0
		for n := 1; n <= len(tt.b) && got == 0; n++ {
			if r := Sniff([]byte(tt.b[:n])); r.Kind == protocol.Opaque {
				got = n
			}
		}
		if got != tt.want {
			t.Errorf("%q is opaque after %d bytes, want %d", tt.b, got, tt.want)
		}
	}
}

func TestEveryRegisteredMethodIsWaitedForToItsEnd(t *testing.T) {
	count := 0
	for letter, ms := range methods {
		for _, m := range ms {
			count++
			if m[0] != byte('A'+letter) {
				t.Errorf("%s stands under %c", m, 'A'+letter)
			}
			line := m + " /some/where?x=y HTTP/1.1\r\n"
			everyPrefixWaitsOrAgrees(t, m, []byte(line), "http/1")
			if got := word(Sniff([]byte(line))); got != "http/1" {
				t.Errorf("%q = %s", line, got)
			}
		}
	}
	if count < 40 {
		t.Errorf("%d methods, want the registry's 40 and more", count)
	}
}

func TestUndecidedHeadIsOpaqueAtItsBound(t *testing.T) {
	long := append([]byte("GET /"), bytes.Repeat([]byte{'a'}, MaxHead)...)
	if r := Sniff(long[:MaxHead-1]); !r.More {
		t.Errorf("one byte under the bound: %+v", r)
	}
	for _, n := range []int{MaxHead, MaxHead + 1, len(long)} {
		want := Result{Kind: protocol.Opaque, Reason: ReasonTooLong}
		if r := Sniff(long[:n]); r != want {
			t.Errorf("%d bytes: %+v, want %+v", n, r, want)
		}
		if r := AtEnd(long[:n]); r != want {
			t.Errorf("%d bytes at the end: %+v, want %+v", n, r, want)
		}
	}
	late := append(long[:MaxHead:MaxHead], " HTTP/1.1\r\n"...)
	if r := Sniff(late); r.Kind != protocol.Opaque {
		t.Errorf("a line that ends behind the bound: %+v", r)
	}
	if r := Sniff(append([]byte("GET / HTTP/1.1\r\n"), long...)); r.Kind != protocol.HTTP1 {
		t.Errorf("a line that ends under the bound: %+v", r)
	}
	if r := AtEnd(long[:4005]); r.Kind != protocol.HTTP1 {
		t.Errorf("a long target at the end: %+v", r)
	}
}

func TestReasonsTellHowItWasDecided(t *testing.T) {
	tests := []struct {
		b     string
		atEnd bool
		want  Reason
	}{
		{"", false, ReasonUnknown},
		{"GET", false, ReasonUnknown},
		{"GET / HTTP/1.1\r\n", false, ReasonBytes},
		{"GET / HTTP/1.1\r\n", true, ReasonBytes},
		{"EHLO a\r\n", false, ReasonBytes},
		{"", true, ReasonEOF},
		{"GET", true, ReasonCutAtEOF},
		{"GET /abc/defgh", true, ReasonPrefixAtEOF},
		{"PRI * HTTP/2.0", true, ReasonPrefixAtEOF},
	}
	for _, tt := range tests {
		judge := Sniff
		if tt.atEnd {
			judge = AtEnd
		}
		if got := judge([]byte(tt.b)).Reason; got != tt.want {
			t.Errorf("%q (at end: %v) = %v, want %v", tt.b, tt.atEnd, got, tt.want)
		}
	}
}

func TestReasonsHaveDistinctWords(t *testing.T) {
	had := map[string]Reason{}
	for r := ReasonUnknown; r.String() != "unknown" || r == ReasonUnknown; r++ {
		if other, ok := had[r.String()]; ok {
			t.Errorf("%d and %d are both %q", r, other, r)
		}
		had[r.String()] = r
	}
	if len(had) < 10 {
		t.Errorf("%d reasons: one before the last has no word", len(had))
	}
}

func TestSniffAllocatesNothingForPlainProtocols(t *testing.T) {
	for _, s := range []string{"GET /a HTTP/1.1\r\n", "G", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "SSH-2.0-x\r\n", "\x16\x03\x01\x02\x00\x01\x00"} {
		b := []byte(s)
		if n := testing.AllocsPerRun(100, func() { Sniff(b); AtEnd(b) }); n != 0 {
			t.Errorf("%q: %v allocations", s, n)
		}
	}
}

func TestTargetsAreReadByEightBytesAsByOne(t *testing.T) {
	for at := range 24 {
		for c := range 256 {
			b := bytes.Repeat([]byte{'a'}, 24)
			b[at] = byte(c)
			want := len(b)
			if !visible(byte(c)) {
				want = at
			}
			if got := leadingVisible(b); got != want {
				t.Fatalf("byte %#x at %d: %d visible, want %d", c, at, got, want)
			}
		}
	}
}

func TestWhatStandsBeforeTheFirstSlashIsBounded(t *testing.T) {
	for _, tt := range []struct {
		size int
		want string
	}{{maxAuthority, "http/1"}, {maxAuthority + 1, "opaque"}} {
		line := "CONNECT " + strings.Repeat("a", tt.size) + " HTTP/1.1\r\n"
		if got := word(Sniff([]byte(line))); got != tt.want {
			t.Errorf("%d bytes: %s, want %s", tt.size, got, tt.want)
		}
		everyPrefixWaitsOrAgrees(t, "authority", []byte(line), tt.want)
	}
}
