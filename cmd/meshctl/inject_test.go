package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/meshctl/meshctl/inject"
	"github.com/meshctl/meshctl/inject/manifest"
)

// injected is what one run of `meshctl inject` or `uninject` gives.
type injected struct {
	stdout, stderr string
	code           int
}

// runInject runs a command in a directory, as a user would, but in this process.
func runInject(t *testing.T, dir, stdin string, args ...string) injected {
	t.Helper()
	t.Chdir(dir)
	var out, errs bytes.Buffer
	root := newRootCommand()
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetIn(strings.NewReader(stdin))
	root.SetArgs(args)
	code := 0
	if err := root.Execute(); err != nil {
		errs.WriteString(complaint(err) + "\n")
		code = codeOf(err)
	}
	return injected{out.String(), errs.String(), code}
}

// injectCase is a file of testdata/inject: flags, the input's files, and what
// comes out: output and stderr, and uninjected where that is not the input.
type injectCase struct {
	name    string
	archive *txtar.Archive
}

func injectCases(t *testing.T) []injectCase {
	t.Helper()
	names, err := filepath.Glob("../../testdata/inject/*.txtar")
	if err != nil || len(names) < 10 {
		t.Fatalf("only %d cases: %v", len(names), err)
	}
	var out []injectCase
	for _, name := range names {
		name, err = filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		a, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, injectCase{name, a})
	}
	return out
}

// String is the name of the case.
func (c injectCase) String() string { return strings.TrimSuffix(filepath.Base(c.name), ".txtar") }

func (c injectCase) section(name string) (string, bool) {
	for _, f := range c.archive.Files {
		if f.Name == name {
			return string(f.Data), true
		}
	}
	return "", false
}

// inputs writes the input's files into a folder and returns their names.
func (c injectCase) inputs(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	for _, f := range c.archive.Files {
		if name, ok := strings.CutPrefix(f.Name, "input/"); ok {
			names = append(names, name)
			if err := os.WriteFile(filepath.Join(dir, name), f.Data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(names) == 0 {
		t.Fatal("no input")
	}
	return names
}

// compare checks a section, or writes it with -update.
func (c injectCase) compare(t *testing.T, section, got string) {
	t.Helper()
	if *update {
		at := slices.IndexFunc(c.archive.Files, func(f txtar.File) bool { return f.Name == section })
		switch {
		case at < 0 && got == "":
			return
		case at < 0:
			c.archive.Files = append(c.archive.Files, txtar.File{Name: section, Data: []byte(got)})
		case got == "":
			c.archive.Files = slices.Delete(c.archive.Files, at, at+1)
		default:
			c.archive.Files[at].Data = []byte(got)
		}
		if err := os.WriteFile(c.name, txtar.Format(c.archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, _ := c.section(section)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (make golden rewrites it):\n%s", section, diff)
	}
}

func TestGoldenInject(t *testing.T) {
	for _, c := range injectCases(t) {
		t.Run(c.String(), func(t *testing.T) {
			dir := t.TempDir()
			names := c.inputs(t, dir)
			flags, _ := c.section("flags")
			args := append(append([]string{"inject"}, strings.Fields(flags)...), names...)
			got := runInject(t, dir, "", args...)
			c.compare(t, "output", got.stdout)
			c.compare(t, "stderr", got.stderr)
			if got.code != 0 {
				if got.stdout != "" || got.code != exitInput && got.code != exitUsage {
					t.Errorf("exit code %d with output %q", got.code, got.stdout)
				}
				return
			}
			isStrictlyKubernetes(t, got.stdout)
			again := runInject(t, dir, got.stdout, append(append([]string{"inject"}, strings.Fields(flags)...), "-")...)
			if diff := cmp.Diff(got.stdout, again.stdout); diff != "" {
				t.Errorf("injected again it is something else:\n%s", diff)
			}
			c.out(t, dir, names, got.stdout)
		})
	}
}

// out takes the injection out again: the input comes back, byte for byte, or the
// section "uninjected" where the text was written in another way.
func (c injectCase) out(t *testing.T, dir string, names []string, text string) {
	t.Helper()
	want := runInject(t, dir, "", append([]string{"uninject"}, names...)...) // nothing in it: joins the files
	got := runInject(t, dir, text, "uninject", "-")
	if got.code != 0 {
		t.Fatalf("uninject: exit code %d, %s", got.code, got.stderr)
	}
	if _, other := c.section("uninjected"); !other {
		if diff := cmp.Diff(want.stdout, got.stdout); diff != "" {
			t.Errorf("taken out again it is not what it was:\n%s", diff)
		}
		return
	}
	c.compare(t, "uninjected", got.stdout)
	if diff := cmp.Diff(decodedObjects(t, want.stdout), decodedObjects(t, got.stdout)); diff != "" {
		t.Errorf("taken out again the objects are others:\n%s", diff)
	}
}

func decodedObjects(t *testing.T, text string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for _, o := range objectsOf(t, text) {
		out = append(out, o.Value)
	}
	return out
}

func objectsOf(t *testing.T, text string) []manifest.Object {
	t.Helper()
	f, err := manifest.Parse("output", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var out []manifest.Object
	for _, d := range f.Documents() {
		out = append(out, d.Objects()...)
	}
	return out
}

// isStrictlyKubernetes decodes every workload into Kubernetes' own types, which
// must know each field.
func isStrictlyKubernetes(t *testing.T, text string) {
	t.Helper()
	types := map[string]func() any{
		"Pod": func() any { return &corev1.Pod{} }, "ReplicationController": func() any { return &corev1.ReplicationController{} },
		"Deployment": func() any { return &appsv1.Deployment{} }, "StatefulSet": func() any { return &appsv1.StatefulSet{} },
		"DaemonSet": func() any { return &appsv1.DaemonSet{} }, "ReplicaSet": func() any { return &appsv1.ReplicaSet{} },
		"Job": func() any { return &batchv1.Job{} }, "CronJob": func() any { return &batchv1.CronJob{} },
	}
	for _, o := range objectsOf(t, text) {
		if _, workload := inject.Template(o.APIVersion, o.Kind); !workload {
			continue
		}
		raw, err := json.Marshal(o.Value)
		if err != nil {
			t.Fatal(err)
		}
		unknown, err := kjson.UnmarshalStrict(raw, types[o.Kind]())
		for _, u := range unknown {
			if !strings.Contains(u.Error(), "ofTheFuture") { // what the cases have to show that such fields survive
				t.Errorf("%v: %v", o, u)
			}
		}
		if err != nil {
			t.Errorf("%v: %v", o, err)
		}
	}
}

// TestInjectedArgumentsAreFlagsOfTheCommands parses what inject writes with the
// commands that will read it.
func TestInjectedArgumentsAreFlagsOfTheCommands(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range injectCases(t) {
		text, _ := c.section("output")
		for _, args := range containerArgs(t, text) {
			cmd, rest, err := newRootCommand().Find(args)
			if err != nil || cmd.Name() != args[0] {
				t.Errorf("%s: %q: %v", c, args, err)
				continue
			}
			if err := cmd.ParseFlags(rest); err != nil {
				t.Errorf("%s: meshctl %q: %v", c, args, err)
			}
			for _, a := range rest {
				flag, _, _ := strings.Cut(a, "=")
				seen[args[0]+" "+flag] = true
			}
		}
	}
	if len(seen) < 20 {
		t.Errorf("only these flags were seen: %q", slices.Sorted(maps.Keys(seen)))
	}
}

func containerArgs(t *testing.T, text string) [][]string {
	t.Helper()
	var out [][]string
	for _, o := range objectsOf(t, text) {
		at, workload := inject.Template(o.APIVersion, o.Kind)
		if !workload {
			continue
		}
		var value any = o.Value
		for _, step := range strings.FieldsFunc(at, func(r rune) bool { return r == '/' }) {
			value = value.(map[string]any)[step]
		}
		raw, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		var pod corev1.PodTemplateSpec
		if err := json.Unmarshal(raw, &pod); err != nil {
			t.Fatal(err)
		}
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if strings.HasPrefix(c.Name, "linkerd-") {
				out = append(out, c.Args)
				if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
					out = append(out, c.Lifecycle.PostStart.Exec.Command[1:])
				}
			}
		}
	}
	return out
}

func TestInjectReadsDirectoriesAndWritesFiles(t *testing.T) {
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	const pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: %\nspec:\n  containers:\n  - name: app\n    image: app:1\n"
	for name, text := range map[string]string{
		"b.yml": strings.ReplaceAll(pod, "%", "b"), "a.yaml": strings.ReplaceAll(pod, "%", "a"), "c.txt": "no manifest",
		"d.json": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"d"}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all := runInject(t, dir, "", "inject", ".")
	if all.code != 0 {
		t.Fatal(all.stderr)
	}
	var names []string
	for _, o := range objectsOf(t, all.stdout) {
		names = append(names, o.Name)
	}
	if got := strings.Join(names, " "); got != "a b d" {
		t.Errorf("%q, want the files in the order of their names", got)
	}
	if got := runInject(t, dir, "", "inject", "--output", out, "."); got.code != 0 || got.stdout != "" {
		t.Fatalf("%+v", got)
	}
	var joined strings.Builder
	for i, name := range []string{"a.yaml", "b.yml", "d.json"} {
		text, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			joined.WriteString("---\n")
		}
		joined.Write(text)
	}
	if diff := cmp.Diff(all.stdout, joined.String()); diff != "" {
		t.Errorf("files and standard output differ:\n%s", diff)
	}
}

func TestInjectIsToldWhatToRead(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"inject"}, exitUsage, "requires at least 1 arg"},
		{[]string{"inject", "nothing.yaml"}, exitInput, "nothing.yaml"},
		{[]string{"inject", "--backend", "ebpf", "-"}, exitUsage, "ebpf"},
		{[]string{"uninject", "nothing.yaml"}, exitInput, "nothing.yaml"},
	} {
		got := runInject(t, t.TempDir(), "", tt.args...)
		if got.code != tt.code || !strings.Contains(got.stderr, tt.want) || got.stdout != "" {
			t.Errorf("%q: %+v, want %d and %q", tt.args, got, tt.code, tt.want)
		}
	}
}
