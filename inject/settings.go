package inject

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/meshctl/meshctl/internal/annotation"
)

// settings are what the annotations of a pod and its namespace ask for.
type settings struct {
	inboundPort, outboundPort, adminPort uint16
	uid, gid                             uint32
	native, await                        bool
	privileged                           bool // the init container writes a kernel setting

	initArgs, proxyArgs []string
	skipInbound         *string
	leaveInbound        []string // further ports that the rules leave alone
	shutdownGrace       time.Duration
	waitBeforeExit      int64 // seconds
	env                 []corev1.EnvVar
	resources           corev1.ResourceRequirements
	pullPolicy          string
}

// Setting is an annotation that inject acts on.
type Setting struct {
	Key    string // without its prefix if that is config.linkerd.io/
	Effect string // for the documentation
	set    func(s *settings, value string) error
}

// FullKey is the key as it stands on a pod.
func (s Setting) FullKey() string {
	if strings.Contains(s.Key, "/") {
		return s.Key
	}
	return key(s.Key)
}

func key(name string) string { return annotation.Prefix + name }

// Settings returns every annotation that inject acts on, besides linkerd.io/inject.
func Settings() []Setting {
	out := slices.Concat(ruleSettings(), portSettings(), proxySettings(), containerSettings())
	slices.SortFunc(out, func(a, b Setting) int { return cmp.Compare(a.FullKey(), b.FullKey()) })
	return out
}

// said is one annotation with its place.
type said struct {
	key, value  string
	ofNamespace bool
}

func (a said) problem(err error, do string) *Problem {
	p := &Problem{Pointer: annotationPointer(a.key), Namespace: a.ofNamespace, Text: fmt.Sprintf("annotation %s: %v", a.key, err), Do: do}
	return p
}

// read collects what the pod's annotations ask for, then the namespace's where
// the pod has none of that key.
func (p *pod) read(ns Namespace, o Options) (*settings, []said, []Warning, error) {
	s := &settings{
		inboundPort: 4143, outboundPort: 4140, adminPort: 4191, uid: 2102, gid: 2102,
		native: !o.NoNativeSidecar, await: true, pullPolicy: o.PullPolicy,
	}
	var inherited []said
	for _, set := range Settings() {
		k := set.FullKey()
		for _, a := range p.values(ns, k) {
			if err := check(a); err != nil {
				return nil, nil, nil, a.problem(err, "correct it or take it away")
			}
			if err := set.set(s, a.value); err != nil {
				return nil, nil, nil, a.problem(err, "correct it or take it away")
			}
			if _, onPod := p.Annotations[k]; a.ofNamespace && !onPod {
				inherited = append(inherited, a)
			}
		}
	}
	if err := s.distinctPorts(); err != nil {
		return nil, nil, nil, &Problem{Pointer: "/metadata/annotations", Text: err.Error(), Do: "give each its own"}
	}
	return s, inherited, unused(p.Annotations), nil
}

// values is what is said under a key, what counts last: of the pod, or else of
// the namespace. Environment variables of both are put together.
func (p *pod) values(ns Namespace, k string) []said {
	var out []said
	own, onPod := p.Annotations[k]
	if v, ok := ns.Annotations[k]; ok && (!onPod || k == key("proxy-additional-env")) {
		out = append(out, said{k, v, true})
	}
	if onPod {
		out = append(out, said{k, own, false})
	}
	return out
}

// check looks at a value by its type, as every command does.
func check(a said) error {
	k, ok := annotation.Find(a.key)
	if !ok {
		return nil // of inject only; its own reader looks at it
	}
	if err := annotation.Check(a.key, a.value); err != nil && err != annotation.ErrUnused {
		if strings.HasSuffix(a.key, "-ports") || k.Type == annotation.Subnets {
			return fmt.Errorf("%w (want %v)", err, k.Type)
		}
		return err
	}
	return nil
}

// unused warns of keys that mean nothing: misspelt ones, and those of Linkerd that
// have no effect here.
func unused(annotations map[string]string) []Warning {
	known := map[string]bool{}
	for _, set := range Settings() {
		known[set.FullKey()] = true
	}
	var out []Warning
	for _, k := range slices.Sorted(maps.Keys(annotations)) {
		if known[k] {
			continue
		}
		err := annotation.Check(k, annotations[k])
		if _, right := annotation.Find(k); right {
			err = annotation.ErrUnused
		}
		switch {
		case err == annotation.ErrUnused:
			out = append(out, Warning{annotationPointer(k), k + " has no effect here"})
		case err != nil:
			out = append(out, Warning{annotationPointer(k), "annotation: " + err.Error()})
		}
	}
	switch v := annotations[InjectKey]; v {
	case "", "enabled", "true", "disabled", "false":
	case "ingress":
		out = append(out, Warning{annotationPointer(InjectKey), InjectKey + ": ingress means enabled here: where a request goes is told from the connection, not from l5d-dst-override"})
	default:
		out = append(out, Warning{annotationPointer(InjectKey), fmt.Sprintf("%s: %q is taken for enabled; want enabled or disabled", InjectKey, v)})
	}
	return out
}

func (s *settings) distinctPorts() error {
	switch {
	case s.inboundPort == s.outboundPort:
		return fmt.Errorf("%s and %s are both %d", key("inbound-port"), key("outbound-port"), s.inboundPort)
	case s.inboundPort == s.adminPort:
		return fmt.Errorf("%s and %s are both %d", key("inbound-port"), key("admin-port"), s.inboundPort)
	case s.outboundPort == s.adminPort:
		return fmt.Errorf("%s and %s are both %d", key("outbound-port"), key("admin-port"), s.outboundPort)
	}
	return nil
}
