package rules_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/meshctl/meshctl/rules"
	"github.com/meshctl/meshctl/rules/iptables"
	"github.com/meshctl/meshctl/rules/nftables"
)

// What is written in the languages of the kernel gives the plan back, for every
// plan of testdata/rules.
func TestPlanIsReadBackFromEveryForm(t *testing.T) {
	files, err := filepath.Glob("../testdata/rules/*.txtar")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p, _, err := plan(string(section(txtar.Parse(raw), "flags")))
		if err != nil {
			continue // a file about refused flags
		}
		for form, found := range map[string][]rules.Rule{
			"nftables": nftables.Rules(nftables.Objects(p)),
			"iptables": readLines(p),
		} {
			t.Run(form+"/"+strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
				c := rules.ConfigOf(found)
				c.NoIPv6 = p.Config().NoIPv6 // a listing of iptables cannot tell
				back, err := rules.Build(c)
				if err != nil || back.Hash() != p.Hash() {
					t.Errorf("%v\nread back %+v\n     from %+v", err, c, p.Config())
				}
			})
		}
	}
}

func readLines(p rules.Plan) (out []rules.Rule) {
	for _, f := range p.Families() {
		out = append(out, iptables.Found{Rules: iptables.Lines(p, f)}.Read(f)...)
	}
	return out
}
