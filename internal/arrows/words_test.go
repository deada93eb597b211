package arrows

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

func TestNoFileSpeaksOfWhatIsNotInTheRepository(t *testing.T) {
	// Written in pieces, so that this file does not name them either.
	private := regexp.MustCompile(`\.\./sha` + `red\b|/work/` + `(shared|main)|/tmp/` + `brief`)
	err := eachFile(func(name string, text []byte) error {
		if m := private.Find(text); m != nil {
			t.Errorf("%s mentions %q, which a clone does not have", name, m)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestNoUnfinishedWordIsLeft(t *testing.T) {
	unfinished := regexp.MustCompile(`<!-- demo out` + `put -->|\b(TO` + `DO|FIX` + `ME|XX` + `X)\b|place` + `holder`)
	unwritten := regexp.MustCompile(`\bnot imple` + `mented\b`) // what tests may ask a server to say
	err := eachFile(func(name string, text []byte) error {
		if !isText(name) {
			return nil
		}
		if m := unfinished.Find(text); m != nil {
			t.Errorf("%s: %q", name, m)
		}
		if unwritten.Match(text) && !strings.HasSuffix(name, "_test.go") {
			t.Errorf("%s leaves something unwritten", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestOneLanguageIsEnough(t *testing.T) {
	err := eachFile(func(name string, _ []byte) error {
		if ext := path.Ext(name); ext == ".py" || ext == ".pl" || ext == ".rb" {
			t.Errorf("%s: tools here are Go or shell", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// isText is true of what people write, not of captured bytes in testdata.
func isText(name string) bool {
	switch path.Ext(name) {
	case ".go", ".md", ".yml", ".yaml":
		return !strings.Contains(name, "testdata/")
	}
	return path.Base(name) == "Makefile"
}

func TestLinksInTheDocsLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	err := eachFile(func(name string, text []byte) error {
		if path.Ext(name) != ".md" {
			return nil
		}
		for _, m := range link.FindAllSubmatch(text, -1) {
			to := path.Join(path.Dir(name), string(m[1]))
			if _, err := os.Stat(path.Join(root, to)); err != nil {
				t.Errorf("%s links to %s, which is not there", name, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
