package deploy

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/inject"
	"github.com/meshctl/meshctl/inject/patch"
	"github.com/meshctl/meshctl/integration/kube"
)

// client asks a real API server.
type client struct {
	url  string
	http *http.Client
}

func newClient(api *kube.API) *client {
	return &client{api.URL, &http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, //nolint:gosec // its own certificate, on loopback
	}}
}

// create makes an object without keeping it (dryRun=All) and returns what it became.
func (c *client) create(t *testing.T, path string, object map[string]any) (map[string]any, error) {
	t.Helper()
	body, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url+path+"?dryRun=All&fieldValidation=Strict", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+kube.Admin)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("%s: %s", resp.Status, text)
	}
	if resp.StatusCode >= 300 {
		return nil, fmt.Errorf("%s: %v", resp.Status, out["message"])
	}
	return out, nil
}

const pods = "/api/v1/namespaces/default/pods"

// pod is one with an application; annotations come in addition to inject: enabled.
func pod(annotations map[string]any) map[string]any {
	all := map[string]any{"linkerd.io/inject": "enabled"}
	for k, v := range annotations {
		all["config.linkerd.io/"+k] = v
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "web", "namespace": "default", "annotations": all},
		"spec": map[string]any{
			"initContainers": []any{map[string]any{"name": "first", "image": "first"}},
			"containers": []any{
				map[string]any{"name": "web", "image": "web", "ports": []any{
					map[string]any{"name": "http", "containerPort": 8080},
					map[string]any{"name": "dns", "containerPort": 53, "protocol": "UDP"},
					map[string]any{"containerPort": 9090},
				}},
				map[string]any{"name": "quiet", "image": "quiet"},
				map[string]any{"name": "db", "image": "db", "ports": []any{map[string]any{"name": "mysql", "containerPort": 3306}}},
			},
		},
	}
}

// options are those of the policy's chart.
func options() inject.Options {
	return inject.Options{Image: "localhost/meshctl:dev", Version: "dev"}
}

func TestTheAPIServer(t *testing.T) {
	api := kube.Start(t)
	c := newClient(api)
	// Without the policy, what inject makes: with the API server's defaults.
	cases := map[string]map[string]any{
		"plain": nil,
		"skips": {"skip-inbound-ports": "25, 4567", "skip-outbound-ports": "3306,4000-4010", "skip-subnets": "10.1.0.0/16"},
	}
	want := map[string]map[string]any{}
	for name, annotations := range cases {
		want[name] = injected(t, c, pod(annotations))
	}
	apply(t, api, "base/crds.yaml")
	t.Run("takes the chart", func(t *testing.T) {
		apply(t, api, "base/namespace.yaml")
		apply(t, api, "base/controller.yaml")
		// Nobody serves the webhook here, and it fails closed.
		api.Delete("apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\nmetadata: {name: meshctl-injector}\n")
	})
	apply(t, api, "admission-policy/policy.yaml")
	ready(t, c)
	for name, annotations := range cases {
		t.Run("policy "+name, func(t *testing.T) { samePod(t, c, pod(annotations), want[name]) })
	}
	t.Run("refuses what the policy cannot honour", func(t *testing.T) { refusals(t, c) })
	t.Run("leaves others alone", func(t *testing.T) { others(t, c) })
}

func apply(t *testing.T, api *kube.API, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	api.Apply(string(text))
}

// injected is a pod as `meshctl inject` makes it and the API server takes it.
func injected(t *testing.T, c *client, object map[string]any) map[string]any {
	t.Helper()
	result, err := inject.Pod(object, inject.Namespace{}, options())
	if err != nil {
		t.Fatal(err)
	}
	changed, err := patch.Apply(object, result.Patch)
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.create(t, pods, changed.(map[string]any))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// ready waits until the policies count: the API server reads them after a while.
func ready(t *testing.T, c *client) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		made, err := c.create(t, pods, pod(nil))
		_, limits := c.create(t, pods, pod(map[string]any{"proxy-uid": "1"}))
		if err == nil && limits != nil && len(list(made, "initContainers")) == 3 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the policy does not count: %v, %v, %v", err, limits, made["spec"])
		}
	}
}

func list(pod map[string]any, field string) []any {
	spec, _ := pod["spec"].(map[string]any)
	items, _ := spec[field].([]any)
	return items
}

// samePod compares what the policy adds with what inject adds.
func samePod(t *testing.T, c *client, object, want map[string]any) {
	t.Helper()
	got, err := c.create(t, pods, object)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"initContainers", "containers", "volumes"} {
		if diff := cmp.Diff(list(want, field), list(got, field)); diff != "" {
			t.Errorf("%s: inject, policy:\n%s", field, diff)
		}
	}
	const key = "kubectl.kubernetes.io/default-container"
	if g, w := annotation(got, key), annotation(want, key); g != w || g == "" {
		t.Errorf("%s is %q, inject writes %q", key, g, w)
	}
}

func annotation(pod map[string]any, key string) string {
	meta, _ := pod["metadata"].(map[string]any)
	all, _ := meta["annotations"].(map[string]any)
	s, _ := all[key].(string)
	return s
}

func refusals(t *testing.T, c *client) {
	_, err := c.create(t, pods, pod(map[string]any{"proxy-cpu-request": "1", "opaque-ports": "25"}))
	if err == nil || !strings.Contains(err.Error(), "cannot honour config.linkerd.io/proxy-cpu-request: use") {
		t.Errorf("%v", err)
	}
	host := pod(nil)
	host["spec"].(map[string]any)["hostNetwork"] = true
	if _, err := c.create(t, pods, host); err == nil || !strings.Contains(err.Error(), "network of its host") {
		t.Errorf("%v", err)
	}
}

func others(t *testing.T, c *client) {
	plain := pod(nil)
	delete(plain["metadata"].(map[string]any), "annotations")
	off := pod(nil)
	off["metadata"].(map[string]any)["annotations"] = map[string]any{"linkerd.io/inject": "disabled", "config.linkerd.io/proxy-uid": "7"}
	for name, object := range map[string]map[string]any{"without": plain, "disabled": off} {
		made, err := c.create(t, pods, object)
		if err != nil || len(list(made, "initContainers")) != 1 || len(list(made, "volumes")) != 0 {
			t.Errorf("%s: %v, %v", name, err, made["spec"])
		}
	}
}
