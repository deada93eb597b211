package manifest

import (
	"bytes"
	"errors"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/meshctl/meshctl/inject/patch"
	"github.com/meshctl/meshctl/internal/layout"
)

// rewrite does the operations on the parsed document and writes it anew:
// comments and the order of keys stay, blank lines and line lengths may not.
func rewrite(text []byte, ops []patch.Op) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil || len(root.Content) != 1 {
		return nil, errStyle
	}
	for _, op := range ops {
		if err := change(root.Content[0], op); err != nil {
			return nil, err
		}
	}
	var b bytes.Buffer
	if text[0] == '\n' || text[0] == '\r' {
		b.WriteByte('\n')
	}
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	enc.CompactSeqIndent()
	if err := enc.Encode(&root); err != nil {
		return nil, err
	}
	return b.Bytes(), enc.Close()
}

func change(n *yaml.Node, op patch.Op) error {
	steps := patch.Steps(op.Path)
	for _, s := range steps[:len(steps)-1] {
		if n.Kind == yaml.AliasNode {
			return errors.New("an alias on the way: a change would be made in two places")
		}
		if _, n = layout.Below(n, s); n == nil {
			return errStyle
		}
	}
	last := steps[len(steps)-1]
	var value yaml.Node
	if op.Op == "add" {
		if err := yaml.Unmarshal(op.Value, &value); err != nil {
			return err
		}
		plain(value.Content[0], n.Style&yaml.FlowStyle != 0)
	}
	switch n.Kind {
	case yaml.MappingNode:
		return changeKey(n, last, op.Op == "add", value.Content)
	case yaml.SequenceNode:
		i, err := patch.Index(last, len(n.Content))
		if err != nil {
			return err
		}
		if op.Op == "add" {
			n.Content = slices.Insert(n.Content, i, value.Content[0])
		} else {
			n.Content = slices.Delete(n.Content, i, i+1)
		}
		return nil
	}
	return errStyle
}

func changeKey(n *yaml.Node, key string, add bool, value []*yaml.Node) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != key {
			continue
		}
		if add {
			n.Content[i+1] = value[0]
		} else {
			n.Content = slices.Delete(n.Content, i, i+2)
		}
		return nil
	}
	if !add {
		return errStyle
	}
	name := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}
	n.Content = append(n.Content, name, value[0])
	return nil
}

// plain takes the braces and quotes of JSON away, quotes only where the string
// needs none.
func plain(n *yaml.Node, flow bool) {
	n.Style = 0
	if flow {
		n.Style = yaml.FlowStyle
	}
	if n.Kind == yaml.ScalarNode {
		n.Style = 0
		if n.Tag == "!!str" && scalar(n.Value) != n.Value {
			n.Style = yaml.DoubleQuotedStyle
		}
	}
	for _, c := range n.Content {
		plain(c, flow)
	}
}
