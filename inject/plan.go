package inject

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/meshctl/meshctl/inject/patch"
	"github.com/meshctl/meshctl/internal/annotation"
	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/rules"
)

// plan is what is put into one pod.
type plan struct {
	pod       *pod
	settings  *settings
	options   Options
	inherited []said
}

func (p *pod) plan(ns Namespace, o Options) (*plan, []Warning, error) {
	s, inherited, warnings, err := p.read(ns, o)
	if err != nil {
		return nil, nil, err
	}
	if err := s.checkResources(); err != nil {
		return nil, nil, &Problem{Pointer: "/metadata/annotations", Text: err.Error(), Do: "raise the limit or lower the request"}
	}
	pl := &plan{pod: p, settings: s, options: o, inherited: inherited}
	if err := pl.checkRules(); err != nil {
		return nil, nil, err
	}
	more, err := p.conflicts(s)
	if err != nil {
		return nil, nil, err
	}
	ends, err := p.ends(s)
	if err != nil {
		return nil, nil, err
	}
	warnings = slices.Concat(warnings, more, ends)
	return pl, append(warnings, pl.warnings()...), nil
}

func (pl *plan) warnings() []Warning {
	var out []Warning
	s := pl.settings
	for _, name := range pl.unknownNames() {
		out = append(out, Warning{annotationPointer(key("opaque-ports")), key("opaque-ports") + ": no container has a port of the name " + name})
	}
	if s.privileged {
		out = append(out, Warning{annotationPointer(key("close-wait-timeout")), key("close-wait-timeout") + " makes the init container privileged; meshctl needs it not, see --half-close-timeout"})
	}
	if v, ok := pl.pod.Labels[controlPlaneLabel]; ok && !pl.options.Identity.None() && v != pl.controlPlane() {
		out = append(out, Warning{patch.Pointer("metadata", "labels", controlPlaneLabel), "label " + controlPlaneLabel + " is " + v + " already, and stays"})
	}
	if pl.fsGroup() && slices.ContainsFunc(pl.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil }) {
		out = append(out, Warning{"/spec/volumes", "fsGroup is set, so that the proxy may read its key: it becomes the group of the files in the pod's persistent volumes too; set spec.securityContext.fsGroup yourself to choose it"})
	}
	return out
}

// unknownNames are the names in the list of opaque ports that no port has.
func (pl *plan) unknownNames() []string {
	list, err := annotation.ParsePorts(pl.pod.Annotations[key("opaque-ports")])
	if err != nil {
		return nil
	}
	names := "," + pl.portNames()
	return slices.DeleteFunc(list.Names, func(name string) bool { return strings.Contains(names, ","+name+"=") })
}

// checkRules has the rules judged before the init container fails on them.
func (pl *plan) checkRules() error {
	s := pl.settings
	c := rules.DefaultConfig()
	c.InboundPort, c.OutboundPort, c.ProxyUID = s.inboundPort, s.outboundPort, s.uid
	if list, said := s.skipInboundList(); said {
		c.SkipInboundPorts, _ = ports.ParseOver(list, c.SkipInboundPorts) // checked by its type before
	}
	for _, a := range pl.initArgs() {
		name, value, _ := strings.Cut(a, "=")
		switch name {
		case "--skip-outbound-ports":
			c.SkipOutboundPorts, _ = ports.ParseOver(value, c.SkipOutboundPorts)
		case "--proxy-gid":
			c.ProxyGID = &s.gid
		}
	}
	err := c.Validate()
	if err == nil {
		return nil
	}
	p := &Problem{Pointer: "/metadata/annotations", Text: err.Error(), Do: "the rules cannot be like that: correct the annotation"}
	if wrong, ok := errors.AsType[*rules.FieldError](err); ok {
		k := key(wrong.Field)
		_, onPod := pl.pod.Annotations[k]
		p.Text, p.Pointer, p.Namespace = "annotation "+key(err.Error()), annotationPointer(k), !onPod && len(pl.inherited) > 0
	}
	return p
}

// fsGroup reports whether the pod needs a group of its files: a Secret's are
// root's, and readable by that group.
func (pl *plan) fsGroup() bool {
	sc := pl.pod.Spec.SecurityContext
	return pl.options.Identity.Secret != "" && (sc == nil || sc.FSGroup == nil)
}

func (pl *plan) controlPlane() string {
	if pl.options.ControlPlaneNamespace != "" {
		return pl.options.ControlPlaneNamespace
	}
	return "linkerd"
}

const controlPlaneLabel = "linkerd.io/control-plane-ns"

// ops writes the plan down as operations on the bare pod.
func (pl *plan) ops() ([]patch.Op, error) {
	w := &writer{object: patch.Clone(pl.pod.object)}
	if pl.settings.native {
		w.front("initContainers", pl.initContainer(), pl.proxyContainer())
	} else {
		w.front("initContainers", pl.initContainer())
		w.front("containers", pl.proxyContainer())
	}
	if pl.fsGroup() {
		w.entries([]string{"spec", "securityContext"}, map[string]any{"fsGroup": pl.settings.gid})
		w.note("fsGroup")
	}
	w.back("volumes", pl.volumes())
	spec := w.ops
	w.ops = nil
	annotations := map[string]any{}
	for _, a := range pl.inherited {
		annotations[a.key] = a.value
		w.note(a.key)
	}
	if _, ok := pl.pod.Annotations[defaultContainer]; !ok {
		annotations[defaultContainer] = pl.pod.Spec.Containers[0].Name
		w.note("default-container")
	}
	if pl.options.Version != "" {
		annotations[versionKey] = "meshctl-" + pl.options.Version
	}
	if _, ok := pl.pod.Labels[controlPlaneLabel]; !ok && !pl.options.Identity.None() {
		w.entries([]string{"metadata", "labels"}, map[string]any{controlPlaneLabel: pl.controlPlane()})
		w.note("label")
	}
	for _, path := range [][]string{{"metadata"}, {"metadata", "annotations"}} {
		if !has(w.object, path...) {
			w.note(path[len(path)-1]) // before the record is written, which is in it
		}
	}
	annotations[RecordKey] = w.recorded()
	w.entries([]string{"metadata", "annotations"}, annotations)
	return append(w.ops, spec...), w.err
}

// writer collects operations, and what Remove has to know of them.
type writer struct {
	object any // with what the operations have done so far
	ops    []patch.Op
	record []string
	err    error
}

func (w *writer) note(word string) {
	if !slices.Contains(w.record, word) {
		w.record = append(w.record, word)
	}
}

func (w *writer) recorded() string {
	slices.Sort(w.record)
	return strings.Join(w.record, ",")
}

func (w *writer) add(value any, steps ...string) {
	op, err := patch.Add(value, steps...)
	if err == nil {
		w.object, err = patch.Apply(w.object, []patch.Op{op})
	}
	w.ops, w.err = append(w.ops, op), errors.Join(w.err, err)
}

// entries puts entries into a mapping, which is made if there is none.
func (w *writer) entries(path []string, entries map[string]any) {
	if !has(w.object, path[0]) {
		w.note(path[0])
		w.add(map[string]any{}, path[0])
	}
	if !has(w.object, path...) {
		w.note(path[len(path)-1])
		w.add(entries, path...)
		return
	}
	for _, k := range slices.Sorted(maps.Keys(entries)) {
		w.add(entries[k], append(slices.Clone(path), k)...)
	}
}

// front puts containers before the others of a list.
func (w *writer) front(list string, containers ...corev1.Container) {
	var made []any
	for _, c := range containers {
		made = append(made, w.pruned(c))
	}
	if !has(w.object, "spec", list) {
		w.note(list)
		w.add(made, "spec", list)
		return
	}
	for i := len(made) - 1; i >= 0; i-- {
		w.add(made[i], "spec", list, "0")
	}
}

// back puts volumes behind the others.
func (w *writer) back(list string, volumes []corev1.Volume) {
	var made []any
	for _, v := range volumes {
		made = append(made, w.pruned(v))
	}
	if !has(w.object, "spec", list) {
		w.note(list)
		w.add(made, "spec", list)
		return
	}
	for _, v := range made {
		w.add(v, "spec", list, "-")
	}
}

// pruned is an object without the empty mappings that Kubernetes' types write.
func (w *writer) pruned(object any) json.RawMessage {
	raw, err := json.Marshal(object)
	w.err = errors.Join(w.err, err)
	return []byte(strings.NewReplacer(`,"resources":{}`, "").Replace(string(raw)))
}
