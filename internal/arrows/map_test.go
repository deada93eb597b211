package arrows

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the table in docs/architecture.md")

const (
	mapFile  = root + "/docs/architecture.md"
	mapStart = "<!-- arrows: written by `make golden` from internal/arrows/table_test.go -->\n"
	mapEnd   = "<!-- end of arrows -->"
)

func TestGoldenTheMapInTheDocsIsTheTable(t *testing.T) {
	raw, err := os.ReadFile(mapFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(raw), mapStart)
	got, after, ok2 := strings.Cut(rest, mapEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the arrows", mapFile)
	}
	want := mapTable()
	if *update {
		if err := os.WriteFile(mapFile, []byte(before+mapStart+want+mapEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/architecture.md shows other arrows than the code may make; run make golden (-want +got):\n%s", diff)
	}
}

func mapTable() string {
	var b strings.Builder
	b.WriteString("| from | to | because |\n|---|---|---|\n")
	for _, a := range arrows {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", a.from, a.to, a.why)
	}
	b.WriteString("\n| library | only in | because |\n|---|---|---|\n")
	for _, l := range libraries {
		in := strings.Join(l.in, ", ")
		if in == "" {
			in = "nowhere"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", l.path, in, l.why)
	}
	return b.String()
}
