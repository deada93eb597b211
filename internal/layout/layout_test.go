package layout

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

func TestDocumentsAreCutAtMarkersAtTheBeginningOfALine(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"a: 1\n", "1 a: 1\n"},
		{"a: 1", "1 a: 1"},
		{"# only a comment\n", "1 -# only a comment\n"},
		{"a: 1\n---\nb: 2\n", "1 a: 1\n|2 ----\n|3 b: 2\n"},
		{"---\r\na: 1\r\n", "1 ----\r\n|2 a: 1\r\n"},
		{"a: 1\n...\n---\nb: 2\n", "1 a: 1\n|2 -...\n|3 ----\n|4 b: 2\n"},
		{"--- # a comment\na: 1\n", "1 ---- # a comment\n|2 a: 1\n"},
		{"a: 1\n--- {b: 2}\n", "1 a: 1\n|2 ----|2  {b: 2}\n"},
		{"%YAML 1.2\n---\na: 1\n", "1 -%YAML 1.2\n|2 ----\n|3 a: 1\n"},
		{"a: |\n  ---\n  b\n----\n", "1 a: |\n  ---\n  b\n----\n"},
		{"---", "1 ----"},
	} {
		var got []string
		var whole []byte
		for _, p := range Cut([]byte(c.text)) {
			between := ""
			if p.Between {
				between = "-"
			}
			got = append(got, fmt.Sprintf("%d %s%s", p.Line, between, p.Text))
			whole = append(whole, p.Text...)
		}
		if diff := cmp.Diff(c.want, strings.Join(got, "|")); diff != "" {
			t.Errorf("%q: -want +got:\n%s", c.text, diff)
		}
		if !bytes.Equal(whole, []byte(c.text)) {
			t.Errorf("%q: the parts together are %q", c.text, whole)
		}
	}
}

func TestAFieldIsWhereItsKeyIs(t *testing.T) {
	const text = `metadata:
  annotations:
    a.b/c: x
    d: &port
      number: 1
spec:
  ports:
  - name: first
  -   name: second
      port: *port
`
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(text), &n); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]string{
		"":                                "1:1",
		"metadata":                        "1:1",
		`metadata.annotations["a.b/c"]`:   "3:5",
		`metadata.annotations["missing"]`: "2:3",
		"spec.ports[1]":                   "9:7",
		"spec.ports[1].port":              "10:7",
		"spec.ports[1].port.number":       "5:7",
		"spec.ports[2].port":              "7:3",
		"spec.ports[-1]":                  "7:3",
		"spec.ports[x]":                   "7:3",
		"metadata.annotations.d.number.y": "5:7",
		"nothing":                         "1:1",
	} {
		at := Find(n.Content[0], Steps(field))
		if got := fmt.Sprintf("%d:%d", at.Line, at.Column); got != want {
			t.Errorf("%q is at %s, want %s", field, got, want)
		}
	}
	if start, value := Below(nil, "x"); start != nil || value != nil {
		t.Error("there is something below nothing")
	}
}
