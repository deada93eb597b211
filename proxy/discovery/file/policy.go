package file

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/route"
)

// policy returns those annotations of a Service or an EgressNetwork that package
// route reads. One with a wrong value counts as not there.
func (r *reader) policy(annotations map[string]string) map[string]string {
	var out map[string]string
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if !policyKey(key) {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = annotations[key]
	}
	for _, key := range slices.Sorted(maps.Keys(out)) {
		if text := wrongPolicy(map[string]string{key: out[key]}); text != "" {
			field := annotationField(key)
			r.problem(BadAnnotation, r.at(field), field, text+": it counts as not there")
			delete(out, key)
		}
	}
	if text := wrongPolicy(out); text != "" { // each is right, and all together are not
		r.problem(BadAnnotation, r.object, "metadata.annotations", text+": they count as not there")
		return nil
	}
	return out
}

// policyKey is true of the annotations that set timeouts, retries and balancing.
func policyKey(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return domain == "timeout.linkerd.io" || domain == "retry.linkerd.io" || domain == "balancer.linkerd.io" || domain == "balancer.alpha.linkerd.io"
}

func wrongPolicy(annotations map[string]string) string {
	if len(annotations) == 0 {
		return ""
	}
	_, err := route.New(route.Config{Annotations: annotations})
	return wrongText(err)
}

func wrongText(err error) string {
	if err == nil {
		return ""
	}
	if p, ok := errors.AsType[*route.Problem](err); ok {
		return p.Err.Error()
	}
	return plain(err)
}

// judge asks package route about a route, once, here where its lines are known.
func (r *reader) judge(to *cluster.Route) {
	_, err := route.New(route.Config{Routes: []route.Route{to.Route}})
	if err == nil {
		return
	}
	problems, ok := errors.AsType[route.Problems](err)
	if !ok {
		r.problem(Unsupported, r.object, "", plain(err))
		return
	}
	for _, p := range problems {
		r.problem(Unsupported, r.at(p.Field), p.Field, p.Err.Error())
	}
}
