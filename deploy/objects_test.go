package deploy

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/meshctl/meshctl/lint"
	"github.com/meshctl/meshctl/proxy/discovery/file"
	"github.com/meshctl/meshctl/proxy/policy"
)

// object is one document of a golden.
type object struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	file            string
	text            []byte
}

func (o object) String() string { return fmt.Sprintf("%s: %s %s", o.file, o.Kind, o.Metadata.Name) }

// objects are the documents of files.
func objects(t *testing.T, files ...string) []object {
	t.Helper()
	var out []object
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range bytes.Split(text, []byte("\n---\n")) {
			o := object{file: name, text: doc}
			if err := yaml.Unmarshal(doc, &o); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if o.Kind != "" {
				out = append(out, o)
			}
		}
	}
	return out
}

func goldens() []string {
	out := []string{"base/namespace.yaml", "podman/pod.yaml"}
	for _, c := range rendered {
		out = append(out, c.golden)
	}
	return out
}

// types are those of Kubernetes that the files have.
func types() map[string]func() any {
	return map[string]func() any{
		"Namespace":                        func() any { return &corev1.Namespace{} },
		"Pod":                              func() any { return &corev1.Pod{} },
		"ServiceAccount":                   func() any { return &corev1.ServiceAccount{} },
		"Service":                          func() any { return &corev1.Service{} },
		"ConfigMap":                        func() any { return &corev1.ConfigMap{} },
		"Deployment":                       func() any { return &appsv1.Deployment{} },
		"PodDisruptionBudget":              func() any { return &policyv1.PodDisruptionBudget{} },
		"NetworkPolicy":                    func() any { return &networkingv1.NetworkPolicy{} },
		"ClusterRole":                      func() any { return &rbacv1.ClusterRole{} },
		"ClusterRoleBinding":               func() any { return &rbacv1.ClusterRoleBinding{} },
		"MutatingWebhookConfiguration":     func() any { return &admissionv1.MutatingWebhookConfiguration{} },
		"MutatingAdmissionPolicy":          func() any { return &admissionv1.MutatingAdmissionPolicy{} },
		"MutatingAdmissionPolicyBinding":   func() any { return &admissionv1.MutatingAdmissionPolicyBinding{} },
		"ValidatingAdmissionPolicy":        func() any { return &admissionv1.ValidatingAdmissionPolicy{} },
		"ValidatingAdmissionPolicyBinding": func() any { return &admissionv1.ValidatingAdmissionPolicyBinding{} },
	}
}

func TestEveryObjectIsOneOfKubernetes(t *testing.T) {
	known := types()
	for _, o := range objects(t, goldens()...) {
		make := known[o.Kind]
		if make == nil {
			if o.Kind != "PodMonitor" { // of Prometheus' operator
				t.Errorf("%v: no type for it in this test", o)
			}
			continue
		}
		if err := yaml.UnmarshalStrict(o.text, make()); err != nil {
			t.Errorf("%v: %v", o, err)
		}
	}
}

// decode reads the object of a kind and a name.
func decode(t *testing.T, file, kind, name string, to any) {
	t.Helper()
	for _, o := range objects(t, file) {
		if o.Kind == kind && o.Metadata.Name == name {
			if err := yaml.UnmarshalStrict(o.text, to); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("%s has no %s %s", file, kind, name)
}

// The controller may read the kinds that are watched, and nothing else.
func TestThePermissionsAreWhatIsWatched(t *testing.T) {
	var role rbacv1.ClusterRole
	decode(t, "base/controller.yaml", "ClusterRole", "meshctl-controller", &role)
	var got []string
	for _, r := range role.Rules {
		if diff := cmp.Diff([]string{"get", "list", "watch"}, r.Verbs); diff != "" {
			t.Errorf("%v: verbs: %s", r.Resources, diff)
		}
		for _, resource := range r.Resources {
			got = append(got, r.APIGroups[0]+"/"+resource)
		}
	}
	var want []string
	for _, name := range file.Kinds() {
		group, kind, _ := strings.Cut(name, "/")
		want = append(want, group+"/"+plural(strings.ToLower(kind)))
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("watched, allowed:\n%s", diff)
	}
}

func plural(word string) string {
	if rest, y := strings.CutSuffix(word, "y"); y {
		return rest + "ies"
	}
	return word + "s"
}

// Writing is allowed in one object only, which has a name.
func TestTheOnlyThingWrittenIsTheWebhooksConfiguration(t *testing.T) {
	var role rbacv1.ClusterRole
	decode(t, "base/controller.yaml", "ClusterRole", "meshctl-injector", &role)
	want := []rbacv1.PolicyRule{{
		APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations"},
		ResourceNames: []string{"meshctl-injector"}, Verbs: []string{"get", "patch"},
	}}
	if diff := cmp.Diff(want, role.Rules); diff != "" {
		t.Error(diff)
	}
	for _, o := range objects(t, "../testdata/deploy/least.yaml") {
		if o.Metadata.Name == "meshctl-injector" {
			t.Errorf("without the webhook there is still %v", o)
		}
	}
}

// The level restricted of Pod Security, field by field.
func TestTheControllerIsRestricted(t *testing.T) {
	var d appsv1.Deployment
	decode(t, "base/controller.yaml", "Deployment", "meshctl-controller", &d)
	pod := d.Spec.Template.Spec
	if s := pod.SecurityContext; s == nil || !*s.RunAsNonRoot || *s.RunAsUser == 0 || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%+v", s)
	}
	for _, c := range pod.Containers {
		s := c.SecurityContext
		if s == nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 {
			t.Errorf("%s: %+v", c.Name, s)
		}
	}
	if *d.Spec.Replicas != 2 || pod.Affinity.PodAntiAffinity == nil || d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue() != 0 {
		t.Errorf("%+v", d.Spec)
	}
}

// Ports that are named somewhere are ports of the container.
func TestPortsOfTheControllerAgree(t *testing.T) {
	var d appsv1.Deployment
	decode(t, "base/controller.yaml", "Deployment", "meshctl-controller", &d)
	c := d.Spec.Template.Spec.Containers[0]
	have := map[string]bool{}
	for _, p := range c.Ports {
		have[p.Name] = true
		if !slices.ContainsFunc(c.Args, func(a string) bool { return strings.HasSuffix(a, fmt.Sprintf(":%d", p.ContainerPort)) }) {
			t.Errorf("nothing listens on %s %d: %v", p.Name, p.ContainerPort, c.Args)
		}
	}
	named := func(where string, p intstr.IntOrString) {
		if p.Type == intstr.String && !have[p.StrVal] {
			t.Errorf("%s: no port is named %q", where, p.StrVal)
		}
	}
	for _, name := range []string{"meshctl-controller", "meshctl-injector"} {
		var s corev1.Service
		decode(t, "base/controller.yaml", "Service", name, &s)
		for _, p := range s.Spec.Ports {
			named("Service "+name, p.TargetPort)
		}
	}
	var n networkingv1.NetworkPolicy
	decode(t, "base/controller.yaml", "NetworkPolicy", "meshctl-controller", &n)
	for _, p := range n.Spec.Ingress[0].Ports {
		named("NetworkPolicy", *p.Port)
	}
	for _, p := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
		named("probe", p.HTTPGet.Port)
	}
}

// What we tell others to do, we do.
func TestLintFindsNothingInWhatWeDeploy(t *testing.T) {
	var all []*lint.Object
	for _, name := range append(goldens(), "base/crds.yaml") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(name) == "pod.yaml" || strings.HasPrefix(name, "..") {
			continue
		}
		found, wrong := lint.Parse(name, text, "default")
		if len(wrong) > 0 {
			t.Error(wrong)
		}
		all = append(all, found...)
	}
	for _, f := range lint.Check(all, lint.Config{Opaque: policy.DefaultOpaque()}) {
		t.Error(f)
	}
}

func TestTheChartsOwnValuesFitTheirSchema(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("chart/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"chart/values.yaml", "../testdata/deploy/everything.values.yaml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := yaml.YAMLToJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(value); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A kustomization names files that are there, and all of them.
func TestKustomizationsNameTheirFiles(t *testing.T) {
	for _, dir := range []string{"base", "admission-policy"} {
		text, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var k struct{ Resources []string }
		if err := yaml.Unmarshal(text, &k); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, name := range files {
			if base := filepath.Base(name); base != "kustomization.yaml" {
				have = append(have, base)
			}
		}
		slices.Sort(k.Resources)
		if diff := cmp.Diff(have, k.Resources); diff != "" {
			t.Errorf("%s:\n%s", dir, diff)
		}
	}
}
