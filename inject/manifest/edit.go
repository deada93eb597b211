package manifest

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/meshctl/meshctl/inject/patch"
)

// Apply changes the document's text, and the objects that Objects returns from
// then on. Lines are put in and taken out where that can be done; where it
// cannot (YAML in braces) the document is written anew, with its comments. The
// text is read back and compared with the operations done on the object: an
// *Error tells of a document where both ways fail.
func (d *Document) Apply(ops []patch.Op) error {
	if len(ops) == 0 {
		return nil
	}
	want, err := patch.Apply(patch.Clone(d.object), ops)
	if err != nil {
		return &Error{d.file, d.line, err.Error()}
	}
	ways := []func([]byte, []patch.Op) ([]byte, error){splice, rewrite}
	if d.json {
		ways = []func([]byte, []patch.Op) ([]byte, error){editJSON}
	}
	var failed error
	for _, way := range ways {
		text, err := way(d.text, ops)
		if err == nil {
			if text, err = d.readBack(text, want); err == nil {
				d.text, d.object, d.nodes = text, want, nil
				return nil
			}
		}
		failed = errors.Join(failed, err)
	}
	return &Error{d.file, d.line, fmt.Sprintf("cannot be changed as text: write it without anchors and aliases, or as JSON: %v", failed)}
}

// readBack makes sure that text says what is wanted.
func (d *Document) readBack(text []byte, want any) ([]byte, error) {
	again := &Document{file: d.file, line: d.line, text: text, json: d.json}
	if err := again.decode(); err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(again.object, want) {
		return nil, errors.New("the text would say something else than the change")
	}
	return text, nil
}
