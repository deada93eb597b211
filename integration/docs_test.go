package integration

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestThePageOfCommandsIsTheProgramsHelp(t *testing.T) {
	want, err := exec.Command("go", "run", "../internal/tools/clidocs", meshctl).Output()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("docs/commands.md is not what the program says; run make docs (-want +got):\n%s", diff)
	}
}

func TestTheReadmeNamesNoFlagThatIsNotThere(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	help, err := os.ReadFile("../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	flag := regexp.MustCompile(`--[a-z][a-z0-9-]+`)
	known := flag.FindAllString(string(help), -1)
	names := flag.FindAllString(string(readme), -1)
	if len(names) < 10 {
		t.Fatalf("only %d flags in the README: this test looks at nothing", len(names))
	}
	for _, name := range names {
		if !slices.Contains(known, name) && !accepted(name) {
			t.Errorf("README.md names %s, which no command has", name)
		}
	}
}

// accepted reports whether meshctl redirect has a flag that its help does not show.
func accepted(flag string) bool {
	out, err := exec.Command(meshctl, "redirect", flag+"=", "--help").CombinedOutput()
	return err == nil || !regexp.MustCompile(`unknown flag`).Match(out)
}
