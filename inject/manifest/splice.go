package manifest

import (
	"bytes"
	"errors"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/meshctl/meshctl/inject/patch"
	"github.com/meshctl/meshctl/internal/layout"
)

// followers are the keys that stand behind a new key, if they are there: read from
// top to bottom it comes first.
var followers = map[string]string{"initContainers": "containers", "metadata": "spec"}

// errStyle is the error of text that is not written in lines of one key or item.
var errStyle = errors.New("not in block style")

// splice does each operation by putting lines into text or taking lines out.
func splice(text []byte, ops []patch.Op) ([]byte, error) {
	if oddLineEnds(text) {
		return nil, errStyle
	}
	if items, ok := byItem(ops); ok {
		return spliceItems(text, items)
	}
	for _, op := range ops {
		var err error
		if text, err = spliceOne(text, op); err != nil {
			return nil, err
		}
	}
	return text, nil
}

// oddLineEnds reports whether there are line ends that the YAML library counts
// (YAML 1.1, 4.2) and we do not: a carriage return alone, NEL, LS, PS.
func oddLineEnds(text []byte) bool {
	if bytes.ContainsAny(text, "\u0085\u2028\u2029") {
		return true
	}
	return bytes.Count(text, []byte("\r")) != bytes.Count(text, []byte("\r\n"))
}

// block is a document cut into lines, with the place where one operation works.
type block struct {
	lines   []string // with their ends
	newline string   // of this document
	step    int      // columns that a mapping is indented by
	compact bool     // lists begin at the column of their key
	parent  *yaml.Node
	key     *yaml.Node // of parent, in the mapping above it; nil in a list
}

func newBlock(text []byte) *block {
	b := &block{lines: strings.SplitAfter(string(text), "\n"), newline: "\n"}
	if n := len(b.lines); b.lines[n-1] == "" {
		b.lines = b.lines[:n-1]
	}
	if bytes.Contains(text, []byte("\r\n")) {
		b.newline = "\r\n"
	}
	return b
}

func spliceOne(text []byte, op patch.Op) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil || len(root.Content) != 1 {
		return nil, errStyle
	}
	b := newBlock(text)
	b.parent = root.Content[0]
	b.style(root.Content[0])
	steps := patch.Steps(op.Path)
	for _, s := range steps[:len(steps)-1] {
		start, value := layout.Below(b.parent, s)
		if value == nil || b.parent.Kind == yaml.AliasNode {
			return nil, errStyle
		}
		b.key = nil
		if start != value {
			b.key = start
		}
		b.parent = value
	}
	last := steps[len(steps)-1]
	if op.Op == "remove" {
		return b.remove(last)
	}
	var value yaml.Node
	if err := yaml.Unmarshal(op.Value, &value); err != nil {
		return nil, err
	}
	return b.add(last, value.Content[0])
}

// style looks how the document indents.
func (b *block) style(root *yaml.Node) {
	b.step, b.compact = 2, true
	seen, stepped := false, false
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		for i, c := range n.Content {
			if n.Kind == yaml.MappingNode && i%2 == 1 && c.Style&yaml.FlowStyle == 0 && len(c.Content) > 0 {
				by := c.Column - n.Column
				switch {
				case c.Kind == yaml.SequenceNode && !seen && by >= 0:
					b.compact, seen = by == 0, true
				case c.Kind == yaml.MappingNode && by > 0 && !stepped:
					b.step, stepped = by, true
				}
			}
			walk(c)
		}
	}
	walk(root)
}

func (b *block) add(step string, value *yaml.Node) ([]byte, error) {
	if len(b.parent.Content) == 0 {
		return b.fill(step, value)
	}
	if b.parent.Style&yaml.FlowStyle != 0 || b.parent.Kind == yaml.AliasNode {
		return nil, errStyle
	}
	column := b.parent.Column
	switch b.parent.Kind {
	case yaml.MappingNode:
		at := -1
		if next := followers[step]; next != "" {
			at = b.before(next)
		}
		start, old := layout.Below(b.parent, step)
		switch {
		case old != nil && (old.Tag != "!!null" || !b.alone(start)):
			return nil, errStyle
		case old != nil: // "key:" without anything
			at = start.Line - 1
			b.lines = append(b.lines[:at], b.lines[at+1:]...)
		case at < 0:
			at = b.end(b.last().Line-1, column, true)
		}
		return b.insert(at, b.entry(step, value, column)), nil
	case yaml.SequenceNode:
		i, err := patch.Index(step, len(b.parent.Content))
		if err != nil {
			return nil, err
		}
		at := 0
		if i == len(b.parent.Content) {
			if at, err = b.dash(i - 1); err != nil {
				return nil, err
			}
			at = b.end(at, column, false)
		} else {
			if at, err = b.dash(i); err != nil {
				return nil, err
			}
			at = b.aboveComments(at, column)
		}
		return b.insert(at, b.item(value, column)), nil
	}
	return nil, errStyle
}

// last is the key of the parent's last entry.
func (b *block) last() *yaml.Node { return b.parent.Content[len(b.parent.Content)-2] }

// alone reports whether a key begins its line.
func (b *block) alone(key *yaml.Node) bool {
	return indent(b.lines[key.Line-1]) == key.Column-1
}

// before is the line where an entry goes that has to stand above a key; -1 if
// there is no such place.
func (b *block) before(key string) int {
	start, value := layout.Below(b.parent, key)
	if value == nil || !b.alone(start) {
		return -1
	}
	return b.aboveComments(start.Line-1, b.parent.Column)
}

// aboveComments goes up over the comments that belong to a line. They stand at
// its own column, where no text of a scalar can be.
func (b *block) aboveComments(line, column int) int {
	for line > 0 && indent(b.lines[line-1]) == column-1 && strings.HasPrefix(b.lines[line-1][column-1:], "#") {
		line--
	}
	return line
}

// dash is the line where item i of the parent begins.
func (b *block) dash(i int) (int, error) {
	for at := b.parent.Content[i].Line - 1; at >= 0; at-- {
		if l := b.lines[at]; len(l) >= b.parent.Column && l[b.parent.Column-1] == '-' && (indent(l) == b.parent.Column-1 || i == 0) {
			return at, nil
		}
		if c := strings.TrimSpace(b.lines[at]); c != "" && c[0] != '#' && at < b.parent.Content[i].Line-1 {
			break
		}
	}
	return 0, errStyle
}

// end is the line behind an entry or item that begins at a line and column: the
// text below it is indented more, or is a list at a key's own column. Comments
// and empty lines at the end belong to what follows.
func (b *block) end(line, column int, key bool) int {
	end := line + 1
	for at := end; at < len(b.lines); at++ {
		l := b.lines[at]
		body := strings.TrimSpace(l)
		in := indent(l)
		switch {
		case body == "":
		case in >= column, key && in == column-1 && (body == "-" || strings.HasPrefix(body, "- ")):
			end = at + 1
		case body[0] == '#':
		default:
			return end
		}
	}
	return end
}

// insert puts new lines above line at.
func (b *block) insert(at int, added []string) []byte {
	for i := range added {
		added[i] += b.newline
	}
	if at == len(b.lines) && at > 0 && !strings.HasSuffix(b.lines[at-1], "\n") { // the file's last line has no end: nor will the new one
		b.lines[at-1] += b.newline
		added[len(added)-1] = strings.TrimSuffix(added[len(added)-1], b.newline)
	}
	out := append([]string{}, b.lines[:at]...)
	return []byte(strings.Join(append(append(out, added...), b.lines[at:]...), ""))
}

// fill gives a first child to what is empty: "key:", "key: {}" or "key: []".
func (b *block) fill(step string, value *yaml.Node) ([]byte, error) {
	if b.key == nil || !b.alone(b.key) || b.parent.Line != b.key.Line {
		return nil, errStyle
	}
	at := b.key.Line - 1
	line, tail := b.lines[at], b.parent.Column-1
	empty := "{}"
	if b.parent.Kind == yaml.SequenceNode {
		empty = "[]"
	}
	if b.parent.Kind == yaml.ScalarNode || !strings.HasPrefix(line[min(tail, len(line)):], empty) {
		return nil, errStyle
	}
	head := strings.TrimRight(line[:tail], " ")
	b.lines[at] = head + line[tail+2:]
	if b.parent.Kind == yaml.MappingNode {
		return b.insert(at+1, b.entry(step, value, b.key.Column+b.step)), nil
	}
	column := b.key.Column
	if !b.compact {
		column += b.step
	}
	return b.insert(at+1, b.item(value, column)), nil
}

func (b *block) remove(step string) ([]byte, error) {
	start, value := layout.Below(b.parent, step)
	if value == nil || b.parent.Style&yaml.FlowStyle != 0 || b.parent.Kind == yaml.AliasNode {
		return nil, errStyle
	}
	from, column := start.Line-1, b.parent.Column
	inList := b.parent.Kind == yaml.SequenceNode
	if inList {
		i, err := patch.Index(step, len(b.parent.Content))
		if err == nil {
			from, err = b.dash(i)
		}
		if err != nil {
			return nil, err
		}
	}
	if indent(b.lines[from]) != column-1 { // a list in a list, or the first key of an item
		return nil, errStyle
	}
	to := b.end(from, column, !inList)
	if children := len(b.parent.Content); inList && children == 1 || !inList && children == 2 {
		if err := b.leaveEmpty(inList); err != nil {
			return nil, err
		}
	}
	if to == len(b.lines) && from > 0 && !strings.HasSuffix(b.lines[to-1], "\n") {
		b.lines[from-1] = strings.TrimRight(b.lines[from-1], "\r\n")
	}
	return []byte(strings.Join(append(append([]string{}, b.lines[:from]...), b.lines[to:]...), "")), nil
}

// leaveEmpty writes that a list or mapping is empty whose only child goes.
func (b *block) leaveEmpty(list bool) error {
	if b.key == nil || !b.alone(b.key) {
		return errStyle
	}
	line := b.lines[b.key.Line-1]
	colon := strings.Index(line[b.key.Column-1:], ":") + b.key.Column
	if colon < b.key.Column {
		return errStyle
	}
	empty := " {}"
	if list {
		empty = " []"
	}
	b.lines[b.key.Line-1] = line[:colon] + empty + line[colon:]
	return nil
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
