package kube

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// object is what has to be known of one to send it.
type object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Status map[string]any `json:"status"`
	text   []byte
}

// path is where the object is.
func (o object) path() string {
	p := "/apis/" + o.APIVersion
	if !strings.Contains(o.APIVersion, "/") {
		p = "/api/" + o.APIVersion
	}
	if o.Metadata.Namespace != "" {
		p += "/namespaces/" + o.Metadata.Namespace
	}
	plural := strings.ToLower(o.Kind) + "s"
	if strings.HasSuffix(o.Kind, "y") {
		plural = strings.TrimSuffix(strings.ToLower(o.Kind), "y") + "ies"
	}
	return p + "/" + plural + "/" + o.Metadata.Name
}

func parse(text string) ([]object, error) {
	var out []object
	for _, doc := range strings.Split("\n"+text, "\n---") {
		o := object{text: []byte(doc)}
		if strings.TrimSpace(doc) == "" {
			continue
		}
		if err := yaml.Unmarshal(o.text, &o); err != nil {
			return nil, fmt.Errorf("%w in:\n%s", err, doc)
		}
		out = append(out, o)
	}
	return out, nil
}

// Apply makes objects, or makes them what the YAML says, also the status of pods.
func (a *API) Apply(text string) {
	a.t.Helper()
	objects, err := parse(text)
	if err != nil {
		a.t.Fatal(err)
	}
	for _, o := range objects {
		a.apply(o)
	}
}

func (a *API) apply(o object) {
	a.t.Helper()
	// Server-side apply, as of kubectl apply --server-side.
	query := "?force=true&fieldManager=" + url.QueryEscape("test")
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		err := a.try(http.MethodPatch, o.path()+query, "application/apply-patch+yaml", o.text)
		if err == nil && o.Kind == "Pod" && o.Status != nil {
			err = a.try(http.MethodPatch, o.path()+"/status"+query, "application/apply-patch+yaml", o.text)
		}
		if err == nil {
			return
		}
		if status := (errStatus{}); o.Kind == "Pod" && errors.As(err, &status) && status.code == http.StatusUnprocessableEntity && time.Now().Before(end) {
			a.delete(o) // most of a pod's spec cannot be changed: another pod takes the name
			continue
		}
		// A CustomResourceDefinition is served a moment after it is made; a pod's
		// name is free a moment after it is deleted.
		if status := (errStatus{}); !errors.As(err, &status) || status.code != http.StatusNotFound && status.code != http.StatusConflict || time.Now().After(end) {
			a.t.Fatalf("%s %s: %v", o.Kind, o.Metadata.Name, err)
		}
	}
}

// Delete deletes objects; those that are not there do not matter.
func (a *API) Delete(text string) {
	a.t.Helper()
	objects, err := parse(text)
	if err != nil {
		a.t.Fatal(err)
	}
	for _, o := range objects {
		a.delete(o)
	}
}

func (a *API) delete(o object) {
	a.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		err := a.try(http.MethodDelete, o.path()+"?gracePeriodSeconds=0", "", nil)
		status := (errStatus{})
		switch {
		case errors.As(err, &status) && status.code == http.StatusNotFound:
			return
		case err != nil:
			a.t.Fatalf("deleting %s %s: %v", o.Kind, o.Metadata.Name, err)
		case o.Kind != "CustomResourceDefinition":
			return
		case time.Now().After(end):
			a.t.Fatalf("%s %s does not go", o.Kind, o.Metadata.Name)
		}
		// It goes once its objects are gone; who applies it before that has it go with
		// the new text.
	}
}

// Set returns a function that makes objects all that there are, of those that it
// was given before. Namespaces stay: there is no controller to empty them.
func (a *API) Set() func(text string) {
	before := map[string]object{}
	return func(text string) {
		a.t.Helper()
		objects, err := parse(text)
		if err != nil {
			a.t.Fatal(err)
		}
		now := map[string]object{}
		for _, o := range objects {
			now[o.path()] = o
		}
		for path, o := range before {
			if _, stays := now[path]; !stays && o.Kind != "Namespace" {
				a.delete(o)
			}
		}
		for _, o := range objects {
			if o.Kind == "Namespace" {
				a.apply(o)
			}
		}
		for _, o := range objects {
			a.apply(o)
		}
		before = now
	}
}

// GatewayAPI returns the CustomResourceDefinitions of HTTPRoute and GRPCRoute, from
// the module that their types come from.
func (a *API) GatewayAPI() string {
	a.t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		a.t.Fatalf("looking for the module of the Gateway API: %v", err)
	}
	var all []string
	for _, name := range []string{"httproutes", "grpcroutes"} {
		text, err := os.ReadFile(filepath.Join(string(bytes.TrimSpace(out)), "config/crd/standard", "gateway.networking.k8s.io_"+name+".yaml"))
		if err != nil {
			a.t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return strings.Join(all, "\n---\n")
}

// Linkerd returns CustomResourceDefinitions of policy.linkerd.io, as far as they are
// read: without the schema that Linkerd's have.
func Linkerd() string {
	var b strings.Builder
	for _, k := range [][3]string{
		{"EgressNetwork", "egressnetworks", "v1alpha1"}, {"Server", "servers", "v1beta3"}, {"AuthorizationPolicy", "authorizationpolicies", "v1alpha1"},
		{"MeshTLSAuthentication", "meshtlsauthentications", "v1alpha1"}, {"NetworkAuthentication", "networkauthentications", "v1alpha1"},
		{"ServerAuthorization", "serverauthorizations", "v1beta1"},
	} {
		fmt.Fprintf(&b, `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]s.policy.linkerd.io}
spec:
  group: policy.linkerd.io
  scope: Namespaced
  names: {kind: %[1]s, plural: %[2]s, singular: %[3]s}
  versions:
  - name: %[4]s
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, k[0], k[1], strings.ToLower(k[0]), k[2])
	}
	return b.String()
}
