package layout

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Steps cuts the path of a field: spec.ports[1].port, a key with dots in it as
// metadata.annotations["a.b/c"].
func Steps(field string) []string {
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

// Below returns what is at a step under n, and where it begins: its key, or itself
// in a sequence. Both are nil if there is nothing, or n is nil.
func Below(n *yaml.Node, step string) (start, value *yaml.Node) {
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

// Find returns where a field below n begins; where there is no such field, where
// the nearest one above it does. n is not nil.
func Find(n *yaml.Node, steps []string) *yaml.Node {
	at := n
	for _, step := range steps {
		start, value := Below(n, step)
		if value == nil {
			break
		}
		at, n = start, value
	}
	return at
}
