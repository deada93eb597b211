// Package patch holds changes to a JSON object in the form of RFC 6902: the
// operations add and remove, which are what an injection needs. It changes
// decoded objects; package manifest does the same to the text of files.
package patch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Op is one operation. Its JSON is that of RFC 6902, as admission webhooks
// answer with it.
type Op struct {
	Op    string          `json:"op"` // "add" or "remove"
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// Add returns the operation that puts value at a path made of steps; "-" after
// a list's name is the place behind its last item. A key that is there is
// replaced, an item is moved up.
func Add(value any, steps ...string) (Op, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return Op{}, fmt.Errorf("the value of %s: %w", Pointer(steps...), err)
	}
	return Op{"add", Pointer(steps...), raw}, nil
}

// Remove returns the operation that takes away what is at a path.
func Remove(steps ...string) Op { return Op{Op: "remove", Path: Pointer(steps...)} }

var escape = strings.NewReplacer("~", "~0", "/", "~1")

// Pointer writes a path as RFC 6901 does.
func Pointer(steps ...string) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteByte('/')
		b.WriteString(escape.Replace(s))
	}
	return b.String()
}

// Steps cuts a JSON pointer into its keys and indexes.
func Steps(pointer string) []string {
	if pointer == "" {
		return nil
	}
	out := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, s := range out {
		out[i] = strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
	}
	return out
}

// Under returns ops for the object that holds, at prefix, the one that ops are for.
func Under(prefix string, ops []Op) []Op {
	out := slices.Clone(ops)
	for i := range out {
		out[i].Path = prefix + out[i].Path
	}
	return out
}

// Apply changes a decoded object, made of map[string]any and []any, and returns
// it. The object given may have been changed too, also when there is an error,
// which names the operation.
func Apply(object any, ops []Op) (any, error) {
	for i, op := range ops {
		var err error
		if object, err = apply(object, Steps(op.Path), op); err != nil {
			return nil, fmt.Errorf("operation %d, %s %s: %w", i, op.Op, op.Path, err)
		}
	}
	return object, nil
}

func apply(at any, steps []string, op Op) (any, error) {
	if len(steps) == 0 {
		return nil, fmt.Errorf("the whole object is not ours to change")
	}
	switch at := at.(type) {
	case map[string]any:
		return at, applyKey(at, steps, op)
	case []any:
		return applyItem(at, steps, op)
	}
	return nil, fmt.Errorf("nothing can be in a %T", at)
}

func applyKey(at map[string]any, steps []string, op Op) error {
	below, there := at[steps[0]]
	switch {
	case len(steps) > 1:
		if !there {
			return fmt.Errorf("no %q", steps[0])
		}
		changed, err := apply(below, steps[1:], op)
		if err != nil {
			return err
		}
		at[steps[0]] = changed
	case op.Op == "add":
		value, err := op.decoded()
		if err != nil {
			return err
		}
		at[steps[0]] = value
	case !there:
		return fmt.Errorf("no %q", steps[0])
	default:
		delete(at, steps[0])
	}
	return nil
}

func applyItem(at []any, steps []string, op Op) (any, error) {
	i, err := Index(steps[0], len(at))
	if err != nil {
		return nil, err
	}
	if len(steps) == 1 && op.Op == "add" {
		value, err := op.decoded()
		if err != nil {
			return nil, err
		}
		return slices.Insert(at, i, value), nil
	}
	if i == len(at) {
		return nil, fmt.Errorf("no item %s", steps[0])
	}
	if len(steps) == 1 {
		return slices.Delete(at, i, i+1), nil
	}
	at[i], err = apply(at[i], steps[1:], op)
	return at, err
}

// Index reads the step below a list of n items; n itself is the place behind them.
func Index(step string, n int) (int, error) {
	if step == "-" {
		return n, nil
	}
	i, err := strconv.Atoi(step)
	if err != nil || i < 0 || i > n {
		return 0, fmt.Errorf("no item %s", step)
	}
	return i, nil
}

// Clone copies a decoded object, so that Apply leaves the original alone.
func Clone(object any) any {
	switch o := object.(type) {
	case map[string]any:
		out := make(map[string]any, len(o))
		for k, v := range o {
			out[k] = Clone(v)
		}
		return out
	case []any:
		out := make([]any, len(o))
		for i, v := range o {
			out[i] = Clone(v)
		}
		return out
	}
	return object
}

// decoded is the value as Decode gives it.
func (op Op) decoded() (any, error) { return Decode(op.Value) }

// Decode reads JSON into map[string]any, []any, and json.Number, which keeps
// every digit.
func Decode(raw []byte) (any, error) {
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		return nil, err
	}
	return value, nil
}
