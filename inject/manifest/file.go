// Package manifest reads files of Kubernetes objects, YAML or JSON, and changes
// objects in them without touching the rest of the text: comments, blank lines,
// the order of keys and fields that nobody here knows stay as they are. It knows
// nothing of what the objects mean.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"github.com/meshctl/meshctl/inject/patch"
	"github.com/meshctl/meshctl/internal/layout"
)

// File is a file's text, cut into documents.
type File struct {
	Name  string
	parts []part
}

// part is a document, or text between documents that stays as it is.
type part struct {
	between  []byte
	document *Document
}

// Document is one YAML document, or one JSON value.
type Document struct {
	file   string
	line   int // of its first line, from 1
	text   []byte
	json   bool
	object any          // decoded; nil if there is nothing
	nodes  *yamlv3.Node // of text, with their lines; nil until somebody asks
}

// Error is what is wrong with a file, with the place.
type Error struct {
	File string
	Line int // from 1; 0: no line is known
	Text string
}

// Error writes file:line: text.
func (e *Error) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Text)
	}
	return e.File + ": " + e.Text
}

// Parse reads a file. What is wrong with it is an *Error.
func Parse(name string, text []byte) (*File, error) {
	f := &File{Name: name}
	if rest, ok := bytes.CutPrefix(text, []byte("\uFEFF")); ok {
		f.parts = append(f.parts, part{between: text[:3]})
		text = rest
	}
	if isJSON(text) {
		if err := f.splitJSON(text); err == nil {
			return f, nil
		} else if _, flow := yaml.YAMLToJSON(text); flow != nil { // else: braces of YAML, which are less strict
			return nil, err
		}
		f.parts = nil
	}
	f.splitYAML(text)
	for _, p := range f.parts {
		if p.document != nil {
			if err := p.document.decode(); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

func isJSON(text []byte) bool {
	text = bytes.TrimLeft(text, " \t\r\n")
	return len(text) > 0 && (text[0] == '{' || text[0] == '[')
}

// splitJSON cuts values that follow each other.
func (f *File) splitJSON(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	at := 0
	for {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			f.parts = append(f.parts, part{between: text[at:]})
			return nil
		}
		if err != nil {
			end := int(dec.InputOffset())
			if wrong, ok := errors.AsType[*json.SyntaxError](err); ok {
				end = int(wrong.Offset)
			}
			return &Error{f.Name, lineAt(text, end), "no JSON: " + err.Error()}
		}
		end := int(dec.InputOffset())
		start := end - len(raw)
		d := &Document{file: f.Name, line: lineAt(text, start), text: text[start:end], json: true}
		if err := d.decode(); err != nil {
			return err
		}
		f.parts = append(f.parts, part{between: text[at:start]}, part{document: d})
		at = end
	}
}

func lineAt(text []byte, offset int) int {
	return 1 + bytes.Count(text[:min(max(offset, 0), len(text))], []byte("\n"))
}

// splitYAML cuts at document markers.
func (f *File) splitYAML(text []byte) {
	for _, p := range layout.Cut(text) {
		if p.Between {
			f.parts = append(f.parts, part{between: p.Text})
			continue
		}
		f.parts = append(f.parts, part{document: &Document{file: f.Name, line: p.Line, text: p.Text}})
	}
}

// decode reads the document as Kubernetes would: YAML 1.1's words for booleans,
// and in YAML no key twice.
func (d *Document) decode() error {
	raw, err := d.text, error(nil)
	if !d.json {
		raw, err = yaml.YAMLToJSONStrict(d.text)
	}
	if err == nil {
		d.object, err = patch.Decode(raw)
	}
	if err == nil {
		return nil
	}
	line := d.line
	text := strings.Join(strings.Fields(err.Error()), " ")
	lineNumber := regexp.MustCompile(`line (\d+): `) // here, because a proxy that links this never needs it
	if m := lineNumber.FindStringSubmatch(text); m != nil {
		n, _ := strconv.Atoi(m[1]) // digits, by the expression
		line += n - 1
	}
	for _, words := range []string{"error converting YAML to JSON: ", "yaml: ", "unmarshal errors: ", "json: "} {
		text = strings.ReplaceAll(text, words, "")
	}
	return &Error{d.file, line, lineNumber.ReplaceAllString(text, "")}
}

// Documents returns the file's documents, in order.
func (f *File) Documents() []*Document {
	var out []*Document
	for _, p := range f.parts {
		if p.document != nil {
			out = append(out, p.document)
		}
	}
	return out
}

// Bytes returns the file's text, with what was changed in its documents.
func (f *File) Bytes() []byte {
	var b bytes.Buffer
	for _, p := range f.parts {
		b.Write(p.between)
		if p.document != nil {
			b.Write(p.document.text)
		}
	}
	return b.Bytes()
}
