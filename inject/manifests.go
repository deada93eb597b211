package inject

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/meshctl/meshctl/inject/manifest"
	"github.com/meshctl/meshctl/inject/patch"
	"github.com/meshctl/meshctl/internal/annotation"
)

// Source says where Manifests finds what the files do not say.
type Source struct {
	Namespace   string            // of objects that name none; "" is "default"
	Annotations map[string]string // of namespaces that are not among the files
}

// Note is what became of one object, or something to tell about it.
type Note struct {
	File   string
	Line   int
	Object string // "Deployment shop/web"
	Text   string
}

// String writes file:line: object: text.
func (n Note) String() string {
	s := n.File
	if n.Line > 0 {
		s += fmt.Sprintf(":%d", n.Line)
	}
	if n.Object != "" {
		s += ": " + n.Object
	}
	return s + ": " + n.Text
}

// Report tells what Manifests or Uninject did. All lists are in the order of the
// files.
type Report struct {
	Changed  []Note // what was injected, or taken out
	Skipped  []Note // workloads that were left alone, and why
	Warnings []Note
	Others   int // objects that are no workloads
}

// Faults are all the reasons why files cannot be injected.
type Faults []Note

// Error writes a line for each.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, n := range f {
		lines[i] = n.String()
	}
	return strings.Join(lines, "\n")
}

// Template returns where the pod template is in a workload of a kind, as a JSON
// pointer: "" for a Pod itself; false if the kind is none that is injected.
func Template(apiVersion, kind string) (string, bool) {
	group, _, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		group = ""
	}
	switch group + "/" + kind {
	case "/Pod":
		return "", true
	case "/ReplicationController", "apps/Deployment", "apps/StatefulSet", "apps/DaemonSet", "apps/ReplicaSet", "batch/Job":
		return "/spec/template", true
	case "batch/CronJob":
		return "/spec/jobTemplate/spec/template", true
	}
	return "", false
}

// Manifests injects every workload of the files, in their text. If anything is
// wrong with any of them the error is a Faults, and no file is to be used.
func Manifests(files []*manifest.File, from Source, o Options) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	m := &run{from: from, options: o, namespaces: map[string]manifest.Object{}}
	for _, f := range files {
		for _, d := range f.Documents() {
			for _, obj := range d.Objects() {
				if obj.Kind == "Namespace" && obj.APIVersion == "v1" {
					m.namespaces[obj.Name] = obj
					for _, w := range unused(annotationsOf(obj)) {
						m.report.Warnings = append(m.report.Warnings, note(obj, w.Pointer, w.Text))
					}
				}
			}
		}
	}
	return m.files(files, m.inject)
}

// Uninject takes injections out of every workload of the files.
func Uninject(files []*manifest.File) (Report, error) {
	m := &run{}
	return m.files(files, m.uninject)
}

// run is one run over files.
type run struct {
	from       Source
	options    Options
	namespaces map[string]manifest.Object
	report     Report
	faults     Faults
}

func (m *run) files(files []*manifest.File, one func(manifest.Object, string, map[string]any) []patch.Op) (Report, error) {
	for _, f := range files {
		for _, d := range f.Documents() {
			var ops []patch.Op
			for _, obj := range d.Objects() {
				ops = append(ops, m.object(obj, one)...)
			}
			if err := d.Apply(ops); err != nil {
				m.fault(err)
			}
		}
	}
	if len(m.faults) > 0 {
		return m.report, m.faults
	}
	return m.report, nil
}

func (m *run) fault(err error) {
	if wrong, ok := errors.AsType[*manifest.Error](err); ok {
		m.faults = append(m.faults, Note{File: wrong.File, Line: wrong.Line, Text: wrong.Text})
		return
	}
	m.faults = append(m.faults, Note{Text: err.Error()})
}

func (m *run) object(obj manifest.Object, one func(manifest.Object, string, map[string]any) []patch.Op) []patch.Op {
	at, ok := Template(obj.APIVersion, obj.Kind)
	if !ok {
		m.report.Others++
		return nil
	}
	var value any = obj.Value
	for _, s := range patch.Steps(at) {
		below, _ := value.(map[string]any)
		value = below[s]
	}
	pod, ok := value.(map[string]any)
	if !ok {
		m.faults = append(m.faults, note(obj, at, "it has no "+strings.ReplaceAll(strings.TrimPrefix(at, "/"), "/", ".")+": a workload needs one"))
		return nil
	}
	return patch.Under(obj.Pointer+at, one(obj, at, pod))
}

func note(obj manifest.Object, pointer, text string) Note {
	return Note{File: obj.File(), Line: obj.Line(pointer), Object: obj.String(), Text: text}
}

func (m *run) inject(obj manifest.Object, at string, pod map[string]any) []patch.Op {
	ns := Namespace{Name: cmp.Or(obj.Namespace, m.from.Namespace, "default"), Annotations: m.from.Annotations}
	nsObject, there := m.namespaces[ns.Name]
	if there {
		ns.Annotations = annotationsOf(nsObject)
	}
	result, err := Pod(pod, ns, m.options)
	if err != nil {
		n := note(obj, at, err.Error())
		if p, ok := errors.AsType[*Problem](err); ok {
			n = note(obj, at+p.Pointer, err.Error())
			if p.Namespace && there {
				n.File, n.Line, n.Object = nsObject.File(), nsObject.Line(p.Pointer), nsObject.String()
			}
		}
		m.faults = append(m.faults, n)
		return nil
	}
	for _, w := range result.Warnings {
		m.report.Warnings = append(m.report.Warnings, note(obj, at+w.Pointer, w.Text))
	}
	m.ofWorkload(obj, at, pod)
	switch {
	case result.Skipped != "":
		m.report.Skipped = append(m.report.Skipped, note(obj, "", "left alone: "+result.Skipped))
	case len(result.Patch) == 0:
		m.report.Changed = append(m.report.Changed, note(obj, "", "injected already"))
	default:
		m.report.Changed = append(m.report.Changed, note(obj, "", "injected"))
	}
	return result.Patch
}

// ofWorkload tells of what only the whole workload shows.
func (m *run) ofWorkload(obj manifest.Object, at string, pod map[string]any) {
	warn := func(pointer, text string) {
		m.report.Warnings = append(m.report.Warnings, note(obj, pointer, text))
	}
	if at == "" {
		return
	}
	for _, k := range slices.Sorted(maps.Keys(annotationsOf(obj))) {
		if _, known := annotation.Find(k); known || k == InjectKey {
			warn(annotationPointer(k), k+" has no effect on a "+obj.Kind+": put it on the pod template, "+strings.ReplaceAll(at[1:], "/", ".")+".metadata.annotations")
		}
	}
	native := !m.options.NoNativeSidecar
	meta, _ := pod["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	if v, ok := annotations[key("proxy-enable-native-sidecar")].(string); ok {
		native, _ = annotation.ParseBool(v) // Pod has complained if it is neither
	}
	if !native && (obj.Kind == "Job" || obj.Kind == "CronJob") {
		warn(at, "a "+obj.Kind+" without a native sidecar does not end by itself: the proxy goes on; let the application POST /shutdown to the proxy's admin port on 127.0.0.1 when it is done")
	}
}

func annotationsOf(obj manifest.Object) map[string]string {
	meta, _ := obj.Value["metadata"].(map[string]any)
	all, _ := meta["annotations"].(map[string]any)
	out := map[string]string{}
	for k, v := range all {
		if s, ok := v.(string); ok {
			out[k] = s
		}
	}
	return out
}

func (m *run) uninject(obj manifest.Object, _ string, pod map[string]any) []patch.Op {
	ops := Remove(pod)
	if len(ops) > 0 {
		m.report.Changed = append(m.report.Changed, note(obj, "", "taken out"))
	} else {
		m.report.Skipped = append(m.report.Skipped, note(obj, "", "left alone: meshctl is not in it"))
	}
	return ops
}
