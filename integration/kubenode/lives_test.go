package kubenode

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

const job = `apiVersion: batch/v1
kind: Job
metadata: {name: once, namespace: shop}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      automountServiceAccountToken: false
      initContainers:
      - ` + appContainer + `, args: [get, "` + webURL + `"]}
      containers:
      - ` + appContainer + `, args: [get, "` + webURL + `"]}
`

// jobs end although the proxy does not, and their init containers have network.
func jobs(t *testing.T, c *cluster) {
	began := time.Now()
	manifest := strings.Replace(job, "{name: app", "{name: before", 1)
	c.Apply(t, c.inject(t, manifest))
	c.wait(t, "shop", "condition=Complete", "job/once")
	for _, name := range []string{"before", "app"} {
		text := c.Kubectl(t, "logs", "--namespace=shop", "job/once", "-c", name)
		if !strings.Contains(text, `"host":"web-`) {
			t.Errorf("container %s has heard %q", name, text)
		}
	}
	phase := c.value(t, "shop", "pods", `{.items[?(@.metadata.labels.job-name=="once")].status.phase}`)
	say("the Job has ended after %v, its pod is %s; its init container and its container had network", since(began), phase)
}

const ordinary = `apiVersion: v1
kind: Pod
metadata: {name: ordinary, namespace: shop}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 3
  initContainers:
  - {name: early, image: "` + App + `", imagePullPolicy: Never, args: [get, "` + webURL + `"], securityContext: {runAsUser: 2102, runAsNonRoot: true}}
  containers:
  - ` + appContainer + `, args: [get, "` + webURL + `"]}
`

// ordinaryContainer is a proxy that is no native sidecar: an init container has
// network as the proxy's user only, and the application waits for the proxy.
func ordinaryContainer(t *testing.T, c *cluster) {
	c.Apply(t, c.inject(t, ordinary, "--no-native-sidecar"))
	c.until(t, "the application has ended", 100*time.Second, func() error {
		code := c.value(t, "shop", "pod/ordinary", `{.status.containerStatuses[?(@.name=="app")].state.terminated.exitCode}`)
		if code != "0" {
			return fmt.Errorf("exit code %q: %s", code, c.value(t, "shop", "pod/ordinary", "{.status}"))
		}
		return nil
	})
	proxy := c.value(t, "shop", "pod/ordinary", `{.status.containerStatuses[?(@.name=="linkerd-proxy")].state.running.startedAt}`)
	app := c.value(t, "shop", "pod/ordinary", `{.status.containerStatuses[?(@.name=="app")].state.terminated.startedAt}`)
	say("without a native sidecar: the proxy started at %s, the application at %s, and its first request was answered", proxy, app)
	if proxy == "" || app < proxy {
		t.Error("the application has not waited for the proxy")
	}
	c.Kubectl(t, "delete", "pod", "ordinary", "--namespace=shop", "--wait=false")
}

// sandbox has a pod's sandbox killed: the kubelet makes another one, with another
// network namespace, and the init container has to write the rules again.
func sandbox(t *testing.T, c *cluster) {
	before := c.value(t, "shop", "pod/plain", "{.status.podIP}")
	c.reaches(t, "shop/plain", webURL, wanted{})
	id, err := c.Ctr("containers", "ls", "-q", `labels."io.cri-containerd.kind"==sandbox,labels."io.kubernetes.pod.name"==plain`)
	if err != nil || id == "" {
		t.Fatalf("the sandbox of plain: %q, %v", id, err)
	}
	if _, err := c.Ctr("tasks", "kill", "-s", "KILL", id); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var after string
	c.until(t, "the pod is back", 100*time.Second, func() error {
		after = c.value(t, "shop", "pod/plain", "{.status.podIP}")
		ready := c.value(t, "shop", "pod/plain", `{.status.conditions[?(@.type=="Ready")].status}`)
		if after == "" || after == before || ready != "True" {
			return fmt.Errorf("address %s, ready %s", after, ready)
		}
		return nil
	})
	c.reaches(t, "shop/plain", webURL, wanted{})
	tables := c.rules(t, "shop", "plain", "linkerd-proxy")
	if !strings.Contains(tables, "meshctl") {
		t.Errorf("the tables of the new sandbox: %s", tables)
	}
	if r, err := c.inbound(t, "shop/plain", "http://"+after+":8080/"); err != nil {
		t.Errorf("what comes in is not redirected: %+v, %v", r, err)
	}
	say("sandbox killed: %s is %s after %v, rules (%s) and traffic are back", before, after, since(began), tables)
}

// loaded is what app load prints.
type loaded struct {
	Kept, New, Failed int
	Failures          []string
	Hosts             map[string]int
	Longest           time.Duration
}

// load asks from a pod without a pause until end is called.
func (c *cluster) load(t testing.TB, from, url string) (end func() loaded) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	namespace, pod, _ := strings.Cut(from, "/")
	line := c.KubectlArgs("exec", "-i", "--namespace="+namespace, pod, "-c", "app", "--", "/app", "load", url)
	cmd := c.Command(ctx, line[0], line[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() (l loaded) {
		t.Helper()
		in.Close()
		if err := json.NewDecoder(bufio.NewReader(out)).Decode(&l); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it has said what it had to say
		return l
	}
}

// rollout replaces every pod of a Deployment while a meshed client asks: no request
// fails.
func rollout(t *testing.T, c *cluster) {
	end := c.load(t, "shop/deploy/client", webURL)
	began := time.Now()
	c.Kubectl(t, "rollout", "restart", "deploy/web", "--namespace=shop")
	c.Kubectl(t, "rollout", "status", "deploy/web", "--namespace=shop", "--timeout=110s")
	replaced := since(began)
	c.until(t, "the old pods are gone", time.Minute, func() error {
		names := strings.Fields(c.value(t, "shop", "pods", `{.items[?(@.metadata.labels.app=="web")].metadata.name}`))
		if len(names) != 2 {
			return fmt.Errorf("%s", names)
		}
		return nil
	})
	l := end()
	say("rolling restart in %v: %d requests on kept connections, %d on new ones, %d failed, the longest took %v; answered by %v",
		replaced, l.Kept, l.New, l.Failed, l.Longest.Round(time.Millisecond), l.Hosts)
	if l.Failed != 0 || l.Kept == 0 || l.New == 0 {
		t.Errorf("failed: %s", strings.Join(l.Failures, "\n"))
	}
	if len(l.Hosts) < 4 {
		t.Errorf("only %v have answered: nothing was replaced under load", l.Hosts)
	}
}
