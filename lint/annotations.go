package lint

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/meshctl/meshctl/internal/annotation"
	"github.com/meshctl/meshctl/proxy/route"
)

// checkAnnotations looks at the annotations of every object, and of the pods
// inside it.
func checkAnnotations(w *world) {
	for _, o := range w.objects {
		if w.owned(o) {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(o.Annotations)) {
			w.annotationOf(o, key)
		}
	}
	for _, p := range w.workloads {
		if p.path == "" { // a Pod, which is an object itself
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(p.annotations)) {
			field := annotationField(p.path, key)
			if onServices(key) {
				w.find(WrongObject, p.Object, field, "put it on the Service", "%s is read from Services and routes, not from pods", key)
				continue
			}
			w.spelling(p.Object, field, key, p.annotations[key])
		}
	}
}

// annotationOf looks at an annotation of an object's own metadata.
func (w *world) annotationOf(o *Object, key string) {
	field := annotationField("", key)
	if wrong, fix := misplaced(o, key); wrong != "" {
		w.find(WrongObject, o, field, fix, "%s %s", key, wrong)
		return
	}
	w.spelling(o, field, key, o.Annotations[key])
}

// misplaced says why nobody reads an annotation where it is; "" if it is right
// there, or none of ours.
func misplaced(o *Object, key string) (why, fix string) {
	_, known := annotation.Find(key)
	pods := known || key == Inject
	switch kind := o.Group + "/" + o.Kind; {
	case !pods && !onServices(key):
		return "", ""
	case makesPods(kind) && pods:
		path := "spec.template.metadata.annotations"
		if o.Kind == "CronJob" {
			path = "spec.jobTemplate.spec.template.metadata.annotations"
		}
		return "is read from pods, not from the " + o.Kind + " that makes them", "move it to " + path
	case kind == "/Service" || kind == "policy.linkerd.io/EgressNetwork":
		if pods && key != annotation.OpaquePorts {
			return "is read from pods and Namespaces, not from a " + o.Kind, "move it to the pod template of those it is meant for"
		}
	case kind == "/Pod" || kind == "/Namespace":
		if onServices(key) {
			return "is read from Services and routes, not from a " + o.Kind, "put it on the Service"
		}
	case strings.HasSuffix(o.Kind, "Route") && onServices(key):
	default:
		return "is not read from a " + o.Kind, "remove it, or move it to the pod template, Namespace or Service that it is meant for"
	}
	return "", ""
}

// makesPods are the kinds with a pod template.
func makesPods(kind string) bool {
	switch kind {
	case "apps/Deployment", "apps/StatefulSet", "apps/DaemonSet", "apps/ReplicaSet", "batch/Job", "batch/CronJob", "/ReplicationController":
		return true
	}
	return false
}

// onServices is true of the annotations that set timeouts, retries and balancing.
func onServices(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return domain == "timeout.linkerd.io" || domain == "retry.linkerd.io" || domain == "balancer.linkerd.io" || domain == "balancer.alpha.linkerd.io"
}

// spelling looks at the key and the value of an annotation at its right place.
func (w *world) spelling(o *Object, field, key, value string) {
	if onServices(key) {
		if _, err := route.New(route.Config{Annotations: map[string]string{key: value}}); err != nil {
			w.find(BadValue, o, field, "see docs/routes.md for its form", "%q: %v", value, routeText(err))
		}
		return
	}
	if key == Inject {
		if value != "enabled" && value != "disabled" && value != "ingress" {
			w.find(BadValue, o, field, "write enabled or disabled", "%q is no value of it, and counts as not said", value)
		}
		return
	}
	err := annotation.Check(key, value)
	if err == nil {
		return
	}
	if m, ok := errors.AsType[*annotation.Misspelt](err); ok {
		if m.Meant == "" {
			w.find(UnknownAnnotation, o, field, "remove it", "nobody knows %s", key)
		} else {
			w.find(UnknownAnnotation, o, field, "did you mean "+m.Meant+"?", "nobody reads %s", key)
		}
		return
	}
	if errors.Is(err, annotation.ErrUnused) {
		if !injectorReads(key) {
			w.find(NoEffect, o, field, "", "%s has no effect in meshctl", key)
		}
		return
	}
	k, _ := annotation.Find(key)
	w.find(BadValue, o, field, "it has to be "+k.Type.String(), "%v", err)
}

// injectorReads is true of keys that have their effect at injection, whatever the
// proxy makes of them.
func injectorReads(key string) bool {
	switch strings.TrimPrefix(key, annotation.Prefix) {
	case "proxy-enable-native-sidecar", "proxy-await", "proxy-cpu-request", "proxy-cpu-limit", "proxy-memory-request", "proxy-memory-limit",
		"proxy-ephemeral-storage-request", "proxy-ephemeral-storage-limit", "proxy-image", "proxy-version", "image-pull-policy",
		"default-inbound-policy", "access-log", "proxy-access-log", "pod-inbound-ports":
		return true
	}
	return false
}

// routeText is what package route says is wrong, without its place.
func routeText(err error) string {
	if p, ok := errors.AsType[*route.Problem](err); ok {
		return p.Err.Error()
	}
	return plain(err)
}
