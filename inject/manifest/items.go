package manifest

import (
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/meshctl/meshctl/inject/patch"
	"github.com/meshctl/meshctl/internal/layout"
)

// A List may have a thousand items. Each operation parses the text that it
// changes, so a List is cut into its items first.

// byItem sorts operations by the item of a List that they are for; false if one
// is for something else. The paths begin inside the item.
func byItem(ops []patch.Op) (map[string][]patch.Op, bool) {
	out := map[string][]patch.Op{}
	for _, op := range ops {
		rest, ok := strings.CutPrefix(op.Path, "/items/")
		item, inside, more := strings.Cut(rest, "/")
		if !ok || !more {
			return nil, false
		}
		op.Path = "/" + inside
		out[item] = append(out[item], op)
	}
	return out, len(out) > 0
}

// spliceItems does operations on the items of a List in YAML.
func spliceItems(text []byte, items map[string][]patch.Op) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil || len(root.Content) != 1 {
		return nil, errStyle
	}
	b := newBlock(text)
	_, list := layout.Below(root.Content[0], "items")
	if list == nil || list.Kind != yaml.SequenceNode || list.Style&yaml.FlowStyle != 0 {
		return nil, errStyle
	}
	b.parent = list
	var out strings.Builder
	done := 0
	for i := range list.Content {
		from, err := b.dash(i)
		if err != nil || indent(b.lines[from]) != list.Column-1 {
			return nil, errStyle
		}
		to := b.end(from, list.Column, false)
		out.WriteString(strings.Join(b.lines[done:from], ""))
		item := []byte(strings.Join(b.lines[from:to], ""))
		for _, op := range items[fmt.Sprint(i)] {
			op.Path = "/0" + op.Path
			if item, err = spliceOne(item, op); err != nil {
				return nil, err
			}
		}
		out.Write(item)
		done = to
	}
	out.WriteString(strings.Join(b.lines[done:], ""))
	return []byte(out.String()), nil
}

// editItems does operations on the items of a List in JSON.
func editItems(raw json.RawMessage, items map[string][]patch.Op) (json.RawMessage, error) {
	keys, err := members(raw, false)
	if err != nil {
		return nil, err
	}
	for k := range keys {
		if string(keys[k].key) != `"items"` {
			continue
		}
		list, err := members(keys[k].value, true)
		if err != nil {
			return nil, err
		}
		for i := range list {
			for _, op := range items[fmt.Sprint(i)] {
				if list[i].value, err = editValue(list[i].value, patch.Steps(op.Path), op); err != nil {
					return nil, err
				}
			}
		}
		keys[k].value = join(list, true)
	}
	return join(keys, false), nil
}
