package file

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// lines finds the line of a field. The text is parsed for it only when somebody
// asks, because most objects are never asked about.
type lines struct {
	root *yaml.Node
	read bool
}

// lineOf returns the line of a field in the file: "spec.ports[1].port", a key
// with dots in it as `metadata.annotations["a.b/c"]`. It is that of the nearest
// field above where there is no such field.
func (d *document) lineOf(field string) int {
	if d.file == "" {
		return 0 // it came from no file
	}
	if !d.nodes.read {
		d.nodes.read = true
		var n yaml.Node
		if yaml.Unmarshal(d.text, &n) == nil && len(n.Content) == 1 {
			d.nodes.root = n.Content[0]
			if d.item && len(d.nodes.root.Content) == 1 {
				d.nodes.root = d.nodes.root.Content[0]
			}
		}
	}
	n, line := d.nodes.root, 1
	for _, step := range steps(field) {
		if n == nil {
			break
		}
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		n, line = child(n, step, line)
	}
	return d.line + line - 1
}

// child is the node one step below n, and its line.
func child(n *yaml.Node, step string, line int) (*yaml.Node, int) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i+1], n.Content[i].Line
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i].Line
		}
	}
	return nil, line
}

// steps cuts a field's path.
func steps(field string) []string {
	var out []string
	for field != "" {
		switch {
		case field[0] == '.':
			field = field[1:]
		case strings.HasPrefix(field, `["`):
			key, rest, _ := strings.Cut(field[2:], `"]`)
			out, field = append(out, key), rest
		case field[0] == '[':
			index, rest, _ := strings.Cut(field[1:], "]")
			out, field = append(out, index), rest
		default:
			n := strings.IndexAny(field, ".[")
			if n < 0 {
				n = len(field)
			}
			out, field = append(out, field[:n]), field[n:]
		}
	}
	return out
}

// annotationField is the path of an annotation.
func annotationField(key string) string { return `metadata.annotations["` + key + `"]` }
