package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/integration/servers"
)

// app is the user that applications run as: neither root nor the proxy.
var app = lab.Owner{UID: 1000, GID: 1000}

// pod is a namespace behind a running meshctl, with a peer as the rest of the world.
type pod struct {
	*lab.Net
	proxy *servers.Process
	http  *http.Client // speaks to the admin port from inside
}

// proxyUID is a user of the proxies of this test run alone, so that nobody who ends
// proxies by their usual user ends these.
var proxyUID = strconv.Itoa(20000 + os.Getpid()%10000)

// mesh runs `meshctl redirect --netns POD -- FLAGS` and returns once the proxy is
// ready.
func mesh(t *testing.T, n *lab.Net, flags ...string) *pod {
	t.Helper()
	return redirected(t, n, append([]string{"--"}, flags...)...)
}

// redirected runs `meshctl redirect --netns POD FLAGS` and returns once the proxy is
// ready.
func redirected(t *testing.T, n *lab.Net, flags ...string) *pod {
	t.Helper()
	cmd := exec.Command(meshctl, append([]string{"redirect", "--netns", n.Pod.Path(), "--proxy-uid", proxyUID}, flags...)...)
	cmd.Env = lab.Environ()
	p := &pod{Net: n, proxy: servers.Start(t, cmd)}
	transport := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return n.Pod.Dial(app, netip.AddrPort{}, netip.MustParseAddrPort("127.0.0.1:4191"), time.Second)
		},
		DisableKeepAlives: true,
	}
	p.http = &http.Client{Transport: transport, Timeout: 5 * time.Second}
	p.awaitReady(t)
	return p
}

func (p *pod) awaitReady(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); ; {
		resp, err := p.http.Get("http://localhost/ready")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
			err = fmt.Errorf("status %d", resp.StatusCode)
		}
		select {
		case <-p.proxy.Gone():
			t.Fatalf("meshctl ended: %v\n%s", p.proxy.State(), p.proxy.Log())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("the proxy is not ready: %v\n%s", err, p.proxy.Log())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// seen is what /connections says of one connection.
type seen struct {
	Direction, Client, Target, Protocol, Detected, Reason, SNI string
}

// connection returns what the proxy says of the one connection that is open to target,
// once it has decided about it. The client's port is no key: where many ports are
// redirected to one, the kernel may give a second connection from it another port.
func (p *pod) connection(t *testing.T, target netip.AddrPort) seen {
	t.Helper()
	var all, here []seen
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		all = nil
		if err := json.Unmarshal(p.get(t, "/connections"), &all); err != nil {
			t.Fatalf("/connections: %v", err)
		}
		here = slices.DeleteFunc(slices.Clone(all), func(s seen) bool { return s.Target != target.String() })
		if len(here) == 1 && here[0].Reason != "" && here[0].Reason != "unknown" {
			return here[0]
		}
	}
	t.Fatalf("/connections has not one to %s: %v\n%s", target, all, p.proxy.Log())
	return seen{}
}

func (p *pod) get(t *testing.T, path string) []byte {
	t.Helper()
	resp, err := p.http.Get("http://localhost" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v: %s", path, resp.Status, err, b)
	}
	return b
}

// counter is the sum of a metric's series that have all of these labels.
func (p *pod) counter(t *testing.T, name string, labels map[string]string) float64 {
	t.Helper()
	resp, err := p.http.Get("http://localhost/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatalf("/metrics: %v", err)
	}
	sum := 0.0
	for _, m := range families[name].GetMetric() {
		if has(m, labels) {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum
}

// awaitCounter waits until a metric has grown by n since before: the proxy counts
// a moment after the client has its answer.
func (p *pod) awaitCounter(t *testing.T, name string, labels map[string]string, before, n float64) {
	t.Helper()
	got := 0.0
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if got = p.counter(t, name, labels) - before; got >= n {
			break
		}
	}
	if got != n {
		t.Errorf("%s%v grew by %v, want %v", name, labels, got, n)
	}
}

func has(m *dto.Metric, labels map[string]string) bool {
	found := 0
	for _, l := range m.GetLabel() {
		if want, ok := labels[l.GetName()]; ok && want == l.GetValue() {
			found++
		}
	}
	return found == len(labels)
}
