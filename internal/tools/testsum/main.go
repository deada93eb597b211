// Command testsum reads `go test -json` on its standard input and prints what a
// person wants to know: the output of what failed, every skipped test with its
// reason, and one line of sums. It exits 1 when something failed.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

func main() {
	s := newSummary(os.Stdout)
	if err := s.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(1)
	}
	if !s.print() {
		os.Exit(1)
	}
}

// event is one line of go test -json (go doc test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string // of build output
	Test       string
	Output     string
	Elapsed    float64 // seconds
}

// summary counts tests. Subtests count; packages do not.
type summary struct {
	out    io.Writer
	start  time.Time
	output map[string][]string // by package and test, until it is known to be wanted
	passed int
	failed []string
	skips  []string
}

func newSummary(out io.Writer) *summary {
	return &summary{out: out, start: time.Now(), output: map[string][]string{}}
}

func (s *summary) read(r io.Reader) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		var e event
		if json.Unmarshal(sc.Bytes(), &e) != nil {
			// go's own words (a broken go.mod, say) come as plain text.
			fmt.Fprintln(s.out, sc.Text())
			continue
		}
		s.take(e)
	}
	return sc.Err()
}

func (s *summary) take(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "build-output":
		fmt.Fprint(s.out, e.Output)
	case "build-fail":
		s.failed = append(s.failed, e.ImportPath+" (does not build)")
	case "output":
		s.output[key] = append(s.output[key], e.Output)
	case "pass", "fail", "skip":
		s.end(e, key)
		delete(s.output, key)
	}
}

// end takes the verdict on one test, or on a package when e.Test is empty.
func (s *summary) end(e event, key string) {
	name := strings.TrimSpace(key)
	if e.Test == "" {
		s.endPackage(e, key)
		return
	}
	switch e.Action {
	case "pass":
		s.passed++
	case "skip":
		s.skips = append(s.skips, name+": "+reason(s.output[key]))
	case "fail":
		s.failed = append(s.failed, name)
		fmt.Fprint(s.out, strings.Join(s.output[key], ""))
	}
}

// endPackage prints one line a package; a package that fails outside any test (a
// panic, a time-out, a leak found in TestMain) prints all it said.
func (s *summary) endPackage(e event, key string) {
	if e.Action == "fail" {
		s.failed = append(s.failed, e.Package)
		fmt.Fprint(s.out, strings.Join(s.output[key], ""))
	}
	if e.Action != "skip" { // skip: a package without tests
		fmt.Fprintf(s.out, "%-4s %-60s %6.1fs\n", e.Action, e.Package, e.Elapsed)
	}
}

// reason is the line in which a skipped test says why.
func reason(lines []string) string {
	for _, l := range lines {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "===") && !strings.HasPrefix(l, "---") {
			return l
		}
	}
	return "no reason given"
}

// print writes the sums and reports whether all is well.
func (s *summary) print() bool {
	for _, skip := range s.skips {
		fmt.Fprintln(s.out, "skipped:", skip)
	}
	for _, f := range s.failed {
		fmt.Fprintln(s.out, "FAILED:", f)
	}
	fmt.Fprintf(s.out, "%d passed, %d failed, %d skipped in %s\n",
		s.passed, len(s.failed), len(s.skips), time.Since(s.start).Round(time.Second))
	return len(s.failed) == 0 && s.passed > 0
}
