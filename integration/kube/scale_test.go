package kube

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/child"
	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/discovery/kube"
)

// The big cluster: services with a slice of ten endpoints each.
const (
	bigServices = 5000
	perService  = 10
	perMinute   = 1000
	churnFor    = 60 * time.Second
)

// bigIP is the cluster address of a Service.
func bigIP(i int) string { return fmt.Sprintf("10.0.%d.%d", 16+i/250, 1+i%250) }

// bigSlice is the slice of a Service; its first endpoint is not ready if down.
func bigSlice(i int, down bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"namespace":"big","name":"s%[1]d-1","labels":{"kubernetes.io/service-name":"s%[1]d"}},`+
		`"addressType":"IPv4","ports":[{"name":"main","port":8080}],"endpoints":[`, i)
	for e := range perService {
		if e > 0 {
			b.WriteByte(',')
		}
		n := i*perService + e
		fmt.Fprintf(&b, `{"addresses":["10.%d.%d.%d"],"conditions":{"ready":%t},"nodeName":"node-%d","zone":"zone-%d","targetRef":{"kind":"Pod","namespace":"big","name":"s%d-%d"}}`,
			100+n/62500, n/250%250, 1+n%250, e > 0 || !down, n%500, n%3, i, e)
	}
	b.WriteString("]}")
	return b.String()
}

// many makes n objects with some requests at a time.
func many(t *testing.T, n int, one func(i int) error) {
	t.Helper()
	var next, failed sync.Mutex
	at := 0
	var first error
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for {
				next.Lock()
				i := at
				at++
				next.Unlock()
				if i >= n {
					return
				}
				if err := one(i); err != nil {
					failed.Lock()
					first = err
					failed.Unlock()
					return
				}
			}
		})
	}
	workers.Wait()
	if first != nil {
		t.Fatal(first)
	}
}

// proc is a number of a process: resident memory in kB, and CPU time.
func proc(t *testing.T, pid int) (rss int, cpu time.Duration) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			rss, _ = strconv.Atoi(strings.Fields(rest)[0])
		}
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))
	user, _ := strconv.Atoi(f[11]) // utime and stime in hundredths of a second: proc_pid_stat(5)
	system, _ := strconv.Atoi(f[12])
	return rss, time.Duration(user+system) * 10 * time.Millisecond
}

// TestScale prints the figures of docs/scale.md. It takes some minutes, so it has to
// be asked for: make kube-scale.
func TestScale(t *testing.T) {
	if os.Getenv("MESHCTL_KUBE_SCALE") == "" {
		t.Skip("takes minutes: make kube-scale runs it")
	}
	api := Start(t)
	api.Apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: big}\n")
	began := time.Now()
	post := func(path, body string) error { return api.try(http.MethodPost, path, "application/json", []byte(body)) }
	many(t, bigServices, func(i int) error {
		return post("/api/v1/namespaces/big/services", fmt.Sprintf(`{"metadata":{"name":"s%d"},"spec":{"clusterIP":%q,"ports":[{"name":"main","port":80}]}}`, i, bigIP(i)))
	})
	many(t, bigServices, func(i int) error {
		return post("/apis/discovery.k8s.io/v1/namespaces/big/endpointslices", bigSlice(i, false))
	})
	t.Logf("%d Services and %d endpoints made in %s", bigServices, bigServices*perService, time.Since(began).Round(time.Second))

	began = time.Now()
	w := watch(t, kube.Config{Kubeconfig: api.Kubeconfig(Admin), Cluster: cluster.Config{Namespace: "big"}}).synced(t)
	t.Logf("first picture: %d objects in %s", w.State().Objects, time.Since(began).Round(time.Millisecond))
	for i := range 200 { // destinations in use
		w.Resolve(netip.MustParseAddrPort(bigIP(i*25) + ":80"))
	}
	p := startProgram(t, api, "proxy", "--kubeconfig="+api.Kubeconfig(Admin), "--namespace=big")
	time.Sleep(5 * time.Second)
	rss, cpu := proc(t, p.PID())
	t.Logf("proxy with the picture: %d kB resident, %s of CPU so far", rss, cpu)
	churn(t, api, w.Cache, map[string]*child.Process{"proxy": p})
	p.Kill()
	controllerScale(t, api)
}

// inUse is one of the 200 Services that something goes to.
func inUse(i int) int { return i % 200 * 25 }

// churn changes slices of Services in use, measures how long it takes until the
// View is another, and what it costs programs.
func churn(t *testing.T, api *API, cache *discovery.Cache, programs map[string]*child.Process) {
	t.Helper()
	before := map[string]time.Duration{}
	for name, p := range programs {
		_, before[name] = proc(t, p.PID())
	}
	var delays []time.Duration
	every := time.NewTicker(time.Minute / perMinute)
	defer every.Stop()
	began := time.Now()
	for i := 0; time.Since(began) < churnFor; i++ {
		<-every.C
		at := inUse(i)
		target := cache.Resolve(netip.MustParseAddrPort(bigIP(at) + ":80"))
		view := target.View()
		down := len(view.Endpoints) == perService // it becomes what it is not
		if err := api.try(http.MethodPut, fmt.Sprintf("/apis/discovery.k8s.io/v1/namespaces/big/endpointslices/s%d-1", at), "application/json", []byte(bigSlice(at, down))); err != nil {
			t.Fatal(err)
		}
		sent := time.Now()
		if i%10 == 0 {
			for target.View() == view && time.Since(sent) < 30*time.Second {
				time.Sleep(time.Millisecond)
			}
			delays = append(delays, time.Since(sent))
		}
	}
	took := time.Since(began)
	slices.Sort(delays)
	t.Logf("from the API server's answer to the new View: median %s, 99th of 100 %s, of %d", delays[len(delays)/2].Round(time.Millisecond),
		delays[len(delays)*99/100].Round(time.Millisecond), len(delays))
	for name, p := range programs {
		rss, cpu := proc(t, p.PID())
		t.Logf("%s during %s of about %d changes a minute: %s of CPU, %.1f %% of a core, %d kB resident",
			name, took.Round(time.Second), perMinute, cpu-before[name], 100*(cpu-before[name]).Seconds()/took.Seconds(), rss)
	}
	if delays[len(delays)-1] >= 30*time.Second {
		t.Error("a change was never seen")
	}
}

// startProgram runs a command of bin/meshctl beside the test.
func startProgram(t *testing.T, api *API, command string, flags ...string) *child.Process {
	t.Helper()
	program, err := filepath.Abs("../../bin/meshctl")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath(program); err != nil {
		t.Fatalf("make build: %v", err)
	}
	if command == "proxy" {
		port := func() string { return "127.0.0.1:" + freePort(t) }
		flags = append([]string{"--inbound-listen=" + port(), "--outbound-listen=" + port(), "--admin-listen=" + port()}, flags...)
	}
	p := child.Start(t, filepath.Join(api.dir, command+".log"), nil, program, append([]string{command}, flags...)...)
	t.Cleanup(p.Kill)
	return p
}
