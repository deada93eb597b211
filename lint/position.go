package lint

import (
	"go.yaml.in/yaml/v3"

	"github.com/meshctl/meshctl/internal/layout"
)

// place returns line and column of a field below n: "spec.ports[1].port", a key
// with dots in it as `metadata.annotations["a.b/c"]`. Of a field that is not there
// it is the place of the nearest one above.
func place(n *yaml.Node, field string) (line, column int) {
	at := layout.Find(n, layout.Steps(field))
	return at.Line, at.Column
}

// child is the value of a key of a mapping; nil if there is none.
func child(n *yaml.Node, name string) *yaml.Node {
	_, value := layout.Below(n, name)
	return value
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
