package lint

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/meshctl/meshctl/internal/annotation"
	"github.com/meshctl/meshctl/internal/ports"
)

// world is all objects together, with what was found so far.
type world struct {
	Config
	objects    []*Object
	namespaces map[string]*Object
	workloads  []*workload
	services   []*service
	known      map[identity]bool
	findings   []Finding
}

// identity is what an object is called.
type identity struct{ kind, namespace, name string }

// workload is a pod, or what makes pods.
type workload struct {
	*Object
	path        string // of the pod template; "" for a Pod
	labels      map[string]string
	annotations map[string]string // of the pods, without the namespace's
	spec        corev1.PodSpec
}

// service is a Service with the workloads that it selects.
type service struct {
	*Object
	spec    corev1.ServiceSpec
	selects []*workload
}

func newWorld(objects []*Object, config Config) *world {
	w := &world{Config: config, objects: objects, namespaces: map[string]*Object{}, known: map[identity]bool{}}
	for _, o := range objects {
		w.known[identity{o.Kind, o.Namespace, o.Name}] = true
	}
	for _, o := range objects {
		switch {
		case o.Group == "" && o.Kind == "Namespace":
			w.namespaces[o.Name] = o
		case o.Group == "" && o.Kind == "Service":
			var s struct {
				Spec corev1.ServiceSpec `json:"spec"`
			}
			if w.read(o, &s) {
				w.services = append(w.services, &service{Object: o, spec: s.Spec})
			}
		default:
			w.workload(o)
		}
	}
	for _, s := range w.services {
		for _, p := range w.workloads {
			if len(s.spec.Selector) > 0 && p.Namespace == s.Namespace && contains(p.labels, s.spec.Selector) {
				s.selects = append(s.selects, p)
			}
		}
	}
	return w
}

// read decodes an object; if that fails there is a finding.
func (w *world) read(o *Object, to any) bool {
	if err := o.into(to); err != nil {
		field, text, fix := explain(o.node, err)
		if fix == "" {
			fix = "compare it with kubectl explain " + o.Kind
		}
		w.find(Unreadable, o, field, fix, "%s", text)
		return false
	}
	return true
}

// template is where a pod is inside an object.
type template struct {
	Metadata struct {
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec corev1.PodSpec `json:"spec"`
}

// workload takes an object that is, or makes, pods. A ReplicaSet or Job that
// another object made, and a pod of theirs, is left out: its maker is there.
func (w *world) workload(o *Object) {
	var t template
	path := "spec.template"
	ok := false
	switch o.Group + "/" + o.Kind {
	case "/Pod":
		path = ""
		ok = w.read(o, &t)
	case "apps/Deployment", "apps/StatefulSet", "apps/DaemonSet", "apps/ReplicaSet", "batch/Job", "/ReplicationController":
		var in struct {
			Spec struct {
				Template template `json:"template"`
			} `json:"spec"`
		}
		ok = w.read(o, &in)
		t = in.Spec.Template
	case "batch/CronJob":
		path = "spec.jobTemplate.spec.template"
		var in struct {
			Spec struct {
				JobTemplate struct {
					Spec struct {
						Template template `json:"template"`
					} `json:"spec"`
				} `json:"jobTemplate"`
			} `json:"spec"`
		}
		ok = w.read(o, &in)
		t = in.Spec.JobTemplate.Spec.Template
	}
	if ok && !w.owned(o) {
		w.workloads = append(w.workloads, &workload{Object: o, path: path, labels: t.Metadata.Labels, annotations: t.Metadata.Annotations, spec: t.Spec})
	}
}

// owned reports whether the object's maker is among the objects: then what is wrong
// with it is said of the maker.
func (w *world) owned(o *Object) bool {
	return slices.ContainsFunc(o.owners, func(r owner) bool { return w.known[identity{r.Kind, o.Namespace, r.Name}] })
}

// find notes a finding at a field of an object.
func (w *world) find(c Code, o *Object, field, fix, text string, args ...any) {
	r := ruleOf(c)
	f := Finding{Code: c, Name: r.Name, Severity: r.Severity, Object: o.String(), File: o.File, Field: field, Text: fmt.Sprintf(text, args...), Fix: fix}
	if o.File != "" {
		f.Line, f.Column = place(o.node, field)
	}
	w.findings = append(w.findings, f)
}

// annotation is what a workload's pods say under a key, or their namespace. at is
// where it stands, which may be the namespace.
func (w *world) annotation(p *workload, key string) (value string, at *Object, field string, ok bool) {
	if v, ok := p.annotations[key]; ok {
		return v, p.Object, annotationField(p.path, key), true
	}
	v, at, field, ok := w.ofNamespace(p.Namespace, key)
	return v, at, field, ok
}

func (w *world) ofNamespace(name, key string) (value string, at *Object, field string, ok bool) {
	ns := w.namespaces[name]
	if ns == nil {
		return "", nil, "", false
	}
	v, ok := ns.Annotations[key]
	return v, ns, annotationField("", key), ok
}

// opaque is the list of opaque ports that counts for a workload's pods; nil if no
// annotation says one or its value is wrong, which is another finding.
func (w *world) opaque(p *workload) *annotation.Ports {
	v, _, _, ok := w.annotation(p, annotation.OpaquePorts)
	return portsOf(v, ok)
}

// opaqueOf is the list that counts for a Service.
func (w *world) opaqueOf(s *service) *annotation.Ports {
	v, ok := s.Annotations[annotation.OpaquePorts]
	if !ok {
		v, _, _, ok = w.ofNamespace(s.Namespace, annotation.OpaquePorts)
	}
	return portsOf(v, ok)
}

func portsOf(value string, ok bool) *annotation.Ports {
	if !ok {
		return nil
	}
	list, err := annotation.ParsePorts(value)
	if err != nil {
		return nil
	}
	return &list
}

// has reports whether a port is opaque by a list, or by the default list if there
// is none.
func (w *world) has(list *annotation.Ports, port uint16, name string) bool {
	if list == nil {
		return w.Opaque.Contains(port)
	}
	return list.Has(port, name, w.Opaque)
}

// skips is the set of ports of a skip annotation of a workload.
func (w *world) skips(p *workload, key string) (set ports.Set, at *Object, field string) {
	v, at, field, ok := w.annotation(p, key)
	if !ok {
		return ports.Set{}, nil, ""
	}
	set, err := ports.ParseOver(v, ports.Set{})
	if err != nil {
		return ports.Set{}, nil, ""
	}
	return set, at, field
}

// Inject is the annotation that asks for a proxy, or forbids it.
const Inject = "linkerd.io/inject"

// meshed reports whether a workload's pods have a proxy, or will have one.
func (w *world) meshed(p *workload) bool {
	if proxyContainer(p) {
		return true
	}
	v, _, _, ok := w.annotation(p, Inject)
	if ok {
		return v == "enabled" || v == "ingress"
	}
	return w.Injected
}

// proxyContainer reports whether the proxy is in the pod already.
func proxyContainer(p *workload) bool {
	mine := func(c corev1.Container) bool { return isProxy(c.Name) }
	return slices.ContainsFunc(p.spec.Containers, mine) || slices.ContainsFunc(p.spec.InitContainers, mine)
}

// isProxy knows the names of what injection adds, ours and Linkerd's.
func isProxy(name string) bool {
	switch name {
	case "linkerd-proxy", "linkerd-init", "linkerd-network-validator", "meshctl-proxy", "meshctl-init":
		return true
	}
	return false
}

func contains(labels, selector map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}
