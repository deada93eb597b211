package kube

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/built"
	"github.com/meshctl/meshctl/integration/child"
	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/destination"
	"github.com/meshctl/meshctl/proxy/discovery/table"
	"github.com/meshctl/meshctl/proxy/policy"
)

// strict is what a namespace of restricted pods asks for.
const strict = `securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}, containers: [{name: app, image: app, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]`

const accountPods = `apiVersion: v1
kind: Pod
metadata: {namespace: meshctl, name: one}
spec: {serviceAccountName: meshctl-controller, ` + strict + `}
---
apiVersion: v1
kind: Pod
metadata: {namespace: meshctl, name: two}
spec: {serviceAccountName: meshctl-controller, ` + strict + `}
`

// account is the directory that a pod has its service account in.
type account struct {
	api *API
	dir string
}

func newAccount(t *testing.T, api *API) *account {
	t.Helper()
	a := &account{api, t.TempDir()}
	ca, err := os.ReadFile(api.Certificate())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(a.dir, "ca.crt"), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// of makes the token one of a pod.
func (a *account) of(t *testing.T, pod string) string {
	t.Helper()
	token := a.api.Token("meshctl", "meshctl-controller", pod)
	fresh := filepath.Join(a.dir, "..token")
	if err := os.WriteFile(fresh, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fresh, filepath.Join(a.dir, "token")); err != nil {
		t.Fatal(err)
	}
	return token
}

// deployed is what deploy/ says of the controller, but for its webhook's address: in a
// cluster kube-proxy leads from the Service to it.
func deployed(t *testing.T, webhook string) string {
	t.Helper()
	var all []string
	for _, name := range []string{"namespace.yaml", "controller.yaml"} {
		text, err := os.ReadFile(filepath.Join("../../deploy/base", name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	service := regexp.MustCompile(`service: \{name: meshctl-injector, namespace: meshctl, path: /inject, port: 443\}`)
	text := strings.Join(all, "\n---\n")
	if !service.MatchString(text) {
		t.Fatal("deploy/base says something else of the webhook's address than this test knows")
	}
	return service.ReplaceAllString(text, `url: "https://`+webhook+`/inject"`)
}

// TestWhatIsDeployed runs the controller, and a proxy, as the pods of deploy/ run it:
// with exactly those rights, and a token of the service account.
func TestWhatIsDeployed(t *testing.T) {
	lab.Require(t) // mounts
	api := Start(t)
	program, remove, err := built.Compile()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remove)
	serve, admin, web := "127.0.0.1:"+freePort(t), "127.0.0.1:"+freePort(t), "localhost:"+freePort(t)
	api.Apply(api.GatewayAPI())
	api.Apply(Linkerd())
	api.Apply(deployed(t, web))
	api.Apply(shop)
	api.Apply(accountPods)
	run := newAccount(t, api)
	old := run.of(t, "one")

	t.Run("while the webhook is away", func(t *testing.T) { webhookAway(t, api.On(t)) })
	t.Run("no further rights", func(t *testing.T) { noFurtherRights(t, api.On(t), old) })

	within := api.InCluster(program, run.dir)
	log := filepath.Join(t.TempDir(), "controller.log")
	args := []string{"controller", "--kubernetes", "--insecure", "--listen=" + serve, "--admin-listen=" + admin,
		"--webhook-listen=127.0.0.1:" + web[strings.IndexByte(web, ':')+1:], "--webhook-configuration=meshctl-injector", "--webhook-service=localhost", "--webhook-image=localhost/meshctl:test"}
	c := child.Start(t, log, nil, within, args...)
	t.Cleanup(c.Kill)
	told := func() string { b, _ := os.ReadFile(log); return string(b) }
	eventually(t, func() (string, bool) { return told(), ready(admin) || c.Ended() }, "the controller gets ready")
	client := asking(t, serve)
	client.becomes(t, "10.0.1.1:80", "to 10.244.0.1:8080")
	p := built.Start(t, within, netip.MustParseAddrPort("10.0.1.1:81"), "--kubernetes", "--namespace=shop")
	eventually(t, func() (string, bool) { return p.Logged(t), p.Sample(t).Sum("meshctl_kubernetes_synced") == 1 }, "the proxy has a picture")
	for who, text := range map[string]string{"controller": told(), "proxy": p.Logged(t)} {
		if strings.Contains(text, "forbid") || strings.Contains(text, "level=WARN") || strings.Contains(text, "level=ERROR") {
			t.Errorf("the rights of deploy/ are not enough for the %s:\n%s", who, text)
		}
	}
	t.Run("the webhook of the chart", func(t *testing.T) { chartWebhook(t, api.On(t)) })

	t.Run("a new token", func(t *testing.T) { newToken(t, api.On(t), run, old, client, p) })

	c.Kill()
	t.Run("while the controller is away", func(t *testing.T) { webhookAway(t, api.On(t)) })
	c = child.Start(t, log, nil, within, args...)
	t.Cleanup(c.Kill)
	eventually(t, func() (string, bool) { return told(), ready(admin) || c.Ended() }, "the controller gets ready again")
	t.Run("and back", func(t *testing.T) { chartWebhook(t, api.On(t)) })
}

func ready(admin string) bool {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + admin + "/ready")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// asking is a client of the controller.
func asking(t *testing.T, addr string) watched {
	t.Helper()
	c, err := destination.Open(destination.Config{Addrs: []string{addr}, Namespace: "shop", Opaque: policy.DefaultOpaque()})
	if err != nil {
		t.Fatal(err)
	}
	w := watched{Cache: discovery.NewCache(discovery.CacheConfig{}, c)}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); c.Run(ctx, w.Cache) }()
	t.Cleanup(func() { stop(); <-ended })
	return w
}

// noFurtherRights holds the service account to what the documentation says of it.
func noFurtherRights(t *testing.T, api *API, token string) {
	for _, may := range []string{"/api/v1/services", "/api/v1/pods", "/api/v1/namespaces", "/apis/discovery.k8s.io/v1/endpointslices", "/apis/policy.linkerd.io/v1beta3/servers",
		"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/meshctl-injector"} {
		eventually(t, func() (string, bool) { // the API server hears of a role a moment later
			err := api.as(token, http.MethodGet, may, nil, nil)
			return fmt.Sprint(err), err == nil
		}, "GET %s", may)
	}
	for _, ask := range [][2]string{
		{http.MethodGet, "/api/v1/secrets"}, {http.MethodGet, "/api/v1/configmaps"}, {http.MethodGet, "/api/v1/nodes"}, {http.MethodGet, "/apis/apps/v1/deployments"},
		{http.MethodPost, "/api/v1/namespaces/shop/pods"}, {http.MethodDelete, "/api/v1/namespaces/shop/services/web"}, {http.MethodPost, "/api/v1/namespaces/meshctl/serviceaccounts/meshctl-controller/token"},
		{http.MethodGet, "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"}, {http.MethodGet, "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/other"},
		{http.MethodDelete, "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/meshctl-injector"},
	} {
		if err := api.as(token, ask[0], ask[1], []byte("{}"), nil); err == nil || !strings.HasPrefix(err.Error(), "403") {
			t.Errorf("%s %s: %v, want 403", ask[0], ask[1], err)
		}
	}
}

// makePod creates a pod and deletes it again; made is what it became.
func makePod(t *testing.T, api *API, namespace, more, spec string) (made string, err error) {
	t.Helper()
	text := "apiVersion: v1\nkind: Pod\nmetadata: {namespace: " + namespace + ", name: web" + more + "}\nspec: {" + spec + strict + "}\n"
	if err := api.try(http.MethodPost, "/api/v1/namespaces/"+namespace+"/pods", "application/yaml", []byte(text)); err != nil {
		return "", err
	}
	defer api.Delete(text)
	return containers(t, api, namespace+"/pods/web"), nil
}

const otherSpaces = `apiVersion: v1
kind: Namespace
metadata: {name: unhooked, labels: {config.linkerd.io/admission-webhooks: disabled}}
---
apiVersion: v1
kind: Namespace
metadata: {name: quiet, annotations: {linkerd.io/inject: disabled}}
`

// webhookAway: pods that would be meshed do not start without, and all others do.
func webhookAway(t *testing.T, api *API) {
	api.Apply(otherSpaces)
	eventually(t, func() (string, bool) { // the API server reads the configuration a moment later
		_, err := makePod(t, api, "shop", "", "")
		return fmt.Sprint(err), err != nil && strings.Contains(err.Error(), "failed calling webhook")
	}, "a pod that nobody can inject is refused (failurePolicy: Fail)")
	for _, pod := range [][3]string{
		{"unhooked", "", ""}, {"kube-system", "", ""}, {"meshctl", "", ""}, {"shop", ", annotations: {linkerd.io/inject: disabled}", ""}, {"shop", "", "hostNetwork: true, "},
	} {
		made, err := makePod(t, api, pod[0], pod[1], pod[2])
		if err != nil || strings.Contains(made, "meshctl") {
			t.Errorf("a pod %q is %s, %v", pod, made, err)
		}
	}
}

// chartWebhook: the controller injects what the configuration of deploy/ sends it.
func chartWebhook(t *testing.T, api *API) {
	api.Apply(otherSpaces)
	eventually(t, func() (string, bool) {
		made, err := makePod(t, api, "shop", "", "")
		return fmt.Sprint(made, err), err == nil && strings.Contains(made, "localhost/meshctl:test")
	}, "a pod is injected")
	for _, pod := range [][3]string{{"unhooked", "", ""}, {"quiet", "", ""}, {"meshctl", "", ""}, {"shop", ", annotations: {linkerd.io/inject: disabled}", ""}, {"shop", "", "hostNetwork: true, "}} {
		made, err := makePod(t, api, pod[0], pod[1], pod[2])
		if err != nil || strings.Contains(made, "meshctl") {
			t.Errorf("a pod %q is %s, %v", pod, made, err)
		}
	}
}

// newToken: the kubelet writes another token, and the old one ends. client-go reads
// the file once a minute.
func newToken(t *testing.T, api *API, run *account, old string, client watched, p *built.Proxy) {
	if os.Getenv("MESHCTL_KUBE") != "require" {
		t.Skip("takes a minute: make kube-test runs it")
	}
	run.of(t, "two")
	api.Delete(strings.Split(accountPods, "---")[0])
	api.Down() // every request is a new one
	api.Up()
	eventually(t, func() (string, bool) {
		err := api.as(old, http.MethodGet, "/api/v1/services", nil, nil)
		return fmt.Sprint(err), err != nil && strings.HasPrefix(err.Error(), "401")
	}, "the old token ends")
	before := p.Sample(t).Sum("meshctl_kubernetes_changes_total")
	api.Apply(otherEndpoint)
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		told := strings.Contains(table.Text(client.Resolve(netip.MustParseAddrPort("10.0.1.1:80")).View()), "to 10.244.0.2:8080")
		if told && p.Sample(t).Sum("meshctl_kubernetes_changes_total") > before {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the new token is not used; the controller: %t, the proxy:\n%s", told, p.Logged(t))
		}
	}
}
