package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/meshctl/meshctl/internal/layout"
)

// document is the text of one object, or of something that may be one, with its
// place in a file.
type document struct {
	file  string
	line  int    // of the first line of text
	text  []byte // YAML or JSON
	item  bool   // text is an item of a YAML sequence, with its "- "
	nodes lines  // of text, read when a line is asked for
}

// json returns the document as JSON. The error's line is that of the file.
func (d *document) json() ([]byte, error) {
	if isJSON(d.text) && json.Valid(d.text) {
		return d.text, nil
	}
	out, err := yaml.YAMLToJSONStrict(d.text)
	if err != nil {
		return nil, err
	}
	if d.item { // one item makes a sequence of one
		out = bytes.TrimSuffix(bytes.TrimPrefix(out, []byte("[")), []byte("]"))
	}
	return out, nil
}

func isJSON(text []byte) bool {
	text = bytes.TrimLeft(text, " \t\r\n\uFEFF")
	return len(text) > 0 && text[0] == '{'
}

// split cuts a file into documents, and a List into its items.
func split(file string, text []byte) ([]*document, error) {
	text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	if isJSON(text) {
		out, err := splitJSON(file, text)
		if err == nil || !flowStyle(text) {
			return out, err
		}
	}
	var out []*document
	for _, p := range layout.Cut(text) {
		if !p.Between {
			d := &document{file: file, line: p.Line, text: p.Text}
			out = append(out, d.items()...)
		}
	}
	return out, nil
}

// flowStyle reports whether what looks like JSON is YAML, whose braces are less
// strict.
func flowStyle(text []byte) bool {
	_, err := yaml.YAMLToJSON(text)
	return err == nil
}

// items cuts a List as kubectl writes it: "items:" at the beginning of a line,
// and items that all begin with the same indent and "- ". A List in another style
// stays whole.
func (d *document) items() []*document {
	lines := bytes.SplitAfter(d.text, []byte("\n"))
	at := -1
	for i, l := range lines {
		if bytes.HasPrefix(l, []byte("items:")) {
			if at >= 0 || len(bytes.TrimSpace(l)) != len("items:") {
				return []*document{d}
			}
			at = i
		}
	}
	if at < 0 || !listKind(lines) {
		return []*document{d}
	}
	var out []*document
	var prefix []byte
	i := at + 1
	for ; i < len(lines); i++ {
		l := lines[i]
		trimmed := bytes.TrimLeft(l, " ")
		indent := len(l) - len(trimmed)
		switch {
		case prefix == nil && len(bytes.TrimSpace(l)) > 0 && trimmed[0] != '#':
			if !bytes.HasPrefix(trimmed, []byte("- ")) {
				return []*document{d}
			}
			prefix = l[:indent+2]
			out = append(out, d.part(i))
		case prefix != nil && bytes.HasPrefix(l, prefix):
			out = append(out, d.part(i))
		case prefix != nil && indent < len(prefix)-1 && len(trimmed) > 0 && trimmed[0] != '\n' && trimmed[0] != '#' && trimmed[0] != '\r':
			return d.fill(out, lines, i) // the List's own fields follow
		}
	}
	return d.fill(out, lines, i)
}

// listKind reports whether the document's own kind is a List.
func listKind(lines [][]byte) bool {
	for _, l := range lines {
		if rest, ok := bytes.CutPrefix(l, []byte("kind:")); ok {
			return strings.HasSuffix(strings.Trim(string(bytes.TrimSpace(rest)), `"'`), "List")
		}
	}
	return false
}

// part is the item that begins at a line, counted from 0; fill gives it its text.
func (d *document) part(line int) *document {
	return &document{file: d.file, line: d.line + line, item: true}
}

func (d *document) fill(items []*document, lines [][]byte, end int) []*document {
	for i, it := range items {
		last := end
		if i+1 < len(items) {
			last = items[i+1].line - d.line
		}
		it.text = bytes.Join(lines[it.line-d.line:last], nil)
	}
	return items
}

// splitJSON cuts JSON values that follow each other, and a List into its items.
func splitJSON(file string, text []byte) ([]*document, error) {
	var out []*document
	dec := json.NewDecoder(bytes.NewReader(text))
	for {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return out, jsonError(text, err, dec.InputOffset())
		}
		start := int(dec.InputOffset()) - len(raw)
		items, err := itemsJSON(file, raw, 1+bytes.Count(text[:start], []byte("\n")))
		if err != nil {
			return out, err
		}
		out = append(out, items...)
	}
}

func itemsJSON(file string, raw []byte, line int) ([]*document, error) {
	whole := []*document{{file: file, line: line, text: raw}}
	var list struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if json.Unmarshal(raw, &list) != nil || !strings.HasSuffix(list.Kind, "List") {
		return whole, nil // what is wrong with it is said when it is decoded
	}
	var out []*document
	at := 0
	for _, it := range list.Items {
		// The items are cut from raw in order, byte for byte.
		i := bytes.Index(raw[at:], it)
		if i < 0 {
			return whole, nil
		}
		line += bytes.Count(raw[at:at+i], []byte("\n"))
		out = append(out, &document{file: file, line: line, text: it})
		line += bytes.Count(it, []byte("\n"))
		at += i + len(it)
	}
	return out, nil
}

// jsonError adds the line to a syntax error.
func jsonError(text []byte, err error, at int64) error {
	if wrong, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = wrong.Offset
	}
	at = min(max(at, 0), int64(len(text)))
	return fmt.Errorf("yaml: line %d: %w", 1+bytes.Count(text[:at], []byte("\n")), err)
}
