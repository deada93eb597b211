// Package deploy holds what is in this folder to what it is for: the chart to its
// goldens, the permissions to what is watched, the dashboard to the metrics.
package deploy

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/integration/lab"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// helm is the program, which `make chart` builds; "" if it is not there.
func helm() string {
	if name := os.Getenv("MESHCTL_HELM"); name != "" {
		return name
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	name := filepath.Join(dir, "meshctl", "helm", "helm")
	if _, err := os.Stat(name); err != nil {
		return ""
	}
	return name
}

func needHelm(t *testing.T) string {
	t.Helper()
	name := helm()
	if name == "" {
		t.Skip("needs helm: make chart builds it (some minutes of CPU), and runs this test")
	}
	return name
}

// rendered are the cases: what is set, and where the golden is.
var rendered = []struct {
	name, golden string
	args         []string
}{
	{"customary", "base/controller.yaml", nil},
	{"admission policy", "admission-policy/policy.yaml", []string{"--set", "webhook.enabled=false,admissionPolicy.enabled=true", "--show-only", "templates/admissionpolicy.yaml"}},
	{"everything", "../testdata/deploy/everything.yaml", []string{"--values", "../testdata/deploy/everything.values.yaml"}},
	{"least", "../testdata/deploy/least.yaml", []string{"--set", "webhook.enabled=false,networkPolicy.enabled=false,podDisruptionBudget.enabled=false,controller.replicas=1"}},
}

func template(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(program, append([]string{"template", "meshctl", "chart", "--namespace", "meshctl", "--kube-version", "1.37"}, args...)...)
	cmd.Env = lab.Environ()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, errs.String())
	}
	return string(out), nil
}

func TestGoldenChart(t *testing.T) {
	program := needHelm(t)
	for _, c := range rendered {
		got, err := template(t, program, c.args...)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		golden(t, c.golden, "---\n# Written by `make chart` from deploy/chart.\n"+strings.TrimPrefix(got, "---\n"))
	}
}

// The kustomization has the CustomResourceDefinitions of the chart in one file.
func TestGoldenDefinitionsOfTheBase(t *testing.T) {
	files, err := filepath.Glob("chart/crds/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%v, %v", files, err)
	}
	slices.Sort(files)
	var b strings.Builder
	b.WriteString("---\n# Written by `make chart` from deploy/chart/crds.\n")
	for i, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			b.WriteString("---\n")
		}
		b.Write(text)
	}
	golden(t, "base/crds.yaml", b.String())
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (make chart rewrites it):\n%s", file, diff)
	}
}

func TestTheChartRefusesValuesThatCannotBe(t *testing.T) {
	program := needHelm(t)
	for set, want := range map[string]string{
		"controller.replicas=0":        "replicas",
		"controller.replica=3":         "replica",
		"webhook.failurePolicy=Maybe":  "failurePolicy",
		"image.digest=latest":          "digest",
		"identity.trustDomain=A B":     "trustDomain",
		"podMonitor.interval=sometime": "interval",
	} {
		if _, err := template(t, program, "--set", set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--set %s: %v", set, err)
		}
	}
}
