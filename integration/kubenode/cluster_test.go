package kubenode

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/lab"
)

// say prints a part of the transcript at once.
func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func since(t time.Time) time.Duration { return time.Since(t).Round(10 * time.Millisecond) }

// cluster is a node with our things in it.
type cluster struct {
	*Node
	made Made
}

// The controller's addresses.
const (
	controllerAddr = "meshctl-controller.meshctl.svc.cluster.local:8086"
	controllerName = "meshctl-controller.meshctl.serviceaccount.identity.linkerd.cluster.local"
)

// names starts the DNS server that pods ask, on the node.
func (c *cluster) names(t testing.TB) {
	t.Helper()
	c.daemonize(t, "names", c.made.App, "names", Addr+":53", "https://127.0.0.1:6443", c.token)
	c.Apply(t, `apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec:
  clusterIP: `+DNS+`
  ports: [{name: dns, protocol: UDP, port: 53}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kube-dns-node, namespace: kube-system, labels: {kubernetes.io/service-name: kube-dns}}
addressType: IPv4
endpoints: [{addresses: ["`+Addr+`"], conditions: {ready: true}}]
ports: [{name: dns, protocol: UDP, port: 53}]
`)
	c.daemonize(t, "outside", c.made.App, "serve")
}

// version is that of meshctl.
func (m Made) version(t testing.TB) string {
	t.Helper()
	out, err := exec.Command(m.Program, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%-16s %s", "meshctl", firstLine(string(out)))
}

// meshctl runs the program here, without a cluster.
func (c *cluster) meshctl(stdin string, args ...string) (out, errs string, code int, err error) {
	cmd := exec.Command(c.made.Program, args...)
	cmd.Env, cmd.Stdin = lab.Environ(), strings.NewReader(stdin)
	var o, e strings.Builder
	cmd.Stdout, cmd.Stderr = &o, &e
	err = cmd.Run()
	return o.String(), e.String(), cmd.ProcessState.ExitCode(), err
}

// inject gives manifests back as `meshctl inject` writes them.
func (c *cluster) inject(t testing.TB, manifest string, flags ...string) string {
	t.Helper()
	args := append([]string{"inject", "--image=" + Meshctl}, flags...)
	out, errs, _, err := c.meshctl(manifest, append(args, "-")...)
	if err != nil {
		t.Fatalf("inject: %v\n%s", err, errs)
	}
	return out
}

// issue has `meshctl identity` make the certificate of a service account, and puts it
// into a Secret.
func (c *cluster) issue(t testing.TB, namespace, account, secret string) {
	t.Helper()
	ca := c.file("ca")
	if _, err := os.Stat(ca); err != nil {
		if _, errs, _, err := c.meshctl("", "identity", "init", "--dir="+ca); err != nil {
			t.Fatal(err, errs)
		}
	}
	out := filepath.Join(c.Dir, "identity", namespace, account)
	if _, errs, _, err := c.meshctl("", "identity", "issue", "--ca="+ca, "--namespace="+namespace, "--service-account="+account, "--out="+out); err != nil {
		t.Fatal(err, errs)
	}
	c.Kubectl(t, "create", "secret", "generic", secret, "--namespace="+namespace,
		"--from-file="+out+"/tls.crt", "--from-file="+out+"/tls.key", "--from-file="+out+"/ca.crt")
}

// seen is what app probe prints.
type seen struct {
	Local  string `json:"local"`
	Status int    `json:"status"`
	Body   string `json:"body"`
	Rows   []row  `json:"rows"`
}

// row is one of /connections.
type row struct {
	Direction string `json:"direction"`
	Client    string `json:"client"`
	Target    string `json:"target"`
	Service   string `json:"service"`
	Endpoint  string `json:"endpoint"`
	Declared  string `json:"declared"`
	Protocol  string `json:"protocol"`
	Reason    string `json:"reason"`
	TLS       string `json:"tls"`
	ClientID  string `json:"client_id"`
	ServerID  string `json:"server_id"`

	text string // as the proxy wrote it
}

// UnmarshalJSON keeps the text besides.
func (r *row) UnmarshalJSON(b []byte) error {
	type plain row
	err := json.Unmarshal(b, (*plain)(r))
	r.text = string(b)
	return err
}

// probe opens a connection from a pod's application (namespace/pod or
// namespace/deploy/name) to a target. It stays open until the test ends.
func (c *cluster) probe(t testing.TB, from, target string) (seen, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	namespace, pod, _ := strings.Cut(from, "/")
	line := c.KubectlArgs("exec", "-i", "--namespace="+namespace, pod, "-c", "app", "--", "/app", "probe", target)
	cmd := c.Command(ctx, line[0], line[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() {
		in.Close()
		stop := time.AfterFunc(20*time.Second, cancel)
		_ = cmd.Wait() // the probe has said what it had to say
		stop.Stop()
		cancel()
	}
	text, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		end()
		return seen{}, fmt.Errorf("probing %s from %s: %s", target, from, errs.String())
	}
	t.Cleanup(end)
	var s seen
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return seen{}, err
	}
	if len(s.Rows) == 0 {
		return s, fmt.Errorf("the proxy knows nothing of the connection from %s to %s", s.Local, target)
	}
	return s, nil
}

// get has a pod's application ask once.
func (c *cluster) get(from, url string) (string, error) {
	namespace, pod, _ := strings.Cut(from, "/")
	return c.TryKubectl("exec", "--namespace="+namespace, pod, "-c", "app", "--", "/app", "get", url)
}

// connections are the rows of /connections of a pod's proxy.
func (c *cluster) connections(pod string) (rows []row, err error) {
	text, err := c.get(pod, "http://127.0.0.1:4191/connections")
	if err == nil {
		err = json.Unmarshal([]byte(text), &rows)
	}
	return rows, err
}

// value is a JSONPath of an object.
func (c *cluster) value(t testing.TB, namespace, object, path string) string {
	t.Helper()
	return c.Kubectl(t, "get", "--namespace="+namespace, object, "-o", "jsonpath="+path)
}

// wait waits for a condition of objects, which the kubectl that does so looks for.
func (c *cluster) wait(t testing.TB, namespace, condition string, objects ...string) {
	t.Helper()
	args := append([]string{"wait", "--namespace=" + namespace, "--for=" + condition, "--timeout=100s"}, objects...)
	if _, err := c.TryKubectl(args...); err != nil {
		t.Fatalf("%v\n%s\n%s", err, c.Kubectl(t, "get", "pods", "-A", "-o", "wide"), c.Kubectl(t, "get", "events", "--namespace="+namespace))
	}
}
