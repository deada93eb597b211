package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
)

// content is what was found in one file.
type content struct {
	objects  cluster.Objects
	problems []Problem
	skipped  map[string]int // kinds that mean nothing here
}

// read decodes a whole file. namespace is that of objects without one.
func read(file string, text []byte, namespace string) *content {
	c := &content{skipped: map[string]int{}}
	docs, err := split(file, text)
	if err != nil {
		c.problem(Syntax, discovery.Object{File: file, Line: lineIn(err)}, "", plain(err))
	}
	for _, d := range docs {
		r := reader{content: c, doc: d, namespace: namespace}
		r.document()
	}
	slices.SortStableFunc(c.problems, func(a, b Problem) int { return a.Object.Line - b.Object.Line })
	return c
}

func (c *content) problem(code Code, at discovery.Object, field, text string) {
	c.problems = append(c.problems, Problem{Code: code, Object: at, Field: field, Text: text})
}

// reader reads the objects of one document.
type reader struct {
	*content
	doc       *document
	object    discovery.Object
	group     string // of the object
	namespace string
	given     any // the object in the type of its authors, where nothing has to be decoded
}

// typed is the head that all objects have.
type typed struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

func (r *reader) document() {
	r.object = discovery.Object{File: r.doc.file, Line: r.doc.line}
	raw, err := r.doc.json()
	if err != nil {
		at := r.object
		if n := lineIn(err); n > 0 {
			at.Line = r.doc.line + n - 1
		}
		r.problem(Syntax, at, "", plain(err))
		return
	}
	if bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		return
	}
	var head typed
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &head); err != nil {
		r.typeError(raw, err)
		return
	}
	if strings.HasSuffix(head.Kind, "List") && head.Items != nil {
		r.list(head)
		return
	}
	r.one(head, raw)
}

// list reads a List that could not be cut up: its items have no lines of their own.
func (r *reader) list(head typed) {
	for _, raw := range head.Items {
		var item typed
		if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &item); err != nil {
			r.typeError(raw, err)
			continue
		}
		if item.Kind == "" { // as the API server lists one kind
			item.Kind, item.APIVersion = strings.TrimSuffix(head.Kind, "List"), head.APIVersion
		}
		r.one(item, raw)
	}
}

// one reads an object.
func (r *reader) one(head typed, raw []byte) {
	r.object = discovery.Object{Kind: head.Kind, Namespace: head.Metadata.Namespace, Name: head.Metadata.Name, File: r.doc.file, Line: r.doc.line}
	if head.Kind == "" || head.APIVersion == "" {
		r.object.Kind = ""
		r.problem(Syntax, r.object, "", "no Kubernetes object: it has no apiVersion or no kind")
		return
	}
	group, _, grouped := strings.Cut(head.APIVersion, "/")
	if !grouped {
		group = ""
	}
	r.group = group
	read := r.kinds()[group+"/"+head.Kind]
	if read == nil {
		r.skipped[head.APIVersion+" "+head.Kind]++
		return
	}
	if r.object.Name == "" {
		r.problem(BadValue, r.object, "metadata.name", "an object has to have a name")
		return
	}
	if r.object.Namespace == "" && head.Kind != "Namespace" {
		r.object.Namespace = r.namespace
	}
	read(raw)
}

// into decodes raw into the type of its authors; false: it says why it is wrong.
// A field that the type does not have is a warning only: it may be of a later
// version.
func (r *reader) into(raw []byte, to any) bool {
	if r.given != nil {
		reflect.ValueOf(to).Elem().Set(reflect.ValueOf(r.given).Elem())
		return true
	}
	unknown, err := kjson.UnmarshalStrict(raw, to)
	if err != nil {
		r.typeError(raw, err)
		return false
	}
	for _, u := range unknown {
		field := ""
		if m := quotedField.FindStringSubmatch(u.Error()); m != nil {
			field = m[1]
		}
		r.problem(UnknownField, r.object.At(r.doc.lineOf(field)), field, "no such field")
	}
	return true
}

var (
	quotedField = regexp.MustCompile(`field "([^"]+)"`)
	lineNumber  = regexp.MustCompile(`line (\d+): `)
)

// typeError says which field has the wrong type.
func (r *reader) typeError(raw []byte, err error) {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		r.problem(FieldType, r.object, "", plain(err))
		return
	}
	field := pathAt(raw, wrong.Offset)
	r.problem(FieldType, r.object.At(r.doc.lineOf(field)), field, fmt.Sprintf("%s where %s is wanted", withArticle(wrong.Value), kindOf(wrong)))
}

// kindOf is what a field should have been, in words.
func kindOf(e *json.UnmarshalTypeError) string {
	switch k := e.Type.Kind().String(); {
	case strings.HasPrefix(k, "int"), strings.HasPrefix(k, "uint"):
		return "a whole number"
	case k == "slice", k == "array":
		return "a list"
	case k == "map", k == "struct", k == "ptr":
		return "a mapping"
	case k == "bool":
		return "true or false"
	default:
		return "a " + k
	}
}

func withArticle(value string) string {
	switch {
	case strings.HasPrefix(value, "number "):
		return "the " + value
	case value == "array":
		return "a list"
	case value == "object":
		return "a mapping"
	}
	return "a " + value
}

// pathAt is the path of the value that ends, or begins, at an offset of JSON.
func pathAt(raw []byte, offset int64) string {
	dec := json.NewDecoder(bytes.NewReader(raw))
	var walk func(path string) (string, bool)
	walk = func(path string) (string, bool) {
		tok, err := dec.Token()
		if err != nil {
			return path, true
		}
		if dec.InputOffset() >= offset {
			return path, true
		}
		switch tok {
		case json.Delim('{'):
			for dec.More() {
				key, err := dec.Token()
				name, ok := key.(string)
				if err != nil || !ok {
					return path, true
				}
				below := path + "." + name
				if strings.ContainsAny(name, "./[") {
					below = path + `["` + name + `"]`
				}
				if found, done := walk(strings.TrimPrefix(below, ".")); done {
					return found, true
				}
			}
			_, _ = dec.Token()
		case json.Delim('['):
			for i := 0; dec.More(); i++ {
				if found, done := walk(path + "[" + strconv.Itoa(i) + "]"); done {
					return found, true
				}
			}
			_, _ = dec.Token()
		}
		return "", false
	}
	found, _ := walk("")
	return found
}

// lineIn is the line that an error of the YAML library speaks of, 0 if none.
func lineIn(err error) int {
	if m := lineNumber.FindStringSubmatch(err.Error()); m != nil {
		n, _ := strconv.Atoi(m[1]) // digits, by the expression
		return n
	}
	return 0
}

// plain is an error's text in one line, without the words of the libraries
// around it and without their line, which is not that of the file.
func plain(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	for _, words := range []string{"error converting YAML to JSON: ", "yaml: ", "unmarshal errors: ", "json: "} {
		text = strings.ReplaceAll(text, words, "")
	}
	return lineNumber.ReplaceAllString(text, "")
}
