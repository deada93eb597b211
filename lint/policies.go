package lint

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// policyGroup has the kinds that say who may call.
const policyGroup = "policy.linkerd.io"

// checkSelectors finds Services that select none of the workloads. Where there are
// no workloads at all in a namespace they are somewhere else, and nothing is said.
func checkSelectors(w *world) {
	for _, s := range w.services {
		if len(s.spec.Selector) > 0 && len(s.selects) == 0 && s.spec.Type != "ExternalName" && w.peopled(s.Namespace) {
			w.find(SelectsNothing, s.Object, "spec.selector", "compare it with the labels of the pod templates", "no workload in %s has these labels", s.Namespace)
		}
	}
}

// peopled reports whether any workload of a namespace is among the objects.
func (w *world) peopled(namespace string) bool {
	return slices.ContainsFunc(w.workloads, func(p *workload) bool { return p.Namespace == namespace })
}

// server is what matters here of a Server.
type server struct {
	Spec struct {
		PodSelector *metav1.LabelSelector `json:"podSelector"`
		Port        intstr.IntOrString    `json:"port"`
	} `json:"spec"`
}

// ref is a reference to an object in the same namespace, or to one of another kind
// that may name its namespace.
type ref struct {
	Group     string `json:"group"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// authorizationPolicy is what matters here of an AuthorizationPolicy.
type authorizationPolicy struct {
	Spec struct {
		TargetRef                  ref   `json:"targetRef"`
		RequiredAuthenticationRefs []ref `json:"requiredAuthenticationRefs"`
	} `json:"spec"`
}

// checkPolicies looks at Servers and what is attached to them.
func checkPolicies(w *world) {
	for _, o := range w.objects {
		if o.Group != policyGroup {
			continue
		}
		switch o.Kind {
		case "Server":
			w.server(o)
		case "AuthorizationPolicy":
			w.authorization(o)
		case "MeshTLSAuthentication":
			w.identities(o)
		}
	}
}

func (w *world) server(o *Object) {
	var s server
	if !w.read(o, &s) || s.Spec.PodSelector == nil || !w.peopled(o.Namespace) {
		return
	}
	selector, err := metav1.LabelSelectorAsSelector(s.Spec.PodSelector)
	if err != nil {
		w.find(Unreadable, o, "spec.podSelector", "", "%v", err)
		return
	}
	selected, served := 0, false
	for _, p := range w.workloads {
		if p.Namespace != o.Namespace || !selector.Matches(labels.Set(p.labels)) {
			continue
		}
		selected++
		port, ok := number(s.Spec.Port, p)
		known := w.served(p)
		served = served || ok && (known.Empty() || known.Contains(port))
	}
	switch {
	case selected == 0:
		w.find(SelectsNothing, o, "spec.podSelector", "compare it with the labels of the pod templates", "no workload in %s has these labels", o.Namespace)
	case !served:
		w.find(PortNotServed, o, "spec.port", "compare it with the ports of the containers", "no workload that is selected serves port %s", s.Spec.Port.String())
	}
}

func (w *world) authorization(o *Object) {
	var a authorizationPolicy
	if !w.read(o, &a) {
		return
	}
	w.refers(o, "spec.targetRef", a.Spec.TargetRef)
	for i, r := range a.Spec.RequiredAuthenticationRefs {
		w.refers(o, "spec.requiredAuthenticationRefs["+itoa(i)+"]", r)
	}
}

func (w *world) identities(o *Object) {
	var m struct {
		Spec struct {
			IdentityRefs []ref `json:"identityRefs"`
		} `json:"spec"`
	}
	if !w.read(o, &m) {
		return
	}
	for i, r := range m.Spec.IdentityRefs {
		w.refers(o, "spec.identityRefs["+itoa(i)+"]", r)
	}
}

// refers finds a reference to nothing. ServiceAccounts and Namespaces are often made
// elsewhere: they are missed only where others of their kind are among the objects.
func (w *world) refers(o *Object, field string, to ref) {
	if to.Name == "" {
		return
	}
	namespace := to.Namespace
	if namespace == "" {
		namespace = o.Namespace
	}
	others := false
	for _, have := range w.objects {
		if have.Kind != to.Kind || have.Group != group(to.Group) {
			continue
		}
		others = true
		if have.Name == to.Name && (have.Namespace == namespace || have.Namespace == "") {
			return
		}
	}
	switch to.Kind {
	case "ServiceAccount":
		if !others || to.Name == "default" {
			return
		}
	case "Namespace":
		if !others {
			return
		}
	}
	name := to.Name
	if !clusterWide(to.Kind) {
		name = namespace + "/" + to.Name
	}
	w.find(RefersToNothing, o, join(field, "name"), "correct the name, or give the object to lint too", "there is no %s %s here", to.Kind, name)
}

// group is the name of an API group; core is how references may write the empty one.
func group(g string) string {
	if g == "core" {
		return ""
	}
	return g
}
