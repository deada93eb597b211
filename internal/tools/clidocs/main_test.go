package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// program has one subcommand with one of its own.
const program = `#!/bin/sh
case "$*" in
--help) printf 'Root words.\n\nAvailable Commands:\n  help   Help\n  sub    Does\n\nFlags:\n  -h\n' ;;
'sub --help') printf 'Sub words.\n\nAvailable Commands:\n  deep   Goes\n' ;;
'sub deep --help') printf 'Deep words.\n' ;;
*) echo "no $*" >&2; exit 3 ;;
esac
`

func TestEveryCommandHasASection(t *testing.T) {
	file := filepath.Join(t.TempDir(), "prog")
	if err := os.WriteFile(file, []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := page(&out, file); err != nil {
		t.Fatal(err)
	}
	var heads []string
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "#") || strings.HasSuffix(line, "words.\n") {
			heads = append(heads, strings.TrimSpace(line))
		}
	}
	want := []string{"# Commands", "## prog", "Root words.", "## prog sub", "Sub words.", "## prog sub deep", "Deep words."}
	if diff := cmp.Diff(want, heads); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAProgramThatFailsIsAnError(t *testing.T) {
	var out strings.Builder
	if err := page(&out, "/bin/false"); err == nil {
		t.Error("no error")
	}
}
