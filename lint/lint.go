// Package lint finds mistakes in Kubernetes objects that a mesh makes costly:
// annotations that nobody reads, ports that two objects declare differently,
// policies that close the proxy's port. It takes objects and gives findings; it
// reads no file and no cluster, and changes nothing.
package lint

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/meshctl/meshctl/internal/ports"
)

// Severity is how bad a finding is. The zero value means "not said".
type Severity uint8

// The severities, in the words of SARIF.
const (
	Unsaid  Severity = iota
	Note             // good to know: nothing is wrong
	Warning          // something does not have the effect it seems to have
	Error            // something will not work
)

// String returns the word of a severity.
func (s Severity) String() string {
	switch s {
	case Note:
		return "note"
	case Warning:
		return "warning"
	case Error:
		return "error"
	default:
		return "unsaid"
	}
}

// MarshalText is String, for JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is one mistake, at its place.
type Finding struct {
	Code     Code     `json:"code"`
	Name     string   `json:"name"` // of the code, in words: misspelt-annotation
	Severity Severity `json:"severity"`
	Object   string   `json:"object,omitempty"` // Deployment shop/web
	File     string   `json:"file,omitempty"`   // empty: it is from a cluster
	Line     int      `json:"line,omitempty"`   // from 1
	Column   int      `json:"column,omitempty"` // from 1, in characters
	Field    string   `json:"field,omitempty"`  // spec.ports[1].appProtocol
	Text     string   `json:"text"`             // what is wrong
	Fix      string   `json:"fix,omitempty"`    // what to do
}

// String is the finding in one line.
func (f Finding) String() string {
	s := fmt.Sprintf("%v: ", f.Severity)
	if f.File != "" {
		s += fmt.Sprintf("%s:%d:%d: ", f.File, f.Line, f.Column)
	}
	for _, part := range []string{f.Object, f.Field} {
		if part != "" {
			s += part + ": "
		}
	}
	s += f.Text
	if f.Fix != "" {
		s += ": " + f.Fix
	}
	return fmt.Sprintf("%s [%s]", s, f.Code)
}

// Config is what is known beside the objects.
type Config struct {
	// Injected takes every workload for a meshed one, as if `meshctl inject` had
	// been run on it. Else those count that ask for it, or have a proxy already.
	Injected bool
	// KubernetesMinor is the 37 of Kubernetes 1.37. 0 means a version with native
	// sidecars, 1.29 or later.
	KubernetesMinor int
	// Opaque is the default list of opaque ports. An empty set is an empty list.
	Opaque ports.Set
	// Ignore are codes that are not reported.
	Ignore []Code
}

// Check looks at all objects together and returns what is wrong with them, sorted
// by file and line.
func Check(objects []*Object, config Config) []Finding {
	w := newWorld(objects, config)
	for _, check := range []func(*world){
		checkAnnotations, checkAppProtocols, checkOpaquePorts, checkServerFirst, checkSkips,
		checkNetworkPolicies, checkPodSecurity, checkPods, checkSelectors, checkPolicies,
	} {
		check(w)
	}
	return Sort(w.findings, config.Ignore)
}

// Sort puts findings in order of their files, lines and codes, and leaves out
// those whose code is ignored.
func Sort(findings []Finding, ignore []Code) []Finding {
	out := slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return slices.Contains(ignore, f.Code) })
	slices.SortStableFunc(out, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Object, b.Object), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Text, b.Text))
	})
	return slices.Compact(out)
}

// Fails reports whether any finding is more than a note.
func Fails(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity > Note })
}
