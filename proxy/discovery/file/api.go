package file

import (
	"maps"
	"slices"
	"strings"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
)

// This file reads objects that come from an API server instead of a file, so that
// both are read by the same code.

// Kinds are the objects that mean something, as group/kind, sorted.
func Kinds() []string {
	return slices.Sorted(maps.Keys((&reader{}).kinds()))
}

// Between are the problems that the objects of a picture have with each other.
func Between(s *cluster.Snapshot) []Problem { return between(s) }

// Object reads one object of a kind that Kinds has. given is a pointer to its
// authors' type, which is copied and not kept, or its JSON as []byte. There may be
// no object in what comes back: not all that can be written means something.
func Object(kind, namespace, name string, given any) (cluster.Objects, []Problem) {
	c := &content{}
	group, bare, _ := strings.Cut(kind, "/")
	r := reader{content: c, doc: &document{}, group: group, object: discovery.Object{Kind: bare, Namespace: namespace, Name: name}}
	raw, isJSON := given.([]byte)
	if !isJSON {
		r.given = given
	}
	if read := r.kinds()[kind]; read != nil {
		read(raw)
	}
	return c.objects, c.problems
}
