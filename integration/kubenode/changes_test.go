package kubenode

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// appProtocol changes what a Service's port is, for a proxy that runs.
func appProtocol(t *testing.T, c *cluster) {
	c.Kubectl(t, "patch", "svc", "web", "--namespace=shop", "--type=json", `-p=[{"op":"add","path":"/spec/ports/0/appProtocol","value":"linkerd.io/opaque"}]`)
	began := time.Now()
	c.reaches(t, "shop/deploy/client", webURL, wanted{Protocol: "opaque", Declared: `appProtocol "linkerd.io/opaque"`})
	say("appProtocol linkerd.io/opaque counts after %v", since(began))
	c.Kubectl(t, "patch", "svc", "web", "--namespace=shop", "--type=json", `-p=[{"op":"remove","path":"/spec/ports/0/appProtocol"}]`)
	began = time.Now()
	c.reaches(t, "shop/deploy/client", webURL, wanted{Protocol: "http/1"})
	say("without it the port is HTTP again after %v", since(began))
	c.unrestarted(t)
}

// opaqueAnnotation changes what a pod's own port is; the kubelet writes the pod's
// annotations anew into the volume that the proxy follows.
func opaqueAnnotation(t *testing.T, c *cluster) {
	url := "http://" + c.value(t, "shop", "pod/plain", "{.status.podIP}") + ":8080/"
	is := func(protocol string) {
		t.Helper()
		c.until(t, "the port is "+protocol, 2*time.Minute, func() error {
			r, err := c.inbound(t, "shop/plain", url)
			if err == nil && r.Protocol != protocol {
				err = fmt.Errorf("%+v", r)
			}
			return err
		})
	}
	is("http/1")
	began := time.Now()
	c.Kubectl(t, "annotate", "pod", "plain", "--namespace=shop", "config.linkerd.io/opaque-ports=8080")
	is("opaque")
	say("opaque-ports of the pod counts after %v", since(began))
	c.Kubectl(t, "annotate", "pod", "plain", "--namespace=shop", "config.linkerd.io/opaque-ports-")
	is("http/1")
	c.unrestarted(t)
}

// inbound connects from the node to a pod, and returns what the pod's proxy says of it.
func (c *cluster) inbound(t testing.TB, pod, url string) (row, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cmd := c.Command(ctx, c.made.App, "probe", url)
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
	defer func() {
		in.Close()
		_ = cmd.Wait() // it has said what it had to say
	}()
	var s seen
	if err := json.NewDecoder(bufio.NewReader(out)).Decode(&s); err != nil {
		return row{}, err
	}
	rows, err := c.connections(pod)
	for _, r := range rows {
		if r.Direction == "inbound" && r.Client == s.Local {
			return r, nil
		}
	}
	return row{}, fmt.Errorf("no connection from %s: %+v, %v", s.Local, rows, err)
}

// unrestarted fails the test if a container has been restarted.
func (c *cluster) unrestarted(t testing.TB) {
	t.Helper()
	counts := c.value(t, "shop", "pods", `{range .items[*]}{.status.containerStatuses[*].restartCount} {.status.initContainerStatuses[*].restartCount} {end}`)
	for _, r := range counts {
		if r != '0' && r != ' ' {
			t.Errorf("containers have been restarted: %s", counts)
			return
		}
	}
}
