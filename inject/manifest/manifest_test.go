package manifest

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/inject/patch"
)

// parsed is the first document of a text.
func parsed(t *testing.T, text string) (*File, *Document) {
	t.Helper()
	f, err := Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	docs := f.Documents()
	if len(docs) == 0 {
		t.Fatal("no document")
	}
	return f, docs[0]
}

func op(kind, path, value string) patch.Op {
	o := patch.Op{Op: kind, Path: path}
	if value != "" {
		o.Value = []byte(value)
	}
	return o
}

func TestAChangeLeavesTheRestOfTheTextAlone(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		op         patch.Op
		want       string
	}{
		{"first key of an empty mapping", "a: {} # c\nb: 1\n", op("add", "/a/x", `"yy"`), "a: # c\n  x: yy\nb: 1\n"},
		{"key of nothing", "a:\nb: 1\n", op("add", "/a", `{"x":"1"}`), "a:\n  x: \"1\"\nb: 1\n"},
		{"first item of an empty list", "a: []\nb: 1\n", op("add", "/a/-", `{"x":"yes"}`), "a:\n- x: \"yes\"\nb: 1\n"},
		{"key at the end, before comments and lines of what follows", "a:\n  b: 1\n\n  # tail\nc: 2\n", op("add", "/a/d", `3`), "a:\n  b: 1\n  d: 3\n\n  # tail\nc: 2\n"},
		{"behind a block scalar", "a:\n  b: |\n    # text\n\n    more\nc: 2\n", op("add", "/a/d", `3`), "a:\n  b: |\n    # text\n\n    more\n  d: 3\nc: 2\n"},
		{"behind a list at its key's column", "a:\n  l:\n  - 1\n  - 2\nc: 2\n", op("add", "/a/d", `3`), "a:\n  l:\n  - 1\n  - 2\n  d: 3\nc: 2\n"},
		{"item before a comment of the first", "l:\n# one\n- a: 1\n", op("add", "/l/0", `{"b":2,"c":[3]}`), "l:\n- b: 2\n  c:\n  - 3\n# one\n- a: 1\n"},
		{"item at the end of an indented list", "l:\n   - a: 1\n\nk: v\n", op("add", "/l/-", `{"b":2}`), "l:\n   - a: 1\n   - b: 2\n\nk: v\n"},
		{"item of a List in a List", "l:\n- - 1\n  - 2\n", op("add", "/l/0/-", `3`), "l:\n- - 1\n  - 2\n  - 3\n"},
		{"above containers and their comment", "s:\n  a: 1\n  # app\n  containers:\n  - m: 1\n", op("add", "/s/initContainers", `[{"m":2}]`), "s:\n  a: 1\n  initContainers:\n  - m: 2\n  # app\n  containers:\n  - m: 1\n"},
		{"line ends of Windows", "a:\r\n  b: 1\r\n", op("add", "/a/c", `"d"`), "a:\r\n  b: 1\r\n  c: d\r\n"},
		{"no line end at the end", "a:\n  b: 1", op("add", "/a/c", `2`), "a:\n  b: 1\n  c: 2"},
		{"last line, without an end", "a:\n  b: 1\n  c: 2", op("remove", "/a/c", ""), "a:\n  b: 1"},
		{"the only key", "a:\n  b: 1 # gone\nc: 2\n", op("remove", "/a/b", ""), "a: {}\nc: 2\n"},
		{"the only item", "a:\n- b: 1\n  d: 2\nc: 2\n", op("remove", "/a/0", ""), "a: []\nc: 2\n"},
		{"a key with a list", "a:\n  l:\n  - 1\n  m: 2\n", op("remove", "/a/l", ""), "a:\n  m: 2\n"},
		{"a key in quotes, with slashes", "a:\n  \"x/y\": 1\n  z: 2\n", op("remove", "/a/x~1y", ""), "a:\n  z: 2\n"},
		{"wide indents", "a:\n    b:\n        c: 1\n", op("add", "/a/d", `{"e":{"f":1}}`), "a:\n    b:\n        c: 1\n    d:\n        e:\n            f: 1\n"},
		{"YAML in braces is written anew", "a: {b: 1, c: [x]} # why\n", op("add", "/a/d", `{"e":"f"}`), "a: {b: 1, c: [x], d: {e: f}} # why\n"},
		{"JSON keeps order, letters and indent", "{\n    \"z\": 1.50,\n    \"a\": \"<\\u00e9\"\n}\n", op("add", "/n", `{"m":[]}`), "{\n    \"z\": 1.50,\n    \"a\": \"<\\u00e9\",\n    \"n\": {\n        \"m\": []\n    }\n}\n"},
		{"JSON in one line", `{"a":[1,2]}`, op("add", "/a/1", `5`), `{"a":[1,5,2]}`},
		{"an item of a List", "kind: List\nitems:\n- kind: Pod\n  a: 1\n# two\n- kind: Pod\n  a: 2\nmore: 1\n", op("add", "/items/1/b", `3`), "kind: List\nitems:\n- kind: Pod\n  a: 1\n# two\n- kind: Pod\n  a: 2\n  b: 3\nmore: 1\n"},
		{"an item of a JSON List", `{"kind":"List","items":[{"a":1},{"a":2}]}`, op("add", "/items/1/b", `3`), `{"kind":"List","items":[{"a":1},{"a":2,"b":3}]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, d := parsed(t, tt.text)
			if err := d.Apply([]patch.Op{tt.op}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(f.Bytes())); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTextThatWouldSaySomethingElseIsRefused(t *testing.T) {
	_, d := parsed(t, "a: &x\n  b: 1\nc: *x\n")
	err := d.Apply([]patch.Op{op("add", "/c/d", `1`)})
	if err == nil || !strings.Contains(err.Error(), "f.yaml:1: cannot be changed as text: write it without anchors") {
		t.Errorf("%v: want a refusal: the change would be made in two places", err)
	}
}

func TestDocumentsAreCutAtTheirMarkers(t *testing.T) {
	text := "\uFEFF# head\n--- # first\na: 1\n---\n\n# nothing\n--- {b: 2}\n---\nc: |\n  ---x\n   --- \n...\n%YAML 1.2\n---\nd: 4"
	f, err := Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(f.Bytes()); got != text {
		t.Errorf("written as %q, want what was read", got)
	}
	var got []string
	for _, d := range f.Documents() {
		got = append(got, fmt.Sprintf("%d:%v", d.line, d.object))
	}
	want := []string{"3:map[a:1]", "7:map[b:2]", "9:map[c:---x\n --- \n]", "15:map[d:4]"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestABrokenFileIsNamedWithItsLine(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\n---\nb: 1\nb: 2\n":    `f:4: key "b" already set in map`,
		"a: 1\n---\nb:\n\t- x\n":     "f:4: found character that cannot start any token",
		"{\n \"a\": 1,\n \"b\" 2}\n": "f:3: no JSON: invalid character '2' after object key",
	} {
		_, err := Parse("f", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestObjectsAreFoundInLists(t *testing.T) {
	_, d := parsed(t, `
apiVersion: v1
kind: PodList
items:
- metadata: {name: a, namespace: ns}
- apiVersion: v1
  kind: List
  items:
  - kind: Service
    metadata:
      generateName: s-
- 5
`)
	var got []string
	for _, o := range d.Objects() {
		got = append(got, fmt.Sprintf("%s %s line %d", o, o.Pointer, o.Line("/metadata/nothing")))
	}
	want := []string{"Pod ns/a /items/0 line 5", "Service s- /items/1/items/0 line 10"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestScalarsThatYAMLMayMistakeAreQuoted(t *testing.T) {
	for _, s := range []string{"", "yes", "No", "on", "y", "null", "true", "1", "1e3", "0x1", "-", "- a", "a: b", "a #b", "#", "*a", "&a", "!t", "%d", "@x", "`", "[a", "a,b", "a\nb", "é", ".5", "~", "--- a", "1:30", "=", "a:", "--"} {
		if scalar(s) == s {
			t.Errorf("%q stands without quotes", s)
		}
	}
	for _, s := range []string{"RuntimeDefault", "--rules-only", "--skip-outbound-ports=3306", "localhost/meshctl:dev", "config.linkerd.io/x", "$(POD_NAME)", "--a=/b.c/d"} {
		if got := scalar(s); strings.HasPrefix(s, "$") == (got == s) {
			t.Errorf("%q is written %s", s, got)
		}
	}
}

// FuzzApply makes sure that whatever comes out says what was wanted: Apply reads
// it back, so this looks for crashes and for text that is changed elsewhere.
func FuzzApply(f *testing.F) {
	f.Add("a:\n  b: 1\n", "x")
	f.Add("a: {b: 1}\n", "y")
	f.Add("{\"a\":{\"b\":[1]}}", "z")
	f.Add("a:\n# c\n  b:\n  - 1\n\n\n", "k/~")
	f.Fuzz(func(t *testing.T, text, key string) {
		file, err := Parse("f", []byte(text))
		if err != nil {
			return
		}
		if got := string(file.Bytes()); got != text {
			t.Fatalf("read %q, written %q", text, got)
		}
		for _, d := range file.Documents() {
			m, ok := d.object.(map[string]any)
			if a, inside := m["a"].(map[string]any); !ok || !inside || a[key] != nil {
				continue
			}
			if d.Apply([]patch.Op{{Op: "add", Path: patch.Pointer("a", key), Value: []byte(`{"q":["v"]}`)}}) != nil {
				continue
			}
			if err := d.Apply([]patch.Op{patch.Remove("a", key)}); err != nil {
				t.Fatalf("%q: what was put in does not come out: %v", text, err)
			}
		}
	})
}
