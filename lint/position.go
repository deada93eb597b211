package lint

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// place returns line and column of a field below n: "spec.ports[1].port", a key
// with dots in it as `metadata.annotations["a.b/c"]`. Of a field that is not there
// it is the place of the nearest one above.
func place(n *yaml.Node, field string) (line, column int) {
	line, column = n.Line, n.Column
	for _, step := range steps(field) {
		key, value := entry(n, step)
		if value == nil {
			break
		}
		n, line, column = value, key.Line, key.Column
	}
	return line, column
}

// child is the value of a key of a mapping; nil if there is none.
func child(n *yaml.Node, name string) *yaml.Node {
	_, value := entry(n, name)
	return value
}

// entry is the key and the value one step below n; an item of a sequence is both.
func entry(n *yaml.Node, step string) (key, value *yaml.Node) {
	if n == nil {
		return nil, nil
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i], n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i]
		}
	}
	return nil, nil
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

// annotationField is the path of an annotation; of is the path of the object that
// has the metadata, "" for the whole object.
func annotationField(of, key string) string {
	return join(of, `metadata.annotations["`+key+`"]`)
}

// join puts a field below a path.
func join(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}
