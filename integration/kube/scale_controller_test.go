package kube

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/child"
	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/destination"
	"github.com/meshctl/meshctl/proxy/policy"
)

// The clients of the controller, and how many destinations each of them uses.
const (
	bigClients = 50
	perClient  = 20
)

// controllerScale measures a controller on the big cluster, with many clients, and a
// proxy that is one of them.
func controllerScale(t *testing.T, api *API) {
	serve, admin := "127.0.0.1:"+freePort(t), "127.0.0.1:"+freePort(t)
	began := time.Now()
	c := startProgram(t, api, "controller", "--kubeconfig="+api.Kubeconfig(Admin), "--insecure", "--listen="+serve, "--admin-listen="+admin)
	eventually(t, func() (string, bool) { return "", ready(admin) || c.Ended() }, "the controller gets ready")
	t.Logf("controller: ready after %s", time.Since(began).Round(10*time.Millisecond))
	time.Sleep(5 * time.Second)
	rss, cpu := proc(t, c.PID())
	t.Logf("controller with the picture: %d kB resident, %s of CPU so far", rss, cpu)

	began = time.Now()
	var first *discovery.Cache
	var held []*discovery.Target // what connections hold
	for i := range bigClients {
		client, err := destination.Open(destination.Config{Addrs: []string{serve}, Namespace: "big", Opaque: policy.DefaultOpaque()})
		if err != nil {
			t.Fatal(err)
		}
		cache := discovery.NewCache(discovery.CacheConfig{}, client)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); client.Run(ctx, cache) }()
		t.Cleanup(func() { stop(); <-ended })
		uses := perClient
		if first == nil {
			first, uses = cache, 200 // it sees every change
		}
		for n := range uses {
			held = append(held, cache.Resolve(netip.MustParseAddrPort(bigIP(inUse(i*perClient+n))+":80")))
		}
	}
	eventually(t, func() (string, bool) {
		for _, target := range held {
			if v := target.View(); v.Pending || v.Kind != discovery.ServicePort || len(v.Endpoints) < perService-1 {
				return v.String(), false
			}
		}
		return "", true
	}, "all clients know their destinations")
	t.Logf("%d clients knew %d destinations after %s", bigClients, len(held), time.Since(began).Round(10*time.Millisecond))
	p := startProgram(t, api, "proxy", "--destination="+serve, "--namespace=big")
	time.Sleep(5 * time.Second)
	rss, _ = proc(t, c.PID())
	t.Logf("controller with clients: %d kB resident", rss)
	churn(t, api, first, map[string]*child.Process{"controller": c, "proxy that asks it": p})
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("load average %s", strings.Join(strings.Fields(string(load))[:3], " "))
}
