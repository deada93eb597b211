package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/discovery/file"
)

// kind is one kind that is watched.
type kind struct {
	name        string // group/kind
	group, kind string
	// Of a kind of Kubernetes itself: where it is served, and what it is decoded
	// into. Others are looked up.
	resource string
	version  string
	object   runtime.Object
	needed   bool // without it there is no picture
}

// kinds are all that package file reads.
func kinds() []kind {
	var out []kind
	for _, name := range file.Kinds() {
		k := kind{name: name}
		k.group, k.kind, _ = strings.Cut(name, "/")
		switch name {
		case cluster.ServiceKind:
			k.resource, k.version, k.object, k.needed = "services", "v1", &corev1.Service{}, true
		case cluster.SliceKind:
			k.resource, k.version, k.object, k.needed = "endpointslices", "v1", &discoveryv1.EndpointSlice{}, true
		case cluster.PodKind:
			k.resource, k.version, k.object = "pods", "v1", &corev1.Pod{}
		case "/Namespace":
			k.resource, k.version, k.object = "namespaces", "v1", &corev1.Namespace{}
		default:
			k.object = &rawObject{}
		}
		out = append(out, k)
	}
	return out
}

func (k kind) custom() bool { _, is := k.object.(*rawObject); return is }

// errAbsent says that the API server does not have a kind.
type errAbsent struct{ kind string }

func (e errAbsent) Error() string { return "the API server has no " + e.kind }

// lookUp finds where a kind is served, in the version that the server prefers, else
// in the first that has it.
func (s *Source) lookUp(ctx context.Context, k kind) (kind, error) {
	if !k.custom() {
		return k, nil
	}
	var group metav1.APIGroup
	if err := s.get(ctx, "/apis/"+k.group, &group); err != nil {
		return k, absentIf(err, k)
	}
	versions := []string{group.PreferredVersion.Version}
	for _, v := range group.Versions {
		if !slices.Contains(versions, v.Version) {
			versions = append(versions, v.Version)
		}
	}
	for _, v := range versions {
		var list metav1.APIResourceList
		if err := s.get(ctx, "/apis/"+k.group+"/"+v, &list); err != nil {
			return k, absentIf(err, k)
		}
		for _, r := range list.APIResources {
			if r.Kind == k.kind && !strings.Contains(r.Name, "/") {
				k.resource, k.version = r.Name, v
				return k, nil
			}
		}
	}
	return k, errAbsent{k.name}
}

func absentIf(err error, k kind) error {
	if apierrors.IsNotFound(err) {
		return errAbsent{k.name}
	}
	return err
}

func (s *Source) get(ctx context.Context, path string, to any) error {
	c, err := s.client.of(schema.GroupVersion{Version: "v1"}, false)
	if err != nil {
		return err
	}
	text, err := c.Get().AbsPath(path).SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx).Raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("%s of the API server: %w", path, err)
	}
	return nil
}
