package manifest

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/meshctl/meshctl/inject/patch"
)

// editJSON does the operations on JSON. Keys keep their order and values their
// letters; white space is written as the text's second line is indented.
func editJSON(text []byte, ops []patch.Op) ([]byte, error) {
	raw := json.RawMessage(text)
	var err error
	if items, ok := byItem(ops); ok {
		if raw, err = editItems(raw, items); err != nil {
			return nil, err
		}
		ops = nil
	}
	for _, op := range ops {
		if raw, err = editValue(raw, patch.Steps(op.Path), op); err != nil {
			return nil, err
		}
	}
	var b bytes.Buffer
	_, rest, lines := bytes.Cut(text, []byte("\n"))
	if !lines {
		if err := json.Compact(&b, raw); err != nil {
			return nil, err
		}
		return b.Bytes(), nil
	}
	by := string(rest[:len(rest)-len(bytes.TrimLeft(rest, " \t"))])
	if err := json.Indent(&b, raw, "", by); err != nil {
		return nil, err
	}
	if bytes.Contains(text, []byte("\r\n")) {
		return bytes.ReplaceAll(b.Bytes(), []byte("\n"), []byte("\r\n")), nil
	}
	return b.Bytes(), nil
}

// member is a key with its value, or an item of a list, whose key is empty.
type member struct{ key, value json.RawMessage }

func editValue(raw json.RawMessage, steps []string, op patch.Op) (json.RawMessage, error) {
	list := bytes.HasPrefix(bytes.TrimSpace(raw), []byte("["))
	all, err := members(raw, list)
	if err != nil {
		return nil, err
	}
	at, found := len(all), false
	if list {
		if at, err = patch.Index(steps[0], len(all)); err != nil {
			return nil, err
		}
		found = at < len(all) && (len(steps) > 1 || op.Op == "remove")
	} else {
		for i, m := range all {
			var key string
			if json.Unmarshal(m.key, &key) == nil && key == steps[0] {
				at, found = i, true
			}
		}
	}
	switch {
	case len(steps) > 1 && found:
		if all[at].value, err = editValue(all[at].value, steps[1:], op); err != nil {
			return nil, err
		}
	case len(steps) > 1 || op.Op == "remove" && !found:
		return nil, errStyle
	case op.Op == "remove":
		all = slices.Delete(all, at, at+1)
	case found:
		all[at].value = op.Value
	default:
		m := member{value: op.Value}
		if !list {
			if m.key, err = json.Marshal(steps[0]); err != nil {
				return nil, err
			}
			if i := slices.IndexFunc(all, func(m member) bool { return string(m.key) == `"`+followers[steps[0]]+`"` }); i >= 0 {
				at = i
			}
		}
		all = slices.Insert(all, at, m)
	}
	return join(all, list), nil
}

// members cuts an object or a list, without looking into its values.
func members(raw json.RawMessage, list bool) ([]member, error) {
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') && t != json.Delim('[') {
		return nil, errStyle
	}
	var out []member
	for dec.More() {
		var m member
		if !list {
			before := dec.InputOffset()
			if _, err := dec.Token(); err != nil {
				return nil, err
			}
			m.key = bytes.TrimLeft(raw[before:dec.InputOffset()], ", \t\r\n")
		}
		if err := dec.Decode(&m.value); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

func join(all []member, list bool) json.RawMessage {
	var b bytes.Buffer
	opening, closing := byte('{'), byte('}')
	if list {
		opening, closing = '[', ']'
	}
	b.WriteByte(opening)
	for i, m := range all {
		if i > 0 {
			b.WriteByte(',')
		}
		if !list {
			b.Write(m.key)
			b.WriteByte(':')
		}
		b.Write(m.value)
	}
	b.WriteByte(closing)
	return b.Bytes()
}
