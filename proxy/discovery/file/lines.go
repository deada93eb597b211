package file

import (
	"go.yaml.in/yaml/v3"

	"github.com/meshctl/meshctl/internal/layout"
)

// lines finds the line of a field. The text is parsed for it only when somebody
// asks, because most objects are never asked about.
type lines struct {
	root *yaml.Node
	read bool
}

// lineOf returns the line of a field in the file: "spec.ports[1].port", a key
// with dots in it as `metadata.annotations["a.b/c"]`. It is that of the nearest
// field above where there is no such field.
func (d *document) lineOf(field string) int {
	if d.file == "" {
		return 0 // it came from no file
	}
	if !d.nodes.read {
		d.nodes.read = true
		var n yaml.Node
		if yaml.Unmarshal(d.text, &n) == nil && len(n.Content) == 1 {
			d.nodes.root = n.Content[0]
			if d.item && len(d.nodes.root.Content) == 1 {
				d.nodes.root = d.nodes.root.Content[0]
			}
		}
	}
	if d.nodes.root == nil {
		return d.line
	}
	return d.line + layout.Find(d.nodes.root, layout.Steps(field)).Line - 1
}

// annotationField is the path of an annotation.
func annotationField(key string) string { return `metadata.annotations["` + key + `"]` }
