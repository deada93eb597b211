package inject

import (
	"fmt"
	"slices"
	"strings"

	"github.com/meshctl/meshctl/inject/patch"
)

// RecordKey is the annotation in which an injection writes what it made besides
// containers and volumes, so that Remove takes away that and nothing else. Its
// value is a comma list of lists and mappings that were not there, and of keys.
const RecordKey = "meshctl.io/injected"

const (
	versionKey       = "linkerd.io/proxy-version"
	defaultContainer = "kubectl.kubernetes.io/default-container"
)

func annotationPointer(k string) string { return patch.Pointer("metadata", "annotations", k) }

// Remove returns the operations that take an injection out of a pod, or of a
// workload's template; none if there is nothing of ours in it.
func Remove(pod map[string]any) []patch.Op {
	spec, _ := pod["spec"].(map[string]any)
	meta, _ := pod["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	value, recorded := annotations[RecordKey].(string)
	r := remover{record: strings.Split(value, ",")}
	found := r.items(spec, "initContainers", ours)
	found = r.items(spec, "containers", ours) || found
	if !found && !recorded {
		return nil
	}
	r.items(spec, "volumes", func(v map[string]any) bool { name, _ := v["name"].(string); return ownVolume(name) })
	if r.made("fsGroup") {
		r.keys(spec, "spec", "securityContext", "fsGroup")
	}
	if _, named := meta["name"]; r.made("metadata") && !named && len(meta) <= 2 { // annotations and labels
		r.ops = append(r.ops, patch.Remove("metadata"))
		return r.ops
	}
	if r.made("label") {
		r.keys(meta, "metadata", "labels", controlPlaneLabel)
	}
	keys := []string{RecordKey}
	if recorded {
		keys = append(keys, versionKey)
	}
	for _, word := range r.record {
		if word == "default-container" {
			keys = append(keys, defaultContainer)
		}
		if strings.Contains(word, "/") {
			keys = append(keys, word)
		}
	}
	r.keys(meta, "metadata", "annotations", keys...)
	return r.ops
}

// remover collects the operations.
type remover struct {
	record []string
	ops    []patch.Op
}

func (r *remover) made(word string) bool { return slices.Contains(r.record, word) }

// items takes those items of a list in spec that are ours, and the list if it
// was made for them.
func (r *remover) items(spec map[string]any, list string, own func(map[string]any) bool) bool {
	items, _ := spec[list].([]any)
	var at []int
	for i, item := range items {
		if m, ok := item.(map[string]any); ok && own(m) {
			at = append(at, i)
		}
	}
	if len(at) > 0 && len(at) == len(items) && r.made(list) {
		r.ops = append(r.ops, patch.Remove("spec", list))
		return true
	}
	for _, i := range slices.Backward(at) {
		r.ops = append(r.ops, patch.Remove("spec", list, fmt.Sprint(i)))
	}
	return len(at) > 0
}

// keys takes keys of the mapping at parent/name, and the mapping if it was made
// for them.
func (r *remover) keys(above map[string]any, parent, name string, keys ...string) {
	m, _ := above[name].(map[string]any)
	var there []string
	for _, k := range keys {
		if _, ok := m[k]; ok {
			there = append(there, k)
		}
	}
	if len(there) > 0 && len(there) == len(m) && r.made(name) {
		r.ops = append(r.ops, patch.Remove(parent, name))
		return
	}
	for _, k := range there {
		r.ops = append(r.ops, patch.Remove(parent, name, k))
	}
}
