package inject

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/meshctl/meshctl/inject/manifest"
	"github.com/meshctl/meshctl/inject/patch"
	"github.com/meshctl/meshctl/internal/annotation"
)

// object decodes a pod as an admission webhook does: numbers are float64.
func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

var plainOptions = Options{Image: "meshctl:1", Version: "1"}

const small = `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"app","image":"a"}],"terminationGracePeriodSeconds":30}}`

// inputs are the pods of every golden case that can be injected.
func inputs(t *testing.T) []map[string]any {
	t.Helper()
	names, err := filepath.Glob("../testdata/inject/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	var out []map[string]any
	for _, name := range names {
		a, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range a.Files {
			if !strings.HasPrefix(f.Name, "input/") {
				continue
			}
			file, err := manifest.Parse(f.Name, f.Data)
			if err != nil {
				continue // what a case is about
			}
			for _, d := range file.Documents() {
				for _, o := range d.Objects() {
					if at, ok := Template(o.APIVersion, o.Kind); ok && at == "" {
						raw, err := json.Marshal(o.Value)
						if err != nil {
							t.Fatal(err)
						}
						out = append(out, object(t, string(raw)))
					}
				}
			}
		}
	}
	return out
}

func TestThePatchOfAPodIsIdempotentAndCanBeTakenBack(t *testing.T) {
	injected := 0
	for _, pod := range inputs(t) {
		before := patch.Clone(pod)
		for _, o := range []Options{plainOptions, {Image: "i", NoNativeSidecar: true}, {Image: "i", Identity: Identity{Secret: "s"}, Backend: "iptables-legacy"}} {
			r, err := Pod(pod, Namespace{Annotations: map[string]string{annotation.LogFormat: "json"}}, o)
			if _, refused := errors.AsType[*Problem](err); refused || r.Skipped != "" {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			injected++
			if diff := cmp.Diff(before, any(pod)); diff != "" {
				t.Fatalf("Pod changed what it was given:\n%s", diff)
			}
			after, err := patch.Apply(patch.Clone(pod), viaJSON(t, r.Patch))
			if err != nil {
				t.Fatal(err)
			}
			again, err := Pod(after.(map[string]any), Namespace{Annotations: map[string]string{annotation.LogFormat: "json"}}, o)
			if err != nil || len(again.Patch) > 0 || !again.Injected {
				t.Errorf("%v again: %v, %v", pod["metadata"], again, err)
			}
			back, err := patch.Apply(after, Remove(after.(map[string]any)))
			if err != nil {
				t.Fatal(err)
			}
			if !same(back, pod) {
				t.Errorf("taken out again:\n%s", cmp.Diff(any(pod), back))
			}
		}
	}
	if injected < 30 {
		t.Errorf("only %d pods were injected: this test looks at little", injected)
	}
}

// viaJSON sends a patch through its wire format.
func viaJSON(t *testing.T, ops []patch.Op) []patch.Op {
	t.Helper()
	raw, err := json.Marshal(ops)
	if err != nil {
		t.Fatal(err)
	}
	var out []patch.Op
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAnInjectionWithOtherOptionsReplacesTheOld(t *testing.T) {
	pod := object(t, small)
	first, err := Pod(pod, Namespace{}, Options{Image: "old", NoNativeSidecar: true, Identity: Identity{Secret: "s"}, Version: "0"})
	if err != nil {
		t.Fatal(err)
	}
	old, err := patch.Apply(patch.Clone(pod), first.Patch)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Pod(old.(map[string]any), Namespace{}, plainOptions)
	if err != nil {
		t.Fatal(err)
	}
	got, err := patch.Apply(old, second.Patch)
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := Pod(pod, Namespace{}, plainOptions)
	if err != nil {
		t.Fatal(err)
	}
	want, err := patch.Apply(patch.Clone(pod), fresh.Patch)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the old injection made is still there:\n%s", diff)
	}
}

func TestWhatAPersonAddedLaterStaysWhenTheInjectionIsTakenOut(t *testing.T) {
	pod := object(t, small)
	r, err := Pod(pod, Namespace{}, Options{Image: "i", Identity: Identity{Secret: "s"}})
	if err != nil {
		t.Fatal(err)
	}
	after, err := patch.Apply(patch.Clone(pod), r.Patch)
	if err != nil {
		t.Fatal(err)
	}
	m := after.(map[string]any)
	m["metadata"].(map[string]any)["annotations"].(map[string]any)["mine"] = "x"
	m["metadata"].(map[string]any)["labels"].(map[string]any)["mine"] = "x"
	m["spec"].(map[string]any)["volumes"] = append(m["spec"].(map[string]any)["volumes"].([]any), map[string]any{"name": "mine"})
	m["spec"].(map[string]any)["securityContext"].(map[string]any)["runAsUser"] = 1000.0
	got, err := patch.Apply(after, Remove(m))
	if err != nil {
		t.Fatal(err)
	}
	want := object(t, `{"metadata":{"name":"p","annotations":{"mine":"x"},"labels":{"mine":"x"}},
		"spec":{"containers":[{"name":"app","image":"a"}],"terminationGracePeriodSeconds":30,"volumes":[{"name":"mine"}],"securityContext":{"runAsUser":1000}}}`)
	if diff := cmp.Diff(any(want), got); diff != "" {
		t.Error(diff)
	}
}

func TestRemoveLeavesForeignPodsAlone(t *testing.T) {
	for _, text := range []string{
		small, `{}`, `{"spec":null}`, `{"spec":{"containers":"x","initContainers":[5]}}`,
		`{"metadata":{"annotations":{"linkerd.io/proxy-version":"edge"}},"spec":{"containers":[{"name":"linkerd-proxy"}],"initContainers":[{"name":"linkerd-init","args":["--ipv6=false"]}]}}`,
	} {
		if ops := Remove(object(t, text)); ops != nil {
			t.Errorf("%s: %v", text, ops)
		}
	}
}

func TestSecurityContextsAreAsStrictAsCanBe(t *testing.T) {
	pod := object(t, small)
	r, err := Pod(pod, Namespace{}, plainOptions)
	if err != nil {
		t.Fatal(err)
	}
	after, err := patch.Apply(pod, r.Patch)
	if err != nil {
		t.Fatal(err)
	}
	p, err := readPod(after)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"add [NET_ADMIN] user 65534", "add [] user 2102"} {
		s := p.Spec.InitContainers[i].SecurityContext
		if got := fmt.Sprintf("add %v user %d", s.Capabilities.Add, *s.RunAsUser); got != want {
			t.Errorf("container %d: %s, want %s", i, got, want)
		}
		strict := *s.RunAsNonRoot && *s.ReadOnlyRootFilesystem && !*s.AllowPrivilegeEscalation && s.Privileged == nil &&
			reflect.DeepEqual(fmt.Sprint(s.Capabilities.Drop), "[ALL]") && s.SeccompProfile.Type == "RuntimeDefault"
		if !strict {
			t.Errorf("container %d is less strict: %v", i, s)
		}
	}
	if v := p.Spec.AutomountServiceAccountToken; v != nil {
		t.Errorf("the service account's token is not ours to decide: %v", *v)
	}
}

func TestOptionsThatCannotBeAreRefused(t *testing.T) {
	for _, o := range []Options{
		{}, {Image: "i", Backend: "ebpf"}, {Image: "i", PullPolicy: "Sometimes"},
		{Image: "i", Identity: Identity{Secret: "a", CSI: SPIRECSI}}, {Image: "i", Identity: Identity{CSI: "ebs"}},
	} {
		if _, err := Manifests(nil, Source{}, o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

func TestLogLevelsOfLinkerdAreUnderstood(t *testing.T) {
	for in, want := range map[string]string{
		"warn": "warn", "INFO": "info", "warn,linkerd=info": "info", "linkerd=debug,warn": "debug", "trace": "debug", "off": "error",
		"hickory=error": "info", "warn,linkerd=info,hickory=error,[{headers}]=off": "info", "": "", "loud": "",
	} {
		got, err := logLevel(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
		}
	}
}

// TestGoldenAnnotations holds docs/annotations.md against the code.
func TestGoldenAnnotations(t *testing.T) {
	const file, head, tail = "../docs/annotations.md", "<!-- settings: written by `make golden` from package inject -->\n", "<!-- end of settings -->"
	doc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(doc), head)
	_, after, ok2 := strings.Cut(rest, tail)
	if !ok || !ok2 {
		t.Fatalf("%s has no table between %q and %q", file, head, tail)
	}
	var b strings.Builder
	b.WriteString("| annotation | value | effect |\n|---|---|---|\n")
	for _, s := range Settings() {
		value := "text"
		if k, ok := annotation.Find(s.FullKey()); ok {
			value = k.Type.String()
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s.Key, value, s.Effect)
	}
	want := before + head + b.String() + tail + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(doc)); diff != "" {
		t.Errorf("%s (make golden rewrites it):\n%s", file, diff)
	}
}

func TestEveryAnnotationOfACaseIsKnown(t *testing.T) {
	text, err := os.ReadFile("../testdata/inject/annotations.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range Settings() {
		if !regexp.MustCompile(`\n    ` + regexp.QuoteMeta(s.FullKey()) + `: `).Match(text) {
			t.Errorf("no case shows what %s does", s.FullKey())
		}
		if s.Effect == "" || s.set == nil {
			t.Errorf("%s has no effect", s.FullKey())
		}
	}
}
