package footprint

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// resident is how much of the program's file is in memory, in KiB.
func resident(t *testing.T) (kib int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if n, _ := fmt.Sscanf(line, "RssFile: %d kB", &kib); n == 1 {
			return kib
		}
	}
	t.Fatal("no RssFile")
	return 0
}

func TestTrimGivesBackWhatTheStartTouchedAndTheProgramGoesOn(t *testing.T) {
	before := resident(t)
	if err := Trim(); err != nil {
		t.Fatal(err)
	}
	if after := resident(t); after > before*3/4 {
		t.Errorf("%d KiB of the program were in memory, and still %d are", before, after)
	}
}

func TestOnlyPagesOfTheProgramThatNobodyHasWrittenAreGivenBack(t *testing.T) {
	const exe = "/usr/bin/a program"
	for line, want := range map[string]int{
		"00400000-01000000 r-xp 00000000 08:01 42                 " + exe:                1,
		"01000000-02000000 r--p 00c00000 08:01 42                 " + exe:                1,
		"02000000-02100000 rw-p 01c00000 08:01 42                 " + exe:                0,
		"02000000-02100000 r--p 01c00000 08:01 42                 " + exe + " (deleted)": 0,
		"7f0000000000-7f0000100000 r--p 00000000 08:01 7          /usr/lib/libc.so.6":    0,
		"c000000000-c000400000 rw-p 00000000 00:00 0":                                    0,

		"x r-xp 0 08:01 42 " + exe: 0,

		"": 0,
	} {
		if got := len(clean(line+"\nRss: 12 kB\nAnonymous:             0 kB\n", exe)); got != want {
			t.Errorf("%q: %d", line, got)
		}
		if got := len(clean(line+"\nRss: 12 kB\nAnonymous:             4 kB\n", exe)); got != 0 {
			t.Errorf("%q, written: %d", line, got)
		}
	}
}
