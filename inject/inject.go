// Package inject puts meshctl into pods: an init container that writes the rules,
// and the proxy as a sidecar. Objects go in, and changes of them come out: a JSON
// patch for one pod (Pod), or new text for files of workloads (Manifests). It
// talks to no cluster and no kernel.
package inject

import (
	"encoding/json"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"

	"github.com/meshctl/meshctl/inject/patch"
)

// Options say what is injected. The zero value and an Image is enough.
type Options struct {
	Image      string // of both containers; meshctl has to be its /meshctl
	InitImage  string // of the init container, such as one with iptables in it; "" is Image
	PullPolicy string // Always, IfNotPresent, Never; "" leaves it to Kubernetes
	Version    string // of meshctl, for the annotation linkerd.io/proxy-version; "" sets none
	Backend    string // of meshctl redirect; "" or "auto" is its own choice

	NoNativeSidecar bool // an ordinary container, for Kubernetes before 1.29
	OnlyEnabled     bool // only where linkerd.io/inject: enabled is said; else everywhere but where it is disabled

	ControlPlaneNamespace string // the value of the label linkerd.io/control-plane-ns; "" is "linkerd"
	Identity              Identity

	InitArgs  []string // further arguments of meshctl redirect
	ProxyArgs []string // further arguments of meshctl proxy, as --destination=...
}

// Identity says where a pod's certificate comes from. With the zero value there is
// none, and no mTLS.
type Identity struct {
	Secret      string // a Secret with tls.crt, tls.key and ca.crt in the pod's namespace
	CSI         string // a CSI driver: CertManagerCSI, or SPIRECSI
	TrustDomain string // "" is the proxy's default
}

// The CSI drivers whose volumes are known.
const (
	CertManagerCSI = "spiffe.csi.cert-manager.io" // has tls.crt, tls.key, ca.crt
	SPIRECSI       = "csi.spiffe.io"              // has the socket of the Workload API
)

// None reports whether there is no identity.
func (i Identity) None() bool { return i.Secret == "" && i.CSI == "" }

// Validate names what cannot be.
func (o Options) Validate() error {
	switch {
	case o.Image == "":
		return fmt.Errorf("no image is named")
	case o.Identity.Secret != "" && o.Identity.CSI != "":
		return fmt.Errorf("an identity comes from a Secret or from a CSI driver, not from both")
	case o.Identity.CSI != "" && o.Identity.CSI != CertManagerCSI && o.Identity.CSI != SPIRECSI:
		return fmt.Errorf("CSI driver %q: want %s or %s", o.Identity.CSI, CertManagerCSI, SPIRECSI)
	}
	if err := oneOf("", "auto", "nftables", "iptables-nft", "iptables-legacy", "iptables")(o.Backend); err != nil {
		return fmt.Errorf("backend %w", err)
	}
	if err := oneOf("", "Always", "IfNotPresent", "Never")(o.PullPolicy); err != nil {
		return fmt.Errorf("pull policy %w", err)
	}
	return nil
}

// Namespace is what counts of the pod's namespace.
type Namespace struct {
	Name        string
	Annotations map[string]string
}

// Result is what becomes of a pod.
type Result struct {
	Patch    []patch.Op // empty: nothing changes
	Injected bool       // the pod has the proxy, now or before
	Skipped  string     // why it has none
	Warnings []Warning
}

// Warning is something to tell, with its place.
type Warning struct {
	Pointer string // into the pod; "" for the whole
	Text    string
}

// Problem is the error of a pod that cannot be injected.
type Problem struct {
	Pointer   string // into the pod, or into the Namespace
	Namespace bool   // the fault is in the Namespace's annotations
	Text      string // what is wrong
	Do        string // what to do about it
}

// Error says what is wrong, and what to do.
func (p *Problem) Error() string {
	if p.Do == "" {
		return p.Text
	}
	return p.Text + ": " + p.Do
}

// Pod looks at a pod, or at the template of a workload, decoded from JSON: an
// object with metadata and spec. A pod that was injected before is injected anew,
// so that the result is the same as that of the pod without it. The pod itself is
// not changed. What cannot be injected gives a *Problem.
func Pod(pod map[string]any, ns Namespace, o Options) (Result, error) {
	before := Remove(pod)
	bare, err := patch.Apply(patch.Clone(pod), before)
	if err != nil {
		return Result{}, fmt.Errorf("taking out an earlier injection: %w", err)
	}
	p, err := readPod(bare)
	if err != nil {
		return Result{}, err
	}
	if why := p.skipped(ns, o); why != "" {
		return Result{Skipped: why, Injected: len(before) > 0}, nil
	}
	if err := p.refuse(); err != nil {
		return Result{}, err
	}
	plan, warnings, err := p.plan(ns, o)
	if err != nil {
		return Result{}, err
	}
	ops, err := plan.ops()
	if err != nil {
		return Result{}, err
	}
	after, err := patch.Apply(patch.Clone(bare), ops)
	if err != nil {
		return Result{}, err
	}
	r := Result{Injected: true, Warnings: warnings}
	if !same(after, pod) {
		r.Patch = append(before, ops...)
	}
	return r, nil
}

// same compares as JSON does: numbers decoded in different ways are equal.
func same(a, b any) bool {
	x, err := json.Marshal(a)
	if err != nil {
		return false
	}
	y, err := json.Marshal(b)
	if err != nil {
		return false
	}
	left, err := patch.Decode(x)
	if err != nil {
		return false
	}
	right, err := patch.Decode(y)
	return err == nil && reflect.DeepEqual(left, right)
}

// pod is a pod as it is without meshctl.
type pod struct {
	object map[string]any
	corev1.PodTemplateSpec
}

func readPod(object any) (*pod, error) {
	p := &pod{object: object.(map[string]any)} // as Pod got it
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &p.PodTemplateSpec); err != nil {
		return nil, &Problem{Pointer: "/spec", Text: "no pod: " + err.Error(), Do: "correct the field's type"}
	}
	if len(p.Spec.Containers) == 0 {
		return nil, &Problem{Pointer: "/spec", Text: "it has no containers", Do: "give it one, or inject the object that has them"}
	}
	return p, nil
}

// has reports whether an object has a value at a path: an empty list or mapping
// is one, null is none.
func has(object any, steps ...string) bool {
	for _, s := range steps {
		m, ok := object.(map[string]any)
		if !ok {
			return false
		}
		object = m[s]
	}
	return object != nil
}
