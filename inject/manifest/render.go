package manifest

import (
	"encoding/json"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// entry writes "key: value" at a column, counted from 1, as lines without ends.
func (b *block) entry(key string, value *yaml.Node, column int) []string {
	pad := strings.Repeat(" ", column-1)
	head := pad + scalar(key) + ":"
	switch {
	case value.Kind == yaml.ScalarNode || len(value.Content) == 0 || words(value):
		return []string{head + " " + inline(value)}
	case value.Kind == yaml.SequenceNode && b.compact:
		return append([]string{head}, b.children(value, column)...)
	default:
		return append([]string{head}, b.children(value, column+b.step)...)
	}
}

// item writes "- value".
func (b *block) item(value *yaml.Node, column int) []string {
	pad := strings.Repeat(" ", column-1)
	if value.Kind == yaml.ScalarNode || len(value.Content) == 0 {
		return []string{pad + "- " + inline(value)}
	}
	lines := b.children(value, column+2)
	lines[0] = pad + "- " + lines[0][column+1:]
	return lines
}

// children writes what is in a list or mapping, each at a column.
func (b *block) children(value *yaml.Node, column int) []string {
	var out []string
	if value.Kind == yaml.SequenceNode {
		for _, c := range value.Content {
			out = append(out, b.item(c, column)...)
		}
		return out
	}
	for i := 0; i+1 < len(value.Content); i += 2 {
		out = append(out, b.entry(value.Content[i].Value, value.Content[i+1], column)...)
	}
	return out
}

// words reports whether a list is short, and of plain words: [NET_ADMIN].
func words(n *yaml.Node) bool {
	size := 0
	for _, c := range n.Content {
		if c.Kind != yaml.ScalarNode || scalar(c.Value) != c.Value {
			return false
		}
		size += len(c.Value)
	}
	return n.Kind == yaml.SequenceNode && len(n.Content) <= 2 && size < 24
}

func inline(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.SequenceNode:
		items := make([]string, len(n.Content))
		for i, c := range n.Content {
			items[i] = inline(c)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case n.Kind == yaml.MappingNode:
		return "{}"
	case n.Tag == "!!str":
		return scalar(n.Value)
	}
	return n.Value // a number, true, false
}

// scalar writes a string plainly where no version of YAML takes it for anything
// else, else in double quotes as JSON does.
func scalar(s string) string {
	plain := s != "" && len(s) < 80 && !slices.Contains([]string{"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"}, strings.ToLower(s))
	for i := 0; i < len(s) && plain; i++ {
		c := s[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		switch {
		case letter, c == '/':
		case i > 0 && (c >= '0' && c <= '9' || strings.IndexByte("-_.$()", c) >= 0):
		case i > 1 && c == '=' && s[0] == '-': // --flag=value
		case i == 0 && c == '-' && strings.HasPrefix(s, "--") && len(s) > 2:
		case i > 0 && c == ':' && i+1 < len(s) && s[i+1] != ' ' && strings.Contains(s, "/"): // an image with its tag
		default:
			plain = false
		}
	}
	if plain {
		return s
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string is always JSON
	return strings.TrimSuffix(b.String(), "\n")
}
