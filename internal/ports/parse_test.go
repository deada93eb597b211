package ports

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAGoodListIsRead(t *testing.T) {
	for list, want := range map[string]string{
		"":                "",
		" \t ":            "",
		"1":               "1",
		"65535":           "65535",
		"1-65535":         "1-65535",
		"900-900":         "900",
		"9200:9209":       "9200-9209",
		"9200-9209,7:8":   "7-8,9200-9209",
		" 3307 , 5433\t":  "3307,5433",
		"3307,5433,":      "3307,5433",
		"3307, ":          "3307",
		"26\t,\t588":      "26,588",
		"5433,3307,5433":  "3307,5433",
		"100-200,150-300": "100-300",
	} {
		s, err := Parse(list)
		if err != nil || s.String() != want {
			t.Errorf("Parse(%q) = %q, %v; want %q", list, s, err, want)
		}
	}
}

func TestAWrongListIsRefusedWithTheItemAndItsPlace(t *testing.T) {
	for _, c := range []struct {
		name, list string
		want       ParseError
	}{
		{"port zero", "0", ParseError{"0", 1, "ports start at 1"}},
		{"only zeros", "000", ParseError{"000", 1, "ports start at 1"}},
		{"range from zero", "0-10", ParseError{"0-10", 1, "ports start at 1"}},
		{"above the last port", "22,65536", ParseError{"65536", 2, "ports end at 65535"}},
		{"a number that wraps 32 bits to 80", "4294967376", ParseError{"4294967376", 1, "ports end at 65535"}},
		{"a number that wraps 64 bits to 80", "18446744073709551696", ParseError{"18446744073709551696", 1, "ports end at 65535"}},
		{"a typing error among good items", "3306,44x4", ParseError{"44x4", 2, "not a port number"}},
		{"brackets", "443,[4222]", ParseError{"[4222]", 2, "not a port number"}},
		{"a name", "1,2,http", ParseError{"http", 3, "not a port number"}},
		{"names as a range", "a-b", ParseError{"a-b", 1, "not a port number"}},
		{"backwards", "9000-8000", ParseError{"9000-8000", 1, "the range runs backwards"}},
		{"minus sign", "-1", ParseError{"-1", 1, "a range needs two ports"}},
		{"plus sign inside", "1,+2", ParseError{"+2", 2, "not a port number"}},
		{"half a range", "80-", ParseError{"80-", 1, "a range needs two ports"}},
		{"half a range with a colon", ":80", ParseError{":80", 1, "a range needs two ports"}},
		{"three ends", "80-90-100", ParseError{"80-90-100", 1, "not a port number"}},
		{"double dash", "80--90", ParseError{"80--90", 1, "not a port number"}},
		{"mixed separators", "80-90:100", ParseError{"80-90:100", 1, "not a port number"}},
		{"hexadecimal", "0x50", ParseError{"0x50", 1, "not a port number"}},
		{"exponent", "8e1", ParseError{"8e1", 1, "not a port number"}},
		{"fraction", "80.0", ParseError{"80.0", 1, "not a port number"}},
		{"underscore", "8_0", ParseError{"8_0", 1, "not a port number"}},
		{"leading zero", "080443", ParseError{"080443", 1, "ports end at 65535"}},
		{"short leading zero", "0443", ParseError{"0443", 1, "a port has no leading zero"}},
		{"leading zero in a range", "80-090", ParseError{"80-090", 1, "a port has no leading zero"}},
		{"digits of another script", "٨٠", ParseError{"٨٠", 1, "not a port number"}},
		{"fullwidth digits", "22,\uff18\uff10", ParseError{"\uff18\uff10", 2, "not a port number"}},
		{"shell metacharacters", "80;id", ParseError{"80;id", 1, "not a port number"}},
		{"blank for a comma", "80 443", ParseError{"80 443", 1, "not a port number"}},
		{"blank inside a range", "80 - 90", ParseError{"80 - 90", 1, "not a port number"}},
		{"line break for a comma", "80\n443", ParseError{"80\n443", 1, "not a port number"}},
		{"line break at the end", "80,443\n", ParseError{"443\n", 2, "not a port number"}},
		{"carriage return", "80\r,443", ParseError{"80\r", 1, "not a port number"}},
		{"no-break space", "80,\u00a0443", ParseError{"\u00a0443", 2, "not a port number"}},
		{"zero byte", "80\x00", ParseError{"80\x00", 1, "not a port number"}},
		{"only a comma", ",", ParseError{"", 1, "empty item"}},
		{"leading comma", ",80", ParseError{"", 1, "empty item"}},
		{"empty item in the middle", "3306,,5432", ParseError{"", 2, "empty item"}},
		{"two trailing commas", "80,,", ParseError{"", 2, "empty item"}},
		{"a default to add to", "+80", ParseError{"+80", 1, "not a port number"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Parse(c.list)
			var got *ParseError
			if !errors.As(err, &got) {
				t.Fatalf("Parse(%q) = %v, %v; want a *ParseError", c.list, s, err)
			}
			if diff := cmp.Diff(c.want, *got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if !s.Empty() {
				t.Errorf("a wrong list gave the set %v", s)
			}
		})
	}
}

func TestTheErrorIsOneLineWhateverWasWritten(t *testing.T) {
	_, err := Parse("22,80\n443\x1b[31m")
	want := `port list: item 2 "80\n443\x1b[31m": not a port number`
	if err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
}

func TestALeadingPlusAddsToTheDefault(t *testing.T) {
	def := Of(25, 4567, 4568)
	for list, want := range map[string]string{
		"+5000,6000":   "25,4567-4568,5000,6000",
		"  +5000":      "25,4567-4568,5000",
		"+ 26":         "25-26,4567-4568",
		"+":            "25,4567-4568",
		"+25":          "25,4567-4568",
		"5000":         "5000",
		"":             "",
		"26,4569-4570": "26,4569-4570",
	} {
		s, err := ParseOver(list, def)
		if err != nil || s.String() != want {
			t.Errorf("ParseOver(%q) = %q, %v; want %q", list, s, err, want)
		}
	}
	for _, list := range []string{"++80", "+80,+90", "80,+90", "+-1", "+,80", "+x"} {
		if s, err := ParseOver(list, def); err == nil {
			t.Errorf("ParseOver(%q) = %v, want an error", list, s)
		}
	}
}

func TestTheStrictGrammarKnowsDashesOnly(t *testing.T) {
	for list, want := range map[string]string{"": "", "80,90-99": "80,90-99", " 7 , 8": "7-8"} {
		if s, err := ParseStrict(list); err != nil || s.String() != want {
			t.Errorf("ParseStrict(%q) = %q, %v; want %q", list, s, err, want)
		}
	}
	for _, list := range []string{"80:90", "+80", "80,90:99", "0", "80,,90"} {
		if s, err := ParseStrict(list); err == nil {
			t.Errorf("ParseStrict(%q) = %v, want an error", list, s)
		}
	}
}

// FuzzParse holds Parse to three promises: what it accepts survives a round
// trip, what it accepts means what a plain reading says, and what it refuses
// gives a *ParseError that names a place inside the list.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "26", "3307,5433-5440", " 9:11 ,7,", "1-65535", "0", "70000", "9-8", "4,,4", "+9", "٣", "00", "8-", "65535,65534"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		s, err := Parse(list)
		if err != nil {
			var pe *ParseError
			if !errors.As(err, &pe) || pe.Place < 1 || pe.Place > 1+strings.Count(list, ",") || pe.Reason == "" {
				t.Fatalf("Parse(%q): %v", list, err)
			}
			return
		}
		back, err := Parse(s.String())
		if err != nil || !back.Equal(s) {
			t.Fatalf("Parse(%q) = %v, read back as %v, %v", list, s, back, err)
		}
		naive(list).equals(t, list, s)
	})
}

// naive reads a list that is known to be good, port by port.
func naive(list string) *model {
	var m model
	for item := range strings.FieldsFuncSeq(list, func(r rune) bool { return strings.ContainsRune(", \t", r) }) {
		lo, hi := 0, 0
		seen := false
		for _, c := range item {
			if c == '-' || c == ':' {
				lo, hi, seen = hi, 0, true
				continue
			}
			hi = hi*10 + int(c-'0')
		}
		if !seen {
			lo = hi
		}
		for p := lo; p <= hi; p++ {
			m[p] = true
		}
	}
	return &m
}
