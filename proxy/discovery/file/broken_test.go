package file

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestABrokenFileIsToldWithFileLineObjectAndField has one file for each way to
// be broken. A problem without "warning" breaks the load. For a bad
// indent the line is where the block begins, as the YAML library tells it.
func TestABrokenFileIsToldWithFileLineObjectAndField(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"a bad indent", "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n namespace: b\n", []string{
			"x.yaml:4: did not find expected key [syntax]",
		}},
		{"a tab", "apiVersion: v1\nkind: Service\nmetadata:\n\tname: a\n", []string{
			"x.yaml:4: found character that cannot start any token [syntax]",
		}},
		{"a bad indent in the second document", "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n---\napiVersion: v1\nkind: Service\nmetadata:\n  name: a\n b: c\n", []string{
			"x.yaml:10: did not find expected key [syntax]",
		}},
		{"a key twice", "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  name: b\n", []string{
			`x.yaml:5: key "name" already set in map [syntax]`,
		}},
		{"no object", "just: text\n", []string{
			"x.yaml:1: no Kubernetes object: it has no apiVersion or no kind [syntax]",
		}},
		{"a scalar", "hello\n", []string{
			"x.yaml:1: a string where a mapping is wanted [field-type]",
		}},
		{"no name", "apiVersion: v1\nkind: Service\nmetadata: {}\n", []string{
			"x.yaml:1: Service : metadata.name: an object has to have a name [bad-value]",
		}},
		{"a text for a port", service("    - port: http\n"), []string{
			"x.yaml:9: Service shop/a: spec.ports[0].port: a string where a whole number is wanted [field-type]",
		}},
		{"a broken number for a port", service("    - port: 80\n    - port: 80.5\n"), []string{
			"x.yaml:10: Service shop/a: spec.ports[1].port: the number 80.5 where a whole number is wanted [field-type]",
		}},
		{"a mapping for a list", "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\nspec:\n  ports:\n    port: 80\n", []string{
			"x.yaml:6: Service shop/a: spec.ports: a mapping where a list is wanted [field-type]",
		}},
		{"port 0", service("    - name: x\n      port: 0\n"), []string{
			"x.yaml:10: Service shop/a: spec.ports[0].port: 0 is no port [bad-value]",
		}},
		{"port 70000", service("    - port: 70000\n"), []string{
			"x.yaml:9: Service shop/a: spec.ports[0].port: 70000 is no port [bad-value]",
		}},
		{"an address that is none", "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\nspec:\n  clusterIPs:\n  - 10.0.0.1\n  - 10.0.0.256\n", []string{
			`x.yaml:8: Service shop/a: spec.clusterIPs[1]: "10.0.0.256" is no address [bad-value]`,
		}},
		{"an item of a list", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata:\n    name: a\n- apiVersion: v1\n  kind: Service\n  metadata:\n    name: b\n    namespace: c\n  spec:\n    clusterIPs:\n    - x\n", []string{
			`x.yaml:15: Service c/b: spec.clusterIPs[0]: "x" is no address [bad-value]`,
		}},
		{"a policy that is none", egress("  trafficPolicy: Denied\n"), []string{
			`x.yaml:7: EgressNetwork shop/e: spec.trafficPolicy: "Denied": want Allow or Deny [bad-value]`,
		}},
		{"a subnet that is none", egress("  trafficPolicy: Allow\n  networks:\n  - cidr: 10.0.0.0/8\n    except:\n    - 10.0.0.0\n"), []string{
			`x.yaml:11: EgressNetwork shop/e: spec.networks[0].except[0]: "10.0.0.0" is no subnet [bad-value]`,
		}},
		{"a route that asks for a mirror", httpRoute("  - filters:\n    - type: RequestMirror\n      requestMirror:\n        backendRef:\n          name: m\n          port: 80\n"), []string{
			"x.yaml:14: HTTPRoute shop/r: spec.rules[0].filters[0].type: \"RequestMirror\" is not supported [unsupported]",
		}},
		{"a misspelt field", service("    - port: 80\n      appProtokol: http\n"), []string{
			"warning x.yaml:10: Service shop/a: spec.ports[0].appProtokol: no such field [unknown-field]",
			"warning x.yaml:1: Service shop/a: no EndpointSlice of it is here: connections to it have nowhere to go [no-endpoint-slices]",
		}},
		{"a misspelt annotation", "apiVersion: v1\nkind: Namespace\nmetadata:\n  annotations:\n    config.linkerd.io/opauqe-ports: \"25\"\n  name: a\n", []string{
			`warning x.yaml:5: Namespace a: metadata.annotations["config.linkerd.io/opauqe-ports"]: did you mean config.linkerd.io/opaque-ports? [misspelt-annotation]`,
		}},
		{"an annotation with a wrong value", "apiVersion: v1\nkind: Namespace\nmetadata:\n  annotations:\n    config.linkerd.io/opaque-ports: \"25,70000\"\n  name: a\n", []string{
			`warning x.yaml:5: Namespace a: metadata.annotations["config.linkerd.io/opaque-ports"]: port list: item 2 "70000": ports end at 65535: it counts as not there [bad-annotation]`,
		}},
		{"two of a name", "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n", []string{
			"warning x.yaml:6: Namespace a: it is there twice: the one at x.yaml:1 does not count [twice]",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, report := inDir(t, tt.text)
			var got []string
			for _, p := range report.Problems {
				line := p.Error()
				if !p.Breaks() {
					line = "warning " + line
				}
				got = append(got, baseNames(line))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			breaks := slices.ContainsFunc(tt.want, func(s string) bool { return !strings.HasPrefix(s, "warning") })
			if report.Broken() != breaks || (report.Err() != nil) != breaks {
				t.Errorf("broken: %t, err: %v", report.Broken(), report.Err())
			}
		})
	}
}

// baseNames leaves the directories out of places.
func baseNames(line string) string {
	if i := strings.Index(line, "/x.yaml"); i >= 0 {
		start := strings.LastIndexAny(line[:i], " ") + 1
		return line[:start] + line[i+1:]
	}
	return line
}

func service(ports string) string {
	return "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  namespace: shop\nspec:\n  clusterIP: 10.0.0.1\n  ports:\n" + ports
}

func egress(spec string) string {
	return "apiVersion: policy.linkerd.io/v1alpha1\nkind: EgressNetwork\nmetadata:\n  name: e\n  namespace: shop\nspec:\n" + spec
}

func httpRoute(rules string) string {
	return "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata:\n  name: r\n  namespace: shop\nspec:\n  parentRefs:\n  - group: \"\"\n    kind: Service\n    name: web\n    port: 80\n  rules:\n" + rules
}

func TestFormsThatMeanTheSameAreReadAlike(t *testing.T) {
	block := "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata:\n    annotations:\n      config.linkerd.io/opaque-ports: \"7\"\n    name: a\n- apiVersion: v1\n  kind: Namespace\n  metadata:\n    name: b\n"
	for name, text := range map[string]string{
		"a list":                    block,
		"a list, indented":          "apiVersion: v1\nitems:\n  - apiVersion: v1\n    kind: Namespace\n    metadata: {name: a, annotations: {config.linkerd.io/opaque-ports: \"7\"}}\n  # between\n  - apiVersion: v1\n    kind: Namespace\n    metadata: {name: b}\nkind: List\n",
		"a list in flow style":      "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Namespace, metadata: {name: a, annotations: {config.linkerd.io/opaque-ports: '7'}}}, {apiVersion: v1, kind: Namespace, metadata: {name: b}}]}\n",
		"a typed list":              "apiVersion: v1\nkind: NamespaceList\nitems: [{metadata: {name: a, annotations: {config.linkerd.io/opaque-ports: '7'}}}, {metadata: {name: b}}]\n",
		"documents":                 "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  annotations: {config.linkerd.io/opaque-ports: '7'}\n  name: a\n--- # the next\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: b\n...\n---\n# nothing\n---\n",
		"Windows' line ends":        strings.ReplaceAll(block, "\n", "\r\n"),
		"a byte order mark":         "\uFEFF" + block,
		"JSON":                      `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a","annotations":{"config.linkerd.io/opaque-ports":"7"}}},{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"b"}}]}`,
		"JSON one after the other":  "{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":\"a\",\"annotations\":{\"config.linkerd.io/opaque-ports\":\"7\"}}}\n{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":\"b\"}}\n",
		"a block with dashes in it": strings.Replace(block, "    name: b\n", "    name: b\n    annotations:\n      note: |\n        - apiVersion: v1\n        --- \n        items:\n", 1),
	} {
		t.Run(name, func(t *testing.T) {
			_, report := inDir(t, text)
			if len(report.Problems) > 0 || report.Objects != 2 {
				t.Errorf("%d objects, problems %v", report.Objects, report.Problems)
			}
		})
	}
}

func TestJSONThatIsBrokenIsToldItsLine(t *testing.T) {
	name := write(t, filepath.Join(t.TempDir(), "a.json"), "{\n \"apiVersion\": \"v1\",\n \"kind\" \"Service\"\n}\n")
	_, report := NewReader(Config{Paths: []string{name}}).Load()
	if len(report.Problems) != 1 || report.Problems[0].Object.Line != 3 || report.Problems[0].Code != Syntax {
		t.Errorf("problems %v", report.Problems)
	}
}

func TestOnlyFilesOfADirectoryThatAreMeantAreRead(t *testing.T) {
	dir := t.TempDir()
	const one = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: "
	write(t, filepath.Join(dir, "a.yaml"), one+"a\n")
	write(t, filepath.Join(dir, "b.yml"), one+"b\n")
	write(t, filepath.Join(dir, "c.json"), `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"c"}}`)
	write(t, filepath.Join(dir, "README.md"), "not: [this")
	write(t, filepath.Join(dir, ".d.yaml.swp"), "not: [this")
	write(t, filepath.Join(dir, ".e.yaml"), "not: [this")
	if err := os.Mkdir(filepath.Join(dir, "below.yaml"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "below.yaml", "f.yaml"), "not: [this")
	_, report := NewReader(Config{Paths: []string{dir, filepath.Join(dir, "a.yaml")}}).Load()
	if report.Files != 3 || report.Objects != 3 || len(report.Problems) > 0 {
		t.Errorf("%+v", report)
	}
}

func TestAPathThatIsNotThereBreaksTheLoad(t *testing.T) {
	_, report := NewReader(Config{Paths: []string{"/nonexistent/x"}}).Load()
	if err := report.Err(); err == nil || err.Error() != "/nonexistent/x: no such file or directory [unreadable]" {
		t.Errorf("err %v", err)
	}
}

func FuzzReadNeverPanics(f *testing.F) {
	for _, name := range []string{"shop.yaml", "spaces.yaml", "routes.yaml", "services.json"} {
		text, err := os.ReadFile(kube + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text[:min(len(text), 800)]) // the fuzzer takes long to make long inputs short
	}
	f.Add([]byte("kind: List\nitems:\n- a\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c := read("x", text, "default")
		for _, p := range c.problems {
			if p.Text == "" || p.Object.File != "x" {
				t.Errorf("a problem without text or file: %+v", p)
			}
		}
	})
}
