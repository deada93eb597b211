package lint

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/meshctl/meshctl/internal/ports"
)

var update = flag.Bool("update", false, "rewrite the golden findings")

// opaque is the default list of the proxy; cmd hands it in.
func opaque() ports.Set { return ports.Of(25, 587, 3306, 4444, 5432, 6379, 9300, 11211) }

// example is one file of testdata/lint: bad input, what is found in it, and good
// input in which nothing is found.
type example struct {
	name    string
	archive *txtar.Archive
	config  Config
}

func examples(t *testing.T) []example {
	t.Helper()
	names, err := filepath.Glob("../testdata/lint/*.txtar")
	if err != nil || len(names) < len(Rules()) {
		t.Fatalf("%d examples, %v: fewer than there are codes", len(names), err)
	}
	var out []example
	for _, name := range names {
		a, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		e := example{name: name, archive: a, config: Config{Opaque: opaque()}}
		for line := range strings.Lines(string(a.Comment)) {
			if minor, ok := strings.CutPrefix(strings.TrimSpace(line), "flags: kubernetes="); ok {
				e.config.KubernetesMinor, err = strconv.Atoi(minor)
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		out = append(out, e)
	}
	return out
}

// look lints the files of an archive below a directory.
func (e example) look(dir string) []Finding {
	var objects []*Object
	var all []Finding
	for _, f := range e.archive.Files {
		if name, ok := strings.CutPrefix(f.Name, dir+"/"); ok {
			found, wrong := Parse(name, f.Data, "default")
			objects, all = append(objects, found...), append(all, wrong...)
		}
	}
	return Sort(append(all, Check(objects, e.config)...), e.config.Ignore)
}

func text(findings []Finding) string {
	var b strings.Builder
	for _, f := range findings {
		b.WriteString(f.String() + "\n")
	}
	return b.String()
}

func TestGoldenFindings(t *testing.T) {
	for _, e := range examples(t) {
		t.Run(strings.TrimSuffix(filepath.Base(e.name), ".txtar"), func(t *testing.T) {
			got := text(e.look("bad"))
			at := slices.IndexFunc(e.archive.Files, func(f txtar.File) bool { return f.Name == "findings" })
			if *update {
				if at < 0 {
					e.archive.Files = append(e.archive.Files, txtar.File{Name: "findings"})
					at = len(e.archive.Files) - 1
				}
				e.archive.Files[at].Data = []byte(got)
				if err := os.WriteFile(e.name, txtar.Format(e.archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if at < 0 {
				t.Fatal("no findings in it (make golden writes them)")
			}
			if diff := cmp.Diff(string(e.archive.Files[at].Data), got); diff != "" {
				t.Errorf("findings (make golden rewrites them):\n%s", diff)
			}
		})
	}
}

func TestInGoodInputNothingIsFound(t *testing.T) {
	for _, e := range examples(t) {
		if found := e.look("good"); len(found) > 0 {
			t.Errorf("%s:\n%s", e.name, text(found))
		}
		if !slices.ContainsFunc(e.archive.Files, func(f txtar.File) bool { return strings.HasPrefix(f.Name, "good/") }) {
			t.Errorf("%s has no good input", e.name)
		}
	}
}

func TestEachCodeIsFoundInItsExample(t *testing.T) {
	found := map[Code]bool{}
	for _, e := range examples(t) {
		want := Code(strings.ToUpper(filepath.Base(e.name)[:len("MESH000")]))
		for _, f := range e.look("bad") {
			if f.Code == want {
				found[want] = true
			}
		}
	}
	for _, r := range Rules() {
		if !found[r.Code] {
			t.Errorf("%s (%s) is found in no example of its own", r.Code, r.Name)
		}
	}
}

func TestCodesAndNamesAreUniqueAndInOrder(t *testing.T) {
	names := map[string]bool{}
	last := Code("")
	for _, r := range Rules() {
		if r.Code <= last || names[r.Name] || r.Severity == Unsaid || r.Title == "" {
			t.Errorf("%+v", r)
		}
		last, names[r.Name] = r.Code, true
	}
}

func TestEachCodeHasItsSectionInTheDocs(t *testing.T) {
	page, err := os.ReadFile("../docs/lint.md")
	if err != nil {
		t.Fatal(err)
	}
	var sections []string
	for line := range strings.Lines(string(page)) {
		if s, ok := strings.CutPrefix(line, "### MESH"); ok {
			sections = append(sections, "MESH"+strings.TrimSpace(s))
		}
	}
	var want []string
	for _, r := range Rules() {
		want = append(want, string(r.Code)+" "+r.Name)
		if !strings.Contains(string(page), "*"+r.Severity.String()+".* "+r.Title) {
			t.Errorf("docs/lint.md does not say %q", "*"+r.Severity.String()+".* "+r.Title)
		}
	}
	if diff := cmp.Diff(want, sections); diff != "" {
		t.Errorf("sections of docs/lint.md:\n%s", diff)
	}
}

func TestIgnoredCodesAreLeftOut(t *testing.T) {
	objects, _ := Parse("f", []byte("apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80, appProtocol: grpc}, {port: 4222}]}\n"), "default")
	all := Check(objects, Config{Opaque: opaque()})
	if len(all) != 2 || !Fails(all) {
		t.Fatalf("%v", all)
	}
	rest := Check(objects, Config{Opaque: opaque(), Ignore: []Code{OpaqueAppProtocol}})
	if len(rest) != 1 || rest[0].Code != ServerFirst || Fails(rest) {
		t.Errorf("%v", rest)
	}
}

func TestWithInjectedEveryWorkloadIsMeshed(t *testing.T) {
	objects, _ := Parse("f", []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {hostNetwork: true}\n"), "default")
	if found := Check(objects, Config{}); len(found) != 0 {
		t.Errorf("without: %v", found)
	}
	if found := Check(objects, Config{Injected: true}); len(found) != 1 || found[0].Code != HostNetwork {
		t.Errorf("with: %v", found)
	}
}

// A cluster has the pods of a Deployment too, and their ReplicaSet with a copy of its
// annotations: each mistake is told once.
func TestMistakesAreToldOfTheMaker(t *testing.T) {
	const text = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, annotations: {config.linkerd.io/opaque-ports: "25"}}
spec: {template: {metadata: {annotations: {config.linkerd.io/opaque-port: "25"}}, spec: {hostNetwork: true}}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web-1, namespace: shop, annotations: {config.linkerd.io/opaque-ports: "25"}, ownerReferences: [{kind: Deployment, name: web}]}
spec: {template: {metadata: {annotations: {config.linkerd.io/opaque-port: "25"}}, spec: {hostNetwork: true}}}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1-a, namespace: shop, annotations: {config.linkerd.io/opaque-port: "25"}, ownerReferences: [{kind: ReplicaSet, name: web-1}]}
spec: {hostNetwork: true}
`
	objects, _ := Parse("f", []byte(text), "default")
	var codes []Code
	for _, f := range Check(objects, Config{Injected: true}) {
		if f.Object != "Deployment shop/web" {
			t.Errorf("%v", f)
		}
		codes = append(codes, f.Code)
	}
	if want := []Code{WrongObject, UnknownAnnotation, HostNetwork}; !slices.Equal(codes, want) {
		t.Errorf("%v, want %v", codes, want)
	}
}

// FuzzParse: whatever is read, nothing panics and each finding has a place.
func FuzzParse(f *testing.F) {
	names, _ := filepath.Glob("../testdata/lint/*.txtar")
	for _, name := range names {
		a, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range a.Files {
			f.Add(file.Data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, found := Parse("f", data, "default")
		for _, f := range append(found, Check(objects, Config{Opaque: opaque(), Injected: true})...) {
			if f.Line < 1 || f.Text == "" || f.Name == "" {
				t.Errorf("%+v", f)
			}
		}
	})
}
