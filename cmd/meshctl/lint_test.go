package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// faulty has one error, one warning and one note.
const faulty = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, annotations: {config.linkerd.io/opaque-ports: nobody}}
spec:
  ports:
  - {port: 80, appProtocol: grpc}
  - {port: 4222}
`

// lintOf runs `meshctl lint ARGS` on faulty as standard input.
func lintOf(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	var b strings.Builder
	cmd := newRootCommand()
	cmd.SetArgs(append([]string{"lint"}, args...))
	cmd.SetIn(strings.NewReader(faulty))
	cmd.SetOut(&b)
	err := cmd.Execute()
	if err == nil {
		return b.String(), exitDone
	}
	return b.String(), codeOf(err)
}

func TestLintTellsTheFindingsAndTheirCodes(t *testing.T) {
	out, code := lintOf(t, "-")
	want := `error: stdin:3:54: Service shop/web: metadata.annotations["config.linkerd.io/opaque-ports"]: "nobody": no port of this Service has that name: write the number, or name the port [MESH012]
warning: stdin:6:16: Service shop/web: spec.ports[0].appProtocol: "grpc" makes the port opaque: no metrics of requests, no routes, no retries: write kubernetes.io/h2c [MESH010]
note: stdin:7:5: Service shop/web: spec.ports[1]: port 4222 is customary for NATS clients, routes, where the server speaks first: a connection waits until the proxy has found that out: set appProtocol: linkerd.io/opaque [MESH013]
1 object in 1 file, 3 findings
`
	if out != want || code != exitFindings {
		t.Errorf("exit %d:\n%s", code, out)
	}
}

func TestLintOnlyOfNotesIsNoFailure(t *testing.T) {
	out, code := lintOf(t, "--ignore", "MESH010,mesh012", "-")
	if code != exitDone || !strings.Contains(out, "MESH013") || strings.Contains(out, "MESH010") {
		t.Errorf("exit %d:\n%s", code, out)
	}
}

func TestLintInJSONAndSarif(t *testing.T) {
	out, code := lintOf(t, "-o", "json", "-")
	var all linted
	if err := json.Unmarshal([]byte(strings.ReplaceAll(out, `"severity"`, `"s"`)), &all); err != nil || len(all.Findings) != 3 || all.Objects != 1 || code != exitFindings {
		t.Errorf("exit %d, %v:\n%s", code, err, out)
	}
	if !strings.Contains(out, `"severity": "error"`) || !strings.Contains(out, `"code": "MESH012"`) || !strings.Contains(out, `"line": 3`) {
		t.Errorf("%s", out)
	}
	out, code = lintOf(t, "-o", "sarif", "-")
	var log struct {
		Version string
		Runs    []struct{ Results []struct{ RuleID string } }
	}
	if err := json.Unmarshal([]byte(out), &log); err != nil || log.Version != "2.1.0" || len(log.Runs[0].Results) != 3 || code != exitFindings {
		t.Errorf("exit %d, %v:\n%s", code, err, out)
	}
}

func TestLintReadsDirectories(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.yaml": faulty, "sub/b.yml": faulty, "sub/c.json": `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x"}}`, "notes.txt": "not: [a manifest"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, code := lintOf(t, dir)
	if code != exitFindings || !strings.Contains(out, "3 objects in 3 files, 6 findings") || !strings.Contains(out, filepath.Join(dir, "sub/b.yml")+":6:16") {
		t.Errorf("exit %d:\n%s", code, out)
	}
}

func TestLintSaysWhatIsWrongWithItsArguments(t *testing.T) {
	empty := t.TempDir()
	for _, c := range []struct {
		args []string
		code int
	}{
		{nil, exitUsage},
		{[]string{"-o", "xml", "-"}, exitUsage},
		{[]string{"--ignore", "MESH999", "-"}, exitUsage},
		{[]string{"--kubernetes-version", "new", "-"}, exitUsage},
		{[]string{empty}, exitUsage},
		{[]string{filepath.Join(empty, "none.yaml")}, exitInput},
	} {
		if out, code := lintOf(t, c.args...); code != c.code || out != "" {
			t.Errorf("lint %q: exit %d, want %d; %q", c.args, code, c.code, out)
		}
	}
}

// The examples of package lint go through the command too: what it prints is what
// the package found.
func TestLintPrintsWhatThePackageFinds(t *testing.T) {
	a, err := txtar.ParseFile("../../testdata/lint/MESH011.txtar")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	var want string
	for _, f := range a.Files {
		switch f.Name {
		case "bad/objects.yaml":
			if err := os.WriteFile("objects.yaml", f.Data, 0o644); err != nil {
				t.Fatal(err)
			}
		case "findings":
			want = string(f.Data)
		}
	}
	if out, _ := lintOf(t, "objects.yaml"); !strings.HasPrefix(out, want) {
		t.Errorf("%s\nwant:\n%s", out, want)
	}
}
