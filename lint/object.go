package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"
)

// Object is a Kubernetes object with the place where it was read.
type Object struct {
	Group, Kind, Namespace, Name string
	File                         string // empty: from a cluster
	Labels, Annotations          map[string]string

	node   *yaml.Node // its mapping
	json   []byte
	owners []owner
}

// String names the object: Deployment shop/web.
func (o *Object) String() string {
	if o.Namespace == "" {
		return strings.TrimSpace(o.Kind + " " + o.Name)
	}
	return fmt.Sprintf("%s %s/%s", o.Kind, o.Namespace, o.Name)
}

// clusterWide are the kinds without a namespace that matter here.
func clusterWide(kind string) bool {
	switch kind {
	case "Namespace", "Node", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "PersistentVolume", "StorageClass":
		return true
	}
	return false
}

// Parse reads the objects of a file: YAML documents or JSON values, and the items
// of Lists. file is what findings call it; namespace is that of objects without
// one. What cannot be read is a finding, and the rest of the file still counts
// up to a syntax error.
func Parse(file string, text []byte, namespace string) ([]*Object, []Finding) {
	p := parser{file: file, namespace: namespace}
	text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	if json.Valid(text) { // YAML allows no tabs between tokens; in JSON there are none elsewhere
		text = bytes.ReplaceAll(text, []byte("\t"), []byte(" "))
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return p.objects, p.findings
		}
		if err != nil {
			p.unreadable(lineIn(err), 1, "", plain(err), "")
			return p.objects, p.findings
		}
		if len(doc.Content) == 1 && doc.Content[0].Tag != "!!null" {
			p.value(doc.Content[0], "")
		}
	}
}

type parser struct {
	file, namespace string
	objects         []*Object
	findings        []Finding
}

func (p *parser) unreadable(line, column int, object, text, fix string) {
	r := ruleOf(Unreadable)
	f := Finding{Code: r.Code, Name: r.Name, Severity: r.Severity, Object: object, File: p.file, Text: text, Fix: fix}
	if p.file != "" { // lines of what a cluster sends mean nothing to anybody
		f.Line, f.Column = max(line, 1), column
	}
	p.findings = append(p.findings, f)
}

// head is what all objects have.
type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name         string            `json:"name"`
		GenerateName string            `json:"generateName"`
		Namespace    string            `json:"namespace"`
		Labels       map[string]string `json:"labels"`
		Annotations  map[string]string `json:"annotations"`
		Owners       []owner           `json:"ownerReferences"`
	} `json:"metadata"`
}

// owner is what made an object, in the same namespace.
type owner struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// value reads an object, or a List of them. of is the apiVersion and kind of the
// items of a list whose items do not say it.
func (p *parser) value(n *yaml.Node, of string) {
	if n.Kind != yaml.MappingNode {
		p.unreadable(n.Line, n.Column, "", "no Kubernetes object: not a mapping", "")
		return
	}
	var any any
	err := n.Decode(&any)
	raw, jsonErr := json.Marshal(any)
	if err = errors.Join(err, jsonErr); err != nil {
		p.unreadable(max(lineIn(err), n.Line), n.Column, "", plain(err), "")
		return
	}
	var h head
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &h); err != nil {
		p.wrongType(n, h, err)
		return
	}
	if h.Kind == "" && of != "" {
		h.APIVersion, h.Kind, _ = strings.Cut(of, " ")
	}
	if items := child(n, "items"); items != nil && items.Kind == yaml.SequenceNode && strings.HasSuffix(h.Kind, "List") {
		each := ""
		if h.Kind != "List" {
			each = h.APIVersion + " " + strings.TrimSuffix(h.Kind, "List")
		}
		for _, item := range items.Content {
			p.value(item, each)
		}
		return
	}
	if h.Kind == "" || h.APIVersion == "" {
		p.unreadable(n.Line, n.Column, "", "no Kubernetes object: it has no apiVersion or no kind", "")
		return
	}
	o := &Object{Kind: h.Kind, Name: h.Metadata.Name, Namespace: h.Metadata.Namespace, File: p.file, Labels: h.Metadata.Labels, Annotations: h.Metadata.Annotations, node: n, json: raw, owners: h.Metadata.Owners}
	if group, _, ok := strings.Cut(h.APIVersion, "/"); ok {
		o.Group = group
	}
	if o.Name == "" {
		o.Name = h.Metadata.GenerateName
	}
	switch {
	case clusterWide(o.Kind):
		o.Namespace = ""
	case o.Namespace == "":
		o.Namespace = p.namespace
	}
	p.objects = append(p.objects, o)
}

// wrongType makes a finding of an object whose head cannot be read.
func (p *parser) wrongType(n *yaml.Node, h head, err error) {
	field, text, fix := explain(n, err)
	line, column := place(n, field)
	if field != "" {
		text = field + ": " + text
	}
	p.unreadable(line, column, strings.TrimSpace(h.Kind+" "+h.Metadata.Name), text, fix)
}

// explain says which field has the wrong type, such as an annotation that is no
// string.
func explain(n *yaml.Node, err error) (field, text, fix string) {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return "", plain(err), ""
	}
	field, text = wrong.Field, fmt.Sprintf("%s where %s is wanted", withArticle(wrong.Value), withArticle(wrong.Type.String()))
	if wrong.Type.Kind() == reflect.String {
		fix = "put the value in quotes"
	}
	if field == "metadata.annotations" || field == "metadata.labels" {
		values := child(child(n, "metadata"), strings.TrimPrefix(field, "metadata."))
		for i := 0; values != nil && i+1 < len(values.Content); i += 2 {
			if values.Content[i+1].Tag != "!!str" {
				return field + `["` + values.Content[i].Value + `"]`, text, fix
			}
		}
	}
	return field, text, fix
}

// into decodes the object.
func (o *Object) into(to any) error {
	return kjson.UnmarshalCaseSensitivePreserveInts(o.json, to)
}

// lineIn is the line that the YAML library's error speaks of; 0 if none.
func lineIn(err error) int {
	if m := regexp.MustCompile(`line (\d+)`).FindStringSubmatch(err.Error()); m != nil {
		n, _ := strconv.Atoi(m[1]) // digits, by the expression
		return n
	}
	return 0
}

// plain is an error in one line, without the library's words and its line.
func plain(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	for _, words := range []string{"yaml: ", "unmarshal errors: ", "json: "} {
		text = strings.ReplaceAll(text, words, "")
	}
	return regexp.MustCompile(`line \d+: `).ReplaceAllString(text, "")
}

// withArticle is the name of a type in a sentence.
func withArticle(name string) string {
	if strings.ContainsAny(name[:1], "aio") {
		return "an " + name
	}
	return "a " + name
}
