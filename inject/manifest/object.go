package manifest

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/meshctl/meshctl/inject/patch"
	"github.com/meshctl/meshctl/internal/layout"
)

// Object is one Kubernetes object of a document: the document itself, or an item
// of a List.
type Object struct {
	Document   *Document
	Pointer    string // of the object in its document; "" for the whole
	APIVersion string
	Kind       string
	Namespace  string // "" if it does not say
	Name       string
	Value      map[string]any // decoded; a change of it changes no text
}

// String names the object as kubectl does: "Deployment shop/web".
func (o Object) String() string {
	name := o.Name
	if o.Namespace != "" {
		name = o.Namespace + "/" + name
	}
	return strings.TrimSpace(o.Kind + " " + name)
}

// File returns the name of the object's file.
func (o Object) File() string { return o.Document.file }

// Line returns the line in the file of what is at pointer inside the object, or
// of the nearest thing above it that is there.
func (o Object) Line(pointer string) int { return o.Document.lineOf(o.Pointer + pointer) }

// Objects returns the objects of a document; Lists of Lists too. What is no
// object at all is left out.
func (d *Document) Objects() []Object {
	if d.object == nil {
		return nil
	}
	return d.objects(d.object, "", "", "")
}

func (d *Document) objects(value any, pointer, apiVersion, kind string) []Object {
	m, ok := value.(map[string]any)
	if !ok {
		return nil
	}
	o := Object{Document: d, Pointer: pointer, APIVersion: text(m["apiVersion"]), Kind: text(m["kind"]), Value: m}
	if o.Kind == "" { // as the API server lists one kind
		o.APIVersion, o.Kind = apiVersion, kind
	}
	if items, list := m["items"].([]any); list && strings.HasSuffix(o.Kind, "List") {
		var out []Object
		for i, item := range items {
			out = append(out, d.objects(item, pointer+"/items/"+strconv.Itoa(i), o.APIVersion, strings.TrimSuffix(o.Kind, "List"))...)
		}
		return out
	}
	if meta, ok := m["metadata"].(map[string]any); ok {
		o.Name, o.Namespace = text(meta["name"]), text(meta["namespace"])
		if o.Name == "" {
			o.Name = text(meta["generateName"])
		}
	}
	return []Object{o}
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// lineOf finds a line by parsing again, once.
func (d *Document) lineOf(pointer string) int {
	if d.nodes == nil {
		d.nodes = &yaml.Node{}
		if yaml.Unmarshal(d.text, d.nodes) != nil {
			d.nodes = &yaml.Node{}
		}
	}
	if len(d.nodes.Content) != 1 {
		return d.line
	}
	return d.line + layout.Find(d.nodes.Content[0], patch.Steps(pointer)).Line - 1
}
